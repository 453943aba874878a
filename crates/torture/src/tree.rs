//! Directory trees: list, copy, hash.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Result;
use std::path::{Path, PathBuf};

/// The relative paths of all files below a directory, sorted.
///
/// # Errors
/// A directory cannot be read.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    collect(dir, Path::new(""), &mut found)?;
    found.sort();
    Ok(found)
}

fn collect(dir: &Path, within: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir.join(within))? {
        let entry = entry?;
        let path = within.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(dir, &path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// Copies a directory with all files below it.
///
/// # Errors
/// A file cannot be read or created.
pub fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else {
            fs::copy(&from, &to)?;
        }
    }
    Ok(())
}

/// The hash of every file below a directory.
///
/// # Errors
/// A file cannot be read.
pub fn hashes(dir: &Path) -> Result<BTreeMap<PathBuf, u64>> {
    files(dir)?
        .into_iter()
        .map(|file| {
            let hash = hash(&fs::read(dir.join(&file))?);
            Ok((file, hash))
        })
        .collect()
}

/// A hash of bytes.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

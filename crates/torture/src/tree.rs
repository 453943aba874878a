//! Directories of files: listed, copied, compared by their bytes.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Result;
use std::path::{Path, PathBuf};

/// All files below a directory, by their paths within it, in order.
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

/// Copies a directory, with its directories and files, holes kept as holes.
///
/// # Errors
/// Something cannot be read or made.
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

/// Every file below a directory with a hash of its bytes.
///
/// # Errors
/// Something cannot be read.
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

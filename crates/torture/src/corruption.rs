//! Damages one file of a closed store.

use std::fs::{self, File, OpenOptions};
use std::io::{Result, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use crate::random::Random;
use crate::tree;

/// The kind of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// One bit is flipped.
    Flip,
    /// Up to 4 KiB are set to zero.
    Zero,
    /// The end is missing.
    Truncate,
    /// The end is truncated.
    Extend,
    /// The file is missing.
    Delete,
    /// The file and another one have exchanged their contents.
    Swap,
    /// The file has an earlier content.
    Older,
}

const KINDS: &[Kind] = &[
    Kind::Flip,
    Kind::Flip,
    Kind::Zero,
    Kind::Truncate,
    Kind::Extend,
    Kind::Delete,
    Kind::Swap,
    Kind::Older,
];

/// The damage that was done.
#[derive(Debug)]
pub struct Corruption {
    /// The kind.
    pub kind: Kind,
    /// The damaged file, relative to the store.
    pub file: PathBuf,
    /// A description.
    pub description: String,
    /// The hashes of the damaged files.
    pub hashes: Vec<u64>,
}

/// Damages a random file of the store. `older` is a copy of the store from an earlier time.
///
/// # Errors
/// A file cannot be read or written, or the store has no files.
pub fn damage(store: &Path, older: &Path, random: &mut Random) -> Result<Corruption> {
    let mut files = tree::files(store)?;
    // Neither has content.
    files.retain(|file| !file.ends_with("LOCK") && !file.ends_with("RESERVE"));
    for _ in 0..1000 {
        let kind = *random.pick(KINDS);
        let file = random.pick(&files).clone();
        let other = random.pick(&files).clone();
        let path = store.join(&file);
        let before = fs::read(&path)?;
        let description = match kind {
            Kind::Swap => {
                let others = fs::read(store.join(&other))?;
                if others == before || name_the_engine(&file, &other) {
                    continue;
                }
                fs::write(&path, &others)?;
                fs::write(store.join(&other), &before)?;
                format!("{} and {} swapped", file.display(), other.display())
            }
            Kind::Older => match fs::read(older.join(&file)) {
                Ok(bytes) if bytes != before => {
                    fs::write(&path, &bytes)?;
                    format!("{} is an older copy, {} bytes", file.display(), bytes.len())
                }
                _ => continue,
            },
            kind => match change(kind, &path, &before, random)? {
                Some(what) => format!("{} of {} bytes: {what}", file.display(), before.len()),
                None => continue,
            },
        };
        let damaged = match kind {
            Kind::Swap => vec![&file, &other],
            Kind::Delete => vec![],
            _ => vec![&file],
        };
        let hashes = damaged.into_iter().map(|file| Ok(tree::hash(&fs::read(store.join(file))?)));
        let hashes = hashes.collect::<Result<_>>()?;
        return Ok(Corruption { kind, file, description, hashes });
    }
    Err(std::io::Error::other(format!("{} has no file to damage", store.display())))
}

/// Whether two files are CATALOG and a manifest. They alone say which engine a table has, and
/// without both repair refuses the table.
fn name_the_engine(one: &Path, other: &Path) -> bool {
    let is_manifest = |path: &Path| {
        path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"MANIFEST"))
    };
    one.ends_with("CATALOG") && is_manifest(other) || other.ends_with("CATALOG") && is_manifest(one)
}

/// Changes one file; `None` if its content would stay the same.
fn change(kind: Kind, path: &Path, before: &[u8], random: &mut Random) -> Result<Option<String>> {
    let len = before.len() as u64;
    if len == 0 && kind != Kind::Extend && kind != Kind::Delete {
        return Ok(None);
    }
    let file = OpenOptions::new().write(true).open(path)?;
    Ok(Some(match kind {
        Kind::Flip => {
            let at = random_offset(before, random);
            let bit = random.below(8);
            file.write_all_at(&[before[at as usize] ^ (1 << bit)], at)?;
            format!("bit {bit} of byte {at} flipped")
        }
        Kind::Zero => {
            let at = random_offset(before, random);
            let count = random.between(1, 4096).min(len - at);
            let stretch = &before[at as usize..(at + count) as usize];
            if stretch.iter().all(|&byte| byte == 0) {
                return Ok(None);
            }
            file.write_all_at(&vec![0; count as usize], at)?;
            format!("{count} bytes from byte {at} on zeroed")
        }
        Kind::Truncate => {
            let at = random_offset(before, random);
            file.set_len(at)?;
            format!("cut to {at} bytes")
        }
        Kind::Extend => {
            let mut bytes = vec![0; random.between(1, 100) as usize];
            let is_zero = random.percent(30);
            if !is_zero {
                random.fill(&mut bytes);
            }
            let what = if is_zero { "zeros" } else { "bytes" };
            (&File::options().append(true).open(path)?).write_all(&bytes)?;
            format!("{} {what} appended", bytes.len())
        }
        _ => {
            fs::remove_file(path)?;
            "removed".to_owned()
        }
    }))
}

/// A random offset. In half of the cases it is that of a byte that is not zero, of which a device
/// may have few.
fn random_offset(bytes: &[u8], random: &mut Random) -> u64 {
    let len = bytes.len() as u64;
    let at = random.below(len);
    if random.percent(50) {
        return at;
    }
    let distance = bytes[at as usize..].iter().position(|&byte| byte != 0);
    distance.map_or(at, |distance| at + distance as u64)
}

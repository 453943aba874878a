//! Blobs: the contents of files in pieces of 4 MiB, each in a file named by its hash.
//!
//! ```text
//!   file   0 ─────── 4 MiB ─────── 8 MiB ── end      the piece of a large hole is not read
//!          └ HASH ──┘└─ HASH ─────┘└ HASH ┘
//! ```
//!
//! Content-defined pieces would find no more duplicates: files grow at their end or are overwritten
//! in place.

use std::collections::BTreeSet;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::File;

use crate::storage::{Storage, is_partial};

/// The length of all blobs of a file but the last.
pub(crate) const BLOB_BYTES: u64 = 4 << 20;
const BLOBS: &str = "blobs";

/// The blobs that a repository has, and new ones.
pub(crate) struct Blobs {
    storage: Arc<dyn Storage>,
    hashes: BTreeSet<String>,
}

/// The blobs of a file, and the number and bytes of those that were new.
#[derive(Debug, Default)]
pub(crate) struct StoredBlobs {
    pub(crate) hashes: Vec<String>,
    pub(crate) new_blobs: u64,
    pub(crate) new_bytes: u64,
}

impl Blobs {
    /// The blobs in `storage`. Cost: a list of all of them.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn open(storage: Arc<dyn Storage>) -> Result<Self> {
        let mut hashes = BTreeSet::new();
        storage.list(BLOBS, &mut |file| {
            hashes.extend(hash_at(file.path).map(str::to_owned));
            Ok(())
        })?;
        Ok(Blobs { storage, hashes })
    }

    /// Whether there is a blob of this hash.
    pub(crate) fn contains(&self, hash: &str) -> bool {
        self.hashes.contains(hash)
    }

    /// Stores the content of `file`; it is durable after a sync of the storage. `on_read` is called
    /// with the bytes of each piece.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn store(
        &mut self,
        file: &dyn File,
        on_read: &mut dyn FnMut(u64),
    ) -> Result<StoredBlobs> {
        let len = file.len()?;
        let mut stored = StoredBlobs::default();
        let mut piece = vec![0; BLOB_BYTES.min(len) as usize];
        let mut offset = 0;
        while offset < len {
            let end = len.min(offset + BLOB_BYTES);
            let piece = &mut piece[..(end - offset) as usize];
            if file.next_data(offset)? >= end {
                piece.fill(0);
            } else {
                file.read_at(offset, piece, Purpose::Maintenance)?;
            }
            let hash = hash_of(piece);
            if self.hashes.insert(hash.clone()) {
                self.storage.write(&path(&hash), piece)?;
                stored.new_blobs += 1;
                stored.new_bytes += piece.len() as u64;
            }
            stored.hashes.push(hash);
            on_read(piece.len() as u64);
            offset = end;
        }
        Ok(stored)
    }
}

/// Why a blob cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unusable {
    Missing,
    Damaged,
}

/// Reads blobs, in the order of `hashes`, and compares them with their hashes.
pub(crate) fn read_each(
    storage: &dyn Storage,
    hashes: Vec<String>,
) -> impl Iterator<Item = Result<Result<Vec<u8>, Unusable>>> {
    let contents = storage.read_each(hashes.iter().map(|hash| path(hash)).collect());
    contents.zip(hashes).map(|(content, hash)| {
        let content = content?.ok_or(Unusable::Missing);
        Ok(content.and_then(|c| if hash_of(&c) == hash { Ok(c) } else { Err(Unusable::Damaged) }))
    })
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Unusable::Missing => "missing",
            Unusable::Damaged => "damaged",
        })
    }
}

/// The name of a blob in messages.
pub(crate) fn display(storage: &dyn Storage, hash: &str) -> String {
    format!("{}/{}", storage.name(), path(hash))
}

/// Renames a blob to `HASH.damaged`.
///
/// # Errors
/// I/O errors.
pub(crate) fn set_aside(storage: &dyn Storage, hash: &str) -> Result<()> {
    storage.rename(&path(hash), &format!("{}.damaged", path(hash)))
}

/// Removes blobs that `is_needed` does not name, and partial ones; returns the number and bytes of
/// the former.
///
/// # Errors
/// I/O errors; some are removed then.
pub(crate) fn retain(
    storage: &dyn Storage,
    is_needed: impl Fn(&str) -> bool,
) -> Result<(u64, u64)> {
    let (mut blobs, mut bytes) = (0, 0);
    let mut unneeded = Vec::new();
    storage.list(BLOBS, &mut |file| {
        match hash_at(file.path) {
            Some(hash) if is_needed(hash) => return Ok(()),
            Some(_) => {
                blobs += 1;
                bytes += (file.len)()?;
            }
            // Left by an interrupted backup.
            None if is_partial(file.path) => {}
            None => return Ok(()),
        }
        unneeded.push(format!("{BLOBS}/{}", file.path));
        Ok(())
    })?;
    storage.remove(&unneeded)?;
    Ok((blobs, bytes))
}

fn path(hash: &str) -> String {
    format!("{BLOBS}/{}/{hash}", &hash[..2])
}

/// The hash of the blob at a path below the directory of blobs, if it is one.
fn hash_at(path: &str) -> Option<&str> {
    let (digits, name) = path.split_once('/')?;
    (is_hash(name) && digits == &name[..2]).then_some(name)
}

/// BLAKE3 as hex digits.
fn hash_of(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

/// Whether `name` is a hash.
pub(crate) fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

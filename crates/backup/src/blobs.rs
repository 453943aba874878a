//! Blobs: the contents of files in pieces of 4 MiB, each in a file named by its hash.
//!
//! ```text
//!   file   0 ─────── 4 MiB ─────── 8 MiB ── end      the piece of a large hole is not read
//!          └ HASH ──┘└─ HASH ─────┘└ HASH ┘
//! ```
//!
//! Content-defined pieces would find no more duplicates: files grow at their end or are overwritten
//! in place.
//!
//! A blob is written as `HASH.partial`, synced and renamed, so a blob under its final name is
//! complete. The names are durable after `Blobs::sync`.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{File, Mode, Vfs};

/// The length of all blobs of a file but the last.
pub const BLOB_BYTES: u64 = 4 << 20;
const PARTIAL: &str = ".partial";

/// The directory of blobs.
pub struct Blobs {
    vfs: Arc<dyn Vfs>,
    directories: BTreeMap<String, Directory>,
}

/// The blobs whose hashes begin with two digits.
struct Directory {
    vfs: Arc<dyn Vfs>,
    hashes: BTreeSet<String>,
    /// There may be names that no sync has covered.
    is_unsynced: bool,
}

/// The blobs of a file, and the number and bytes of those that were new.
#[derive(Debug, Default)]
pub(crate) struct StoredBlobs {
    pub(crate) hashes: Vec<String>,
    pub(crate) new_blobs: u64,
    pub(crate) new_bytes: u64,
}

impl Blobs {
    /// The blobs in `vfs`. Cost: a list of each of its directories.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn open(vfs: Arc<dyn Vfs>) -> Result<Self> {
        let mut directories = BTreeMap::new();
        for name in vfs.subdirectories()? {
            let directory = vfs.subdirectory(&name)?;
            let hashes = directory.list()?.into_iter().filter(|name| is_hash(name)).collect();
            // A killed backup may have left names that no sync has covered.
            directories.insert(name, Directory { vfs: directory, hashes, is_unsynced: true });
        }
        Ok(Blobs { vfs, directories })
    }

    /// Whether there is a blob of this hash.
    pub(crate) fn contains(&self, hash: &str) -> bool {
        let directory = hash.get(..2).and_then(|digits| self.directories.get(digits));
        directory.is_some_and(|directory| directory.hashes.contains(hash))
    }

    /// Stores the content of `file`. `on_read` is called with the bytes of each piece.
    ///
    /// # Errors
    /// I/O errors; there may be a partial blob then, which `retain` removes.
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
            if !self.contains(&hash) {
                self.write(&hash, piece)?;
                stored.new_blobs += 1;
                stored.new_bytes += piece.len() as u64;
            }
            stored.hashes.push(hash);
            on_read(piece.len() as u64);
            offset = end;
        }
        Ok(stored)
    }

    fn write(&mut self, hash: &str, content: &[u8]) -> Result<()> {
        let directory = self.directory(&hash[..2])?;
        let partial = format!("{hash}{PARTIAL}");
        if directory.vfs.exists(&partial)? {
            directory.vfs.remove(&partial)?;
        }
        let target = directory.vfs.create(&partial)?;
        target.write_at(0, content, Purpose::Maintenance)?;
        target.sync(Purpose::Maintenance)?;
        directory.vfs.rename(&partial, hash)?;
        directory.is_unsynced = true;
        directory.hashes.insert(hash.to_owned());
        Ok(())
    }

    /// Makes the names of all blobs durable.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn sync(&mut self) -> Result<()> {
        for directory in self.directories.values_mut().filter(|d| d.is_unsynced) {
            directory.vfs.sync_dir(Purpose::Maintenance)?;
            directory.is_unsynced = false;
        }
        Ok(())
    }

    /// Reads a blob and compares it with its hash.
    ///
    /// # Errors
    /// `Corruption` if it is missing or damaged; I/O errors.
    pub(crate) fn read(&self, hash: &str) -> Result<Vec<u8>> {
        let corruption = |reason: &str| Err(Error::corruption(self.path(hash), 0, reason));
        let directory = self.directories.get(&hash[..2]).filter(|d| d.hashes.contains(hash));
        let Some(directory) = directory else { return corruption("this blob is missing") };
        let file = directory.vfs.open(hash, Mode::Read)?;
        let mut content = vec![0; file.len()?.min(BLOB_BYTES + 1) as usize];
        file.read_at(0, &mut content, Purpose::Maintenance)?;
        if hash_of(&content) == hash { Ok(content) } else { corruption("this blob is damaged") }
    }

    /// The name of a blob in messages.
    pub(crate) fn path(&self, hash: &str) -> String {
        format!("{}/{}/{hash}", self.vfs.name(), &hash[..2])
    }

    /// Renames blobs to `HASH.damaged`, durably.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn set_aside<'h>(
        &mut self,
        hashes: impl IntoIterator<Item = &'h String>,
    ) -> Result<()> {
        for hash in hashes {
            let Some(directory) = self.directories.get_mut(&hash[..2]) else { continue };
            if directory.hashes.remove(hash) {
                directory.vfs.rename(hash, &format!("{hash}.damaged"))?;
                directory.vfs.sync_dir(Purpose::Maintenance)?;
            }
        }
        Ok(())
    }

    /// Removes blobs that `is_needed` does not name, and partial ones; returns the number and bytes
    /// of the former.
    ///
    /// # Errors
    /// I/O errors; some are removed then.
    pub(crate) fn retain(&mut self, is_needed: impl Fn(&str) -> bool) -> Result<(u64, u64)> {
        let (mut blobs, mut bytes) = (0, 0);
        for directory in self.directories.values_mut() {
            let unneeded: Vec<_> =
                directory.hashes.iter().filter(|hash| !is_needed(hash)).cloned().collect();
            for hash in unneeded {
                bytes += directory.vfs.open(&hash, Mode::Read)?.len()?;
                directory.vfs.remove(&hash)?;
                directory.hashes.remove(&hash);
                blobs += 1;
            }
            // Left by interrupted backups.
            let partial = directory.vfs.list()?.into_iter().filter(|n| n.ends_with(PARTIAL));
            for name in partial {
                directory.vfs.remove(&name)?;
            }
        }
        Ok((blobs, bytes))
    }

    fn directory(&mut self, digits: &str) -> Result<&mut Directory> {
        Ok(match self.directories.entry(digits.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let vfs = self.vfs.subdirectory(digits)?;
                new.insert(Directory { vfs, hashes: BTreeSet::new(), is_unsynced: false })
            }
        })
    }
}

/// BLAKE3 as hex digits.
fn hash_of(content: &[u8]) -> String {
    blake3::hash(content).to_hex().to_string()
}

/// Whether `name` is a hash.
pub(crate) fn is_hash(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

//! Direct access to stored bytes: reading and corrupting them.
//!
//! Paths are relative to the directory, with `/` between their parts. Corruption is durable, as if
//! the file had been synced just before.
//!
//! Invariant: these methods are not counted, do not fail by plan, and work while power is off.
//!
//! Source: Bairavasundaram et al., "An Analysis of Data Corruption in the Storage Stack", FAST 2008
//! (bit rot, torn and lost writes).

use std::io::ErrorKind;

use siltstone_engine::{Error, Result};
use siltstone_vfs::backend::{Node, SECTOR_BYTES, SparseBytes, end_of, fault};

use super::directory::{Directory, SharedDirectory};
use super::file::SharedFile;
use super::{FaultyVfs, join};

/// A file in the list of [`FaultyVfs::files`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredFile {
    /// The path relative to the directory, with `/` between its parts.
    pub path: String,
    /// The length in bytes.
    pub len: u64,
}

impl FaultyVfs {
    /// Every file in this directory and its subdirectories, sorted by path within each directory,
    /// files before directories.
    pub fn files(&self) -> Vec<StoredFile> {
        fn walk(directory: &Directory, prefix: &str, found: &mut Vec<StoredFile>) {
            let nodes = || directory.current.iter();
            found.extend(nodes().filter_map(|(name, node)| match node {
                Node::File(file) => {
                    let len = file.lock().current.len();
                    Some(StoredFile { path: format!("{prefix}{name}"), len })
                }
                Node::Directory(_) => None,
            }));
            for (name, node) in nodes() {
                if let Node::Directory(directory) = node {
                    walk(&directory.lock(), &format!("{prefix}{name}/"), found);
                }
            }
        }
        let _lock = self.fs.lock();
        let mut found = Vec::new();
        walk(&self.directory.lock(), "", &mut found);
        found
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// `Io` if there is no such file.
    pub fn read_raw(&self, path: &str) -> Result<Vec<u8>> {
        let _lock = self.fs.lock();
        let file = self.find(path)?;
        let file = file.lock();
        let mut bytes = vec![0; file.current.len() as usize];
        file.current.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Overwrites bytes, also past the end.
    ///
    /// # Errors
    /// `Io` if there is no such file.
    pub fn write_raw(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.corrupt(path, |file| {
            end_of(offset, bytes.len() as u64)?;
            file.write(offset, bytes);
            Some(())
        })
    }

    /// Flips bit `bit` (0 is the lowest, 7 the highest) of the byte at `offset`.
    ///
    /// # Errors
    /// `Io` if there is no such file or byte.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> Result<()> {
        self.corrupt(path, |file| {
            let mut byte = [0];
            file.read(offset, &mut byte).then_some(())?;
            file.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
            Some(())
        })
    }

    /// Zeroes the 512-byte sector with this number; the length is unchanged.
    ///
    /// # Errors
    /// `Io` if there is no such file or sector.
    pub fn zero_sector(&self, path: &str, sector: u64) -> Result<()> {
        self.corrupt(path, |file| {
            let offset = sector.checked_mul(SECTOR_BYTES).filter(|&at| at < file.len())?;
            file.zero(offset, SECTOR_BYTES);
            Some(())
        })
    }

    /// Truncates a file to `len` bytes.
    ///
    /// # Errors
    /// `Io` if there is no such file or it is shorter.
    pub fn truncate(&self, path: &str, len: u64) -> Result<()> {
        self.corrupt(path, |file| {
            (len <= file.len()).then_some(())?;
            file.set_len(len);
            Some(())
        })
    }

    /// Makes a file durable and changes it; `None` from `change`: the place is not in the file.
    fn corrupt(
        &self,
        path: &str,
        change: impl FnOnce(&mut SparseBytes) -> Option<()>,
    ) -> Result<()> {
        let _lock = self.fs.lock();
        let file = self.find(path)?;
        let mut file = file.lock();
        let done = change(&mut file.current);
        file.make_durable();
        done.ok_or_else(|| self.damage_fault(path, ErrorKind::UnexpectedEof))
    }

    fn find(&self, path: &str) -> Result<SharedFile> {
        let (parents, name) = path.rsplit_once('/').unwrap_or(("", path));
        let mut directory: SharedDirectory = self.directory.clone();
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            let next = directory.lock().current.directory("damage", &self.name, part)?;
            directory = next.ok_or_else(|| self.damage_fault(path, ErrorKind::NotFound))?;
        }
        let directory = directory.lock();
        directory.current.file("damage", &self.name, name)
    }

    fn damage_fault(&self, path: &str, kind: ErrorKind) -> Error {
        fault("damage", join(&self.name, path), kind)
    }
}

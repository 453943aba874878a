//! The hands that reach past the contract: look at any byte on the medium, and spoil it.
//!
//! Paths go from this directory down, parts separated by `/`. What is spoiled is spoiled as if the
//! file had been synced just before, so it is there after a power cut too.
//!
//! Invariant: nothing here is counted or fails by plan, and all of it works while power is off.
//!
//! Source: ours; the kinds of damage follow Bairavasundaram et al., "An Analysis of Data Corruption
//! in the Storage Stack", FAST 2008 (bit rot, torn and lost writes).

use std::io::ErrorKind;

use siltstone_engine::{Error, Result};
use siltstone_vfs::backend::{Node, SECTOR_BYTES, SparseBytes, end_of, fault};

use super::directory::{Directory, SharedDirectory};
use super::file::SharedFile;
use super::{Faulty, join};

/// A file as [`Faulty::files`] lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOnMedium {
    /// From the directory that was asked down, parts separated by `/`.
    pub path: String,
    /// The length in bytes.
    pub len: u64,
}

impl Faulty {
    /// Every file here and below, sorted by path within each directory, files before directories.
    pub fn files(&self) -> Vec<FileOnMedium> {
        fn walk(directory: &Directory, prefix: &str, found: &mut Vec<FileOnMedium>) {
            let nodes = || directory.current.iter();
            found.extend(nodes().filter_map(|(name, node)| match node {
                Node::File(file) => {
                    let len = file.lock().current.len();
                    Some(FileOnMedium { path: format!("{prefix}{name}"), len })
                }
                Node::Directory(_) => None,
            }));
            for (name, node) in nodes() {
                if let Node::Directory(directory) = node {
                    walk(&directory.lock(), &format!("{prefix}{name}/"), found);
                }
            }
        }
        let _world = self.world.lock();
        let mut found = Vec::new();
        walk(&self.directory.lock(), "", &mut found);
        found
    }

    /// All bytes of a file.
    ///
    /// # Errors
    /// `Io` if there is no such file.
    pub fn read_raw(&self, path: &str) -> Result<Vec<u8>> {
        let _world = self.world.lock();
        let file = self.find(path)?;
        let file = file.lock();
        let mut bytes = vec![0; file.current.len() as usize];
        file.current.read(0, &mut bytes);
        Ok(bytes)
    }

    /// Overwrites bytes, past the end too.
    ///
    /// # Errors
    /// `Io` if there is no such file.
    pub fn write_raw(&self, path: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.spoil(path, |file| {
            end_of(offset, bytes.len() as u64)?;
            file.write(offset, bytes);
            Some(())
        })
    }

    /// Turns bit `bit` (0 is the lowest, 7 the highest) of the byte at `offset`.
    ///
    /// # Errors
    /// `Io` if there is no such file or byte.
    pub fn flip_bit(&self, path: &str, offset: u64, bit: u8) -> Result<()> {
        self.spoil(path, |file| {
            let mut byte = [0];
            file.read(offset, &mut byte).then_some(())?;
            file.write(offset, &[byte[0] ^ (1 << (bit % 8))]);
            Some(())
        })
    }

    /// Zeroes the 512-byte sector with this number; the length stays.
    ///
    /// # Errors
    /// `Io` if there is no such file or sector.
    pub fn zero_sector(&self, path: &str, sector: u64) -> Result<()> {
        self.spoil(path, |file| {
            let offset = sector.checked_mul(SECTOR_BYTES).filter(|&at| at < file.len())?;
            file.zero(offset, SECTOR_BYTES);
            Some(())
        })
    }

    /// Cuts a file to `len` bytes.
    ///
    /// # Errors
    /// `Io` if there is no such file or it is shorter.
    pub fn truncate(&self, path: &str, len: u64) -> Result<()> {
        self.spoil(path, |file| {
            (len <= file.len()).then_some(())?;
            file.set_len(len);
            Some(())
        })
    }

    /// Settles a file and changes it; `None` from `change` means that the place is not in it.
    fn spoil(&self, path: &str, change: impl FnOnce(&mut SparseBytes) -> Option<()>) -> Result<()> {
        let _world = self.world.lock();
        let file = self.find(path)?;
        let mut file = file.lock();
        let done = change(&mut file.current);
        file.settle();
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

//! A directory in memory.
//!
//! Each directory is a map of names behind a lock; each file is sparse bytes behind its own lock. A
//! name refers to its file, so a removed file stays alive in its open handles. A mapped file is
//! converted to flat memory. Syncs do nothing: power cuts are simulated by `siltstone-faults`.
//!
//! Invariant: requests to the same file are atomic (stores to a mapping per word), and no lock is
//! held while waiting for another.

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockWriteGuard};
use siltstone_engine::{Error, Purpose, Result};

use crate::bytes::SparseBytes;
use crate::names::{Names, Node, fault, join};
use crate::pmem::{VolatileBacking, too_long};
use crate::{File, LockGuard, Mapping, Mode, Vfs};

mod content;

use content::Content;

type SharedBytes = Arc<RwLock<Content>>;
type SharedDirectory = Arc<RwLock<Directory>>;

#[derive(Default)]
struct Directory {
    names: Names<SharedBytes, SharedDirectory>,
    locked: BTreeSet<String>,
    /// Whether the directory was removed while there are handles: nothing can be created in it.
    removed: bool,
}

/// A directory in memory. Dropping the last handle to it frees it.
pub struct Ram {
    name: String,
    directory: SharedDirectory,
}

impl Default for Ram {
    fn default() -> Self {
        Self::new()
    }
}

impl Ram {
    /// An empty directory.
    pub fn new() -> Self {
        Self::with_name("ram:")
    }

    /// An empty directory with this name in messages.
    pub(crate) fn with_name(name: &str) -> Self {
        Ram { name: name.into(), directory: Arc::default() }
    }

    /// An independent copy of the directory and its contents; links stay links, locks are free.
    ///
    /// Costs a pointer per 16 KiB: bytes are shared until one side changes them; a mapped file is
    /// copied. The copy of each file is atomic; the copy of the directory is, if nobody writes
    /// meanwhile.
    pub fn fork(&self) -> Self {
        let directory = fork(&self.directory, &mut HashMap::new());
        Ram { name: self.name.clone(), directory }
    }

    /// The locked directory, for creating the name `name`.
    fn lock_for_creation(
        &self,
        operation: &'static str,
        name: &str,
    ) -> Result<RwLockWriteGuard<'_, Directory>> {
        let directory = self.directory.write();
        match directory.removed {
            true => Err(fault(operation, join(&self.name, name), ErrorKind::NotFound)),
            false => Ok(directory),
        }
    }

    fn handle(&self, name: &str, bytes: SharedBytes, mode: Mode) -> Arc<dyn File> {
        Arc::new(RamFile { name: join(&self.name, name), bytes, mode })
    }
}

fn fork(
    directory: &SharedDirectory,
    copies: &mut HashMap<*const RwLock<Content>, SharedBytes>,
) -> SharedDirectory {
    // The nodes are cloned first, so that the lock is released before files are locked.
    let names = directory.read().names.clone();
    let mut copy = Directory::default();
    for (name, node) in names.iter() {
        let node = match node {
            Node::Directory(directory) => Node::Directory(fork(directory, copies)),
            Node::File(bytes) => {
                let copied = || Arc::new(RwLock::new(Content::Sparse(bytes.read().copy())));
                Node::File(copies.entry(Arc::as_ptr(bytes)).or_insert_with(copied).clone())
            }
        };
        copy.names.set(name, Some(node));
    }
    Arc::new(RwLock::new(copy))
}

/// Marks a directory that has no name any more, and all subdirectories.
fn mark_removed(directory: &SharedDirectory) {
    let names = {
        let mut directory = directory.write();
        directory.removed = true;
        std::mem::take(&mut directory.names)
    };
    for (_, node) in names.iter() {
        if let Node::Directory(below) = node {
            mark_removed(below);
        }
    }
}

impl Vfs for Ram {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let mut directory = self.lock_for_creation("create", name)?;
        directory.names.check_free("create", &self.name, name)?;
        let bytes = SharedBytes::default();
        directory.names.set(name, Some(Node::File(bytes.clone())));
        Ok(self.handle(name, bytes, Mode::ReadWrite))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        let bytes = self.directory.read().names.file("open", &self.name, name)?;
        Ok(self.handle(name, bytes, mode))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        crate::names::check("look up", &self.name, name)?;
        Ok(matches!(self.directory.read().names.get(name), Some(Node::File(_))))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.directory.read().names.files())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let mut directory = self.directory.write();
        directory.names.file("remove", &self.name, name)?;
        directory.names.set(name, None);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let mut directory = self.directory.write();
        let bytes = directory.names.renamed(&self.name, from, to)?;
        // In this order, a rename to the same name changes nothing.
        directory.names.set(from, None);
        directory.names.set(to, Some(Node::File(bytes)));
        Ok(())
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let mut directory = self.lock_for_creation("create directory", name)?;
        let found = directory.names.directory("create directory", &self.name, name)?;
        let found = found.unwrap_or_else(|| {
            let fresh = SharedDirectory::default();
            directory.names.set(name, Some(Node::Directory(fresh.clone())));
            fresh
        });
        Ok(Arc::new(Ram { name: join(&self.name, name), directory: found }))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        Ok(self.directory.read().names.directories())
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        let operation = "remove directory";
        let found = {
            let mut directory = self.directory.write();
            let found = directory.names.directory(operation, &self.name, name)?;
            if found.is_some() {
                directory.names.set(name, None);
            }
            found
        };
        let missing = || fault(operation, join(&self.name, name), ErrorKind::NotFound);
        found.map(|found| mark_removed(&found)).ok_or_else(missing)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        let mut directory = self.lock_for_creation("lock", name)?;
        if directory.names.get(name).is_none() {
            directory.names.check_free("lock", &self.name, name)?;
            directory.names.set(name, Some(Node::File(SharedBytes::default())));
        }
        directory.names.file("lock", &self.name, name)?;
        if !directory.locked.insert(name.to_owned()) {
            return Err(Error::Locked {
                path: join(&self.name, name),
                holder: Some(std::process::id()),
            });
        }
        Ok(LockGuard::new(RamLock { directory: self.directory.clone(), name: name.to_owned() }))
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let target: &dyn Any = target;
        let Some(target) = target.downcast_ref::<Ram>() else { return Ok(false) };
        let bytes = self.directory.read().names.file("link", &self.name, name)?;
        let mut directory = target.lock_for_creation("link", to_name)?;
        directory.names.check_free("link", &target.name, to_name)?;
        directory.names.set(to_name, Some(Node::File(bytes)));
        Ok(true)
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        let content = {
            let mut directory = self.lock_for_creation("map", name)?;
            if directory.names.get(name).is_none() {
                directory.names.check_free("map", &self.name, name)?;
                directory.names.set(name, Some(Node::File(SharedBytes::default())));
            }
            directory.names.file("map", &self.name, name)?
        };
        let name = join(&self.name, name);
        let mut content = content.write();
        if content.is_mapped() {
            return Err(Error::Locked { path: name, holder: Some(std::process::id()) });
        }
        if content.len() > bytes {
            return Err(too_long(&name, content.len(), bytes));
        }
        let len = usize::try_from(bytes);
        let len = len.map_err(|_| fault("map", &*name, ErrorKind::OutOfMemory))?;
        let mapped = content.map(len).map_err(|e| Error::io("map", &*name, &e));
        let (memory, token) = mapped?;
        Ok(Mapping::new(name, memory, Box::new(VolatileBacking(token))))
    }
}

struct RamLock {
    directory: SharedDirectory,
    name: String,
}

impl Drop for RamLock {
    fn drop(&mut self) {
        self.directory.write().locked.remove(&self.name);
    }
}

struct RamFile {
    name: String,
    bytes: SharedBytes,
    mode: Mode,
}

impl RamFile {
    /// Changes the bytes; an error while they are mapped.
    fn change(&self, operation: &'static str, change: impl FnOnce(&mut SparseBytes)) -> Result<()> {
        match self.bytes.write().change() {
            Some(bytes) => {
                change(bytes);
                Ok(())
            }
            None => Err(fault(operation, &*self.name, ErrorKind::ResourceBusy)),
        }
    }
}

impl File for RamFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        match self.bytes.read().read(offset, buf) {
            true => Ok(()),
            false => Err(fault("read", &*self.name, ErrorKind::UnexpectedEof)),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        self.mode.check_change("write", &self.name, offset, bytes.len() as u64)?;
        self.change("write", |file| file.write(offset, bytes))
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.read().len())
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.mode.check_change("set length of", &self.name, len, 0)?;
        self.change("set length of", |file| file.set_len(len))
    }

    fn reserve(&self, _len: u64) -> Result<()> {
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.mode.check_change("punch hole in", &self.name, offset, len)?;
        self.change("punch hole in", |file| file.zero(offset, len))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(vfs: &dyn Vfs, name: &str) -> Vec<u8> {
        let file = vfs.open(name, Mode::Read).unwrap();
        let mut bytes = vec![0; file.len().unwrap() as usize];
        file.read_at(0, &mut bytes, Purpose::Get).unwrap();
        bytes
    }

    #[test]
    fn fork_and_original_are_independent() {
        let origin = Ram::new();
        let sub = origin.subdirectory("sub").unwrap();
        let file = sub.create("a").unwrap();
        file.write_at(0, b"before", Purpose::Log).unwrap();
        assert!(sub.link("a", &origin, "linked").unwrap());
        let _lock = origin.lock("LOCK").unwrap();

        let copy = origin.fork();
        file.write_at(0, b"AFTER!", Purpose::Log).unwrap();
        origin.create("new").unwrap();
        let copied = copy.subdirectory("sub").unwrap();
        assert_eq!(read(&*copied, "a"), b"before");
        assert_eq!(copy.list().unwrap(), ["LOCK", "linked"]);
        drop(copy.lock("LOCK").unwrap());

        // A link is one file with two names in the copy, too.
        let file = copied.open("a", Mode::ReadWrite).unwrap();
        file.write_at(0, b"copied", Purpose::Log).unwrap();
        assert_eq!(read(&copy, "linked"), b"copied");
        assert_eq!(read(&origin, "linked"), b"AFTER!");
    }
}

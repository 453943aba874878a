//! A directory as of one moment: files that were opened then, and bytes that were read then.
//!
//! ```text
//!   CATALOG       bytes in memory
//!   table-a/      000012.sst  open file        000015.log  open file, its first 8,190 bytes
//! ```
//!
//! Another process may remove the files of the directory or append to them: this view does not
//! change. To write on top of it, put an [`Overlay`](crate::Overlay) over it.
//!
//! Invariant: no request changes anything outside of this process.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use crate::names::{fault, join};
use crate::{File, LockGuard, Mode, Vfs};

/// Open files under the names that they had.
#[derive(Clone, Default)]
pub struct PinnedDirectory {
    name: String,
    path: Option<PathBuf>,
    files: BTreeMap<String, Arc<dyn File>>,
    directories: BTreeMap<String, Arc<dyn Vfs>>,
}

impl PinnedDirectory {
    /// An empty view with the name and path of `directory`.
    pub fn of(directory: &dyn Vfs) -> Self {
        let path = directory.path().map(Path::to_owned);
        PinnedDirectory { name: directory.name(), path, ..PinnedDirectory::default() }
    }

    /// Adds an open file.
    pub fn add_file(&mut self, name: &str, file: Arc<dyn File>) {
        self.files.insert(name.to_owned(), file);
    }

    /// Adds the first `bytes` bytes of an open file.
    pub fn add_prefix(&mut self, name: &str, file: Arc<dyn File>, bytes: u64) {
        self.add_file(name, Arc::new(Prefix { name: join(&self.name, name), file, bytes }));
    }

    /// Adds a file with this content.
    pub fn add_bytes(&mut self, name: &str, content: Vec<u8>) {
        self.add_file(name, Arc::new(Bytes { name: join(&self.name, name), content }));
    }

    /// Adds a subdirectory.
    pub fn add_directory(&mut self, name: &str, directory: PinnedDirectory) {
        self.directories.insert(name.to_owned(), Arc::new(directory));
    }

    fn refuse<T>(&self, operation: &'static str, name: &str) -> Result<T> {
        Err(fault(operation, join(&self.name, name), ErrorKind::PermissionDenied))
    }
}

impl Vfs for PinnedDirectory {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.refuse("create", name)
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        match self.files.get(name) {
            _ if mode != Mode::Read => self.refuse("open", name),
            Some(file) => Ok(file.clone()),
            None => Err(fault("open", join(&self.name, name), ErrorKind::NotFound)),
        }
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.files.contains_key(name))
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self.files.keys().cloned().collect())
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.refuse("remove", name)
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        self.refuse("rename", from)
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        match self.directories.get(name) {
            Some(directory) => Ok(directory.clone()),
            None => self.refuse("create directory", name),
        }
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        Ok(self.directories.keys().cloned().collect())
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.refuse("remove directory", name)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.refuse("lock", name)
    }

    /// Nobody else has this view.
    fn share_lock(&self, _name: &str) -> Result<LockGuard> {
        Ok(LockGuard::new(()))
    }

    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        self.refuse("open directory", &path.display().to_string())
    }

    fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }
}

/// The beginning of a file that may grow.
struct Prefix {
    name: String,
    file: Arc<dyn File>,
    bytes: u64,
}

/// A file in memory.
struct Bytes {
    name: String,
    content: Vec<u8>,
}

impl File for Prefix {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        match offset.checked_add(buf.len() as u64) {
            Some(end) if end <= self.bytes => self.file.read_at(offset, buf, purpose),
            _ => Err(fault("read", &*self.name, ErrorKind::UnexpectedEof)),
        }
    }

    fn write_at(&self, _: u64, _: &[u8], _: Purpose) -> Result<()> {
        refuse_change(&self.name)
    }

    fn sync(&self, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn begin_read(&self, offset: u64, bytes: u64) {
        self.file.begin_read(offset, bytes);
    }

    fn seek_cost_bytes(&self) -> u64 {
        self.file.seek_cost_bytes()
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        refuse_change(&self.name)
    }

    fn reserve(&self, _: u64) -> Result<()> {
        refuse_change(&self.name)
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<()> {
        refuse_change(&self.name)
    }
}

impl File for Bytes {
    fn read_at(&self, offset: u64, buf: &mut [u8], _: Purpose) -> Result<()> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let found = self.content.get(from..).and_then(|rest| rest.get(..buf.len()));
        let eof = || fault("read", &*self.name, ErrorKind::UnexpectedEof);
        buf.copy_from_slice(found.ok_or_else(eof)?);
        Ok(())
    }

    fn write_at(&self, _: u64, _: &[u8], _: Purpose) -> Result<()> {
        refuse_change(&self.name)
    }

    fn sync(&self, _: Purpose) -> Result<()> {
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self.content.len() as u64)
    }

    fn set_len(&self, _: u64) -> Result<()> {
        refuse_change(&self.name)
    }

    fn reserve(&self, _: u64) -> Result<()> {
        refuse_change(&self.name)
    }

    fn punch_hole(&self, _: u64, _: u64) -> Result<()> {
        refuse_change(&self.name)
    }
}

fn refuse_change(name: &str) -> Result<()> {
    Err::<(), Error>(fault("write", name, ErrorKind::PermissionDenied))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::{Overlay, Ram};

    #[test]
    fn view_stays_when_the_directory_changes() {
        let ram = Ram::new();
        let file = ram.create("log").unwrap();
        file.write_at(0, b"before", Purpose::Log).unwrap();
        let mut pinned = PinnedDirectory::of(&ram);
        pinned.add_prefix("log", ram.open("log", Mode::Read).unwrap(), 6);
        pinned.add_bytes("note", b"kept".to_vec());
        file.write_at(6, b" and after", Purpose::Log).unwrap();
        ram.remove("log").unwrap();
        assert!(pinned.create("x").is_err() && pinned.remove("log").is_err());
        assert!(pinned.open("log", Mode::ReadWrite).is_err());
        let view = Overlay::new(Arc::new(pinned));
        assert_eq!(view.list().unwrap(), ["log", "note"]);
        let (log, note) =
            (view.open("log", Mode::ReadWrite).unwrap(), view.open("note", Mode::Read));
        assert_eq!((log.len().unwrap(), note.unwrap().len().unwrap()), (6, 4));
        let mut bytes = [0; 6];
        log.read_at(0, &mut bytes, Purpose::Get).unwrap();
        assert_eq!(&bytes, b"before");
        assert!(log.read_at(1, &mut bytes, Purpose::Get).is_err());
        log.write_at(0, b"B", Purpose::Log).unwrap();
        view.remove("note").unwrap();
        assert_eq!(view.list().unwrap(), ["log"]);
    }
}

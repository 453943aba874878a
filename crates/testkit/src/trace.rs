//! A faulty disk that records the kind of operation in which its power went off.
//!
//! Requests are forwarded unchanged. The first one after which power is off is the one that was
//! cut; its kind is the operation with the kind of file (`write log`, `rename CURRENT.tmp`, …).
//!
//! Invariant: the wrapped disk receives the same requests, so their numbers are the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::{File, LockGuard, Mapping, Mode, Vfs};

/// Power cuts by kind of operation.
pub type Kinds = Arc<Mutex<BTreeMap<String, u64>>>;

/// A disk that records the cut.
pub struct TracedVfs {
    inner: Arc<dyn Vfs>,
    watch: Watch,
}

#[derive(Clone)]
struct Watch {
    disk: FaultyVfs,
    kinds: Kinds,
    recorded: Arc<Mutex<bool>>,
}

struct TracedFile {
    inner: Arc<dyn File>,
    name: String,
    watch: Watch,
}

impl TracedVfs {
    /// Wraps a disk; its power cut is added to `kinds`.
    pub fn new(disk: &FaultyVfs, kinds: Kinds) -> Self {
        let watch = Watch { disk: disk.clone(), kinds, recorded: Arc::default() };
        TracedVfs { inner: Arc::new(disk.clone()), watch }
    }

    fn file(&self, name: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(TracedFile { inner, name: name.to_owned(), watch: self.watch.clone() })
    }
}

impl Watch {
    fn after<T>(&self, operation: &str, name: &str, result: T) -> T {
        if self.disk.power_is_off() && !std::mem::replace(&mut *self.recorded.lock(), true) {
            let kind: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
            let kind = format!("{operation} {}", kind.trim_matches(['.', '-']));
            *self.kinds.lock().entry(kind.trim_end().to_owned()).or_default() += 1;
        }
        result
    }
}

impl Vfs for TracedVfs {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let file = self.watch.after("create", name, self.inner.create(name))?;
        Ok(self.file(name, file))
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        let file = self.watch.after("create", name, self.inner.create_append(name))?;
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        Ok(self.file(name, self.inner.open(name, mode)?))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.watch.after("remove", name, self.inner.remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.watch.after("rename", from, self.inner.rename(from, to))
    }

    fn sync_dir(&self, purpose: Purpose) -> Result<()> {
        self.watch.after("sync directory", purpose.name(), self.inner.sync_dir(purpose))
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let inner = self.watch.after("create directory", name, self.inner.subdirectory(name))?;
        Ok(Arc::new(TracedVfs { inner, watch: self.watch.clone() }))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.inner.subdirectories()
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.watch.after("remove directory", name, self.inner.remove_subdirectory(name))
    }

    /// Stores to a mapping are not traced; a cut among them counts for the next request.
    fn is_append_only(&self) -> bool {
        self.inner.is_append_only()
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        self.watch.after("map", name, self.inner.map(name, bytes))
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.watch.after("lock", name, self.inner.lock(name))
    }
}

impl TracedFile {
    fn after<T>(&self, operation: &str, result: T) -> T {
        self.watch.after(operation, &self.name, result)
    }
}

impl File for TracedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, purpose)
    }

    fn read_lossy_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_lossy_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.after("write", self.inner.write_at(offset, bytes, purpose))
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.after("sync", self.inner.sync(purpose))
    }

    fn is_removed(&self) -> Result<bool> {
        self.inner.is_removed()
    }

    fn begin_sync(&self) {
        self.inner.begin_sync();
    }

    fn begin_read(&self, offset: u64, bytes: u64) {
        self.inner.begin_read(offset, bytes);
    }

    fn seek_cost_bytes(&self) -> u64 {
        self.inner.seek_cost_bytes()
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        self.inner.next_data(offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.after("set length", self.inner.set_len(len))
    }

    fn preallocate(&self, bytes: u64, now: u64) {
        self.inner.preallocate(bytes, now);
    }

    fn trim_preallocation(&self) -> Result<()> {
        self.inner.trim_preallocation()
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.after("reserve", self.inner.reserve(len))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.after("punch hole", self.inner.punch_hole(offset, len))
    }
}

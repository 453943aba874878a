//! A faulty medium that records the kind of operation in which its power went off.
//!
//! Requests are forwarded unchanged. The first one after which power is off is the one that was
//! cut; its kind is the operation with the kind of file (`write log`, `rename CURRENT.tmp`, …).
//!
//! Invariant: requests and their numbers are those of the medium below.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};
use siltstone_faults::FaultyVfs;
use siltstone_vfs::{File, LockGuard, Mapping, Mode, Vfs};

/// Power cuts by kind of operation.
pub type Kinds = Arc<Mutex<BTreeMap<String, u64>>>;

/// A medium that records the cut.
pub struct Traced {
    below: Arc<dyn Vfs>,
    watch: Watch,
}

#[derive(Clone)]
struct Watch {
    medium: FaultyVfs,
    kinds: Kinds,
    recorded: Arc<Mutex<bool>>,
}

struct TracedFile {
    below: Arc<dyn File>,
    name: String,
    watch: Watch,
}

impl Traced {
    /// Wraps a medium; its power cut is added to `kinds`.
    pub fn new(medium: &FaultyVfs, kinds: Kinds) -> Self {
        let watch = Watch { medium: medium.clone(), kinds, recorded: Arc::default() };
        Traced { below: Arc::new(medium.clone()), watch }
    }

    fn file(&self, name: &str, below: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(TracedFile { below, name: name.to_owned(), watch: self.watch.clone() })
    }
}

impl Watch {
    fn after<T>(&self, operation: &str, name: &str, result: T) -> T {
        if self.medium.power_is_off() && !std::mem::replace(&mut *self.recorded.lock(), true) {
            let kind: String = name.chars().filter(|c| !c.is_ascii_digit()).collect();
            let kind = format!("{operation} {}", kind.trim_matches(['.', '-']));
            *self.kinds.lock().entry(kind.trim_end().to_owned()).or_default() += 1;
        }
        result
    }
}

impl Vfs for Traced {
    fn name(&self) -> String {
        self.below.name()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let file = self.watch.after("create", name, self.below.create(name))?;
        Ok(self.file(name, file))
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        let file = self.watch.after("create", name, self.below.create_append(name))?;
        Ok(self.file(name, file))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        Ok(self.file(name, self.below.open(name, mode)?))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.below.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.below.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.watch.after("remove", name, self.below.remove(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.watch.after("rename", from, self.below.rename(from, to))
    }

    fn sync_dir(&self, purpose: Purpose) -> Result<()> {
        self.watch.after("sync directory", purpose.name(), self.below.sync_dir(purpose))
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let below = self.watch.after("create directory", name, self.below.subdirectory(name))?;
        Ok(Arc::new(Traced { below, watch: self.watch.clone() }))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.below.subdirectories()
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.watch.after("remove directory", name, self.below.remove_subdirectory(name))
    }

    /// Stores to a mapping are not traced; a cut among them counts for the next request.
    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        self.watch.after("map", name, self.below.map(name, bytes))
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.watch.after("lock", name, self.below.lock(name))
    }
}

impl TracedFile {
    fn after<T>(&self, operation: &str, result: T) -> T {
        self.watch.after(operation, &self.name, result)
    }
}

impl File for TracedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.below.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.after("write", self.below.write_at(offset, bytes, purpose))
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.after("sync", self.below.sync(purpose))
    }

    fn is_removed(&self) -> Result<bool> {
        self.below.is_removed()
    }

    fn begin_sync(&self) {
        self.below.begin_sync();
    }

    fn seek_cost_bytes(&self) -> u64 {
        self.below.seek_cost_bytes()
    }

    fn len(&self) -> Result<u64> {
        self.below.len()
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        self.below.next_data(offset)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.after("set length", self.below.set_len(len))
    }

    fn preallocate(&self, bytes: u64, now: u64) {
        self.below.preallocate(bytes, now);
    }

    fn trim_preallocation(&self) -> Result<()> {
        self.below.trim_preallocation()
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.after("reserve", self.below.reserve(len))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.after("punch hole", self.below.punch_hole(offset, len))
    }
}

//! A directory that counts every request and byte by purpose.
//!
//! Wraps another [`Vfs`]; subdirectories and files share one set of counters. Only successful
//! requests are counted: what a failed one moved is unknown.
//!
//! Invariant: every request that a wrapped handle serves is counted, so the read and write
//! amplification of all engines is measured in the same way and can be compared.

use std::any::Any;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{IoCounters, Purpose, Result};

use crate::pmem::{Backing, MappedMemory, lines_of};
use crate::{File, LockGuard, Mapping, Mode, OpenFileCounts, Vfs};

/// A [`Vfs`] with counters. Costs a few nanoseconds per request.
pub struct MeteredVfs {
    inner: Arc<dyn Vfs>,
    counters: Arc<IoCounters>,
}

impl MeteredVfs {
    /// Counts the requests through this handle to `inner`, from zero.
    pub fn new(inner: Arc<dyn Vfs>) -> Self {
        Self::with_counters(inner, Arc::default())
    }

    /// Counts into counters that others may share.
    pub fn with_counters(inner: Arc<dyn Vfs>, counters: Arc<IoCounters>) -> Self {
        MeteredVfs { inner, counters }
    }

    fn wrap(&self, file: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(MeteredFile { inner: file, counters: self.counters.clone() })
    }
}

impl Vfs for MeteredVfs {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.inner.create(name).map(|file| self.wrap(file))
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        self.inner.create_append(name).map(|file| self.wrap(file))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        self.inner.open(name, mode).map(|file| self.wrap(file))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn sync_dir(&self, purpose: Purpose) -> Result<()> {
        self.inner.sync_dir(purpose)?;
        self.counters.sync(purpose);
        Ok(())
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let inner = self.inner.subdirectory(name)?;
        Ok(Arc::new(MeteredVfs::with_counters(inner, self.counters.clone())))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.inner.subdirectories()
    }

    fn has_subdirectory(&self, name: &str) -> Result<bool> {
        self.inner.has_subdirectory(name)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.inner.remove_subdirectory(name)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.lock(name)
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.share_lock(name)
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        // The wrapped directory accepts only a target of its own type.
        let any: &dyn Any = target;
        let target = any.downcast_ref::<MeteredVfs>().map_or(target, |metered| &*metered.inner);
        self.inner.link(name, target, to_name)
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        let counters = self.counters.clone();
        let mapping = self.inner.map(name, bytes)?;
        Ok(mapping.wrap(|inner| Box::new(MeteredBacking { inner, counters })))
    }

    /// Not counted: the caller can wrap it.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        self.inner.open_dir(path)
    }

    fn is_append_only(&self) -> bool {
        self.inner.is_append_only()
    }

    fn path(&self) -> Option<&Path> {
        self.inner.path()
    }

    fn counters(&self) -> Option<Arc<IoCounters>> {
        Some(self.counters.clone())
    }

    fn open_files(&self) -> Option<OpenFileCounts> {
        self.inner.open_files()
    }
}

struct MeteredFile {
    inner: Arc<dyn File>,
    counters: Arc<IoCounters>,
}

impl File for MeteredFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_at(offset, buf, purpose)?;
        self.counters.read(purpose, buf.len() as u64);
        Ok(())
    }

    fn read_lossy_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.inner.read_lossy_at(offset, buf, purpose)?;
        self.counters.read(purpose, buf.len() as u64);
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.inner.write_at(offset, bytes, purpose)?;
        self.counters.write(purpose, bytes.len() as u64);
        Ok(())
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.inner.sync(purpose)?;
        self.counters.sync(purpose);
        Ok(())
    }

    fn is_removed(&self) -> Result<bool> {
        self.inner.is_removed()
    }

    fn allow_close(&self) {
        self.inner.allow_close();
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
        self.inner.set_len(len)
    }

    fn preallocate(&self, bytes: u64, now: u64) {
        self.inner.preallocate(bytes, now);
    }

    fn trim_preallocation(&self) -> Result<()> {
        self.inner.trim_preallocation()
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.inner.reserve(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(offset, len)
    }
}

struct MeteredBacking {
    inner: Box<dyn Backing>,
    counters: Arc<IoCounters>,
}

impl Backing for MeteredBacking {
    fn store(
        &self,
        memory: &MappedMemory<'_>,
        offset: u64,
        bytes: &[u8],
        purpose: Purpose,
    ) -> Result<()> {
        self.inner.store(memory, offset, bytes, purpose)?;
        self.counters.nvm_store(purpose, bytes.len() as u64);
        Ok(())
    }

    fn persist(
        &self,
        memory: &MappedMemory<'_>,
        ranges: &[Range<u64>],
        purpose: Purpose,
    ) -> Result<()> {
        self.inner.persist(memory, ranges, purpose)?;
        self.counters.nvm_persist(purpose, lines_of(ranges));
        Ok(())
    }

    fn note_read(&self, bytes: u64, purpose: Purpose) {
        self.inner.note_read(bytes, purpose);
        self.counters.nvm_read(purpose, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ram;
    use siltstone_engine::{IoCounts, NvmCounts};

    #[test]
    fn requests_are_counted_by_purpose_in_subdirectories_too() {
        let vfs = MeteredVfs::new(Arc::new(Ram::new()));
        let sub = vfs.subdirectory("sub").unwrap();
        let file = sub.create("a").unwrap();
        file.write_at(0, &[1; 100], Purpose::Log).unwrap();
        file.write_at(100, &[1; 20], Purpose::Flush).unwrap();
        file.sync(Purpose::Log).unwrap();
        sub.sync_dir(Purpose::Manifest).unwrap();
        let again = sub.open("a", Mode::Read).unwrap();
        again.read_at(10, &mut [0; 50], Purpose::Get).unwrap();
        again.read_at(10, &mut [0; 500], Purpose::Get).unwrap_err();

        let counters = vfs.counters().unwrap();
        let none = IoCounts::default();
        let expected = [
            (Purpose::Log, IoCounts { writes: 1, bytes_written: 100, syncs: 1, ..none }),
            (Purpose::Flush, IoCounts { writes: 1, bytes_written: 20, ..none }),
            (Purpose::Manifest, IoCounts { syncs: 1, ..none }),
            (Purpose::Get, IoCounts { reads: 1, bytes_read: 50, ..none }),
            (Purpose::Scan, none),
        ];
        for (purpose, counts) in expected {
            assert_eq!(counters.get(purpose), counts, "{purpose:?}");
        }
    }

    #[test]
    fn accesses_to_mapped_memory_are_counted_separately_by_purpose() {
        let vfs = MeteredVfs::new(Arc::new(Ram::new()));
        let mapping = vfs.map("pool", 4096).unwrap();
        mapping.store(60, &[1; 10], Purpose::Flush).unwrap();
        mapping.store(4090, &[1; 10], Purpose::Flush).unwrap_err();
        mapping.persist(&[60..70, 128..129, 9..9], Purpose::Flush).unwrap();
        mapping.read(0, &mut [0; 100], Purpose::Get).unwrap();
        let counters = vfs.counters().unwrap();
        let none = NvmCounts::default();
        let flush = NvmCounts { bytes_stored: 10, lines_persisted: 3, barriers: 1, ..none };
        assert_eq!(counters.nvm(Purpose::Flush), flush);
        assert_eq!(counters.nvm(Purpose::Get), NvmCounts { bytes_read: 100, ..none });
        assert_eq!(counters.nvm_snapshot().len(), 2);
        assert!(Purpose::ALL.iter().all(|&p| counters.get(p) == IoCounts::default()));
    }
}

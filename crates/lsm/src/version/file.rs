//! An open table file, which versions share.
//!
//! A table that moves to another level without being rewritten gets a new [`TableFile`] over the
//! same file. The Bloom filter of an L0 run is in the version (`l0_filter`) and not here.
//!
//! Invariant: the file is removed once it is obsolete and no version on any level has it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::{BloomProbe, HyperLogLog};
use siltstone_table::log::LogArchive;
use siltstone_table::{BlockCache, FileNumber, Filter, PinnedEntry, SKETCH, Table};
use siltstone_vfs::{Mode, Vfs};

use super::FileEntry;
use super::blob_files::{BlobOpener, OpenBlobs};
use super::log_file::{LoggedValue, Wanted};
use crate::blob_ref::BlobRef;

/// An open sorted table at a level of a version. Its file is removed when it is obsolete and the
/// last version that names it, on any level, is dropped.
pub(crate) struct TableFile {
    /// Without its Bloom filter.
    table: Arc<Table>,
    /// `None` for an L0 run too, whose filter is in the version: see `l0_filter`.
    filter: Option<Arc<Filter>>,
    entry: FileEntry,
    file: Arc<SharedFile>,
    /// The files that it refers to.
    blobs: OpenBlobs,
    sketch: OnceLock<Option<HyperLogLog>>,
}

/// The file of a table, shared by the levels that the table had in versions.
struct SharedFile {
    name: String,
    vfs: Arc<dyn Vfs>,
    obsolete: AtomicBool,
}

impl Drop for SharedFile {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            // If this fails, the next open removes the file.
            let _ = self.vfs.remove(&self.name);
        }
    }
}

impl TableFile {
    /// Opens the table of `entry`.
    ///
    /// # Errors
    /// Corruption if the file is not the one that the manifest describes.
    pub(crate) fn open(
        logs: &Arc<LogArchive>,
        entry: FileEntry,
        cache: &Arc<BlockCache>,
        blobs: &BlobOpener<'_>,
    ) -> Result<Arc<Self>> {
        let (file, filter) = Self::open_parts(logs, entry, cache, blobs)?;
        Ok(Arc::new(TableFile { filter, ..file }))
    }

    /// Opens the table of an L0 run; returns its filter, too.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub(super) fn open_run(
        logs: &Arc<LogArchive>,
        entry: FileEntry,
        cache: &Arc<BlockCache>,
        blobs: &BlobOpener<'_>,
    ) -> Result<(Arc<Self>, Option<Arc<Filter>>)> {
        let (file, filter) = Self::open_parts(logs, entry, cache, blobs)?;
        Ok((Arc::new(file), filter))
    }

    /// The table without a filter, and its filter.
    fn open_parts(
        logs: &Arc<LogArchive>,
        entry: FileEntry,
        cache: &Arc<BlockCache>,
        blobs: &BlobOpener<'_>,
    ) -> Result<(Self, Option<Arc<Filter>>)> {
        let number = FileNumber(entry.number);
        let name = entry.file_name();
        let vfs = logs.vfs();
        let file = vfs.open(&name, Mode::Read)?;
        let mut table = Table::open_kind(file, &name, entry.kind(), number, Some(cache.clone()))?;
        let meta = table.meta();
        let named = (entry.bytes, &entry.smallest, &entry.largest);
        if (meta.bytes, &meta.smallest, &meta.largest) != named {
            return Err(Error::corruption(
                name,
                0,
                "the table is not the one that the manifest names",
            ));
        }
        let filter = table.take_filter().map(Arc::new);
        let blobs = blobs.open_all(logs, cache, &entry.blobs)?;
        let (vfs, obsolete) = (vfs.clone(), AtomicBool::new(false));
        let file = Arc::new(SharedFile { name, vfs, obsolete });
        let (table, sketch) = (Arc::new(table), OnceLock::new());
        Ok((TableFile { table, filter: None, entry, file, blobs, sketch }, filter))
    }

    /// The same table on another level. Reads the filter of an L0 run.
    ///
    /// # Errors
    /// `Corruption` in the filter; I/O errors.
    pub(crate) fn moved(&self, entry: FileEntry) -> Result<Arc<Self>> {
        let filter = match &self.filter {
            Some(filter) => Some(filter.clone()),
            None => self.table.read_filter(Purpose::Compaction)?.map(Arc::new),
        };
        let (table, file, sketch) = (self.table.clone(), self.file.clone(), self.sketch.clone());
        let blobs = self.blobs.clone();
        Ok(Arc::new(TableFile { table, filter, entry, file, blobs, sketch }))
    }

    /// Whether the table may contain the key of `probe`; `true` without a filter. Cost: one cache
    /// line.
    #[inline]
    pub(crate) fn may_contain(&self, probe: &mut BloomProbe) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(probe))
    }

    /// The version of `key` in this table that is visible at `at`.
    pub(crate) fn get(
        &self,
        key: &[u8],
        probe: &mut BloomProbe,
        at: u64,
    ) -> Result<Option<PinnedEntry>> {
        let may_exist = match &self.filter {
            // The filter excludes nearly all that the bounds would.
            Some(filter) => filter.may_contain(probe),
            None => self.is_within_bounds(key),
        };
        if may_exist { self.find(key, at) } else { Ok(None) }
    }

    /// As [`get`](Self::get), for a key that the filter does not exclude.
    pub(crate) fn find(&self, key: &[u8], at: u64) -> Result<Option<PinnedEntry>> {
        self.table.find(key, at, Purpose::Get)
    }

    /// The files that it refers to.
    pub(crate) fn blobs(&self) -> &OpenBlobs {
        &self.blobs
    }

    /// Reads the value of an entry of the kind `Reference` that was found for `key`, if it is
    /// wanted, and appends it to `out`.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub(crate) fn read_reference(
        &self,
        (key, found): (&[u8], &PinnedEntry),
        wanted: Wanted,
        out: &mut Vec<u8>,
    ) -> Result<LoggedValue> {
        let reference = BlobRef::decode(found.value(), &self.name())?;
        if wanted == Wanted::Expiry {
            return Ok(LoggedValue::without_value(reference.expires_at));
        }
        self.blobs.read(&reference, (key, found.sequence), out, Purpose::Get)
    }

    /// Whether `key` is neither before the first nor after the last key.
    pub(crate) fn is_within_bounds(&self, key: &[u8]) -> bool {
        self.smallest() <= key && key <= self.largest()
    }

    /// Resident bytes of its filters; the Bloom filter of an L0 run is not among them.
    pub(crate) fn filter_bytes(&self) -> usize {
        self.table.filter_bytes() + self.filter.as_ref().map_or(0, |it| it.memory_bytes())
    }

    pub(crate) fn table(&self) -> &Arc<Table> {
        &self.table
    }

    pub(crate) fn entry(&self) -> &FileEntry {
        &self.entry
    }

    pub(crate) fn number(&self) -> u64 {
        self.entry.number
    }

    pub(crate) fn name(&self) -> String {
        self.entry.file_name()
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.entry.bytes
    }

    pub(crate) fn smallest(&self) -> &[u8] {
        &self.entry.smallest
    }

    pub(crate) fn largest(&self) -> &[u8] {
        &self.entry.largest
    }

    /// Whether the table may contain a key in `from..=to`; `true` without a filter. Cost: about
    /// three cache lines.
    pub(crate) fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        self.smallest() <= to && from <= self.largest() && self.table().may_contain_range(from, to)
    }

    /// The sketch of its keys, read at the first call; `None` if it has none or it cannot be read.
    pub(crate) fn sketch(&self) -> Option<&HyperLogLog> {
        let read = || {
            let block = self.table.meta_block(SKETCH, Purpose::Compaction).ok()??;
            HyperLogLog::from_bytes(&block).ok()
        };
        self.sketch.get_or_init(read).as_ref()
    }

    pub(crate) fn min_sequence(&self) -> u64 {
        self.table.meta().min_sequence
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        self.table.meta().max_sequence
    }

    /// Marks the file as obsolete: no later version names it.
    pub(crate) fn retire(&self) {
        self.file.obsolete.store(true, Ordering::Release);
    }
}

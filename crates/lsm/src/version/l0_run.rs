//! An L0 run: the result of one flush. Runs may overlap; a newer run hides an older one.
//!
//! ```text
//!   sorted table   keys and values, or references       as in any LSM-tree
//!   CL-SSTable     keys and positions ──▶ a sealed log  TRIAD-LOG: no value is written twice
//!   RowTable       pages of persistent memory           MatrixKV, TriangleKV: freed step by step
//! ```
//!
//! Only the keys in its live range are valid: the others, which the L0 cursor has passed, are in
//! level 1, perhaps with newer versions. A RowTable is trimmed to its live range in each version.
//! The versions share the pages that both need, and a page is freed with the last version that
//! needs it. The previous version is kept until the edit that moves the cursor is durable.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::BloomProbe;
use siltstone_table::{Kind, PinnedEntry};

use super::blob_files::BlobFileId;
use super::edit::{FileEntry, L0RunEntry};
use super::file_opener::{FileOpener, PmemRuns};
use super::l0_filter::RunFilter;
use super::{LOG_OF_RUN, LogFile, LoggedValue, TableFile, Wanted};
use crate::live_range::LiveRange;
use crate::pool::POOL_FILE;
use crate::rowtable::{RowTable, RowVersion, SearchStats};

/// An L0 run with its live range in one version.
#[derive(Clone)]
pub(crate) struct L0Run {
    body: Body,
    filter: RunFilter,
    live: LiveRange,
    /// About the size of the live keys and values, in bytes.
    live_bytes: u64,
    /// Its part of the L0 capacity: the bytes of its pages, or its live bytes if it is in files.
    owned_bytes: u64,
}

#[derive(Clone)]
enum Body {
    File { file: Arc<TableFile>, log: Option<Arc<LogFile>> },
    Pmem { table: Arc<RowTable>, entry: Arc<FileEntry> },
}

/// The version of a key that a lookup found in an L0 run.
pub(crate) enum L0Lookup {
    Table(PinnedEntry),
    /// The sequence number, and a copy of the value.
    Log(u64, LoggedValue, Vec<u8>),
    Pmem(RowVersion),
}

impl L0Run {
    /// Opens the run of `entry`. A run in files is live completely until
    /// [`with_cursor`](L0Run::with_cursor). One in persistent memory has the live range of the
    /// manifest, because the other pages may belong to another run by now.
    ///
    /// # Errors
    /// Corruption if a file or a page is not the one that the manifest describes.
    pub(super) fn open(opener: &FileOpener<'_>, entry: &FileEntry) -> Result<Self> {
        let run = entry.run.clone().unwrap_or_default();
        if let Some(handle) = run.pmem {
            let number = entry.number;
            let (table, live) = match &opener.pmem {
                PmemRuns::Built(table) if table.number() == number && table.handle() == handle => {
                    ((*table).clone(), LiveRange::all())
                }
                PmemRuns::Claimed(claims) => {
                    let live = LiveRange::new(opener.cursor, &run.inserted_at);
                    let table = RowTable::open(claims, handle, number, live.clone())?;
                    if table.bounds() != (&entry.smallest, &entry.largest) {
                        let reason = format!("run {number} is not the one that the manifest names");
                        return Err(Error::corruption(claims.name(), 0, reason));
                    }
                    (Arc::new(table), live)
                }
                _ => {
                    let reason = format!("run {number} is in a pool that is not open");
                    return Err(Error::corruption(POOL_FILE, 0, reason));
                }
            };
            let body = Body::Pmem { table, entry: Arc::new(entry.clone()) };
            return Ok(Self::new(body, RunFilter::None, live));
        }
        let (logs, cache, blobs) = (opener.logs, opener.cache, &opener.blobs);
        let (file, filter) = TableFile::open_run(logs, entry.clone(), cache, blobs)?;
        let filter = filter.map_or(RunFilter::None, RunFilter::Own);
        let open =
            |(number, bytes)| blobs.open(logs, cache, BlobFileId { number, is_log: true, bytes });
        let log = run.log.map(open);
        let log = log.transpose()?;
        // If the block cannot be read, expiry times are read from the log.
        if let Some(log) = &log
            && let Ok(Some(block)) = file.table().meta_block(LOG_OF_RUN, Purpose::Recovery)
        {
            log.set_format(&block);
        }
        Ok(Self::new(Body::File { file, log }, filter, LiveRange::all()))
    }

    fn new(body: Body, filter: RunFilter, live: LiveRange) -> Self {
        let mut run = L0Run { body, filter, live, live_bytes: 0, owned_bytes: 0 };
        let live = run.live.intervals().map(|(from, to)| run.bytes_between(from, to)).sum();
        run.live_bytes = live;
        run.owned_bytes = run.pmem_table().map_or(live, |table| table.owned_bytes().iter().sum());
        run
    }

    /// The run in a version with the L0 cursor at `cursor`, inserted when it was at `inserted_at`.
    ///
    /// # Errors
    /// For a run in persistent memory: `Corruption` in the searched pages; `Invalid`: it would
    /// grow.
    pub(crate) fn with_cursor(&self, cursor: &Arc<[u8]>, inserted_at: &Arc<[u8]>) -> Result<Self> {
        let live = LiveRange::sharing(cursor, inserted_at);
        let body = match &self.body {
            // A full range is the same at any cursor.
            Body::Pmem { table, .. } if live.is_full() && table.live().is_full() => {
                self.body.clone()
            }
            Body::Pmem { table, entry } if *table.live() != live => {
                let table = Arc::new(table.trim(live.clone())?);
                Body::Pmem { table, entry: entry.clone() }
            }
            body => body.clone(),
        };
        Ok(Self::new(body, self.filter.clone(), live))
    }

    /// The newest version of `key` in this run that is visible at `at`. Cost: that of the table,
    /// and one read if the value is in a log.
    pub(crate) fn get(
        &self,
        key: &[u8],
        probe: &mut BloomProbe,
        at: u64,
        wanted: Wanted,
        stats: &mut SearchStats,
    ) -> Result<Option<L0Lookup>> {
        // The filter first: it excludes most runs, and costs less than the live range.
        if self.may_contain(probe) { self.find(key, at, wanted, stats) } else { Ok(None) }
    }

    /// As [`get`](Self::get), for a key that the filter does not exclude.
    pub(crate) fn find(
        &self,
        key: &[u8],
        at: u64,
        wanted: Wanted,
        stats: &mut SearchStats,
    ) -> Result<Option<L0Lookup>> {
        if !self.live.contains(key) {
            return Ok(None);
        }
        let (file, log) = match &self.body {
            Body::File { file, log } => (file, log),
            Body::Pmem { table, .. } => {
                return Ok(table.get(key, at, stats)?.map(L0Lookup::Pmem));
            }
        };
        if matches!(self.filter, RunFilter::None) && !file.is_within_bounds(key) {
            return Ok(None);
        }
        let Some(found) = file.find(key, at)? else { return Ok(None) };
        match (log, found.kind) {
            (Some(log), Kind::Position) => {
                let ((position, expires_at), mut value) =
                    (log.position(found.value())?, Vec::new());
                if wanted == Wanted::Expiry && log.has_expiry() {
                    let logged = LoggedValue::without_value(expires_at);
                    return Ok(Some(L0Lookup::Log(found.sequence, logged, value)));
                }
                let version = (key, found.sequence);
                let logged = log.read_value(position, version, &mut value, Purpose::Get)?;
                Ok(Some(L0Lookup::Log(found.sequence, logged, value)))
            }
            (_, Kind::Reference) => {
                let mut value = Vec::new();
                let logged = file.read_reference((key, &found), wanted, &mut value)?;
                Ok(Some(L0Lookup::Log(found.sequence, logged, value)))
            }
            _ => Ok(Some(L0Lookup::Table(found))),
        }
    }

    /// Whether it may contain the key of `probe`; `true` without a filter. Cost: one cache line;
    /// of a sliced filter, one per probe.
    #[inline]
    pub(crate) fn may_contain(&self, probe: &mut BloomProbe) -> bool {
        self.filter.may_contain(probe)
    }

    pub(super) fn filter(&self) -> &RunFilter {
        &self.filter
    }

    pub(super) fn set_filter(&mut self, filter: RunFilter) {
        self.filter = filter;
    }

    /// Whether it may contain a key in `from..=to`; `true` without a filter. Cost: about three
    /// cache lines.
    pub(crate) fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        self.file().is_none_or(|file| file.may_contain_range(from, to))
    }

    /// About the bytes of keys and values from `from` to before `to` (`None`: to the end).
    fn bytes_between(&self, from: &[u8], to: Option<&[u8]>) -> u64 {
        let (all, between) = match &self.body {
            Body::File { file, .. } => {
                let table = file.table();
                let end = to.map_or(table.data_bytes(), |to| table.approximate_offset(to));
                (table.data_bytes(), end.saturating_sub(table.approximate_offset(from)))
            }
            // An unreadable page only makes the estimate larger; readers report the corruption.
            Body::Pmem { table, .. } => (table.data_bytes(), table.bytes_in(from, to).unwrap_or(0)),
        };
        (self.data_bytes() as f64 * between as f64 / all.max(1) as f64) as u64
    }

    /// About the bytes of keys and values from the cursor to before `to` (`None`: the last key).
    pub(crate) fn slice_bytes(&self, to: Option<&[u8]>) -> u64 {
        let slice = self.live.up_to(to);
        slice.intervals().map(|(from, to)| self.bytes_between(from, to)).sum()
    }

    /// Up to `count` keys that split the run into parts of about equal size.
    pub(crate) fn anchors(&self, count: usize) -> Vec<Vec<u8>> {
        match &self.body {
            Body::File { file, .. } => file.table().anchors(count),
            Body::Pmem { table, .. } => table.anchors(count).unwrap_or_default(),
        }
    }

    /// Its table; `None` if it is in persistent memory.
    pub(crate) fn file(&self) -> Option<&Arc<TableFile>> {
        match &self.body {
            Body::File { file, .. } => Some(file),
            Body::Pmem { .. } => None,
        }
    }

    /// Its table, if the table contains the values, or references to them.
    pub(crate) fn file_with_values(&self) -> Option<&Arc<TableFile>> {
        self.file().filter(|_| self.log().is_none())
    }

    pub(crate) fn log(&self) -> Option<&Arc<LogFile>> {
        match &self.body {
            Body::File { log, .. } => log.as_ref(),
            Body::Pmem { .. } => None,
        }
    }

    /// The trimmed RowTable, if it is in persistent memory.
    pub(crate) fn pmem_table(&self) -> Option<&Arc<RowTable>> {
        match &self.body {
            Body::File { .. } => None,
            Body::Pmem { table, .. } => Some(table),
        }
    }

    pub(crate) fn live(&self) -> &LiveRange {
        &self.live
    }

    pub(crate) fn number(&self) -> u64 {
        self.manifest_entry().number
    }

    pub(crate) fn smallest(&self) -> &[u8] {
        &self.manifest_entry().smallest
    }

    pub(crate) fn largest(&self) -> &[u8] {
        &self.manifest_entry().largest
    }

    /// About the size of the live keys and values, in bytes.
    pub(crate) fn live_bytes(&self) -> u64 {
        self.live_bytes
    }

    /// Its part of the L0 capacity, in bytes.
    pub(crate) fn owned_bytes(&self) -> u64 {
        self.owned_bytes
    }

    /// The size of all its keys and values, in bytes.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.manifest_entry().run.as_ref().map_or(0, |run| run.data_bytes)
    }

    /// The size of its files or of its pages, in bytes.
    pub(crate) fn storage_bytes(&self) -> u64 {
        match &self.body {
            Body::File { file, log: Some(log) } => file.bytes() + log.bytes(),
            Body::File { file, log: None } => {
                file.bytes() + file.blobs().iter().map(|log| log.bytes()).sum::<u64>()
            }
            Body::Pmem { .. } => self.owned_bytes,
        }
    }

    /// The number of its versions.
    pub(crate) fn entries(&self) -> u64 {
        match &self.body {
            Body::File { file, .. } => file.table().meta().entries,
            Body::Pmem { table, .. } => table.len() as u64,
        }
    }

    /// See [`FileEntry::deletes_applied`].
    pub(crate) fn deletes_applied(&self) -> u64 {
        self.manifest_entry().deletes_applied
    }

    pub(crate) fn min_sequence(&self) -> u64 {
        match &self.body {
            Body::File { file, .. } => file.min_sequence(),
            Body::Pmem { table, .. } => table.sequences().0,
        }
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        match &self.body {
            Body::File { file, .. } => file.max_sequence(),
            Body::Pmem { table, .. } => table.sequences().1,
        }
    }

    /// Its manifest entry in this version.
    pub(crate) fn entry(&self) -> FileEntry {
        let entry = self.manifest_entry();
        let inserted_at = self.live.inserted_at().to_vec();
        let run = L0RunEntry { inserted_at, ..entry.run.clone().unwrap_or_default() };
        FileEntry { run: Some(run), ..entry.clone() }
    }

    /// Its manifest entry when it was inserted.
    fn manifest_entry(&self) -> &FileEntry {
        match &self.body {
            Body::File { file, .. } => file.entry(),
            Body::Pmem { entry, .. } => entry,
        }
    }

    /// Marks its table as obsolete: no later version names it. Pages are freed automatically.
    pub(crate) fn retire(&self) {
        if let Body::File { file, .. } = &self.body {
            file.retire();
        }
    }
}

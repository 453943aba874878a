//! The read path: a view is pinned, then searched from the newest data to the oldest.
//!
//! ```text
//!   get(key)   active memtable → flushing memtables, newest first → L0 runs, newest first
//!              → level 1 → level 2 → …      the first visible version is the result
//! ```
//!
//! A view is one pointer, loaded without a lock, and keeps the files that it names alive.

mod cursor;
mod l0_run_iter;
mod level;
mod merge;
mod random;
mod source;
mod value_prefetcher;

pub(crate) use level::LevelIter;
pub(crate) use merge::Merge;
pub(crate) use source::{MemtableIter, Source};
pub(crate) use value_prefetcher::PrefetchBudget;

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use siltstone_engine::{Entry, Error, Purpose, ReadPoint, Result};
use siltstone_structures::hash64;
use siltstone_table::{IterOptions, Kind, PinnedEntry};

use crate::engine::Tree;
use crate::memtable::kind_of;
use crate::rowtable::{RowVersion, SearchStats, hints};
use crate::version::{L0Lookup, L0Run};
use crate::view::View;

/// Every sorted run, for a cursor at sequence `at`. L0 runs in files are lazy: most seeks need
/// few.
pub(crate) fn runs(view: &View, at: u64) -> Vec<Source> {
    let (purpose, options) = (Purpose::Scan, IterOptions::SCAN);
    let memtables =
        view.memtables().map(|m| Source::Memtable(MemtableIter::new(m.tree().cursor(), at)));
    let runs = view.version.level0.iter().enumerate().map(|(i, run)| match run.pmem_table() {
        None => Source::Lazy(i),
        Some(_) => Source::of_l0_run(run, purpose, options),
    });
    let levels = view.version.levels.iter().filter(|tables| !tables.is_empty()).cloned();
    let levels =
        levels.map(|tables| Source::Level(Box::new(LevelIter::new(tables, purpose, options))));
    memtables.chain(runs).chain(levels).collect()
}

/// The newest version of `key` up to `at`. `hints`: adjacent RowTables narrow each other's
/// searches; `stats` counts their reads.
fn find(
    view: &View,
    key: &[u8],
    at: u64,
    hints: bool,
    stats: &mut SearchStats,
) -> Result<Option<LookupResult>> {
    for memtable in view.memtables() {
        if let Some(version) = memtable.tree().get(key, at) {
            let kind = kind_of(version.kind);
            let value = version.value.to_vec();
            return Ok(Some(LookupResult { kind, expires_at: version.expires_at, value }));
        }
    }
    let hash = hash64(key);
    let found = find_in_level0(view, key, hash, at, hints, stats);
    if let Some(run) = view.version.pmem_runs().next() {
        run.note_read(stats, Purpose::Get);
    }
    if let Some(found) = found? {
        return Ok(Some(found));
    }
    for tables in &view.version.levels {
        let at_or_after = tables.partition_point(|table| table.largest() < key);
        if let Some(file) = tables.get(at_or_after)
            && let Some(found) = file.get(key, hash, at)?
        {
            return Ok(Some(found.into()));
        }
    }
    Ok(None)
}

fn find_in_level0(
    view: &View,
    key: &[u8],
    hash: u64,
    at: u64,
    hints: bool,
    stats: &mut SearchStats,
) -> Result<Option<LookupResult>> {
    let live = &view.version.level0[..view.version.live_runs(key).0];
    for runs in live.chunk_by(are_both_in_pmem) {
        if hints && runs[0].pmem_table().is_some() {
            let live = runs.iter().filter(|run| run.live().contains(key));
            if let Some(found) = hints::get(live.filter_map(L0Run::pmem_table), key, at, stats)? {
                return Ok(Some(found.into()));
            }
            continue;
        }
        for run in runs {
            if let Some(found) = run.get(key, hash, at, stats)? {
                return Ok(Some(found.into()));
            }
        }
    }
    Ok(None)
}

/// Whether one search by hints covers both runs.
fn are_both_in_pmem(newer: &L0Run, older: &L0Run) -> bool {
    newer.pmem_table().is_some() && older.pmem_table().is_some()
}

/// The version of a key that a lookup found.
struct LookupResult {
    kind: Kind,
    expires_at: u64,
    value: Vec<u8>,
}

impl From<RowVersion> for LookupResult {
    fn from(RowVersion { kind, expires_at, value, .. }: RowVersion) -> Self {
        LookupResult { kind, expires_at, value }
    }
}

impl From<L0Lookup> for LookupResult {
    fn from(found: L0Lookup) -> Self {
        match found {
            L0Lookup::Table(found) => found.into(),
            L0Lookup::Pmem(found) => found.into(),
            L0Lookup::Log(logged, record) => {
                let (kind, expires_at) = (logged.kind(), logged.expires_at);
                LookupResult { kind, expires_at, value: logged.extract(record) }
            }
        }
    }
}

impl From<PinnedEntry> for LookupResult {
    fn from(found: PinnedEntry) -> Self {
        let value = found.value().to_vec();
        LookupResult { kind: found.kind, expires_at: found.expires_at, value }
    }
}

impl Tree {
    /// The entry of `key` as of `point`, or of now.
    pub(crate) fn get(&self, key: &[u8], point: Option<&ReadPoint>) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin(point)?;
        self.counters.gets.fetch_add(1, Relaxed);
        let mut stats = SearchStats::default();
        let found = find(&view, key, at, self.options.hints, &mut stats);
        self.counters.searched_rows(&stats);
        let Some(found) = found? else { return Ok(None) };
        let expires_at = (found.kind == Kind::PutExpiring).then_some(found.expires_at);
        let is_gone = found.kind == Kind::Delete
            || expires_at.is_some_and(|expires_at| expires_at <= self.env.clock.now());
        if is_gone {
            return Ok(None);
        }
        self.counters.gets_found.fetch_add(1, Relaxed);
        Ok(Some(Entry { value: found.value, expires_at }))
    }

    /// A view, and the sequence number at which to read it.
    ///
    /// The view is loaded before the sequence number. So it contains every write up to the number
    /// that this thread could have seen, and no needed version was compacted away in between.
    ///
    /// Of later writes that went to a memtable of the view and to a new one, a reader would see a
    /// part. That cannot happen while memtables are filled one after the other. Beside a NoveLSM
    /// memtable it can, so there the view must still be the present one.
    pub(crate) fn pin(&self, point: Option<&ReadPoint>) -> Result<(Arc<View>, u64)> {
        self.background.check_open()?;
        let mut view = self.view.load_full();
        match point {
            None => loop {
                let at = self.visible.load(Acquire);
                let present = self.has_overlay().then(|| self.view.load_full());
                match present.filter(|present| !Arc::ptr_eq(present, &view)) {
                    Some(present) => view = present,
                    None => return Ok((view, at)),
                }
            },
            Some(point) if self.snapshots.owns(point) => {
                let at = point.sequence();
                // Loaded after the present view, which may be too new for the snapshot.
                Ok((self.snapshots.view_before_clear(at).unwrap_or(view), at))
            }
            Some(_) => Err(Error::Invalid("this snapshot belongs to another table".into())),
        }
    }
}

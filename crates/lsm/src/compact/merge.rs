//! Executes a compaction: splits its key range into subcompactions and merges each into new tables.
//!
//! The thread of the job and up to `max_subcompactions` − 1 helpers take subcompactions from a
//! list, so no thread waits for one that has not begun. An output table ends when it is full, or
//! before it overlaps too much of the level after. A compaction filter decides about the live rows
//! that no older snapshot sees. Operands of merges are folded before that (`folder`). Outputs are
//! synced a few tables later, when the device has had time to write them.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{
    CompactionFilter, Entry, Error, FilterContent, FilterDecision, FilterPass, FilterRow, Purpose,
    ReadPoint, Result,
};
use siltstone_runtime::Priority;
use siltstone_table::{EntryRef, FileNumber, IterOptions, Kind, TableWriter, UnsyncedTable};

use super::Compaction;
use crate::engine::Tree;
use crate::folder::{Folded, Folder};
use crate::range_deletes::{DeleteFilter, DeletedVersion, RangeDeletes};
use crate::read::{LevelIter, Merge, PrefetchBudget, Source};
use crate::version::{FileEntry, LevelTables, TableFile};
use crate::version_gc::{Retention, VersionGc};

/// A smaller key range is not worth a thread.
const MIN_SUBCOMPACTION_BYTES: u64 = 4 << 20;
/// An output table ends when it overlaps this many tables' worth of the level after.
const MAX_GRANDPARENT_TABLES: u64 = 10;
/// More subcompactions than threads, so that no thread is idle for long.
const SUBCOMPACTIONS_PER_THREAD: u64 = 2;
/// The maximum number of unsynced tables per subcompaction: each is an open file.
const MAX_UNSYNCED_TABLES: usize = 4;
/// The entries between two checks for cancellation.
const CHECK_INTERVAL: u64 = 64;

/// The subcompactions of one compaction and their results.
struct Subcompactions {
    compaction: Compaction,
    generation: u64,
    /// Subcompaction `i` has the keys from `cuts[i - 1]` (included; none for the first) to
    /// `cuts[i]`.
    cuts: Vec<Vec<u8>>,
    next: AtomicUsize,
    done: Mutex<Vec<Option<Result<Vec<FileEntry>>>>>,
    progress: Condvar,
    /// The last element is the sequence number of the compaction itself.
    snapshots: Vec<u64>,
    now: u64,
    /// The range deletions of the version. Later ones, in memtables, are not applied: they may not
    /// be durable yet.
    deletes: Arc<RangeDeletes>,
    filter: Option<Filter>,
    /// Expired entries that were dropped or replaced by tombstones.
    expired: AtomicU64,
    /// Rows that the filter dropped.
    filtered: AtomicU64,
}

/// The filter of a compaction, and the content that it sees.
struct Filter {
    filter: Arc<dyn CompactionFilter>,
    point: ReadPoint,
}

/// The content of the table at the point of a compaction.
struct Content<'a> {
    tree: &'a Tree,
    point: &'a ReadPoint,
}

impl FilterContent for Content<'_> {
    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.tree.get(key, Some(self.point))
    }
}

/// The result of a merge.
pub(super) struct MergeResult {
    pub(super) tables: Vec<FileEntry>,
    /// Expired entries that were dropped or replaced by tombstones.
    pub(super) expired: u64,
    /// Rows that the compaction filter dropped.
    pub(super) filtered: u64,
}

impl Tree {
    /// Merges the inputs of `compaction` into new durable tables of its target level.
    ///
    /// # Errors
    /// `Closed` if all keys were cleared since the view of `generation`, or the table is closing.
    pub(super) fn merge_tables(
        &self,
        generation: u64,
        compaction: &Compaction,
    ) -> Result<MergeResult> {
        let filter = self.compaction_filter.lock().clone();
        let (filter, snapshots) = match filter {
            None => (None, self.snapshots.boundaries(&self.visible)),
            Some(filter) => {
                let (point, snapshots) = self.snapshots.take_with_boundaries(&self.visible);
                (Some(Filter { filter, point }), snapshots)
            }
        };
        let cuts = self.cut(compaction);
        let count = cuts.len() + 1;
        let subcompactions = Arc::new(Subcompactions {
            compaction: compaction.clone(),
            generation,
            cuts,
            next: AtomicUsize::new(0),
            done: Mutex::new((0..count).map(|_| None).collect()),
            progress: Condvar::new(),
            snapshots,
            now: self.env.clock.now(),
            deletes: self.view.load().version.range_deletes.clone(),
            filter,
            expired: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
        });
        for _ in 1..count.min(self.options.load().max_subcompactions) {
            // A helper that starts too late must not keep either alive.
            let (weak, subcompactions) = (self.me.clone(), Arc::downgrade(&subcompactions));
            self.env.scheduler.spawn(Priority::L0Compaction, move || {
                if let (Some(tree), Some(subcompactions)) =
                    (weak.upgrade(), subcompactions.upgrade())
                {
                    tree.run_subcompactions(&subcompactions);
                }
            });
        }
        self.run_subcompactions(&subcompactions);
        let mut done = subcompactions.done.lock();
        while done.iter().any(Option::is_none) {
            subcompactions.progress.wait(&mut done);
        }
        let results: Vec<_> = done.drain(..).flatten().collect();
        drop(done);
        let tables = self.collect_tables(results)?;
        self.vfs.sync_dir(Purpose::Compaction)?;
        let (expired, filtered) =
            (subcompactions.expired.load(Relaxed), subcompactions.filtered.load(Relaxed));
        Ok(MergeResult { tables, expired, filtered })
    }

    /// The tables of all subcompactions; if one failed, those of the others are removed.
    fn collect_tables(&self, results: Vec<Result<Vec<FileEntry>>>) -> Result<Vec<FileEntry>> {
        let failure = results.iter().find_map(|result| result.as_ref().err().cloned());
        let tables: Vec<FileEntry> = results.into_iter().flatten().flatten().collect();
        match failure {
            None => Ok(tables),
            Some(error) => {
                self.remove_tables(&tables);
                Err(error)
            }
        }
    }

    pub(crate) fn remove_tables(&self, tables: &[FileEntry]) {
        tables.iter().for_each(|table| self.remove_table(table.number));
    }

    /// The boundaries of the subcompactions: between tables below, with about equal bytes.
    pub(crate) fn cut(&self, compaction: &Compaction) -> Vec<Vec<u8>> {
        let max_count = match self.options.load().max_subcompactions as u64 {
            1 => 1,
            threads => SUBCOMPACTIONS_PER_THREAD * threads,
        };
        let subcompactions = (compaction.bytes() / MIN_SUBCOMPACTION_BYTES).clamp(1, max_count);
        let below = &compaction.below;
        let per_subcompaction = below.len() / subcompactions as usize;
        if per_subcompaction == 0 {
            return Vec::new();
        }
        (1..subcompactions as usize)
            .map(|i| below[i * per_subcompaction].smallest().to_vec())
            .collect()
    }

    /// Executes subcompactions until none is left.
    fn run_subcompactions(&self, subcompactions: &Subcompactions) {
        loop {
            let index = subcompactions.next.fetch_add(1, Relaxed);
            if index > subcompactions.cuts.len() {
                return;
            }
            let panicked = || Err(Error::Invalid("a compaction panicked".to_owned()));
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                self.merge_subcompaction(subcompactions, index)
            }));
            subcompactions.done.lock()[index] = Some(result.unwrap_or_else(|_| panicked()));
            subcompactions.progress.notify_all();
        }
    }

    fn merge_subcompaction(
        &self,
        subcompactions: &Subcompactions,
        index: usize,
    ) -> Result<Vec<FileEntry>> {
        let compaction = &subcompactions.compaction;
        let end = subcompactions.cuts.get(index);
        let runs = runs(compaction, end.map(Vec::as_slice), &self.prefetch_budget(subcompactions))?;
        let mut merge = Merge::new(runs, self.hints);
        match index.checked_sub(1).map(|before| &subcompactions.cuts[before]) {
            None => merge.first()?,
            Some(start) => merge.seek(start, u64::MAX)?,
        }
        let mut output = Output {
            tree: self,
            compaction,
            table: None,
            unsynced: VecDeque::new(),
            done: Vec::new(),
            grandparents: 0..0,
            deletes_applied: subcompactions.deletes.max_sequence(),
            oldest_hiding: u64::MAX,
        };
        let merged = self.merge_range(subcompactions, &mut merge, end, &mut output);
        match merged {
            Ok(()) => Ok(output.done),
            Err(error) => {
                output.abandon();
                Err(error)
            }
        }
    }

    /// The prefetch memory of each CL-SSTable in a subcompaction.
    fn prefetch_budget(&self, subcompactions: &Subcompactions) -> PrefetchBudget {
        let logs =
            subcompactions.compaction.runs.iter().filter(|run| run.log().is_some()).count() as u64;
        let concurrent = (subcompactions.cuts.len() as u64 + 1)
            .min(self.options.load().max_subcompactions as u64);
        let bytes = self.options.load().prefetch_bytes() / (logs * concurrent).max(1);
        PrefetchBudget { bytes, used: self.counters.held_ahead.clone() }
    }

    fn merge_range(
        &self,
        subcompactions: &Subcompactions,
        merge: &mut Merge,
        end: Option<&Vec<u8>>,
        output: &mut Output<'_>,
    ) -> Result<()> {
        let mut gc = VersionGc::new(subcompactions.snapshots.clone());
        let (mut entries_in, mut range_deleted) = (0u64, 0u64);
        let mut deletes = DeleteFilter::new(&subcompactions.deletes);
        let filter = subcompactions.filter.as_ref();
        let content = filter.map(|Filter { point, .. }| Content { tree: self, point });
        let pass = filter.zip(content.as_ref()).map(|(f, content)| f.filter.begin(content));
        let mut kept =
            KeptEntries { subcompactions, pass, output, entries: 0, expired: 0, filtered: 0 };
        let mut folder = Folder::new(self.merges.operator(), subcompactions.now);
        while merge.valid() && end.is_none_or(|end| merge.key() < end.as_slice()) {
            entries_in += 1;
            if entries_in.is_multiple_of(CHECK_INTERVAL) {
                self.background.check_cancelled()?;
                if self.is_cleared_since(subcompactions.generation) {
                    return Err(Error::Closed);
                }
            }
            // The kind of an operand is in its run, that of other versions may be in a log.
            let is_merge = merge.kind() == Kind::Merge;
            if let Some(retention) = gc.keep(merge.key(), merge.sequence(), is_merge) {
                if folder.is_pending() && !folder.is_below(merge.key(), retention.last_read_at) {
                    // The version here is in an older stripe, or of another key.
                    let has_older = folder.key() == merge.key() || kept.may_be_deeper(folder.key());
                    kept.end(&mut folder, has_older)?;
                }
                let (key, sequence) = (merge.key(), merge.sequence());
                let deleted = deletes.check(key, sequence, retention.last_read_at);
                if deleted == DeletedVersion::ForAll {
                    range_deleted += 1;
                    if folder.is_pending() {
                        kept.end(&mut folder, false)?;
                    }
                    merge.next()?;
                    continue;
                }
                merge.resolve()?;
                let entry = EntryRef {
                    key: merge.key(),
                    sequence: merge.sequence(),
                    kind: merge.kind(),
                    expires_at: merge.expires_at(),
                    value: merge.value(),
                };
                if is_merge {
                    folder.push(&entry, retention, deleted);
                } else if !folder.is_pending()
                    || !folder.fold_over(&entry, &mut |made| kept.add_folded(made))?
                {
                    kept.add(entry, retention, deleted)?;
                }
            }
            merge.next()?;
        }
        if folder.is_pending() {
            let has_older = kept.may_be_deeper(folder.key());
            kept.end(&mut folder, has_older)?;
        }
        let KeptEntries { output, entries: entries_out, expired, filtered, .. } = kept;
        output.end_table()?;
        output.sync_all_but(0)?;
        self.counters.operands_folded.fetch_add(folder.folded(), Relaxed);
        self.counters.compaction_entries_in.fetch_add(entries_in, Relaxed);
        self.counters.compaction_entries_out.fetch_add(entries_out, Relaxed);
        self.counters.range_deleted_entries.fetch_add(range_deleted, Relaxed);
        subcompactions.expired.fetch_add(expired, Relaxed);
        subcompactions.filtered.fetch_add(filtered, Relaxed);
        Ok(())
    }
}

/// The versions that a subcompaction keeps, on their way to its tables: expired ones and rows that
/// the filter drops become tombstones, and tombstones that hide nothing are dropped.
struct KeptEntries<'s, 'o, 't> {
    subcompactions: &'s Subcompactions,
    pass: Option<Box<dyn FilterPass + 's>>,
    output: &'o mut Output<'t>,
    /// Those in the tables.
    entries: u64,
    expired: u64,
    filtered: u64,
}

impl KeptEntries<'_, '_, '_> {
    fn add(
        &mut self,
        mut entry: EntryRef<'_>,
        retention: Retention,
        deleted: DeletedVersion,
    ) -> Result<()> {
        if entry.kind == Kind::PutExpiring && entry.expires_at <= self.subcompactions.now {
            // A version that is not the newest was overwritten, perhaps before it expired.
            self.expired += u64::from(retention.is_newest);
            // From now on it is read as missing but hides older versions: a tombstone.
            entry = EntryRef { kind: Kind::Delete, expires_at: 0, value: &[], ..entry };
        }
        if !matches!(entry.kind, Kind::Delete | Kind::Merge)
            && retention.is_newest_stripe
            && let Some(pass) = &mut self.pass
            && pass.decide(row(&entry)) == FilterDecision::Drop
        {
            self.filtered += 1;
            entry = EntryRef { kind: Kind::Delete, expires_at: 0, value: &[], ..entry };
        }
        let is_dropped = entry.kind == Kind::Delete
            && retention.is_oldest_stripe
            && !self.may_be_deeper(entry.key);
        if !is_dropped {
            self.output.add(entry, deleted)?;
            self.entries += 1;
        }
        Ok(())
    }

    fn add_folded(&mut self, made: Folded<'_>) -> Result<()> {
        self.add(made.entry, made.retention, made.deleted)
    }

    /// Ends the operands of a key; `has_older`: there may be older versions elsewhere.
    fn end(&mut self, folder: &mut Folder, has_older: bool) -> Result<()> {
        folder.end(has_older, &mut |made| self.add_folded(made))
    }

    /// Whether a level deeper than the target may contain `key`.
    fn may_be_deeper(&self, key: &[u8]) -> bool {
        let compaction = &self.subcompactions.compaction;
        !compaction.is_bottom() && compaction.may_be_deeper(key)
    }
}

/// A live entry as the compaction filter sees it.
fn row<'a>(entry: &EntryRef<'a>) -> FilterRow<'a> {
    let expires_at = (entry.kind == Kind::PutExpiring).then_some(entry.expires_at);
    FilterRow { key: entry.key, value: entry.value, expires_at }
}

/// The sorted runs to merge: each L0 run separately, each deeper level as one. Entries from `end`
/// on may be left out.
fn runs(
    compaction: &Compaction,
    end: Option<&[u8]>,
    budget: &PrefetchBudget,
) -> Result<Vec<Source>> {
    let options = IterOptions::COMPACTION;
    let level = |tables: &[Arc<TableFile>]| {
        Source::Level(Box::new(LevelIter::new(
            Arc::new(LevelTables::new(tables.to_vec())),
            Purpose::Compaction,
            options,
        )))
    };
    let slice_end = compaction.slice_end.as_ref().map(|to| end.or(to.as_deref()));
    let runs = compaction.runs.iter().map(|run| Source::for_compaction(run, slice_end, budget));
    runs.chain([level(&compaction.inputs), level(&compaction.below)].map(Ok)).collect()
}

/// The output tables of a subcompaction.
struct Output<'a> {
    tree: &'a Tree,
    compaction: &'a Compaction,
    table: Option<OpenTable>,
    /// Oldest first; their entries are in `done`.
    unsynced: VecDeque<UnsyncedTable>,
    done: Vec<FileEntry>,
    /// The tables of the level after `target` that the open table overlaps.
    grandparents: Range<usize>,
    /// The newest range deletion that the merge applies.
    deletes_applied: u64,
    /// The oldest one that hides a version of the open table from all but snapshots; `u64::MAX`:
    /// none does.
    oldest_hiding: u64,
}

struct OpenTable {
    number: FileNumber,
    writer: TableWriter,
    last_key: Vec<u8>,
}

impl Output<'_> {
    fn add(&mut self, entry: EntryRef<'_>, deleted: DeletedVersion) -> Result<()> {
        // All versions of a key stay in one table: tables of a level are disjoint.
        if self.table.as_ref().is_some_and(|open| open.last_key != entry.key)
            && self.is_full(entry.key)
        {
            self.end_table()?;
        }
        if self.table.is_none() {
            let number = FileNumber(self.tree.versions.new_number());
            let mut options = self.tree.options.load().table_options();
            // A seek rarely skips the deepest level, which has most keys: a range filter is
            // useless.
            options.range_filter &= !self.compaction.is_bottom();
            let writer = self.tree.table_writer_as(number, Purpose::Compaction, options)?;
            self.table = Some(OpenTable { number, writer, last_key: Vec::new() });
            let tables = &self.compaction.grandparents;
            let at = tables.partition_point(|table| table.largest() < entry.key);
            self.grandparents = at..at;
        }
        if let DeletedVersion::ForLater(oldest) = deleted {
            self.oldest_hiding = self.oldest_hiding.min(oldest);
        }
        if let Some(open) = &mut self.table {
            open.last_key.clear();
            open.last_key.extend_from_slice(entry.key);
            open.writer.add(entry)?;
        }
        Ok(())
    }

    fn is_full(&mut self, key: &[u8]) -> bool {
        let tables = &self.compaction.grandparents;
        while tables.get(self.grandparents.end).is_some_and(|table| table.largest() < key) {
            self.grandparents.end += 1;
        }
        let limit = self.tree.options.load().target_file_bytes;
        let written = self.table.as_ref().map_or(0, |open| open.writer.estimated_bytes());
        let under: u64 = tables[self.grandparents.clone()].iter().map(|table| table.bytes()).sum();
        written >= limit || under >= MAX_GRANDPARENT_TABLES * limit
    }

    fn end_table(&mut self) -> Result<()> {
        if let Some(open) = self.table.take() {
            let finished = open.writer.finish_unsynced();
            if finished.is_err() {
                self.tree.remove_table(open.number.0);
            }
            let table = finished?;
            self.tree.counters.wrote(self.compaction.target, table.meta().bytes);
            let oldest_hiding = std::mem::replace(&mut self.oldest_hiding, u64::MAX);
            let deletes_applied = self.deletes_applied.min(oldest_hiding - 1);
            let entry = FileEntry::of(table.meta(), self.compaction.target);
            self.done.push(FileEntry { deletes_applied, ..entry });
            self.unsynced.push_back(table);
            self.sync_all_but(MAX_UNSYNCED_TABLES)?;
        }
        Ok(())
    }

    /// Syncs all but the last `count` unsynced tables.
    fn sync_all_but(&mut self, count: usize) -> Result<()> {
        while self.unsynced.len() > count {
            self.unsynced.pop_front().map_or(Ok(()), |table| table.sync().map(drop))?;
        }
        Ok(())
    }

    fn abandon(self) {
        if let Some(open) = self.table {
            drop(open.writer);
            self.tree.remove_table(open.number.0);
        }
        self.tree.remove_tables(&self.done);
    }
}

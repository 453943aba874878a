//! Executes a compaction: splits its key range into subcompactions and merges each into new tables.
//!
//! The thread of the job and up to `max_subcompactions` − 1 helpers take subcompactions from a
//! list, so no thread waits for one that has not begun. A compaction filter decides about the live
//! rows that no older snapshot sees, and may change their values. Operands of merges are folded
//! before that (`folder`). A value that a table refers to is read only if one of them needs it, or
//! if its file is collected.
//!
//! If the filter panics, its decisions are not trusted: what was written is removed, and the
//! compaction is repeated without it, as are later ones.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

use parking_lot::{Condvar, Mutex};
use siltstone_engine::{
    CompactionFilter, Error, EventKind, FilterDecision, FilterPass, MAX_VALUE_BYTES, Purpose,
    Result,
};
use siltstone_runtime::Priority;
use siltstone_table::{EntryRef, IterOptions, Kind};

use super::Compaction;
use super::filter::{Filter, row};
use super::output::{Output, OutputFiles};
use crate::blob_ref::BlobRef;
use crate::engine::Tree;
use crate::folder::{FoldedVersion, Folder};
use crate::range_deletes::{DeleteFilter, DeletedVersion, RangeDeletes};
use crate::read::{LevelIter, Merge, PrefetchBudget, Source};
use crate::version::{LevelTables, TableFile, Version};
use crate::version_gc::{Retention, VersionGc};

/// A smaller key range is not worth a thread.
const MIN_SUBCOMPACTION_BYTES: u64 = 4 << 20;
/// More subcompactions than threads, so that no thread is idle for long.
const SUBCOMPACTIONS_PER_THREAD: u64 = 2;
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
    done: Mutex<Vec<Option<Result<OutputFiles>>>>,
    progress: Condvar,
    /// The last element is the sequence number of the compaction itself.
    snapshots: Vec<u64>,
    now: u64,
    /// The range deletions of the version. Later ones, in memtables, are not applied: they may not
    /// be durable yet.
    deletes: Arc<RangeDeletes>,
    /// The version at the begin, with all inputs.
    version: Arc<Version>,
    /// The files whose values are moved.
    collected: BTreeSet<u64>,
    filter: Option<Filter>,
    /// Expired entries that were dropped or replaced by tombstones.
    expired: AtomicU64,
    /// Rows that the filter dropped.
    filtered: AtomicU64,
    /// Rows whose values the filter changed.
    changed: AtomicU64,
}

impl Subcompactions {
    /// Whether the value moves to a blob file.
    fn collects(&self, reference: &BlobRef) -> bool {
        self.collected.contains(&reference.file)
    }
}

/// The result of a merge.
pub(super) struct MergeResult {
    pub(super) written: OutputFiles,
    /// Expired entries that were dropped or replaced by tombstones.
    pub(super) expired: u64,
    /// Rows that the compaction filter dropped.
    pub(super) filtered: u64,
    /// Rows whose values the compaction filter changed.
    pub(super) changed: u64,
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
        loop {
            let filter = self.compaction_filter.lock().clone();
            let panicked = match self.merge_filtered(generation, compaction, filter.clone()) {
                (result, None) => return result,
                (_, Some(panicked)) => panicked,
            };
            self.counters.filter_panics.fetch_add(1, Relaxed);
            self.env.events.emit(|| EventKind::BackgroundError { error: panicked });
            let mut current = self.compaction_filter.lock();
            // Unless another one was set meanwhile.
            if current.as_ref().zip(filter.as_ref()).is_some_and(|(a, b)| Arc::ptr_eq(a, b)) {
                *current = None;
            }
        }
    }

    /// The same with this filter. The error besides the result says that it has panicked; nothing
    /// is left of the merge then.
    fn merge_filtered(
        &self,
        generation: u64,
        compaction: &Compaction,
        filter: Option<Arc<dyn CompactionFilter>>,
    ) -> (Result<MergeResult>, Option<Error>) {
        // Before the point: who still sees an entry that has expired by then has not written yet.
        let now = self.env.clock.earliest();
        let (filter, snapshots) = match filter {
            None => (None, self.snapshots.boundaries(&self.visible)),
            Some(filter) => {
                let (point, snapshots) = self.snapshots.take_with_boundaries(&self.visible);
                (Some(Filter::new(filter, point)), snapshots)
            }
        };
        let version = self.view.load().version.clone();
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
            now,
            deletes: version.range_deletes.clone(),
            collected: version.blobs.collectable(self.options.load().blob_gc_ratio),
            version,
            filter,
            expired: AtomicU64::new(0),
            filtered: AtomicU64::new(0),
            changed: AtomicU64::new(0),
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
        let panicked = subcompactions.filter.as_ref().and_then(Filter::panicked);
        (self.end_merge(&subcompactions, results), panicked)
    }

    /// Makes the files of all subcompactions durable; if one failed, they are removed.
    fn end_merge(
        &self,
        subcompactions: &Subcompactions,
        results: Vec<Result<OutputFiles>>,
    ) -> Result<MergeResult> {
        let written = self.collect_written(results)?;
        let synced = self.vfs.sync_dir(Purpose::Compaction);
        synced.inspect_err(|_| self.remove_written(&written))?;
        let [expired, filtered, changed] =
            [&subcompactions.expired, &subcompactions.filtered, &subcompactions.changed]
                .map(|count| count.load(Relaxed));
        Ok(MergeResult { written, expired, filtered, changed })
    }

    /// The files of all subcompactions; if one failed, those of the others are removed.
    fn collect_written(&self, results: Vec<Result<OutputFiles>>) -> Result<OutputFiles> {
        let failure = results.iter().find_map(|result| result.as_ref().err().cloned());
        let mut written = OutputFiles::default();
        for mut one in results.into_iter().flatten() {
            written.tables.append(&mut one.tables);
            written.blobs.append(&mut one.blobs);
        }
        match failure {
            None => Ok(written),
            Some(error) => {
                self.remove_written(&written);
                Err(error)
            }
        }
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
            let result =
                catch_unwind(AssertUnwindSafe(|| self.merge_subcompaction(subcompactions, index)));
            subcompactions.done.lock()[index] = Some(result.unwrap_or_else(|_| panicked()));
            subcompactions.progress.notify_all();
        }
    }

    fn merge_subcompaction(
        &self,
        subcompactions: &Subcompactions,
        index: usize,
    ) -> Result<OutputFiles> {
        let compaction = &subcompactions.compaction;
        let end = subcompactions.cuts.get(index);
        let runs = runs(compaction, end.map(Vec::as_slice), &self.prefetch_budget(subcompactions))?;
        let mut merge = Merge::new(runs, self.hints);
        match index.checked_sub(1).map(|before| &subcompactions.cuts[before]) {
            None => merge.first()?,
            Some(start) => merge.seek(start, u64::MAX)?,
        }
        let deletes_applied = subcompactions.deletes.max_sequence();
        let blobs = &subcompactions.version.blobs;
        let mut output = Output::new(self, compaction, blobs, deletes_applied);
        let merged = self.merge_range(subcompactions, &mut merge, end, &mut output);
        match merged {
            Ok(()) => Ok(output.into_written()),
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
        let now = subcompactions.now;
        let content = filter.map(|filter| filter.content(self, now));
        let pass = filter.zip(content.as_ref());
        let pass = pass.map(|(filter, content)| Ok((filter, filter.begin(content)?)));
        let pass = pass.transpose()?;
        let mut kept = KeptEntries {
            subcompactions,
            pass,
            output,
            entries: 0,
            expired: 0,
            filtered: 0,
            changed: 0,
        };
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
                let reference = merge.reference()?;
                let is_collected = reference.is_some_and(|of| subcompactions.collects(&of));
                if reference.is_none() || is_collected || folder.is_pending() || filter.is_some() {
                    merge.resolve()?;
                } else {
                    merge.resolve_without_value()?;
                }
                let reference = reference.filter(|_| !is_collected);
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
                    kept.add(entry, reference, retention, deleted)?;
                }
            }
            merge.next()?;
        }
        if folder.is_pending() {
            let has_older = kept.may_be_deeper(folder.key());
            kept.end(&mut folder, has_older)?;
        }
        let KeptEntries { output, entries: entries_out, expired, filtered, changed, .. } = kept;
        output.finish()?;
        self.counters.operands_folded.fetch_add(folder.folded(), Relaxed);
        self.counters.compaction_entries_in.fetch_add(entries_in, Relaxed);
        self.counters.compaction_entries_out.fetch_add(entries_out, Relaxed);
        self.counters.range_deleted_entries.fetch_add(range_deleted, Relaxed);
        subcompactions.expired.fetch_add(expired, Relaxed);
        subcompactions.filtered.fetch_add(filtered, Relaxed);
        subcompactions.changed.fetch_add(changed, Relaxed);
        Ok(())
    }
}

/// The versions that a subcompaction keeps, on their way to its tables: expired ones and rows that
/// the filter drops become tombstones, and tombstones that hide nothing are dropped.
struct KeptEntries<'s, 'o, 't> {
    subcompactions: &'s Subcompactions,
    pass: Option<(&'s Filter, Box<dyn FilterPass + 's>)>,
    output: &'o mut Output<'t>,
    /// Those in the tables.
    entries: u64,
    expired: u64,
    filtered: u64,
    changed: u64,
}

impl KeptEntries<'_, '_, '_> {
    /// Adds a version with its value, or with the `reference` to it; then the value may be empty
    /// unless there is a filter.
    fn add(
        &mut self,
        entry: EntryRef<'_>,
        mut reference: Option<BlobRef>,
        retention: Retention,
        deleted: DeletedVersion,
    ) -> Result<()> {
        let changed_value;
        let mut entry = entry;
        if entry.kind == Kind::PutExpiring && entry.expires_at <= self.subcompactions.now {
            // A version that is not the newest was overwritten, perhaps before it expired.
            self.expired += u64::from(retention.is_newest);
            // From now on it is read as missing but hides older versions: a tombstone.
            entry = EntryRef { kind: Kind::Delete, expires_at: 0, value: &[], ..entry };
        }
        if !matches!(entry.kind, Kind::Delete | Kind::Merge)
            && retention.is_newest_stripe
            && let Some((filter, pass)) = &mut self.pass
        {
            match filter.decide(pass.as_mut(), row(&entry))? {
                FilterDecision::Drop => {
                    self.filtered += 1;
                    entry = EntryRef { kind: Kind::Delete, expires_at: 0, value: &[], ..entry };
                }
                FilterDecision::Change(value) if value.len() <= MAX_VALUE_BYTES => {
                    self.changed += 1;
                    changed_value = value;
                    entry.value = &changed_value;
                    // The old value becomes garbage of its file.
                    reference = None;
                }
                FilterDecision::Keep | FilterDecision::Change(_) => {}
            }
        }
        let is_dropped = entry.kind == Kind::Delete
            && retention.is_oldest_stripe
            && !self.may_be_deeper(entry.key);
        if !is_dropped {
            let reference = reference.filter(|_| entry.kind != Kind::Delete);
            self.output.add(entry, reference, deleted)?;
            self.entries += 1;
        }
        Ok(())
    }

    fn add_folded(&mut self, made: FoldedVersion<'_>) -> Result<()> {
        self.add(made.entry, None, made.retention, made.deleted)
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

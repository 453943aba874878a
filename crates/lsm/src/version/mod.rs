//! Versions: the set of files at a point in time.
//!
//! ```text
//!   Version (immutable, shared)
//!     level 0   runs, newest first, may overlap    [run 9] [run 8] [run 7]     and a cursor
//!     level 1   tables, disjoint, by key           [a..f] [g..m] [n..z]
//!     level 2   …
//! ```
//!
//! A change is an [`Edit`]: first appended to the manifest (durable), then applied to make the next
//! version. A file is deleted when the last version that names it is dropped. Values may be in
//! other files than their tables (`blob_files`).

pub(crate) mod blob_files;
mod edit;
mod edit_format;
mod file;
mod file_opener;
mod l0_filter;
mod l0_occupancy;
mod l0_run;
mod log_file;
mod set;
mod tables;

pub(crate) use blob_files::{BlobFileId, BlobFiles, BlobOpener, BlobUse, OpenBlobs};
pub(crate) use edit::{Edit, FileEntry, L0RunEntry};
pub(crate) use file::TableFile;
pub(crate) use file_opener::{FileOpener, OpenFile, PmemRuns};
pub(crate) use l0_filter::FilterSpan;
pub(crate) use l0_run::{L0Lookup, L0Run};
pub(crate) use log_file::{HAS_EXPIRY, LOG_OF_RUN, LogFile, LoggedValue, Wanted};
pub(crate) use set::{ENGINE, open_versions};
pub(crate) use tables::{LevelTables, Tables};

use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_structures::HyperLogLog;

use crate::range_deletes::RangeDeletes;
use crate::rowtable::RowTable;

/// The files of the table at a point in time.
#[derive(Default, Clone)]
pub struct Version {
    /// Newest first.
    pub(crate) level0: Vec<L0Run>,
    /// The L0 cursor: where the next slice begins; the empty key, the least of all, is the start.
    pub(crate) cursor: Arc<[u8]>,
    /// Levels 1, 2, …: disjoint and sorted by key.
    pub(crate) levels: Vec<Tables>,
    /// Level and the key after which its next compaction begins.
    compaction_cursors: Vec<(usize, Vec<u8>)>,
    /// The range deletions of all flushed memtables that may still hide anything.
    pub(crate) range_deletes: Arc<RangeDeletes>,
    /// The name of the merge operator; `None`: there are no operands.
    pub(crate) merge_operator: Option<Arc<str>>,
    /// By level, 0 first: see [`bytes`](Version::bytes). Cached, because every seek needs it.
    bytes: Vec<u64>,
    /// See [`l0_occupancy`].
    l0_occupancy: u64,
    /// See [`live_runs`](Version::live_runs).
    are_runs_nested: bool,
    /// The runs of level 0 by the way in which their filters are asked.
    pub(crate) filter_spans: Vec<FilterSpan>,
    /// The files that contain values of tables and runs.
    pub(crate) blobs: Arc<BlobFiles>,
}

impl Version {
    pub(crate) fn new(levels: usize) -> Self {
        Version { levels: vec![Tables::default(); levels], ..Version::default() }.with_totals()
    }

    /// The tables of level `level` ≥ 1.
    pub(crate) fn level(&self, level: usize) -> &[Arc<TableFile>] {
        &self.levels[level - 1]
    }

    /// All tables, level by level; runs in persistent memory have none.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let runs = self.level0.iter().filter_map(|run| Some((0, run.file()?)));
        let tables = self.levels.iter().enumerate();
        runs.chain(tables.flat_map(|(i, tables)| tables.iter().map(move |t| (i + 1, t))))
    }

    /// The manifest entries of all tables and runs.
    pub(crate) fn entries(&self) -> Vec<FileEntry> {
        let tables = self.levels.iter().flat_map(|tables| tables.iter());
        let tables = tables.map(|table| table.entry().clone());
        self.level0.iter().map(L0Run::entry).chain(tables).collect()
    }

    /// The logs that are part of L0 runs or that tables refer to, and the blob files.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &Arc<LogFile>> {
        self.blobs.iter().map(|blob| &blob.file)
    }

    /// The runs in persistent memory, newest first.
    pub(crate) fn pmem_runs(&self) -> impl Iterator<Item = &Arc<RowTable>> {
        self.level0.iter().filter_map(L0Run::pmem_table)
    }

    /// This version without the runs in persistent memory.
    pub(crate) fn without_pmem_runs(&self) -> Version {
        let mut rest = self.clone();
        rest.level0.retain(|run| run.pmem_table().is_none());
        rest.with_totals()
    }

    /// The size of the tables of a level in bytes; for level 0 about the live bytes of its runs.
    pub(crate) fn bytes(&self, level: usize) -> u64 {
        self.bytes[level]
    }

    /// The number of newest runs that may contain `key`, and whether it is live in all of them.
    /// That is known if each run's live range is within that of every newer run, as in a triangle;
    /// else the result is (all runs, false). Cost: a binary search.
    pub(crate) fn live_runs(&self, key: &[u8]) -> (usize, bool) {
        if !self.are_runs_nested {
            return (self.level0.len(), false);
        }
        let is_from_cursor_on = *self.cursor <= *key;
        let is_live = |run: &L0Run| run.live().contains_beside_cursor(key, is_from_cursor_on);
        (self.level0.partition_point(is_live), true)
    }

    /// The bytes of level 1 and all deeper levels.
    pub(crate) fn bytes_below(&self) -> u64 {
        self.bytes.iter().skip(1).sum()
    }

    /// As [`bytes_below`](Version::bytes_below), with the values that are in other files. Level 0
    /// counts its values, too, wherever they are.
    pub(crate) fn data_bytes_below(&self) -> u64 {
        self.bytes_below() + self.blobs.live_bytes_below()
    }

    /// The memory of the sketches of L0 runs, in bytes.
    pub(crate) fn sketch_bytes(&self) -> u64 {
        let sketches = self.level0.iter().filter_map(|run| run.file()?.sketch());
        sketches.count() as u64 * HyperLogLog::BYTES as u64
    }

    fn l0_filters(&self) -> impl Iterator<Item = &l0_filter::RunFilter> {
        self.level0.iter().map(L0Run::filter)
    }

    /// Slices the filters of level 0.
    fn slice_filters(&mut self) {
        let mut filters: Vec<_> = self.l0_filters().cloned().collect();
        if l0_filter::slice(&mut filters) {
            self.level0.iter_mut().zip(filters).for_each(|(run, filter)| run.set_filter(filter));
        }
    }

    /// The memory of the filters, in bytes.
    pub(crate) fn filter_bytes(&self) -> u64 {
        let tables = self.files().map(|(_, file)| file.filter_bytes()).sum::<usize>();
        (tables + l0_filter::memory_bytes(self.l0_filters(), &self.filter_spans)) as u64
    }

    /// The filter queries that a get of an absent key makes in level 0.
    pub(crate) fn l0_filter_queries(&self) -> u64 {
        l0_filter::queries(self.l0_filters(), &self.filter_spans) as u64
    }

    /// The sizes of the Bloom filters of level 0 in bytes, newest first, each once.
    pub(crate) fn l0_filter_sizes(&self) -> Vec<usize> {
        l0_filter::sizes(self.l0_filters())
    }

    /// The occupied part of the L0 capacity, in bytes: see [`l0_occupancy`].
    pub(crate) fn l0_occupancy(&self) -> u64 {
        self.l0_occupancy
    }

    /// Counts what the tables and runs refer to. Cost: one step per table and file that it refers
    /// to.
    fn count_blobs(&self) -> BlobFiles {
        let mut blobs = BlobFiles::default();
        for table in self.levels.iter().flat_map(|tables| tables.iter()) {
            blobs.add_table(table.blobs(), &table.entry().blobs);
        }
        // Last: they count in full.
        for run in &self.level0 {
            let referred = run.file().into_iter().flat_map(|file| file.blobs().iter());
            referred.chain(run.log()).for_each(|file| blobs.add_level0(file));
        }
        blobs.counted()
    }

    fn with_totals(mut self) -> Version {
        let tables =
            self.levels.iter().map(|tables| tables.iter().map(|table| table.bytes()).sum());
        let runs = self.level0.iter().map(L0Run::live_bytes).sum();
        self.bytes = std::iter::once(runs).chain(tables).collect();
        self.l0_occupancy = l0_occupancy::occupancy(&self.level0);
        let is_within = |pair: &[L0Run]| pair[1].live().is_within(pair[0].live());
        self.are_runs_nested = self.level0.windows(2).all(is_within)
            && self.level0.iter().all(|run| run.live().has_cursor_at(&self.cursor));
        let filters = self.level0.iter().map(|run| (run.filter(), run.pmem_table().is_some()));
        self.filter_spans = l0_filter::spans(filters);
        let edited = self.levels.iter_mut().filter(|tables| tables.is_edited());
        edited.for_each(|tables| Arc::make_mut(tables).index());
        self
    }

    /// The part of level 1 before the L0 cursor, in millionths of its bytes.
    pub(crate) fn passed_ppm(&self) -> u64 {
        let level1 = self.level(1);
        let passed = level1.partition_point(|table| table.largest() < &*self.cursor);
        let bytes = |tables: &[Arc<TableFile>]| tables.iter().map(|t| t.bytes()).sum::<u64>();
        1_000_000 * bytes(&level1[..passed]) / bytes(level1).max(1)
    }

    /// The tables of `level` ≥ 1 that overlap `smallest..=largest`.
    pub(crate) fn overlapping(
        &self,
        level: usize,
        smallest: &[u8],
        largest: &[u8],
    ) -> &[Arc<TableFile>] {
        let tables = self.level(level);
        let from = tables.partition_point(|table| table.largest() < smallest);
        let to = tables.partition_point(|table| table.smallest() <= largest);
        &tables[from..to.max(from)]
    }

    /// The next version: this one with `edit` applied; `opened` are the files that it adds.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the edit doesn't fit: it removes a table that this version lacks,
    /// or makes the tables of a level overlap.
    pub(crate) fn apply(&self, edit: &Edit, opened: &[OpenFile]) -> Result<Version> {
        let misfit = |what: String| Error::corruption("MANIFEST", 0, what);
        let mut next = self.clone();
        for &(level, number) in &edit.removed {
            let was_removed = match level {
                0 => remove_one(&mut next.level0, |run| run.number() == number),
                _ if level <= next.levels.len() => {
                    let tables = Arc::make_mut(&mut next.levels[level - 1]).edit();
                    remove_one(tables, |table| table.number() == number)
                }
                _ => false,
            };
            if !was_removed {
                return Err(misfit(format!("removes table {number} that level {level} lacks")));
            }
        }
        // Before runs are added: one in persistent memory has only its live pages.
        if let Some(cursor) = &edit.cursor {
            next.cursor = cursor[..].into();
        }
        for (entry, opened) in edit.added.iter().zip(opened) {
            match opened {
                OpenFile::L0Run(run) => {
                    let inserted_at = entry.run.as_ref().map(|run| &run.inserted_at[..]);
                    let run =
                        run.with_cursor(&next.cursor, &inserted_at.unwrap_or_default().into())?;
                    // Runs are ordered by their newest entry; a repair may add old ones.
                    let newest = run.max_sequence();
                    let at = next.level0.partition_point(|run| run.max_sequence() > newest);
                    next.level0.insert(at, run);
                }
                OpenFile::Table(file) => {
                    if next.levels.len() < entry.level {
                        next.levels.resize(entry.level, Tables::default());
                    }
                    let tables = Arc::make_mut(&mut next.levels[entry.level - 1]).edit();
                    let at = tables.partition_point(|table| table.smallest() < file.smallest());
                    tables.insert(at, file.clone());
                }
            }
        }
        edit::merge_cursors(&mut next.compaction_cursors, &edit.cursors);
        if !edit.range_deletes.is_empty() || !edit.forgotten.is_empty() {
            let present = self.range_deletes.iter().chain(&edit.range_deletes);
            let kept = present.filter(|delete| !edit.forgotten.contains(&delete.sequence));
            next.range_deletes = Arc::new(RangeDeletes::new(kept.cloned().collect()));
        }
        next.merge_operator = edit.merge_operator.clone().or(next.merge_operator);
        next.move_cursor(edit)?;
        for (i, tables) in next.levels.iter().enumerate() {
            if let Some(pair) = tables.windows(2).find(|p| p[0].largest() >= p[1].smallest()) {
                return Err(misfit(format!(
                    "tables {} and {} of level {} overlap",
                    pair[0].number(),
                    pair[1].number(),
                    i + 1
                )));
            }
        }
        if !edit.added.is_empty() || !edit.removed.is_empty() {
            next.blobs = Arc::new(next.count_blobs());
        }
        next.slice_filters();
        Ok(next.with_totals())
    }

    /// Updates the live ranges of all runs to the L0 cursor.
    fn move_cursor(&mut self, edit: &Edit) -> Result<()> {
        if edit.cursor.is_none() && edit.insertions.is_empty() {
            return Ok(());
        }
        let moved_numbers = edit.insertions.iter().map(|(number, _)| number);
        let is_here = |number: &&u64| self.level0.iter().any(|run| run.number() == **number);
        if let Some(missing) = moved_numbers.clone().find(|number| !is_here(number)) {
            let reason = format!("moves run {missing}, which level 0 lacks");
            return Err(Error::corruption("MANIFEST", 0, reason));
        }
        for run in &mut self.level0 {
            let insertion = edit.insertions.iter().find(|(number, _)| *number == run.number());
            let inserted_at =
                insertion.map_or(run.live().inserted_at().clone(), |(_, key)| key[..].into());
            *run = run.with_cursor(&self.cursor, &inserted_at)?;
        }
        Ok(())
    }
}

fn remove_one<T>(items: &mut Vec<T>, matches: impl Fn(&T) -> bool) -> bool {
    match items.iter().position(matches) {
        Some(at) => {
            items.remove(at);
            true
        }
        None => false,
    }
}

//! Which files make up the table, now and at each moment that someone still reads.
//!
//! ```text
//!   Version (immutable, shared)
//!     level 0   rows, newest first, may overlap    [row 9] [row 8] [row 7]     and a cursor
//!     level 1   tables, disjoint, by key           [a..f] [g..m] [n..z]
//!     level 2   …
//! ```
//!
//! A change is an [`Edit`]: written to the manifest (durable), then applied to make the next
//! version. A file is deleted when the last version that names it is gone.

mod edit;
mod file;
mod log_file;
mod opened;
mod room;
mod row;
mod set;

pub(crate) use edit::{Edit, FileEntry, RowEntry};
pub(crate) use file::TableFile;
pub(crate) use log_file::{LOG_OF_ROW, LogFile, Logged, TELLS_EXPIRY};
pub(crate) use opened::{NvmRows, Opened, Opener};
pub(crate) use row::{InRow, Row};
pub(crate) use set::{ENGINE, Versions, fold, missing_file, missing_manifest};

use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_structures::HyperLogLog;

use crate::rowtable::RowTable;

/// The tables of one level ≥ 1, shared by versions that agree on it and by those who walk it.
pub(crate) type Tables = Arc<Vec<Arc<TableFile>>>;

/// The files of the table at one moment.
#[derive(Default, Clone)]
pub(crate) struct Version {
    /// Newest first.
    pub(crate) level0: Vec<Row>,
    /// Where the next partial compaction of level 0 begins; the empty key is the start.
    pub(crate) cursor: Arc<[u8]>,
    /// Levels 1, 2, …: disjoint and sorted by key.
    pub(crate) levels: Vec<Tables>,
    /// By level, 0 first: see [`bytes`](Version::bytes). Summed up once, because every seek asks.
    bytes: Vec<u64>,
    /// See [`room`].
    room: u64,
    /// See [`live_rows`](Version::live_rows).
    are_rows_nested: bool,
}

impl Version {
    pub(crate) fn new(levels: usize) -> Self {
        Version { levels: vec![Tables::default(); levels], ..Version::default() }.summed_up()
    }

    /// The tables of level `level` ≥ 1.
    pub(crate) fn level(&self, level: usize) -> &[Arc<TableFile>] {
        &self.levels[level - 1]
    }

    /// All tables, level by level; rows in persistent memory are none.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let rows = self.level0.iter().filter_map(|row| Some((0, row.file()?)));
        let tables = self.levels.iter().enumerate();
        rows.chain(tables.flat_map(|(i, tables)| tables.iter().map(move |t| (i + 1, t))))
    }

    /// What the manifest has to say of every table and row.
    pub(crate) fn entries(&self) -> Vec<FileEntry> {
        let tables = self.levels.iter().flat_map(|tables| tables.iter());
        let tables = tables.map(|table| table.entry().clone());
        self.level0.iter().map(Row::entry).chain(tables).collect()
    }

    /// The logs that are part of rows.
    pub(crate) fn logs(&self) -> impl Iterator<Item = &Arc<LogFile>> {
        self.level0.iter().filter_map(Row::log)
    }

    /// The rows that are in persistent memory, newest first.
    pub(crate) fn nvm_rows(&self) -> impl Iterator<Item = &Arc<RowTable>> {
        self.level0.iter().filter_map(Row::nvm)
    }

    /// This version without them.
    pub(crate) fn without_nvm_rows(&self) -> Version {
        let mut rest = self.clone();
        rest.level0.retain(|row| row.nvm().is_none());
        rest.summed_up()
    }

    /// The tables of all levels, and about what is live in the rows of level 0, in bytes.
    pub(crate) fn bytes(&self, level: usize) -> u64 {
        self.bytes[level]
    }

    /// How many rows, the newest, may answer for `key`, and whether all of these do: where each row's live keys are
    /// among those of every newer one, as in a triangle. Else each is to be asked. Cost: a binary search.
    pub(crate) fn live_rows(&self, key: &[u8]) -> (usize, bool) {
        if !self.are_rows_nested {
            return (self.level0.len(), false);
        }
        (self.level0.partition_point(|row| row.live().contains(key)), true)
    }

    /// Bytes of level 1 and all below it.
    pub(crate) fn bytes_below(&self) -> u64 {
        self.bytes.iter().skip(1).sum()
    }

    /// What the sketches of rows take in memory.
    pub(crate) fn sketch_bytes(&self) -> u64 {
        let sketches = self.level0.iter().filter_map(|row| row.file()?.sketch());
        sketches.count() as u64 * HyperLogLog::BYTES as u64
    }

    /// What the rows take of level 0's room, in bytes: see [`room`].
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    fn summed_up(mut self) -> Version {
        let tables =
            self.levels.iter().map(|tables| tables.iter().map(|table| table.bytes()).sum());
        let rows = self.level0.iter().map(Row::live_bytes).sum();
        self.bytes = std::iter::once(rows).chain(tables).collect();
        self.room = room::taken(&self.level0);
        let is_within = |pair: &[Row]| pair[1].live().is_within(pair[0].live());
        self.are_rows_nested = self.level0.windows(2).all(is_within);
        self
    }

    /// How much of level 1 lies before the cursor over level 0, in millionths of its bytes.
    pub(crate) fn passed_ppm(&self) -> u64 {
        let level1 = self.level(1);
        let passed = level1.partition_point(|table| table.largest() < &*self.cursor);
        let bytes = |tables: &[Arc<TableFile>]| tables.iter().map(|t| t.bytes()).sum::<u64>();
        1_000_000 * bytes(&level1[..passed]) / bytes(level1).max(1)
    }

    /// The tables of `level` ≥ 1 that have keys in `smallest..=largest`.
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

    /// The next version: this one with `edit` applied; `opened` is what it adds.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the edit doesn't fit: it removes what is not there, or leaves a
    /// level whose tables overlap.
    pub(crate) fn apply(&self, edit: &Edit, opened: &[Opened]) -> Result<Version> {
        let misfit = |what: String| Error::corruption("MANIFEST", 0, what);
        let mut next = self.clone();
        for &(level, number) in &edit.removed {
            let gone = match level {
                0 => remove_one(&mut next.level0, |row| row.number() == number),
                _ if level <= next.levels.len() => {
                    let tables = Arc::make_mut(&mut next.levels[level - 1]);
                    remove_one(tables, |table| table.number() == number)
                }
                _ => false,
            };
            if !gone {
                return Err(misfit(format!("removes table {number} that level {level} lacks")));
            }
        }
        // Before the rows: of one in persistent memory nothing else is there any more.
        if let Some(cursor) = &edit.cursor {
            next.cursor = cursor[..].into();
        }
        for (entry, opened) in edit.added.iter().zip(opened) {
            match opened {
                Opened::Row(row) => {
                    let arrival = entry.row.as_ref().map(|row| &row.arrival[..]);
                    let row = row.with_cursor(&next.cursor, &arrival.unwrap_or_default().into())?;
                    // Rows are ordered by their newest entry; a repaired store may add old ones.
                    let newest = row.max_sequence();
                    let at = next.level0.partition_point(|row| row.max_sequence() > newest);
                    next.level0.insert(at, row);
                }
                Opened::Table(file) => {
                    if next.levels.len() < entry.level {
                        next.levels.resize(entry.level, Tables::default());
                    }
                    let tables = Arc::make_mut(&mut next.levels[entry.level - 1]);
                    let at = tables.partition_point(|table| table.smallest() < file.smallest());
                    tables.insert(at, file.clone());
                }
            }
        }
        next.turn(edit)?;
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
        Ok(next.summed_up())
    }

    /// Has the rows follow the cursor over level 0: what is live of each.
    fn turn(&mut self, edit: &Edit) -> Result<()> {
        if edit.cursor.is_none() && edit.arrivals.is_empty() {
            return Ok(());
        }
        let strays = edit.arrivals.iter().map(|(number, _)| number);
        let is_here = |number: &&u64| self.level0.iter().any(|row| row.number() == **number);
        if let Some(stray) = strays.clone().find(|number| !is_here(number)) {
            let reason = format!("moves row {stray}, which level 0 lacks");
            return Err(Error::corruption("MANIFEST", 0, reason));
        }
        for row in &mut self.level0 {
            let moved = edit.arrivals.iter().find(|(number, _)| *number == row.number());
            let arrival = moved.map_or(row.live().arrival().clone(), |(_, key)| key[..].into());
            *row = row.with_cursor(&self.cursor, &arrival)?;
        }
        Ok(())
    }
}

fn remove_one<T>(items: &mut Vec<T>, is_it: impl Fn(&T) -> bool) -> bool {
    match items.iter().position(is_it) {
        Some(at) => {
            items.remove(at);
            true
        }
        None => false,
    }
}

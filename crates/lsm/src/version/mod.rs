//! Which files make up the table, now and at each moment that someone still reads.
//!
//! ```text
//!   Version (immutable, shared)
//!     level 0   rows, newest first, may overlap    [row 9] [row 8] [row 7]
//!     level 1   tables, disjoint, by key           [a..f] [g..m] [n..z]
//!     level 2   …
//! ```
//!
//! A change is an [`Edit`]: written to the manifest (durable), then applied to make the next
//! version. A file is deleted when the last version that names it is gone.

mod edit;
mod file;
mod set;

pub(crate) use edit::{Edit, FileEntry};
pub(crate) use file::{Row, TableFile};
pub(crate) use set::{ENGINE, Recovered, Versions, fold};

use std::sync::Arc;

use siltstone_engine::{Error, Result};

/// The files of the table at one moment.
#[derive(Default, Clone)]
pub(crate) struct Version {
    /// Newest first.
    pub(crate) level0: Vec<Row>,
    /// Levels 1, 2, …: disjoint and sorted by key.
    pub(crate) levels: Vec<Vec<Arc<TableFile>>>,
}

impl Version {
    pub(crate) fn new(levels: usize) -> Self {
        Version { level0: Vec::new(), levels: vec![Vec::new(); levels] }
    }

    /// The tables of level `level` ≥ 1.
    pub(crate) fn level(&self, level: usize) -> &[Arc<TableFile>] {
        &self.levels[level - 1]
    }

    /// All files, level by level.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        let rows = self.level0.iter().map(|row| (0, row.file()));
        let tables = self.levels.iter().enumerate();
        rows.chain(tables.flat_map(|(i, tables)| tables.iter().map(move |t| (i + 1, t))))
    }

    /// Bytes of all tables of a level.
    pub(crate) fn bytes(&self, level: usize) -> u64 {
        match level {
            0 => self.level0.iter().map(|row| row.file().bytes()).sum(),
            _ => self.level(level).iter().map(|table| table.bytes()).sum(),
        }
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

    /// The next version: this one with `edit` applied; `opened` are the tables that it adds.
    ///
    /// # Errors
    /// [`Error::Corruption`] if the edit doesn't fit: it removes what is not there, or leaves a
    /// level whose tables overlap.
    pub(crate) fn apply(&self, edit: &Edit, opened: &[Arc<TableFile>]) -> Result<Version> {
        let misfit = |what: String| Error::corruption("MANIFEST", 0, what);
        let mut next = self.clone();
        for &(level, number) in &edit.removed {
            let gone = match level {
                0 => remove_one(&mut next.level0, |row| row.file().number() == number),
                _ if level <= next.levels.len() => {
                    remove_one(&mut next.levels[level - 1], |table| table.number() == number)
                }
                _ => false,
            };
            if !gone {
                return Err(misfit(format!("removes table {number} that level {level} lacks")));
            }
        }
        for (entry, file) in edit.added.iter().zip(opened) {
            match entry.level {
                0 => {
                    // Rows are ordered by their newest entry; a repaired store may add old ones.
                    let newest = |row: &Row| row.file().max_sequence();
                    let at = next.level0.partition_point(|row| newest(row) > file.max_sequence());
                    next.level0.insert(at, Row::Sst(file.clone()));
                }
                level => {
                    if next.levels.len() < level {
                        next.levels.resize(level, Vec::new());
                    }
                    let tables = &mut next.levels[level - 1];
                    let at = tables.partition_point(|table| table.smallest() < file.smallest());
                    tables.insert(at, file.clone());
                }
            }
        }
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
        Ok(next)
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

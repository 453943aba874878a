//! A key drawn by chance, each that is there as likely as any other.
//!
//! A version is drawn from all that are stored, in memtables, rows and tables, and taken if it is
//! the one that its key reads as now. A key has one such version, whatever it has of older ones, so
//! no key is more likely than another; what is dead or hidden is drawn in vain. Where nearly
//! everything is dead the key behind a dead one has to do, which is then fair only as far as the
//! dead are spread.
//!
//! ```text
//!   draw a run by its versions ─▶ draw a version in it ─▶ newest of its key, and live? ─ yes ─▶ the key
//!        ▲                                                     │ no
//!        └─────────────────────────────────────────────────────┘  MAX_DRAWS times
//! ```
//!
//! Invariant: the cost does not grow with the number of keys, but for the walk over dead versions
//! at the end.
//!
//! Source: rejection sampling.

use std::sync::Arc;

use siltstone_engine::{KeyRange, Purpose, Result};
use siltstone_table::IterOptions;

use super::{Merge, View};
use crate::engine::Inner;
use crate::memtable::Memtable;
use crate::version::{Row, TableFile};

/// How many versions are drawn before one behind a dead one will do.
const MAX_DRAWS: usize = 128;

/// A run that versions are drawn from.
enum Run<'v> {
    Memtable(&'v Arc<Memtable>),
    Row(&'v Row),
    Table(&'v Arc<TableFile>),
}

impl View {
    /// Every run, with the number of its versions (of a memtable: of its keys).
    fn weighted_runs(&self) -> Vec<(u64, Run<'_>)> {
        let memtables =
            self.memtables().map(|table| (table.tree().keys() as u64, Run::Memtable(table)));
        let rows = self.version.level0.iter().map(|row| {
            let entries = row.nvm().map_or_else(|| row.entries(), |table| table.len() as u64);
            (entries, Run::Row(row))
        });
        let tables = self.version.levels.iter().flat_map(|tables| tables.iter());
        let tables = tables.map(|file| (file.table().meta().entries, Run::Table(file)));
        memtables.chain(rows).chain(tables).collect()
    }
}

impl Run<'_> {
    /// The key and the sequence number of a version; `None` if the draw was in vain.
    fn draw(&self, at: u64, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<(Vec<u8>, u64)>> {
        let file = match self {
            Run::Memtable(table) => {
                let entry = table.tree().random_entry(below);
                return Ok(entry.and_then(|entry| {
                    Some((entry.key().to_vec(), entry.version_at(at)?.sequence))
                }));
            }
            Run::Row(row) => match (row.file(), row.nvm()) {
                (Some(file), _) => file,
                (None, Some(table)) if !table.is_empty() => {
                    return table.version_at(below(table.len() as u64) as usize).map(Some);
                }
                (None, _) => return Ok(None),
            },
            Run::Table(file) => file,
        };
        let mut iter = file.table().iter(Purpose::Get, IterOptions::SCAN);
        if !iter.random(below)? {
            return Ok(None);
        }
        let is_live = match self {
            Run::Row(row) => row.live().contains(iter.key()),
            _ => true,
        };
        Ok(is_live.then(|| (iter.key().to_vec(), iter.sequence())))
    }
}

impl Inner {
    /// A key drawn by chance; `None` if there is none. `below` draws a number below the given one.
    pub(crate) fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        let (view, at) = self.pin(None)?;
        let runs = view.weighted_runs();
        let total: u64 = runs.iter().map(|(versions, _)| versions).sum();
        if total == 0 {
            return Ok(None);
        }
        let mut merge = Merge::of_view(view.clone(), at, self.options.hints);
        let mut dead = Vec::new();
        for _ in 0..MAX_DRAWS {
            let mut left = below(total);
            let run = runs.iter().find(|(versions, _)| {
                let is_here = left < *versions;
                left = left.saturating_sub(*versions);
                is_here
            });
            let Some((_, run)) = run else { continue };
            let Some((key, sequence)) = run.draw(at, below)? else { continue };
            merge.seek(&key, at)?;
            if merge.valid() && merge.key() == key && merge.sequence() == sequence {
                merge.resolve_without_value()?;
                let now = self.env.clock.now();
                if !super::cursor::is_gone(merge.kind(), merge.expires_at(), now) {
                    return Ok(Some(key));
                }
            }
            dead = key;
        }
        let mut cursor = self.cursor(KeyRange::all(), None)?;
        let is_there = cursor.seek(&dead)? || cursor.first()?;
        Ok(is_there.then(|| cursor.key().to_vec()))
    }
}

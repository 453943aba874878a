//! Draws a live key uniformly at random, by rejection sampling.
//!
//! A version is drawn from all stored ones (memtables, L0 runs and tables), and accepted if it is
//! the visible version of its key. Every live key has exactly one such version, whatever number of
//! older ones it has, so all are equally likely; dead versions are rejected. If nearly all versions
//! are dead, the result is the next key after a dead one, which is uniform only if the dead are
//! spread.
//!
//! ```text
//!   draw a run by its versions ─▶ draw a version in it ─▶ visible and live? ─ yes ─▶ the key
//!        ▲                                                     │ no
//!        └─────────────────────────────────────────────────────┘  MAX_DRAWS times
//! ```
//!
//! Invariant: the cost does not grow with the number of keys, except for the final scan over dead
//! versions.

use std::sync::Arc;

use arc_swap::Guard;
use siltstone_engine::{KeyRange, Purpose, Result};
use siltstone_table::IterOptions;

use super::{Merge, view_deletes};
use crate::engine::Tree;
use crate::memtable::Memtable;
use crate::version::{L0Run, TableFile};
use crate::view::View;

/// The number of draws before the key after a dead version is returned.
const MAX_DRAWS: usize = 128;

/// A memtable, an L0 run or a table to draw from.
enum WeightedSource<'v> {
    Memtable(&'v Arc<Memtable>),
    L0Run(&'v L0Run),
    Table(&'v Arc<TableFile>),
}

/// Every source, with the number of its versions (of a memtable: of its keys).
fn weighted_sources(view: &View) -> Vec<(u64, WeightedSource<'_>)> {
    let memtables =
        view.memtables().map(|table| (table.tree().keys() as u64, WeightedSource::Memtable(table)));
    let runs = view.version.level0.iter().map(|run| {
        let entries = run.pmem_table().map_or_else(|| run.entries(), |table| table.len() as u64);
        (entries, WeightedSource::L0Run(run))
    });
    let tables = view.version.levels.iter().flat_map(|tables| tables.iter());
    let tables = tables.map(|file| (file.table().meta().entries, WeightedSource::Table(file)));
    memtables.chain(runs).chain(tables).collect()
}

impl WeightedSource<'_> {
    /// Draws the key and the sequence number of a version; `None` if it is dead.
    fn draw(&self, at: u64, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<(Vec<u8>, u64)>> {
        let file = match self {
            WeightedSource::Memtable(table) => {
                let entry = table.tree().random_entry(below);
                return Ok(entry.and_then(|entry| {
                    Some((entry.key().to_vec(), entry.version_at(at)?.sequence))
                }));
            }
            WeightedSource::L0Run(run) => match (run.file(), run.pmem_table()) {
                (Some(file), _) => file,
                (None, Some(table)) if !table.is_empty() => {
                    return table.version_at(below(table.len() as u64) as usize).map(Some);
                }
                (None, _) => return Ok(None),
            },
            WeightedSource::Table(file) => file,
        };
        let mut iter = file.table().iter(Purpose::Get, IterOptions::SCAN);
        if !iter.random(below)? {
            return Ok(None);
        }
        let is_live = match self {
            WeightedSource::L0Run(run) => run.live().contains(iter.key()),
            _ => true,
        };
        Ok(is_live.then(|| (iter.key().to_vec(), iter.sequence())))
    }
}

impl Tree {
    /// A uniformly random key; `None` if the table is empty. `below(n)` returns a random number
    /// below `n`.
    pub(crate) fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        let (view, at) = self.pin(None)?;
        let view = Guard::into_inner(view);
        let sources = weighted_sources(&view);
        let total: u64 = sources.iter().map(|(versions, _)| versions).sum();
        if total == 0 {
            return Ok(None);
        }
        let mut merge = Merge::of_view(view.clone(), at, self.hints);
        let mut dead = Vec::new();
        for _ in 0..MAX_DRAWS {
            let mut left = below(total);
            let drawn = sources.iter().find(|(versions, _)| {
                let is_drawn = left < *versions;
                left = left.saturating_sub(*versions);
                is_drawn
            });
            let Some((_, source)) = drawn else { continue };
            let Some((key, sequence)) = source.draw(at, below)? else { continue };
            merge.seek(&key, at)?;
            if merge.valid() && merge.key() == key && merge.sequence() == sequence {
                merge.resolve_without_value()?;
                let clock = &*self.env.clock;
                let is_gone = super::cursor::is_gone(merge.kind(), merge.expires_at(), clock)
                    || view_deletes::newest(&view, &key, at) > sequence;
                if !is_gone {
                    return Ok(Some(key));
                }
            }
            dead = key;
        }
        let mut cursor = self.cursor(KeyRange::all(), None)?;
        let is_valid = cursor.seek(&dead)? || cursor.first()?;
        Ok(is_valid.then(|| cursor.key().to_vec()))
    }
}

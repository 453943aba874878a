//! A full container is emptied into its children.
//!
//! Each child that gets anything gets one table, as its newest sub-level; nothing of the children is
//! read or rewritten. All children are written at once as the merge goes through the hash space, so a
//! job reads once and holds in memory a segment of each table that it reads or writes. Deletions and
//! expired items go along as deletions, since a deeper level may hold what they hide; where there is
//! nothing deeper they end.
//!
//! Invariant: the tables of the container and those in the children change places in one edit.
//!
//! Source: LSM-trie paper, section 2.3 and figure 3.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};

use super::{Merge, Output};
use crate::engine::Inner;
use crate::htable::Expected;
use crate::read::View;
use crate::version::{Edit, Place, Version};

impl Inner {
    pub(super) fn spill(&self, view: &View, place: Place) -> Result<()> {
        let Some(container) = view.version.at(place) else { return Ok(()) };
        let mut edit = Edit {
            removed: container.tables.iter().map(|table| (place, table.number())).collect(),
            ..Edit::default()
        };
        if container.cluster.is_some() {
            edit.clusters.push((place, 0, 0));
        }
        let mut merge =
            Merge::new(&container.tables, self.versions.shape.hash, Purpose::Compaction);
        let items_in = merge.expected().items;
        if let Err(error) = self.pour(&view.version, place, &mut merge, &mut edit) {
            self.remove_files(&edit);
            return Err(error);
        }
        self.counters.items_in.fetch_add(items_in, Relaxed);
        if !self.finish_job(view.generation, edit)? {
            return Ok(());
        }
        // It has children now, and nothing of what was known.
        self.learn(place, None);
        self.counters.compactions.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Writes what the merge gives to the children of `place`.
    fn pour(
        &self,
        version: &Version,
        place: Place,
        merge: &mut Merge,
        edit: &mut Edit,
    ) -> Result<()> {
        let (level, bits) = (place.level + 1, self.versions.shape.fanout_bits);
        let build = self.options.build(self.options.layout());
        let Expected { items, bytes } = merge.expected();
        let expected = Expected { items: items >> bits, bytes: bytes >> bits };
        let last_sequence = merge.last_sequence();
        let output = |child| {
            let child = Place { level, id: place.id << bits | child };
            let hides = version.has_below(child, bits);
            let what = (last_sequence, expected);
            Output::new(self, child, (build, Purpose::Compaction), what, hides)
        };
        let mut outputs: Vec<Output<'_>> = (0..1 << bits).map(output).collect();
        while merge.next_stretch()? {
            self.background.check_cancelled()?;
            merge.each(|hash, item| {
                let child = hash.container(level, bits) & ((1 << bits) - 1);
                outputs[child as usize].push(hash, item)
            })?;
            let written: usize = outputs.iter().map(Output::memory_bytes).sum();
            self.counters.used_memory(merge.memory_bytes() + written);
        }
        outputs.into_iter().try_for_each(|output| output.finish(false, edit))
    }
}

//! Spills a full container into its children.
//!
//! Each child gets at most one table, its newest; the tables of the children are neither read nor
//! rewritten. All children are written in parallel as the merge goes through the hash space, so a
//! job reads its inputs once, with a segment of each input and output table in memory. Deleted and
//! expired items are written as deletions if a deeper level may have older items, and dropped
//! otherwise.
//!
//! Invariant: one edit removes the tables of the container and adds those of the children.
//!
//! Source: LSM-trie paper, section 2.3 and figure 3.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{FileInfo, Purpose, Result};

use super::{Merge, Output};
use crate::container_id::ContainerId;
use crate::engine::Tree;
use crate::htable::ExpectedSize;
use crate::version::{Edit, Version};
use crate::view::View;

impl Tree {
    /// Returns the new files.
    pub(super) fn spill(&self, view: &View, container_id: ContainerId) -> Result<Vec<FileInfo>> {
        let Some(container) = view.version.at(container_id) else { return Ok(Vec::new()) };
        let mut edit = Edit {
            removed: container.tables.iter().map(|table| (container_id, table.number())).collect(),
            ..Edit::default()
        };
        if container.cluster.is_some() {
            edit.clusters.push((container_id, 0, 0));
        }
        let mut merge = Merge::new(&container.tables, self.config.hash, Purpose::Compaction);
        let items_in = merge.expected().items;
        let written = self.write_children(&view.version, container_id, &mut merge, &mut edit);
        let expired = written.inspect_err(|_| self.remove_files(&edit))?;
        self.counters.items_in.fetch_add(items_in, Relaxed);
        let files = edit.infos();
        if !self.finish_job(view.generation, edit)? {
            return Ok(Vec::new());
        }
        // It has descendants now, and the estimate is outdated.
        self.record_garbage(container_id, None);
        self.counters.compactions.fetch_add(1, Relaxed);
        self.counters.expired.fetch_add(expired, Relaxed);
        Ok(files)
    }

    /// Writes the merged items to the children of `container_id`; returns the number of expired
    /// ones.
    fn write_children(
        &self,
        version: &Version,
        container_id: ContainerId,
        merge: &mut Merge,
        edit: &mut Edit,
    ) -> Result<u64> {
        let (level, bits) = (container_id.level + 1, self.config.fanout_bits);
        let build = self.options.build(self.options.layout());
        let ExpectedSize { items, bytes } = merge.expected();
        let expected = ExpectedSize { items: items >> bits, bytes: bytes >> bits };
        let last_sequence = merge.last_sequence();
        let output = |child| {
            let child = ContainerId { level, id: container_id.id << bits | child };
            let hides = version.is_occupied(child, bits);
            let content = (last_sequence, expected);
            Output::new(self, child, (build, Purpose::Compaction), content, hides)
        };
        let mut outputs: Vec<Output<'_>> = (0..1 << bits).map(output).collect();
        while merge.next_range()? {
            self.background.check_cancelled()?;
            merge.for_each(|hash, item| {
                let child = hash.container(level, bits) & ((1 << bits) - 1);
                outputs[child as usize].push(hash, item)
            })?;
            let written: usize = outputs.iter().map(Output::memory_bytes).sum();
            self.counters.used_memory(merge.memory_bytes() + written);
        }
        outputs.into_iter().map(|output| output.finish(false, edit)).sum()
    }
}

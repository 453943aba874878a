//! Garbage collection of containers without descendants, and the merge into a dense run.
//!
//! ```text
//!   tables       [t9] [t8] [t7] … [t1]   ──▶   [one table]     overwritten, deleted and
//!                                              or [one run]    expired items are dropped
//! ```
//!
//! The last level is never spilled, so items of the same key accumulate there, and also in a full
//! container above it that was not yet spilled. The garbage ratio of a container is estimated from
//! samples: the buckets of all tables in a few hash ranges are read and their items are counted.
//! Deletions are dropped, since the merge includes all tables and there is no deeper level.
//!
//! The tables are merged as streams, with one segment of each in memory. An existing cluster is not
//! rewritten: the filter of the new table stays in memory until filters exceed their limit.
//!
//! A run needs no filter and no free space, but every merge rewrites it: with a merge per r tables
//! and a run of the size of n tables, an item is written (n + r) / r times instead of once.
//!
//! Invariant: tables that were added during the merge are newer than its result.
//!
//! Source: LSM-trie paper, section 2.4.3 (collection by samples).

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{FileInfo, Purpose, Result};

use super::{Merge, Output};
use crate::container_id::ContainerId;
use crate::engine::Tree;
use crate::htable::Layout;
use crate::version::{Edit, Version};
use crate::view::View;

/// The number of hash ranges in a sample.
const SAMPLES: u64 = 12;

impl Tree {
    /// Returns the new files.
    pub(super) fn collect(&self, view: &View, container_id: ContainerId) -> Result<Vec<FileInfo>> {
        let Some((edit, expired)) = self.merge_container(&view.version, container_id)? else {
            return Ok(Vec::new());
        };
        let files = edit.infos();
        if !self.finish_job(view.generation, edit)? {
            return Ok(Vec::new());
        }
        self.counters.collections.fetch_add(1, Relaxed);
        self.counters.expired.fetch_add(expired, Relaxed);
        // The estimate of its garbage is outdated.
        self.record_garbage(container_id, None);
        Ok(files)
    }

    /// Merges the container's tables of that version; returns the edit that replaces them by the
    /// result, which is written, and the number of expired items.
    fn merge_container(
        &self,
        version: &Version,
        container_id: ContainerId,
    ) -> Result<Option<(Edit, u64)>> {
        let Some(container) = version.at(container_id) else { return Ok(None) };
        let layout = match self.options.dense_run_at {
            1.. if container_id.level >= self.last_level => Layout::Run,
            _ => self.options.layout(),
        };
        let mut edit = Edit {
            removed: container.tables.iter().map(|table| (container_id, table.number())).collect(),
            ..Edit::default()
        };
        if container.cluster.is_some() {
            edit.clusters.push((container_id, 0, 0));
        }
        let mut merge = Merge::new(&container.tables, self.config.hash, Purpose::Compaction);
        let (build, expected) = (self.options.build(layout), merge.expected());
        let (build_for, content) =
            ((build, Purpose::Compaction), (merge.last_sequence(), expected));
        let hides = version.has_descendants(container_id, self.config.fanout_bits);
        let mut output = Output::new(self, container_id, build_for, content, hides);
        while merge.next_range()? {
            self.background.check_cancelled()?;
            merge.for_each(|hash, item| output.push(hash, item))?;
            self.counters.used_memory(merge.memory_bytes() + output.memory_bytes());
        }
        let expired = output.finish(true, &mut edit)?;
        self.counters.items_in.fetch_add(expected.items, Relaxed);
        Ok(Some((edit, expired)))
    }

    /// The number of tables in the container, and the estimated garbage ratio of its items.
    pub(super) fn sample(
        &self,
        version: &Version,
        container_id: ContainerId,
    ) -> Result<(usize, f64)> {
        self.counters.samples.fetch_add(1, Relaxed);
        let Some(container) = version.at(container_id) else { return Ok((0, 0.0)) };
        let max_buckets = container.tables.iter().map(|table| table.buckets()).max().unwrap_or(1);
        let width = u64::MAX / u64::from(max_buckets.max(1));
        let (mut all, mut live, now) = (0u64, 0u64, self.env.clock.now());
        for n in 0..SAMPLES {
            let from = (u64::MAX / SAMPLES).wrapping_mul(n).wrapping_add(width / 3);
            let to = from.saturating_add(width);
            let mut newest = HashSet::new();
            for table in &container.tables {
                let (kind, purpose) = (self.config.hash, Purpose::Compaction);
                for (hash, is_gone) in table.sample_range(from, to, kind, now, purpose)? {
                    all += 1;
                    live += u64::from(newest.insert(hash) && !is_gone);
                }
            }
        }
        let garbage = if all == 0 { 0.0 } else { 1.0 - live as f64 / all as f64 };
        Ok((container.tables.len(), garbage))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::flush::ROOT;
    use crate::{Options, Trie};
    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_vfs::{Ram, Vfs};

    fn put(trie: &Trie, value: &[u8]) {
        let mut batch = WriteBatch::new();
        batch.put(b"key", value);
        trie.write(&batch, Durability::Buffered).unwrap();
        trie.flush().unwrap();
    }

    #[test]
    fn table_added_during_the_merge_stays_newer() {
        for dense_run_at in [0, 9] {
            let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
            let open = || {
                let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
                let options = Options {
                    levels: 1,
                    dense_run_at,
                    gc_garbage_ratio: 1.0,
                    ..Options::default()
                };
                Trie::open(vfs.clone(), env, options).unwrap()
            };
            let trie = open();
            put(&trie, b"oldest");
            put(&trie, b"older");
            let view = trie.table().view.load_full();
            let (edit, _) = trie.table().merge_container(&view.version, ROOT).unwrap().unwrap();
            put(&trie, b"newest");
            trie.table().finish_job(0, edit).unwrap();
            let value = |trie: &Trie| trie.get(b"key").unwrap().map(|entry| entry.value);
            assert_eq!(value(&trie).as_deref(), Some(&b"newest"[..]));
            assert_eq!(trie.table().view.load().version.tables().count(), 2);
            // The manifest has the same order.
            drop((trie, view));
            assert_eq!(value(&open()).as_deref(), Some(&b"newest"[..]));
        }
    }
}

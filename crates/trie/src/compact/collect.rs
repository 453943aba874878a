//! Garbage collection where nothing lies beneath, and the merge into a dense run at the last level.
//!
//! ```text
//!   sub-levels   [t9] [t8] [t7] … [t1]   ──▶   [one table]      what was overwritten, deleted or
//!                                              or [one run]     expired is gone
//! ```
//!
//! Nothing moves on from the last level, so items of one key gather there, and so they do in a full container
//! above it that has not been emptied yet. How much of a container is garbage is told from samples: at some places of the hash order the buckets of all tables are
//! read, and the items of a short stretch there counted. Deletions end here, since the merge takes
//! all tables and nothing lies deeper.
//!
//! The tables are merged as streams, so the memory is that of one segment for each of them. What a
//! cluster held of them is not rewritten: the filter of the new table is in memory until filters
//! outgrow theirs.
//!
//! A run needs no filter and no room for balance, but every merge writes it anew: with r sub-levels
//! to a merge and a run of n tables, an item is written (n + r) / r times instead of once.
//!
//! Invariant: the tables that came while the merge ran are newer than what it makes.
//!
//! Source: LSM-trie paper, section 2.4.3 (collection by samples); runs are ours.

use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};

use super::{Merge, Output};
use crate::engine::Inner;
use crate::htable::Layout;
use crate::read::View;
use crate::version::{Edit, Place, Version};

/// Stretches of the hash order that a sample looks at.
const SAMPLES: u64 = 12;

impl Inner {
    pub(super) fn collect(&self, view: &View, place: Place) -> Result<()> {
        let Some(edit) = self.collected(&view.version, place)? else { return Ok(()) };
        if !self.finish_job(view.generation, edit)? {
            return Ok(());
        }
        self.counters.collections.fetch_add(1, Relaxed);
        // What was known of its garbage is outdated.
        self.learn(place, None);
        Ok(())
    }

    /// Merges the container's tables of that version and answers the edit that puts the result in
    /// their place; the files of it are written.
    fn collected(&self, version: &Version, place: Place) -> Result<Option<Edit>> {
        let Some(container) = version.at(place) else { return Ok(None) };
        let layout = match self.options.run_at {
            1.. if place.level >= self.last_level => Layout::Run,
            _ => self.options.layout(),
        };
        let mut edit = Edit {
            removed: container.tables.iter().map(|table| (place, table.number())).collect(),
            ..Edit::default()
        };
        if container.cluster.is_some() {
            edit.clusters.push((place, 0, 0));
        }
        let mut merge =
            Merge::new(&container.tables, self.versions.shape.hash, Purpose::Compaction);
        let (build, expected) = (self.options.build(layout), merge.expected());
        let (how, what) = ((build, Purpose::Compaction), (merge.last_sequence(), expected));
        let hides = version.has_beneath(place, self.versions.shape.fanout_bits);
        let mut output = Output::new(self, place, how, what, hides);
        while merge.next_stretch()? {
            self.background.check_cancelled()?;
            merge.each(|hash, item| output.push(hash, item))?;
            self.counters.used_memory(merge.memory_bytes() + output.memory_bytes());
        }
        output.finish(true, &mut edit)?;
        self.counters.items_in.fetch_add(expected.items, Relaxed);
        Ok(Some(edit))
    }

    /// How many tables the container has, and about which share of its items is garbage.
    pub(super) fn sample(&self, version: &Version, place: Place) -> Result<(usize, f64)> {
        self.counters.samples.fetch_add(1, Relaxed);
        let Some(container) = version.at(place) else { return Ok((0, 0.0)) };
        let most_buckets = container.tables.iter().map(|table| table.buckets()).max().unwrap_or(1);
        let stretch = u64::MAX / u64::from(most_buckets.max(1));
        let (mut all, mut live, now) = (0u64, 0u64, self.env.clock.now());
        for n in 0..SAMPLES {
            let from = (u64::MAX / SAMPLES).wrapping_mul(n).wrapping_add(stretch / 3);
            let to = from.saturating_add(stretch);
            let mut seen = HashSet::new();
            for table in &container.tables {
                let (kind, purpose) = (self.versions.shape.hash, Purpose::Compaction);
                for (hash, is_gone) in table.stretch(from, to, kind, now, purpose)? {
                    all += 1;
                    live += u64::from(seen.insert(hash) && !is_gone);
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
    fn does_a_table_that_came_while_the_merge_ran_stay_newer_than_it() {
        for run_at in [0, 9] {
            let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
            let open = || {
                let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
                let options = Options { levels: 1, run_at, garbage: 1.0, ..Options::default() };
                Trie::open(vfs.clone(), env, options).unwrap()
            };
            let trie = open();
            put(&trie, b"oldest");
            put(&trie, b"older");
            let view = trie.inner.view.load_full();
            let edit = trie.inner.collected(&view.version, ROOT).unwrap().unwrap();
            put(&trie, b"newest");
            trie.inner.finish_job(0, edit).unwrap();
            let value = |trie: &Trie| trie.get(b"key").unwrap().map(|entry| entry.value);
            assert_eq!(value(&trie).as_deref(), Some(&b"newest"[..]));
            assert_eq!(trie.inner.view.load().version.tables().count(), 2);
            // The manifest's order is the same.
            drop((trie, view));
            assert_eq!(value(&open()).as_deref(), Some(&b"newest"[..]));
        }
    }
}

//! Options that change while the table is open.
//!
//! The tree and its compaction strategy share one cell with the options in force and load it
//! whenever they decide something, so that a change needs no restart:
//!
//! | option | in force from |
//! | --- | --- |
//! | sizes and numbers of memtables, triggers, `l0_capacity` | the next write |
//! | `cache` | at once: a smaller cache evicts blocks before the call returns |
//! | `log_retention`, `log_retention_time` | at once: logs over a limit are removed first |
//! | formats and sizes of files | the next file that a flush or compaction begins |
//! | compactions | the next one that is selected |
//!
//! Files of any format are read side by side, since each describes itself.
//!
//! Invariant: what depends on an option in force is computed again before the change returns.

use std::collections::BTreeMap;

use siltstone_durable as durable;
use siltstone_engine::Result;
use siltstone_runtime::BackgroundWork;

use crate::engine::Tree;

impl Tree {
    /// See [`siltstone_engine::Engine::set_options`].
    pub(crate) fn change_options(&self, changes: &BTreeMap<String, String>) -> Result<()> {
        // The lock orders concurrent changes, and the publication of new versions.
        let mut state = self.background.lock();
        let before = self.options.load_full();
        let after = before.changed(changes)?;
        // The size of a shared cache is not this table's.
        if after.cache_bytes != before.cache_bytes && !self.shares_cache {
            self.cache.set_capacity_bytes(after.cache_bytes);
        }
        let archive_limits = after.archive_limits();
        self.memtable_limits.set(&after);
        self.spares.set_max_bytes(after.memtable_limits().1 as usize);
        self.options.store(after.into());
        // Computes the back-pressure on writers again.
        durable::publish(self, &mut state, |_| ());
        drop(state);
        self.logs.set_limits(archive_limits);
        self.background.notify();
        self.core.schedule();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;
    use crate::compact::InProgress;
    use crate::{Lsm, Options};

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn open(vfs: &Arc<Ram>, others: &[(&str, &str)]) -> Lsm {
        let mut options = map(&[
            ("memtable", "1MiB"),
            ("target_file_size", "256KiB"),
            ("l0_capacity", "0"),
            ("experimental.l0_compaction_trigger", "2"),
        ]);
        options.extend(map(others));
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        Lsm::open(vfs.clone(), env, Options::from_map(&options).unwrap()).unwrap()
    }

    /// A table whose level 1, of 12 MiB, is far over its target. Nothing runs before somebody
    /// waits.
    fn open_over_target(vfs: &Arc<Ram>, others: &[(&str, &str)]) -> Lsm {
        let lsm = open(vfs, &[("levels", "64MiB:640MiB")]);
        for number in 0..12_000u32 {
            let key = number.wrapping_mul(2_654_435_761).to_be_bytes();
            let mut batch = WriteBatch::new();
            batch.put(&key, &[number as u8; 1000]);
            lsm.write(&batch, Durability::Buffered).unwrap();
        }
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        lsm.close().unwrap();
        open(vfs, &[&[("levels", "1MiB:640MiB")], others].concat())
    }

    #[test]
    fn number_of_compactions_changes_for_those_that_are_due() {
        let lsm = open_over_target(&Arc::new(Ram::new()), &[("max_compactions", "1")]);
        let queued = || lsm.table().background.lock().compactions;
        lsm.table().core.schedule();
        assert_eq!(queued(), 1);
        lsm.set_options(&map(&[("max_compactions", "3")])).unwrap();
        assert_eq!(queued(), 3);
        lsm.maintain().unwrap();
    }

    #[test]
    fn priority_of_compactions_changes_which_table_is_next() {
        let lsm = open_over_target(&Arc::new(Ram::new()), &[]);
        let (tree, view) = (lsm.table(), lsm.table().view.load_full());
        let pick = || tree.strategy.pick(&view.version, &InProgress::default()).unwrap();
        let first = pick();
        tree.strategy.advance(&first);
        assert_eq!(pick().inputs[0].number(), first.inputs[0].number(), "the least overlap");
        lsm.set_options(&map(&[("experimental.compaction_pri", "round_robin")])).unwrap();
        assert!(pick().inputs[0].smallest() > first.largest_input(), "the next in key order");
    }

    #[test]
    fn number_of_subcompactions_changes_for_the_next_compaction() {
        let lsm = open_over_target(&Arc::new(Ram::new()), &[]);
        let (tree, view) = (lsm.table(), lsm.table().view.load_full());
        let mut whole = tree.strategy.pick(&view.version, &InProgress::default()).unwrap();
        whole.below = view.version.level(1).to_vec();
        let count = || tree.cut(&whole).len() + 1;
        assert!(count() > 1);
        lsm.set_options(&map(&[("max_subcompactions", "1")])).unwrap();
        assert_eq!(count(), 1);
    }
}

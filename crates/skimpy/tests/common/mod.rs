//! The engine under test, by its mapping.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, ManualClock, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_skimpy::{Options, Skimpy};
use siltstone_testkit::{EngineUnderTest, engine_under_test, history};
use siltstone_vfs::Vfs;

/// Options of all sets, which are fixed when a table is created.
const SMALL: &str = "block=4 buckets=8";
/// A device that a history wraps around.
const CAPACITY: &str = "2MiB";
/// Where the kit writes until its process is killed.
const CAPACITY_UNTIL_KILLED: &str = "64MiB";

/// A mapping and its option sets.
pub(crate) struct MappingUnderTest {
    pub(crate) mapping: &'static str,
    pub(crate) option_sets: &'static [&'static str],
}

impl MappingUnderTest {
    fn options(&self, option_set: u32, capacity: &str) -> Options {
        let fixed = format!("mapping={} capacity={capacity}", self.mapping);
        let map =
            engine_under_test::options([SMALL, self.option_sets[option_set as usize], &fixed]);
        Options::from_map(&map).expect("option sets are legal")
    }
}

impl EngineUnderTest for MappingUnderTest {
    fn name(&self) -> &'static str {
        "skimpy"
    }

    fn option_sets(&self) -> &[&'static str] {
        self.option_sets
    }

    fn describe(&self, option_set: u32) -> String {
        format!("{}, {}", self.mapping, self.option_sets[option_set as usize])
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: true,
            incremental_gc: true,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: self.options(0, CAPACITY).max_value_bytes(),
        }
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, option_set: u32) -> Result<Box<dyn Engine>> {
        let is_until_killed = vfs.name().contains("siltstone-kill-");
        let capacity = if is_until_killed { CAPACITY_UNTIL_KILLED } else { CAPACITY };
        Ok(Box::new(Skimpy::open(vfs, env, self.options(option_set, capacity))?))
    }

    fn is_whole_store(&self, path: &str) -> bool {
        path == "flash"
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, option_set: u32) -> Result<RepairReport> {
        let env = Env::replayable(Arc::new(ManualClock::at(history::EPOCH)), 0);
        siltstone_skimpy::repair(vfs, env, &self.options(option_set, CAPACITY))
    }
}

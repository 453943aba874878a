//! Runs the conformance kit on SILT with every option set.
//!
//! All sizes are small, so that a few hundred writes convert LogStores, merge HashStores several
//! times and sort in runs. Together the option sets give each option both of its extreme values.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, MAX_VALUE_BYTES, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_testkit::{EngineUnderTest, engine_under_test};
use siltstone_vfs::Vfs;

struct SiltUnderTest;

/// Options of all sets: stores that fill up after a few writes.
const SMALL: &str = "partitions=2 log_store_slots=32 max_log_size=32KiB merge_trigger=2 \
                     stop_trigger=4 block_size=512 sort_memory=1MiB";

const OPTION_SETS: [&str; 8] = [
    "log_store_slots=16 max_load_factor=0.8 merge_trigger=1",
    "partitions=1 log_store_slots=16 max_load_factor=0.5 block_size=1 inline_value_bytes=32B",
    "partitions=5 log_store_slots=32 max_load_factor=0.97 merge_trigger=1 stop_trigger=2 \
     block_size=4KiB",
    "sort_memory=1KiB log_store_slots=16 merge_trigger=3 block_size=64KiB",
    "max_log_size=4KiB merge_trigger=3 index_memory=1",
    "experimental.stores=log-hash index_memory=1KiB load_indexes=background",
    "experimental.stores=log max_log_size=16KiB",
    "experimental.stores=log-sorted log_store_slots=32 merge_trigger=2 stop_trigger=20 \
     sort_memory=4KiB block_size=1",
];

fn options(option_set: u32) -> Options {
    let map = engine_under_test::options([SMALL, OPTION_SETS[option_set as usize]]);
    Options::from_map(&map).expect("option sets are legal")
}

impl EngineUnderTest for SiltUnderTest {
    fn name(&self) -> &'static str {
        "silt"
    }

    fn option_sets(&self) -> &[&'static str] {
        &OPTION_SETS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: false,
            incremental_gc: false,
            range_deletes: false,
            merge: false,
            change_feed: false,
            max_value_bytes: MAX_VALUE_BYTES,
        }
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, option_set: u32) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Silt::open(vfs, env, options(option_set))?))
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _option_set: u32) -> Result<RepairReport> {
        siltstone_silt::repair(vfs)
    }
}

siltstone_testkit::conformance!(SiltUnderTest);
siltstone_testkit::conformance!(repairs SiltUnderTest);

/// Over encrypted files, with option sets whose files differ most.
mod encrypted {
    use siltstone_testkit::encrypted::Encrypted;

    use super::SiltUnderTest;

    siltstone_testkit::conformance!(encrypted Encrypted::new(
        "encrypted-silt",
        SiltUnderTest,
        &[0, 1, 3, 5, 7]
    ));
}

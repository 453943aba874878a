//! The conformance kit over encrypted files: the file system under it loses power, fails, fills
//! up and is damaged, and the engine gives the same guarantees.
//!
//! Few option sets: those whose files and logs differ most. Mapped memory cannot be encrypted.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, MAX_VALUE_BYTES, RepairReport, Result};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::{Check, EngineUnderTest, Scale, engine_under_test};
use siltstone_vfs::Vfs;
use siltstone_vfs::encrypted::{EncryptedVfs, KeyRing, MasterKey};

struct EncryptedLsm;

/// Common to all option sets: levels so small that three of them fill up.
const SMALL: &str = "memtable=4KiB target_file_size=4KiB levels=12KiB:48KiB:256KiB \
                     experimental.l0_compaction_trigger=2 cache=16KiB l0_capacity=0 triad.log=off";

const OPTION_SETS: [&str; 4] = [
    "block_size=512",
    "triad.log=on block_size=512 triad.prefetch=2KiB",
    "triad.mem=on triad.log=on l0_capacity=32KiB triad.hot_keys=0.5 triad.flush_threshold=0.9 \
     memtables=4 block_size=256",
    "memtable=64KiB target_file_size=16KiB experimental.block_restart_interval=1 compression=lz4 \
     cache=0",
];

fn encrypted(vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
    let keys = KeyRing::new(MasterKey::new(&[7; 32]), Vec::new());
    Arc::new(EncryptedVfs::new(vfs, Arc::new(keys)))
}

impl EngineUnderTest for EncryptedLsm {
    fn name(&self) -> &'static str {
        "lsm"
    }

    fn option_sets(&self) -> &[&'static str] {
        &OPTION_SETS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
            versioned: true,
            incremental_gc: false,
            range_deletes: true,
            merge: true,
            change_feed: true,
            max_value_bytes: MAX_VALUE_BYTES,
        }
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        let options = engine_under_test::options([SMALL, OPTION_SETS[variant as usize]]);
        let options = Options::from_map(&options).expect("option sets are legal");
        Ok(Box::new(Lsm::open(encrypted(vfs), env, options)?))
    }

    fn view(&self, vfs: Arc<dyn Vfs>) -> Arc<dyn Vfs> {
        encrypted(vfs)
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _variant: u32) -> Result<RepairReport> {
        siltstone_lsm::repair(&encrypted(vfs.clone()))
    }
}

/// A fifth of the kit's amounts: the kit over plain files runs the whole of them.
fn run(name: &str, check: Check) {
    let scale = Scale::from_env_or(Scale {
        histories: 12,
        power_cuts: 80,
        refused_histories: 20,
        flips: 300,
        damaged_stores: 80,
        faults: 12,
        rounds: 6,
        kills: 4,
        ..Scale::default()
    });
    siltstone_testkit::run_scaled(name, check, &EncryptedLsm, &scale);
}

macro_rules! checks {
    ($($name:ident $check:path,)*) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), $check);
        })*
    };
}

// Without `valid_checksum_corruption`: nobody can compute a tag without the key.
checks! {
    histories siltstone_testkit::histories::histories,
    metamorphic siltstone_testkit::metamorphic::metamorphic,
    power_cuts siltstone_testkit::power_cuts::power_cuts,
    simulated_crashes siltstone_testkit::simulated_crash::simulated_crashes,
    crashes_during_open siltstone_testkit::crashes_during_open::crashes_during_open,
    kill9 siltstone_testkit::kill9::kill9,
    unrelated_files siltstone_testkit::unrelated_files::unrelated_files,
    damage_when_closed siltstone_testkit::damage::damage_when_closed,
    damage_when_not_closed siltstone_testkit::damage::damage_when_not_closed,
    faults siltstone_testkit::faults::faults,
    disk_full siltstone_testkit::disk_full::disk_full,
    refused_writes siltstone_testkit::refused_writes::refused_writes,
    late_sync_errors siltstone_testkit::late_sync_errors::late_sync_errors,
    linearizable siltstone_testkit::linear::linearizable,
    threads siltstone_testkit::concurrent::threads,
    few_open_files siltstone_testkit::few_open_files::few_open_files,
    concurrent_checkpoints siltstone_testkit::checkpoints::concurrent_checkpoints,
    concurrent_clears siltstone_testkit::clears::concurrent_clears,
    repairs siltstone_testkit::repairs::repairs,
}

#[test]
fn kill9_child() {
    siltstone_testkit::kill9::child(&EncryptedLsm);
}

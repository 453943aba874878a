//! The conformance kit, with every option set.
//!
//! The option sets have small sizes, so that a few hundred writes flush, compact over three levels
//! and rotate logs. Together they set each option to each of its extremes.

use std::sync::Arc;

use siltstone_engine::{
    Capabilities, Engine, MAX_VALUE_BYTES, Op, RepairReport, Result, WriteBatch,
};
use siltstone_lsm::{Lsm, Options, SortedFileWriter};
use siltstone_runtime::Env;
use siltstone_testkit::{EngineUnderTest, engine_under_test};
use siltstone_vfs::Vfs;

struct LsmUnderTest;

/// Common to all option sets: levels so small that three of them fill up.
const SMALL: &str = "memtable=4KiB target_file_size=4KiB levels=12KiB:48KiB:256KiB \
                     experimental.l0_compaction_trigger=2 cache=16KiB l0_capacity=0 triad.log=off";

const OPTION_SETS: [&str; 34] = [
    "block_size=512",
    "block_size=256 experimental.block_restart_interval=1 filter_bits_per_key=0 \
     experimental.compaction_pri=round_robin",
    "compression=lz4 block_size=4KiB experimental.block_restart_interval=2",
    "compression=zstd experimental.compaction_pri=round_robin max_subcompactions=1 \
     max_compactions=1",
    "memtable=16KiB memtables=2 filter_bits_per_key=1 block_size=256",
    "memtable=64KiB target_file_size=16KiB experimental.block_restart_interval=1 compression=lz4 \
     cache=0",
    "experimental.l0_compaction_trigger=1 experimental.l0_slowdown_trigger=2 \
     experimental.l0_stop_trigger=3 memtables=2 filter_bits_per_key=20",
    "levels=4KiB:8KiB:16KiB:32KiB:64KiB max_compactions=4 max_subcompactions=4 compression=zstd \
     block_size=256",
    "triad.log=on block_size=512 triad.prefetch=2KiB",
    "triad.disk=on experimental.l0_compaction_trigger=6 block_size=256",
    "l0_capacity=32KiB block_size=512",
    "l0_capacity=64KiB triad.log=on target_file_size=2KiB levels=32KiB:128KiB triad.prefetch=64KiB",
    "l0_capacity=16KiB triad.log=on triad.disk=on memtable=8KiB filter_bits_per_key=0 \
     block_size=256 experimental.block_restart_interval=1",
    "triad.mem=on block_size=512",
    "triad.mem=on triad.log=on triad.disk=on triad.hot_keys=0.1 triad.flush_threshold=0 memtables=3",
    "triad.mem=on triad.log=on l0_capacity=32KiB triad.hot_keys=0.5 triad.flush_threshold=0.9 \
     memtables=4 block_size=256",
    "compression=lz4 bottommost_compression=zstd:3 compression_dict_size=1KiB block_size=256 \
     target_file_size=16KiB",
    // In the middle: one of the two that are damaged by default.
    "triad.mem=on l0_capacity=32KiB triad.disk=on triad.hot_keys=1 triad.flush_threshold=0.1 \
     compression=lz4 bottommost_compression=zstd compression_dict_size=1KiB block_size=256 \
     target_file_size=16KiB",
    "l0_policy=sliced pmem.size=256KiB block_size=512",
    "l0_policy=sliced pmem.size=64KiB pmem.hints=off block_size=256 target_file_size=2KiB",
    "pmem.size=96KiB l0_policy=columns target_file_size=2KiB levels=32KiB:128KiB",
    "l0_policy=columns l0_capacity=32KiB triad.log=on block_size=256 triad.prefetch=0",
    "pmem.size=128KiB l0_policy=whole experimental.l0_compaction_trigger=6 triad.mem=on \
     triad.hot_keys=0.2",
    "l0_policy=novelsm pmem.size=64KiB block_size=512",
    "l0_policy=sliced pmem.size=1MiB memtable=16KiB memtables=3 levels=64KiB:256KiB triad.mem=on",
    "experimental.level_sizes=model block_size=512 l0_capacity=32KiB triad.log=on",
    "experimental.level_sizes=model experimental.l0_compaction_trigger=3 triad.mem=on | \
     levels=12KiB:48KiB:256KiB",
    "l0_policy=sliced pmem.size=256KiB l0_capacity=96KiB triad.log=on | \
     l0_capacity=32KiB triad.log=on | pmem.size=64KiB l0_policy=columns",
    "pmem.size=128KiB l0_policy=columns pmem.hints=off | l0_policy=sliced pmem.size=512KiB | \
     experimental.l0_compaction_trigger=3 | l0_policy=whole pmem.size=64KiB",
    "blob_threshold=32 blob_gc_ratio=0.1 block_size=512",
    "blob_threshold=64 blob_gc_ratio=0.3 triad.log=on l0_capacity=32KiB triad.mem=on compression=lz4",
    "blob_threshold=32 blob_gc_ratio=0.05 triad.log=on | triad.log=on l0_capacity=32KiB | \
     blob_threshold=100 blob_gc_ratio=0.9",
    "bottommost_compression=zstd compression_dict_size=1KiB target_file_size=16KiB triad.log=on \
     l0_capacity=32KiB block_size=512 | compression=zstd:19 | bottommost_compression=zstd \
     compression_dict_size=4KiB target_file_size=64KiB",
    "blob_threshold=32 blob_gc_ratio=0.2 pmem.size=128KiB target_file_size=2KiB max_subcompactions=4",
];

/// Options separated by bars alternate: one is chosen at each open, by the number of files.
fn options(variant: u32, vfs: &dyn Vfs) -> Result<Options> {
    let alternatives: Vec<_> = OPTION_SETS[variant as usize].split(" | ").collect();
    let alternative = alternatives[vfs.list()?.len() % alternatives.len()];
    Ok(Options::from_map(&engine_under_test::options([SMALL, alternative]))
        .expect("option sets are legal"))
}

impl EngineUnderTest for LsmUnderTest {
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
        let options = options(variant, &*vfs)?;
        Ok(Box::new(Lsm::open(vfs, env, options)?))
    }

    /// The NoveLSM overlay excludes it.
    fn ingests(&self, variant: u32) -> bool {
        !OPTION_SETS[variant as usize].contains("novelsm")
    }

    fn write_sorted_file(
        &self,
        vfs: Arc<dyn Vfs>,
        name: &str,
        batch: &WriteBatch,
        variant: u32,
    ) -> Result<()> {
        let options = options(variant, &*vfs)?;
        let mut writer = SortedFileWriter::create(vfs, name, &options)?;
        for op in batch.iter() {
            match op {
                Op::Delete { key } => writer.delete(key)?,
                Op::Put { key, value, expires_at: None } => writer.put(key, value)?,
                Op::Put { key, value, expires_at: Some(at) } => writer.put_until(key, value, at)?,
            }
        }
        writer.finish().map(drop)
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _variant: u32) -> Result<RepairReport> {
        siltstone_lsm::repair(vfs)
    }
}

siltstone_testkit::conformance!(LsmUnderTest);
siltstone_testkit::conformance!(repairs LsmUnderTest);
siltstone_testkit::conformance!(compaction_filters LsmUnderTest);

/// Over encrypted files, with option sets whose files differ most.
mod encrypted {
    use siltstone_testkit::encrypted::Encrypted;

    use super::LsmUnderTest;

    siltstone_testkit::conformance!(encrypted Encrypted::new(
        "encrypted-lsm",
        LsmUnderTest,
        &[0, 5, 8, 15, 16, 30]
    ));
}

//! The conformance kit, with every option set.
//!
//! The option sets have small sizes, so that a few hundred writes flush, spill over three levels,
//! collect and rotate logs. Together they set each option to each of its extremes.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, MAX_VALUE_BYTES, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_testkit::{EngineUnderTest, engine_under_test};
use siltstone_trie::{Options, Trie};
use siltstone_vfs::Vfs;

struct TrieUnderTest;

/// Common to all option sets: small tables and a low fan-out, so that three levels fill up.
const SMALL: &str = "htable_size=4KiB bucket_size=512 fanout_bits=1 levels=3 slowdown_trigger=8 stop_trigger=12 gc_trigger=3";

const OPTION_SETS: [&str; 15] = [
    "gc_garbage_ratio=0.2",
    "experimental.segment_buckets=2 bucket_size=256",
    "fast_levels=1 filter_memory=1KiB",
    "experimental.table_layout=sorted gc_garbage_ratio=0.2 experimental.segment_buckets=3",
    "experimental.weak_hash=1 bucket_size=256",
    "experimental.weak_hash=6 filter_memory=0 bucket_size=256",
    "filter_memory=0 gc_garbage_ratio=0.1",
    "filter_memory=0 levels=2 bucket_size=4096 max_compactions=4",
    "dense_run_at=2",
    "dense_run_at=3 filter_bits_per_key=0 experimental.cached_migrations=1 experimental.segment_buckets=2",
    "dense_run_at=2 filter_memory=0 experimental.weak_hash=5",
    "levels=1 gc_trigger=2 gc_garbage_ratio=0.01 filter_memory=2KiB",
    "experimental.cached_migrations=0 bucket_fill=0.99 experimental.segment_buckets=4 bucket_size=256 filter_bits_per_key=4 memtables=4",
    "fanout_bits=3 levels=2 slowdown_trigger=10 htable_size=8KiB bucket_fill=0.4",
    "fanout_bits=2 levels=4 htable_size=1KiB filter_memory=0 gc_trigger=2 gc_garbage_ratio=0 max_compactions=1",
];

fn options(variant: u32) -> Options {
    let map = engine_under_test::options([SMALL, OPTION_SETS[variant as usize]]);
    Options::from_map(&map).expect("option sets are legal")
}

impl EngineUnderTest for TrieUnderTest {
    fn name(&self) -> &'static str {
        "trie"
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

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        let options = options(variant);
        let has_fast_tier = OPTION_SETS[variant as usize].contains("fast_levels");
        // A store with files on a fast tier keeps it, whatever option set opens it next.
        if has_fast_tier || vfs.subdirectories()?.iter().any(|name| name == "upper") {
            let fast_levels = if has_fast_tier { options.fast_levels } else { 0 };
            let options = Options { fast_levels, ..options };
            let fast = vfs.subdirectory("upper")?;
            return Ok(Box::new(siltstone_trie::open_on(vfs, Some(fast), env, options)?));
        }
        Ok(Box::new(Trie::open(vfs, env, options)?))
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _variant: u32) -> Result<RepairReport> {
        let has_fast_tier = vfs.subdirectories()?.iter().any(|name| name == "upper");
        let fast = has_fast_tier.then(|| vfs.subdirectory("upper")).transpose()?;
        siltstone_trie::repair_on(vfs, fast)
    }
}

siltstone_testkit::conformance!(TrieUnderTest);
siltstone_testkit::conformance!(repairs TrieUnderTest);

/// Over encrypted files, with option sets whose files differ most.
mod encrypted {
    use siltstone_testkit::encrypted::Encrypted;

    use super::TrieUnderTest;

    siltstone_testkit::conformance!(encrypted Encrypted::new(
        "encrypted-trie",
        TrieUnderTest,
        &[0, 2, 3, 9, 11, 12]
    ));
}

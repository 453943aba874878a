//! The LSM-trie passes the conformance kit with every option set.
//!
//! The option sets are small in everything, so that a few hundred writes flush, spill over three
//! levels, collect and rotate logs; between them each option takes each of its extremes.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, MAX_VALUE_BYTES, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_testkit::{Subject, subject};
use siltstone_trie::{Options, Trie};
use siltstone_vfs::Vfs;

struct TrieSubject;

/// What all option sets share: tables so small, and a fan-out so low, that three levels fill up.
const SMALL: &str = "table=4KiB bucket=512 fanout_bits=1 levels=3 slow=8 stop=12 collect=3";

const VARIANTS: [&str; 15] = [
    "garbage=0.2",
    "segment=2 bucket=256",
    "upper_levels=1 filter_memory=1KiB",
    "tables=sorted garbage=0.2 segment=3",
    "weak_hash=1 bucket=256",
    "weak_hash=6 filter_memory=0 bucket=256",
    "filter_memory=0 garbage=0.1",
    "filter_memory=0 levels=2 bucket=4096 jobs=4",
    "run=2",
    "run=3 filter_bits=0 migrations=1 segment=2",
    "run=2 filter_memory=0 weak_hash=5",
    "levels=1 collect=2 garbage=0.01 filter_memory=2KiB",
    "migrations=0 fill=0.99 segment=4 bucket=256 filter_bits=4 memtables=4",
    "fanout_bits=3 levels=2 slow=10 table=8KiB fill=0.4",
    "fanout_bits=2 levels=4 table=1KiB filter_memory=0 collect=2 garbage=0 jobs=1",
];

fn options(variant: u32) -> Options {
    let map = subject::options([SMALL, VARIANTS[variant as usize]]);
    Options::from_map(&map).expect("option sets are legal")
}

impl Subject for TrieSubject {
    fn name(&self) -> &'static str {
        "trie"
    }

    fn option_sets(&self) -> &[&'static str] {
        &VARIANTS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: false,
            incremental_gc: false,
            max_value_bytes: MAX_VALUE_BYTES,
        }
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        let options = options(variant);
        let has_upper = VARIANTS[variant as usize].contains("upper_levels");
        // A store that has files there keeps its second medium, whatever set it is opened with next.
        if has_upper || vfs.subdirectories()?.iter().any(|name| name == "upper") {
            let upper_levels = if has_upper { options.upper_levels } else { 0 };
            let options = Options { upper_levels, ..options };
            let upper = vfs.subdirectory("upper")?;
            return Ok(Box::new(Trie::open_on(vfs, Some(upper), env, options)?));
        }
        Ok(Box::new(Trie::open(vfs, env, options)?))
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _variant: u32) -> Result<RepairReport> {
        let has_upper = vfs.subdirectories()?.iter().any(|name| name == "upper");
        let upper = has_upper.then(|| vfs.subdirectory("upper")).transpose()?;
        siltstone_trie::repair_on(vfs, upper)
    }
}

siltstone_testkit::conformance!(TrieSubject);
siltstone_testkit::conformance!(repairs TrieSubject);

//! SILT passes the conformance kit with every option set.
//!
//! The option sets are small in everything, so that a few hundred writes convert LogStores, merge
//! HashStores several times and sort in runs; between them each option takes each of its extremes.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, MAX_VALUE_BYTES, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_testkit::{Subject, subject};
use siltstone_vfs::Vfs;

struct SiltSubject;

/// What all option sets share: stores so small that they fill up.
const SMALL: &str = "partitions=2 slots=32 log=32KiB hash_stores=2 stop=4 block=512 sort=1MiB";

const VARIANTS: [&str; 8] = [
    "slots=16 load=0.8 hash_stores=1",
    "partitions=1 slots=16 load=0.5 block=1 inline=32B",
    "partitions=5 slots=32 load=0.97 hash_stores=1 stop=2 block=4KiB",
    "sort=1KiB slots=16 hash_stores=3 block=64KiB",
    "log=4KiB hash_stores=3 index_memory=1",
    "stores=log-hash index_memory=1KiB load_indexes=background",
    "stores=log log=16KiB",
    "stores=log-sorted slots=32 hash_stores=2 stop=20 sort=4KiB block=1",
];

fn options(variant: u32) -> Options {
    let map = subject::options([SMALL, VARIANTS[variant as usize]]);
    Options::from_map(&map).expect("option sets are legal")
}

impl Subject for SiltSubject {
    fn name(&self) -> &'static str {
        "silt"
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
        Ok(Box::new(Silt::open(vfs, env, options(variant))?))
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _variant: u32) -> Result<RepairReport> {
        siltstone_silt::repair(vfs)
    }
}

siltstone_testkit::conformance!(SiltSubject);
siltstone_testkit::conformance!(repairs SiltSubject);

//! The tree passes the conformance kit with every option set.
//!
//! The option sets are small in everything, so that a few hundred writes flush, compact over three
//! levels and rotate logs; between them each option takes each of its extremes.

use std::sync::Arc;

use siltstone_engine::{Capabilities, Engine, MAX_VALUE_BYTES, RepairReport, Result};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::{Subject, subject};
use siltstone_vfs::Vfs;

struct LsmSubject;

/// What all option sets share: levels so small that three of them fill up.
const SMALL: &str = "memtable=4KiB table=4KiB levels=12KiB:48KiB:256KiB l0_compact=2 cache=16KiB container=0 triad_log=off";

const VARIANTS: [&str; 28] = [
    "block=512",
    "block=256 restart=1 filter_bits=0 select=round-robin",
    "compression=lz4 block=4KiB restart=2",
    "compression=zstd select=round-robin subcompactions=1 jobs=1",
    "memtable=16KiB memtables=2 filter_bits=1 block=256",
    "memtable=64KiB table=16KiB restart=1 compression=lz4 cache=0",
    "l0_compact=1 l0_slow=2 l0_stop=3 memtables=2 filter_bits=20",
    "levels=4KiB:8KiB:16KiB:32KiB:64KiB jobs=4 subcompactions=4 compression=zstd block=256",
    "triad_log=on block=512 log_ahead=2KiB",
    "triad_disk=on l0_compact=6 block=256",
    "container=32KiB block=512",
    "container=64KiB triad_log=on table=2KiB levels=32KiB:128KiB log_ahead=64KiB",
    "container=16KiB triad_log=on triad_disk=on memtable=8KiB filter_bits=0 block=256 restart=1",
    "triad_mem=on block=512",
    "triad_mem=on triad_log=on triad_disk=on hot=0.1 flush_threshold=0 memtables=3",
    "triad_mem=on triad_log=on container=32KiB hot=0.5 flush_threshold=0.9 memtables=4 block=256",
    "triad_mem=on container=32KiB triad_disk=on hot=1 flush_threshold=0.1 compression=lz4",
    "level0=triangle nvm=256KiB block=512",
    "level0=triangle nvm=64KiB hints=off block=256 table=2KiB",
    "nvm=96KiB level0=matrix table=2KiB levels=32KiB:128KiB",
    "level0=matrix container=32KiB triad_log=on block=256 log_ahead=0",
    "nvm=128KiB level0=rows l0_compact=6 triad_mem=on hot=0.2",
    "level0=novelsm nvm=64KiB block=512",
    "level0=triangle nvm=1MiB memtable=16KiB memtables=3 levels=64KiB:256KiB triad_mem=on",
    "level_sizes=model block=512 container=32KiB triad_log=on",
    "level_sizes=model l0_compact=3 triad_mem=on | levels=12KiB:48KiB:256KiB",
    "level0=triangle nvm=256KiB container=96KiB triad_log=on | container=32KiB triad_log=on | nvm=64KiB level0=matrix",
    "nvm=128KiB level0=matrix hints=off | level0=triangle nvm=512KiB | l0_compact=3 | level0=rows nvm=64KiB",
];

/// What is parted by bars takes turns: one at each open, chosen by what the medium holds by then.
fn options(variant: u32, vfs: &dyn Vfs) -> Result<Options> {
    let turns: Vec<_> = VARIANTS[variant as usize].split(" | ").collect();
    let turn = turns[vfs.list()?.len() % turns.len()];
    Ok(Options::from_map(&subject::options([SMALL, turn])).expect("option sets are legal"))
}

impl Subject for LsmSubject {
    fn name(&self) -> &'static str {
        "lsm"
    }

    fn option_sets(&self) -> &[&'static str] {
        &VARIANTS
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: true,
            durable: true,
            versioned: true,
            incremental_gc: false,
            max_value_bytes: MAX_VALUE_BYTES,
        }
    }

    fn open(&self, vfs: Arc<dyn Vfs>, env: Env, variant: u32) -> Result<Box<dyn Engine>> {
        let options = options(variant, &*vfs)?;
        Ok(Box::new(Lsm::open(vfs, env, options)?))
    }

    fn repair(&self, vfs: &Arc<dyn Vfs>, _variant: u32) -> Result<RepairReport> {
        siltstone_lsm::repair(vfs)
    }
}

siltstone_testkit::conformance!(LsmSubject);
siltstone_testkit::conformance!(repairs LsmSubject);

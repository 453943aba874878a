//! The engines by name, with options that make background jobs frequent.
//!
//! A kill finds a bug in a flush only if it interrupts one. So memtables, tables and logs are
//! small, and a second of load has dozens of flushes, compactions, conversions, merges and
//! collections. Each history uses one option set of its engine.

/// An engine under test.
#[derive(Debug)]
pub struct Engine {
    /// The name, as in `--table NAME=ENGINE` of `siltstone serve`.
    pub name: &'static str,
    /// What the option sets make frequent, in one line.
    pub about: &'static str,
    /// Lists of options; each is appended to the engine's name.
    pub option_sets: &'static [&'static str],
    /// Option sets with which the store allocates space as long as clients write, if `option_sets`
    /// have none.
    pub growing: &'static [&'static str],
}

/// The durable engines. `mica` is empty after a restart.
pub const ENGINES: &[Engine] = &[
    Engine {
        name: "lsm",
        about: "flushes every 16 to 64 KiB of log; compactions with all level-0 policies",
        option_sets: &[
            ",memtable=64KiB,table=64KiB,levels=256KiB:1MiB,container=256KiB",
            ",memtable=16KiB,table=16KiB,levels=64KiB:256KiB,container=0,l0_compact=3,l0_slow=12,l0_stop=24",
            ",memtable=32KiB,table=32KiB,levels=128KiB:1MiB,container=128KiB",
            ",memtable=32KiB,table=32KiB,levels=128KiB:1MiB,level0=matrix,container=128KiB,triad_log=off",
            ",memtable=32KiB,table=16KiB,levels=64KiB:512KiB,triad_mem=on,triad_disk=on,container=0,l0_compact=3",
            ",memtable=64KiB,table=32KiB,levels=128KiB:1MiB,container=256KiB,compression=lz4,block=1KiB",
        ],
        growing: &[],
    },
    Engine {
        name: "trie",
        about: "flushes every 16 to 32 KiB; compactions down the trie, collection of its last level",
        option_sets: &[
            ",table=32KiB,levels=3,collect=2",
            ",table=16KiB,bucket=1KiB,segment=8,levels=2,fanout_bits=2,collect=2,garbage=0.1",
            ",table=32KiB,levels=2,fanout_bits=1,collect=3,run=4,slow=8,stop=16",
        ],
        growing: &[],
    },
    Engine {
        name: "silt",
        about: "conversions every 64 entries or 64 KiB of log, merges every second HashStore",
        option_sets: &[
            ",partitions=2,slots=64,log=64KiB,hash_stores=2,stop=8,sort=64KiB",
            ",partitions=1,slots=256,log=256KiB,hash_stores=3,stop=9,sort=16KiB,inline=64",
            ",partitions=4,slots=128,log=128KiB,hash_stores=2,stop=8,sort=64KiB,load_indexes=background",
        ],
        growing: &[],
    },
    Engine {
        name: "skimpy",
        about: "collection on devices of 6 to 16 MiB",
        option_sets: &[
            ",capacity=8MiB,block=8",
            ",capacity=16MiB,block=16,lanes=2,pack=0ms",
            ",capacity=6MiB,block=4,buckets=64",
        ],
        // The file of the device allocates space until every page was written once.
        growing: &[",capacity=96MiB,block=16", ",capacity=64MiB,block=32,lanes=2"],
    },
];

/// The engine of a name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.name == name)
}

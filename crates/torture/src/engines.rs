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
            ",memtable=64KiB,target_file_size=64KiB,levels=256KiB:1MiB,l0_capacity=256KiB",
            ",memtable=16KiB,target_file_size=16KiB,levels=64KiB:256KiB,l0_capacity=0,experimental.l0_compaction_trigger=3,experimental.l0_slowdown_trigger=12,experimental.l0_stop_trigger=24",
            ",memtable=32KiB,target_file_size=32KiB,levels=128KiB:1MiB,l0_capacity=128KiB",
            ",memtable=32KiB,target_file_size=32KiB,levels=128KiB:1MiB,l0_policy=matrix,l0_capacity=128KiB,triad.log=off",
            ",memtable=32KiB,target_file_size=16KiB,levels=64KiB:512KiB,triad.mem=on,triad.disk=on,l0_capacity=0,experimental.l0_compaction_trigger=3",
            ",memtable=64KiB,target_file_size=32KiB,levels=128KiB:1MiB,l0_capacity=256KiB,compression=lz4,block_size=1KiB",
        ],
        growing: &[],
    },
    Engine {
        name: "trie",
        about: "flushes every 16 to 32 KiB; compactions down the trie, collection of its last level",
        option_sets: &[
            ",htable_size=32KiB,levels=3,gc_trigger=2",
            ",htable_size=16KiB,bucket_size=1KiB,experimental.segment_buckets=8,levels=2,fanout_bits=2,gc_trigger=2,gc_garbage_ratio=0.1",
            ",htable_size=32KiB,levels=2,fanout_bits=1,gc_trigger=3,dense_run_at=4,slowdown_trigger=8,stop_trigger=16",
        ],
        growing: &[],
    },
    Engine {
        name: "silt",
        about: "conversions every 64 entries or 64 KiB of log, merges every second HashStore",
        option_sets: &[
            ",partitions=2,log_store_slots=64,max_log_size=64KiB,merge_trigger=2,stop_trigger=8,sort_memory=64KiB",
            ",partitions=1,log_store_slots=256,max_log_size=256KiB,merge_trigger=3,stop_trigger=9,sort_memory=16KiB,inline_value_bytes=64",
            ",partitions=4,log_store_slots=128,max_log_size=128KiB,merge_trigger=2,stop_trigger=8,sort_memory=64KiB,load_indexes=background",
        ],
        growing: &[],
    },
    Engine {
        name: "skimpy",
        about: "collection on devices of 6 to 16 MiB",
        option_sets: &[
            ",capacity=8MiB,block=8",
            ",capacity=16MiB,block=16,channels=2,buffer_delay=0ms",
            ",capacity=6MiB,block=4,buckets=64",
        ],
        // The file of the device allocates space until every page was written once.
        growing: &[",capacity=96MiB,block=16", ",capacity=64MiB,block=32,channels=2"],
    },
];

/// The engine of a name.
pub fn find(name: &str) -> Option<&'static Engine> {
    ENGINES.iter().find(|engine| engine.name == name)
}

//! `trie-reads` and `trie-sorted`: reads per lookup, in LSM-trie and in its predecessor
//! SSTable-trie.
//!
//! Read requests to storage are counted over lookups of existing keys, after all background work.
//!
//! Source: LSM-trie paper, sections 2.3, 2.4.2 and 2.4.3.

use siltstone_engine::Result;

use super::trie_bench::{Load, PAPER, Run};
use super::{Check, Direction, Experiment, Measured};

pub(super) struct TrieReads;

impl Experiment for TrieReads {
    fn id(&self) -> &'static str {
        "trie-reads"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "sections 2.4.2 and 2.4.3"
    }

    fn claim(&self) -> &'static str {
        "1.05 reads per lookup with all filters in memory, 2.05 with those of the last level on flash"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        // The last level has most of the items only when it has many sub-levels: the paper's has
        // 80.
        let load = Load::of(6e6, scale);
        let resident = Run::of(load, &[], progress)?;
        let clustered = Run::of(load, &[("filter_memory", "0")], progress)?;
        let filters = |run: &Run| run.settled.memory["filter"] as f64;
        let check = |what: &str, claimed: f64, ours: f64, tolerance: f64| Check {
            what: what.to_owned(),
            claimed,
            ours,
            tolerance,
            direction: Direction::AtMost(claimed),
        };
        let checks = vec![
            check("reads per lookup, filters in memory", 1.05, resident.reads, 0.0),
            check("reads per lookup, last level's filters clustered", 2.05, clustered.reads, 0.0),
            check(
                "share of filter bytes still in memory",
                0.1,
                filters(&clustered) / filters(&resident),
                0.0,
            ),
            check("lookups that miss, plus 1", 1.0, 1.0 + resident.missed + clustered.missed, 0.0),
        ];
        Ok(Measured { scale: load.words(), checks, plot: None })
    }
}

pub(super) struct TrieSorted;

impl Experiment for TrieSorted {
    fn id(&self) -> &'static str {
        "trie-sorted"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "sections 2.3 and 2.4.2"
    }

    fn claim(&self) -> &'static str {
        "SSTable-trie writes as little; its index, of one key per block, is ten times the migrations that \
         an HTable keeps in memory"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let load = Load::of(2e6, scale);
        let hash = Run::of(load, &[], progress)?;
        let sorted = Run::of(load, &[("experimental.table_layout", "sorted")], progress)?;
        let index = |run: &Run, name: &str| run.settled.memory[name] as f64 / run.keys;
        let check = |what: &str, claimed: f64, ours: f64, tolerance, direction| Check {
            what: what.to_owned(),
            claimed,
            ours,
            tolerance,
            direction,
        };
        // The paper's index has a key of 16 bytes and a position per block; ours 8 bytes of hash.
        let blocks = index(&sorted, "rank_index") / index(&hash, "migrations");
        let checks = vec![
            check(
                "bytes written by SSTable-trie over LSM-trie's",
                1.0,
                sorted.tables_written() / hash.tables_written(),
                0.05,
                Direction::None,
            ),
            check("reads per lookup, LSM-trie", 1.05, hash.reads, 0.0, Direction::AtMost(1.05)),
            check(
                "reads per lookup, SSTable-trie",
                1.0,
                sorted.reads,
                0.02,
                Direction::AtMost(1.05),
            ),
            check(
                "the index over the migrations in memory",
                10.0,
                blocks,
                0.1,
                Direction::AtLeast(1.0),
            ),
        ];
        Ok(Measured { scale: load.words(), checks, plot: None })
    }
}

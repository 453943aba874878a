//! `trie-reads` and `trie-sorted`: reads per lookup, in LSM-trie and in its predecessor
//! SSTable-trie.
//!
//! Read requests to storage are counted over lookups of existing keys, after all background work.
//!
//! Source: LSM-trie paper, sections 2.3, 2.4.2 and 2.4.3.

use siltstone_engine::Result;

use super::bars::bar;
use super::trie_bench::{Load, PAPER, Run};
use super::{Experiment, Measurement};

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

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        // The last level has most of the items only when it has many sub-levels: the paper's has
        // 80.
        let load = Load::of(6e6, scale);
        let resident = Run::of(load, &[], progress)?;
        let clustered = Run::of(load, &[("filter_memory", "0")], progress)?;
        let filters = |run: &Run| run.settled.memory["filter"] as f64;
        let checks = vec![
            bar("trie-reads", "resident")
                .check("reads per lookup, filters in memory", resident.reads),
            bar("trie-reads", "clustered")
                .check("reads per lookup, last level's filters clustered", clustered.reads),
            bar("trie-reads", "filters").check(
                "share of filter bytes still in memory",
                filters(&clustered) / filters(&resident),
            ),
            bar("trie-reads", "missed")
                .check("lookups that miss, plus 1", 1.0 + resident.missed + clustered.missed),
        ];
        Ok(Measurement { scale: load.words(), checks, plot: None })
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

    fn cause(&self) -> Option<&'static str> {
        Some(
            "the paper's index has a key of 16 bytes and a position per block; ours has 8 bytes of \
             the key's hash, a third of that",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let load = Load::of(2e6, scale);
        let hash = Run::of(load, &[], progress)?;
        let sorted = Run::of(load, &[("experimental.table_layout", "sorted")], progress)?;
        let index = |run: &Run, name: &str| run.settled.memory[name] as f64 / run.keys;
        let blocks = index(&sorted, "rank_index") / index(&hash, "migrations");
        let checks = vec![
            bar("trie-sorted", "bytes").check(
                "bytes written by SSTable-trie over LSM-trie's",
                sorted.tables_written() / hash.tables_written(),
            ),
            bar("trie-sorted", "hash-reads").check("reads per lookup, LSM-trie", hash.reads),
            bar("trie-sorted", "sorted-reads")
                .check("reads per lookup, SSTable-trie", sorted.reads),
            bar("trie-sorted", "index").check("the index over the migrations in memory", blocks),
        ];
        Ok(Measurement { scale: load.words(), checks, plot: None })
    }
}

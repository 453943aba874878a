//! `ect-table-2-5`: speed of SILT's two in-memory indexes, on one core.
//!
//! As in the thesis, keys are inserted one by one into tables of a LogStore's size, each filled
//! before the next, and in bulk into a trie; then random keys are looked up. Insertions stay within
//! one table, lookups use all of them.
//!
//! Rates depend on the machine, and the thesis's is of 2009: a rate that is not below the thesis's
//! confirms the trend. A trie lookup has a stricter bar: at most one microsecond. The thesis's
//! conclusion, that a lookup in the trie takes about 8.8 times as long as one in the tables, is a
//! ratio within the run; ours is smaller because its trie is faster.
//!
//! Invariant: both indexes contain the same keys, and every lookup finds its key.
//!
//! Source: Lim, thesis (2015), section 2.5.2, table 2.5.

use std::time::Instant;

use siltstone_engine::Result;
use siltstone_structures::cuckoo::CuckooTable;
use siltstone_structures::ect::{EctOptions, HashKey};

use super::bars::bar;
use super::{Experiment, Measurement, hashes};

/// An eighth of the thesis's 126 M, which take a gigabyte of tables.
const KEYS: f64 = 15_750_000.0;
/// Slots in a LogStore's table.
const SLOTS: u32 = 1 << 17;
/// Keys per table, below the load at which insertions start to fail.
const KEYS_PER_TABLE: usize = SLOTS as usize * 93 / 100;

pub(super) struct EctTable25;

impl Experiment for EctTable25 {
    fn id(&self) -> &'static str {
        "ect-table-2-5"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "table 2.5"
    }

    fn claim(&self) -> &'static str {
        "10.2 M cuckoo insertions and 1.84 M lookups, 7.6 M trie insertions in bulk and 0.21 M lookups \
         per second; a lookup in the trie takes 8.8 times one in the tables"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "the paper's processor is of 2009, and the trie's searches are for a present \
             one: the trie gained more than the cuckoo table, which waits for memory",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).round().max(10_000.0) as u64;
        progress(0, 3);
        let hashes = hashes::sorted(keys);
        progress(1, 3);
        let cuckoo = Cuckoo::measure(&hashes);
        progress(2, 3);
        let built = hashes::build(&hashes, &EctOptions::default())?;
        let build = keys as f64 / built.took.as_secs_f64() / 1e3;
        let lookup = 1e6 / built.lookup_nanoseconds(&hashes);
        progress(3, 3);
        let checks = vec![
            bar("ect-table-2-5", "cuckoo-insertions")
                .check("cuckoo insertions, thousands per second", cuckoo.insert),
            bar("ect-table-2-5", "cuckoo-lookups")
                .check("cuckoo lookups, thousands per second", cuckoo.lookup),
            bar("ect-table-2-5", "trie-insertions")
                .check("trie insertions in bulk, thousands per second", build),
            bar("ect-table-2-5", "trie-lookups")
                .check("trie lookups, thousands per second", lookup),
            bar("ect-table-2-5", "trie-microseconds")
                .check("microseconds of a trie lookup (our bar)", 1e3 / lookup),
            bar("ect-table-2-5", "trie-over-cuckoo").check(
                "time of a trie lookup over that of a cuckoo lookup",
                cuckoo.lookup / lookup,
            ),
            bar("ect-table-2-5", "found")
                .check("share of cuckoo lookups that find their key", cuckoo.right),
        ];
        Ok(Measurement { scale: format!("{keys} keys"), checks, plot: None })
    }
}

/// Measurements of the tables.
struct Cuckoo {
    /// Thousands per second.
    insert: f64,
    /// Thousands per second.
    lookup: f64,
    /// Share of lookups that find their key.
    right: f64,
}

impl Cuckoo {
    fn measure(hashes: &[HashKey]) -> Self {
        // The last 64 bits of a hash, because sorted hashes have common first bits.
        let words: Vec<u64> = hashes
            .iter()
            .map(|hash| hash.last_chunk().map_or(0, |last| u64::from_le_bytes(*last)))
            .collect();
        let thousands =
            |count: usize, begin: Instant| count as f64 / begin.elapsed().as_secs_f64() / 1e3;
        let begin = Instant::now();
        let tables: Vec<_> = words
            .chunks(KEYS_PER_TABLE)
            .map(|words| {
                let mut table = CuckooTable::<15>::with_slots(SLOTS);
                for (&word, offset) in words.iter().zip(0..) {
                    // A failed insertion is detected by the lookup below.
                    let _ = table.insert(word, offset);
                }
                table
            })
            .collect();
        let insert = thousands(words.len(), begin);
        let queries: Vec<usize> = (0..words.len().min(10_000_000) as u64)
            .map(|query| siltstone_structures::hash64(&query.to_le_bytes()))
            .map(|random| (random % words.len() as u64) as usize)
            .collect();
        let begin = Instant::now();
        let found = queries.iter().filter(|&&at| {
            let offset = (at % KEYS_PER_TABLE) as u32;
            tables[at / KEYS_PER_TABLE].candidates(words[at]).any(|found| found == offset)
        });
        let found = found.count();
        let lookup = thousands(queries.len(), begin);
        Self { insert, lookup, right: found as f64 / queries.len().max(1) as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::run;

    #[test]
    fn lookups_find_all_keys_in_tables_and_trie() {
        let finding = run(&EctTable25, 0.01, 1, &mut |_, _| ()).unwrap();
        let right = finding.checks.last().unwrap();
        assert_eq!(right.ours, 1.0, "{right:?}");
        assert!(finding.checks.iter().all(|check| check.ours > 0.0));
    }
}

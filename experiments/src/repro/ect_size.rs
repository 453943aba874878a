//! `ect-size`: bits per key of an entropy-coded trie, including header and index.
//!
//! A trie with as many keys as the thesis's, and one with the same keys that only locates blocks of
//! eight; every key is looked up in both.
//!
//! Invariant: the size is the length of the stored form.
//!
//! Source: Lim, thesis (2015), sections 3.3.3 and 3.1.6.

use siltstone_engine::Result;
use siltstone_structures::ect::EctOptions;

use super::bars::bar;
use super::{Experiment, Measurement, hashes};

/// The thesis's number of keys, 16 M.
const KEYS: f64 = 16_777_216.0;
const ENTRIES_PER_BLOCK: u32 = 8;

pub(super) struct EctSize;

impl Experiment for EctSize {
    fn id(&self) -> &'static str {
        "ect-size"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "sections 3.3.3 and 3.1.6"
    }

    fn claim(&self) -> &'static str {
        "the index of 16 million keys takes 2.51 bits per key (g = 256, hmax = 64), with 8 entries per block less than 1"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).round().max(10_000.0) as u64;
        progress(0, 4);
        let hashes = hashes::sorted(keys);
        progress(1, 4);
        let built = hashes::build(&hashes, &EctOptions::default())?;
        progress(2, 4);
        let (bits, right) = (built.bits(), built.right(&hashes, 1));
        drop(built);
        progress(3, 4);
        let sparse = EctOptions { entries_per_block: ENTRIES_PER_BLOCK, ..Default::default() };
        let sparse = hashes::build(&hashes, &sparse)?;
        let sparse_right = sparse.right(&hashes, u64::from(ENTRIES_PER_BLOCK));
        progress(4, 4);
        let checks = vec![
            bar("ect-size", "bits")
                .check("bits per key, header and index of buckets included", bits),
            bar("ect-size", "sparse-bits")
                .check("the same with 8 entries per block", sparse.bits()),
            bar("ect-size", "right").check(
                "share of keys whose lookups give their rank and block",
                right.min(sparse_right),
            ),
        ];
        Ok(Measurement { scale: format!("{keys} keys"), checks, plot: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn size_is_confirmed_at_a_small_scale() {
        let finding = run(&EctSize, 0.01, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
    }
}

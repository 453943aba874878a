//! `ect-figures`: the expected size of a single trie, by number of keys and by entries per block.
//!
//! ```text
//!  figure 3.3   n keys, alone in a bucket, hmax = 64      against the entropy of such a trie
//!  figure 3.6   256 keys, 1 to 64 entries per block
//! ```
//!
//! Sizes are means over many tries of random keys, without the index of buckets, as in the figures.
//! The entropy is computed by the recursion that defines the trie; 0 and n keys on the left are one
//! event because they have one code.
//!
//! Instead of a pruned trie ours has separators of blocks, which are smaller.
//!
//! Invariant: entropy is a lower bound of the mean size of a trie, up to sampling noise.
//!
//! Source: Lim, thesis (2015), sections 3.1.4 and 3.1.6, figures 3.3 and 3.6.

use std::collections::BTreeSet;

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;
use siltstone_structures::ect::EctOptions;
use siltstone_structures::{HashKey, hash64};

use super::bars::bar;
use super::{Experiment, Measurement, hashes};

/// Total number of keys in the tries of one size.
const KEYS: f64 = 400_000.0;
const SIZES: [u32; 8] = [2, 4, 8, 16, 32, 64, 128, 256];
const BLOCKS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

pub(super) struct EctFigures;

impl Experiment for EctFigures {
    fn id(&self) -> &'static str {
        "ect-figures"
    }

    fn paper(&self) -> &'static str {
        "Lim, Resource-Efficient Data-Intensive System Designs, 2015"
    }

    fn figure(&self) -> &'static str {
        "figures 3.3 and 3.6"
    }

    fn claim(&self) -> &'static str {
        "a trie approaches 2.5 bits per key, close to its entropy; with 8 or more entries per block it \
         takes fewer than 1"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = (KEYS * scale).round().max(20_000.0) as u64;
        let total = (SIZES.len() + BLOCKS.len()) as u64;
        let all = hashes::sorted(keys);
        let (mut sizes, mut blocks) = (Vec::new(), Vec::new());
        for size in SIZES {
            sizes.push((f64::from(size), trie_bits(&all, size, 1)?));
            progress(sizes.len() as u64, total);
        }
        for block in BLOCKS {
            blocks.push((f64::from(block), trie_bits(&all, 256, block)?));
            progress((sizes.len() + blocks.len()) as u64, total);
        }
        let entropy = entropy(256);
        let bounds: Vec<_> =
            SIZES.iter().map(|&n| (f64::from(n), entropy[n as usize] / f64::from(n))).collect();
        let at_256 = sizes.last().map_or(f64::NAN, |point| point.1);
        let bound = bounds.last().map_or(f64::NAN, |point| point.1);
        let from_8 = blocks.iter().filter(|point| point.0 >= 8.0);
        let (below, of) = (from_8.clone().filter(|point| point.1 < 1.0).count(), from_8.count());
        let checks = vec![
            bar("ect-figures", "bits").check("bits per key of a trie of 256 keys", at_256),
            bar("ect-figures", "over-entropy")
                .check("size of a trie of 256 keys over its entropy", at_256 / bound),
            bar("ect-figures", "below-1-bit").check(
                "share of block sizes from 8 to 64 entries below 1 bit per key",
                below as f64 / of as f64,
            ),
        ];
        let line =
            |name: &str, points, is_reference| Line { name: name.to_owned(), points, is_reference };
        let lines = Lines {
            title: "Expected size of a trie, without the index of buckets".to_owned(),
            x: "keys in the trie; entries per block".to_owned(),
            y: "bits per key".to_owned(),
            series: vec![
                line("by keys", sizes, false),
                line("256 keys, by entries per block", blocks, false),
                line("entropy, by keys", bounds, true),
            ],
        };
        let scale = format!("{keys} keys in tries of each size");
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(lines)) })
    }
}

/// The mean bits per key of tries of exactly `size` of the hashes, chosen at random.
fn trie_bits(hashes: &[HashKey], size: u32, entries_per_block: u32) -> Result<f64> {
    let tries = hashes.len() as u64 / u64::from(size);
    let options = EctOptions { keys_per_bucket: 1 << 16, entries_per_block, ..Default::default() };
    let mut bits = 0;
    for number in 0..tries {
        let mut chosen = BTreeSet::new();
        let mut draws = number << 32..;
        while chosen.len() < size as usize {
            let random = draws.next().map_or(0, |draw| hash64(&draw.to_le_bytes()));
            chosen.insert(hashes[(random % hashes.len() as u64) as usize]);
        }
        let chosen: Vec<HashKey> = chosen.into_iter().collect();
        bits += hashes::build(&chosen, &options)?.index.trie_bits();
    }
    Ok(bits as f64 / (tries * u64::from(size)) as f64)
}

/// Entropy of tries of up to n keys, in bits.
fn entropy(n: usize) -> Vec<f64> {
    let mut entropy = vec![0.0; 2.min(n + 1)];
    for n in 2..=n {
        let half = 0.5f64.powi(n as i32);
        let (mut chance, mut sum) = (half, 0.0);
        for left in 1..n {
            chance *= (n + 1 - left) as f64 / left as f64;
            sum += chance * (entropy[left] + entropy[n - left] - chance.log2());
        }
        // All on one side, with twice the probability: the code, and the same trie one level below.
        let one_side = 2.0 * half;
        sum -= one_side * one_side.log2();
        entropy.push(sum / (1.0 - one_side));
    }
    entropy
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn entropy_of_small_tries_is_exact() {
        // Two keys separate with probability 1/2 at each level: two bits.
        let entropy = entropy(256);
        assert!((entropy[2] - 2.0).abs() < 1e-9);
        assert!((entropy[256] / 256.0 - 2.31).abs() < 0.01, "{}", entropy[256] / 256.0);
    }

    #[test]
    fn figures_are_confirmed_for_few_tries() {
        let finding = run(&EctFigures, 0.05, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
        assert!(finding.plot.is_some());
    }
}

//! Hashes for experiments with rank indexes, and measurements of any such index.
//!
//! Invariant: the same count gives the same hashes, and each of them is looked up at the position
//! that the index assigned when it was built.

use std::time::{Duration, Instant};

use siltstone_engine::{Error, Result};
use siltstone_structures::hash::hash64_seeded;
use siltstone_structures::rank::{HashKey, RankIndex, RankIndexBuilder};

/// Distinct uniform hashes, sorted; 20 bytes each.
pub(super) fn sorted(count: u64) -> Vec<HashKey> {
    let mut hashes: Vec<HashKey> = (0..count).map(hash).collect();
    hashes.sort_unstable();
    hashes
}

/// The 160-bit hash of a numeric key.
fn hash(key: u64) -> HashKey {
    let mut hash = [0; 20];
    for (part, bytes) in (0..).zip(hash.chunks_mut(8)) {
        let word = hash64_seeded(&key.to_le_bytes(), part).to_be_bytes();
        bytes.copy_from_slice(&word[..bytes.len()]);
    }
    hash
}

/// An index with the duration of its build and the positions of its keys.
pub(super) struct BuiltIndex<I> {
    pub(super) index: I,
    pub(super) took: Duration,
    /// Index into the sorted hashes, by position.
    order: Vec<u32>,
}

/// Builds an index of sorted hashes.
///
/// # Errors
/// [`Error::Invalid`] if the index refuses them.
pub(super) fn build<I: RankIndex>(
    hashes: &[HashKey],
    options: &I::Options,
) -> Result<BuiltIndex<I>> {
    let refused = |error: I::Error| Error::Invalid(error.to_string());
    let mut order = Vec::with_capacity(hashes.len());
    let begin = Instant::now();
    let mut builder = I::builder(options, hashes.len() as u64).map_err(refused)?;
    for hash in hashes {
        let first = order.len() as u32;
        let next = builder.push(hash).map_err(refused)?;
        order.extend(next.iter().map(|at| first + at));
    }
    let (index, last) = builder.finish().map_err(refused)?;
    let first = order.len() as u32;
    order.extend(last.iter().map(|at| first + at));
    Ok(BuiltIndex { index, took: begin.elapsed(), order })
}

impl<I: RankIndex> BuiltIndex<I> {
    /// Bits per key of all parts.
    pub(super) fn bits(&self) -> f64 {
        self.index.size() as f64 * 8.0 / self.index.len() as f64
    }

    /// Share of the keys that are found at their position, with `entries_per_block` entries per
    /// block.
    pub(super) fn right(&self, hashes: &[HashKey], entries_per_block: u64) -> f64 {
        let positions = (0..).zip(&self.order);
        let is_right = |&(position, &at): &(u64, &u32)| {
            self.index.lookup(&hashes[at as usize]) == position / entries_per_block
        };
        positions.filter(is_right).count() as f64 / hashes.len() as f64
    }

    /// Nanoseconds per lookup of random keys, the best of three passes.
    pub(super) fn lookup_nanoseconds(&self, hashes: &[HashKey]) -> f64 {
        let queries: Vec<_> = (0..hashes.len().min(300_000) as u64)
            .map(|query| hash64_seeded(&query.to_le_bytes(), 9) % hashes.len() as u64)
            .map(|at| hashes[at as usize])
            .collect();
        let turns = (0..3).map(|_| {
            let begin = Instant::now();
            let sum = queries.iter().fold(0u64, |sum, hash| sum ^ self.index.lookup(hash));
            std::hint::black_box(sum);
            begin.elapsed().as_secs_f64() * 1e9 / queries.len().max(1) as f64
        });
        turns.fold(f64::INFINITY, f64::min)
    }
}

//! Hashes for experiments with entropy-coded tries, and measurements of a trie.
//!
//! Invariant: the same count gives the same hashes.

use std::time::{Duration, Instant};

use siltstone_engine::{Error, Result};
use siltstone_structures::ect::{Ect, EctBuilder, EctError, EctOptions, HashKey};
use siltstone_structures::hash::hash64_seeded;

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

/// A trie with the duration of its build.
pub(super) struct BuiltIndex {
    pub(super) index: Ect,
    pub(super) took: Duration,
}

/// Builds a trie of sorted hashes.
///
/// # Errors
/// [`Error::Invalid`] if the trie refuses them.
pub(super) fn build(hashes: &[HashKey], options: &EctOptions) -> Result<BuiltIndex> {
    let refused = |error: EctError| Error::Invalid(error.to_string());
    let begin = Instant::now();
    let mut builder = EctBuilder::new(*options, hashes.len() as u64).map_err(refused)?;
    hashes.iter().try_for_each(|hash| builder.push(hash)).map_err(refused)?;
    let index = builder.finish().map_err(refused)?;
    Ok(BuiltIndex { index, took: begin.elapsed() })
}

impl BuiltIndex {
    /// Bits per key of all parts.
    pub(super) fn bits(&self) -> f64 {
        self.index.size() as f64 * 8.0 / self.index.len() as f64
    }

    /// Share of the keys whose lookup gives their block, with `entries_per_block` entries per
    /// block.
    pub(super) fn right(&self, hashes: &[HashKey], entries_per_block: u64) -> f64 {
        let is_right =
            |&(rank, hash): &(u64, &HashKey)| self.index.lookup(hash) == rank / entries_per_block;
        (0..).zip(hashes).filter(is_right).count() as f64 / hashes.len() as f64
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

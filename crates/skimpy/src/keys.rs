//! Maps a key to its bucket.

use siltstone_structures::hash::hash64_seeded;

/// Part of the format: pages store hashes, which determine the buckets.
const SEED: u64 = 0x736b_696d_7079;

pub(crate) fn hash(key: &[u8]) -> u64 {
    hash64_seeded(key, SEED)
}

/// The bucket of a hash, of `buckets`.
pub(crate) fn bucket(hash: u64, buckets: u32) -> u32 {
    ((u128::from(hash) * u128::from(buckets)) >> 64) as u32
}

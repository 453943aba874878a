//! The hash of a key, and the use of each of its parts.
//!
//! ```text
//!   160 bits   [ suffix: 64 │ infix: 32 │ prefix: 64 ]        most significant first
//!                │             │           └─ the child at each level of the trie, from the top
//!                │             └─ the order inside a bucket, by which items migrate
//!                └─ the bucket of an HTable, the column of a BloomCluster
//! ```
//!
//! The names are the paper's. The suffix is first, so that the order of hashes is the order of
//! buckets for any number of buckets: the bucket is the suffix scaled to that number (the paper
//! takes the remainder, which scatters the order). A hash-ordered run with an index of `structures`
//! needs this order, and so does a merge of tables of different sizes.
//!
//! Invariant: the hash is a function of the key and of the table's [`HashKind`], which the manifest
//! records for the life of the table. Keys are stored completely, so that keys with equal hashes
//! are distinguished.
//!
//! Source: LSM-trie paper, figure 8, which uses SHA-1; this uses XXH3 with a secret seed.

use siltstone_structures::HashKey;
use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// The hash function of a table: part of its format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HashKind {
    /// Secret, so that clients who choose keys cannot choose buckets.
    pub(crate) seed: u64,
    /// For tests: only 2^bits different hashes; 0 for all.
    pub(crate) weak_bits: u32,
}

/// The hash of a key, ordered as its 160 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Hash {
    pub(crate) suffix: u64,
    pub(crate) infix: u32,
    pub(crate) prefix: u64,
}

impl HashKind {
    /// Hashes a key. Cost: about 20 ns for short keys.
    pub(crate) fn hash(self, key: &[u8]) -> Hash {
        let wide = xxh3_128_with_seed(key, self.seed);
        if self.weak_bits > 0 {
            let few = wide as u64 & ((1 << self.weak_bits.min(63)) - 1);
            let part = |n: u64| xxh3_64_with_seed(&few.to_le_bytes(), n);
            return Hash { suffix: part(1), infix: part(2) as u32, prefix: part(3) };
        }
        let infix = xxh3_64_with_seed(key, !self.seed) as u32;
        Hash { suffix: wide as u64, infix, prefix: (wide >> 64) as u64 }
    }
}

impl Hash {
    /// The container on a level: `bits` of the prefix per level above it.
    pub(crate) fn container(self, level: usize, bits: u32) -> u64 {
        let used = level as u32 * bits;
        if used == 0 { 0 } else { self.prefix >> (64 - used) }
    }

    /// The bucket, or the column, out of `buckets`.
    #[inline]
    pub(crate) fn bucket(self, buckets: u32) -> u32 {
        ((u128::from(self.suffix) * u128::from(buckets)) >> 64) as u32
    }

    /// The rank in the order of a bucket: the infix rotated by the bucket's number, so that an item
    /// with a high rank in one bucket is unlikely to have one in another.
    #[inline]
    pub(crate) fn rank(self, bucket: u32) -> u32 {
        rank(self.infix, bucket)
    }

    /// The value for Bloom filters.
    #[inline]
    pub(crate) fn check(self) -> u64 {
        self.prefix.wrapping_add(self.suffix.rotate_left(32)) ^ u64::from(self.infix)
    }

    /// The hash as a key of the index of a hash-ordered run.
    pub(crate) fn to_key(self) -> HashKey {
        let mut out = [0; 20];
        out[..8].copy_from_slice(&self.suffix.to_be_bytes());
        out[8..12].copy_from_slice(&self.infix.to_be_bytes());
        out[12..].copy_from_slice(&self.prefix.to_be_bytes());
        out
    }
}

/// The rank of an infix in the order of a bucket.
#[inline]
pub(crate) fn rank(infix: u32, bucket: u32) -> u32 {
    infix.rotate_left(bucket % 32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container_id::MAX_LEVEL;

    #[test]
    fn order_of_hashes_is_that_of_buckets_and_of_run_keys() {
        let kind = HashKind { seed: 3, weak_bits: 0 };
        let mut hashes: Vec<Hash> = (0..500u32).map(|n| kind.hash(&n.to_le_bytes())).collect();
        hashes.sort_unstable();
        for buckets in [1, 7, 8192] {
            assert!(hashes.is_sorted_by_key(|hash| hash.bucket(buckets)));
            assert!(hashes.iter().all(|hash| hash.bucket(buckets) < buckets));
        }
        assert!(hashes.is_sorted_by_key(|hash| hash.to_key()));
        assert!(hashes.iter().all(|hash| hash.container(0, 3) == 0));
        assert!(hashes.iter().all(|hash| hash.container(MAX_LEVEL, 5) < 1 << 60));
        assert!(hashes.iter().all(|hash| hash.container(2, 3) >> 3 == hash.container(1, 3)));
    }

    #[test]
    fn weak_hash_collides_in_every_part() {
        let kind = HashKind { seed: 3, weak_bits: 2 };
        let hashes: std::collections::HashSet<Hash> =
            (0..500u32).map(|n| kind.hash(&n.to_le_bytes())).collect();
        assert_eq!(hashes.len(), 4);
    }
}

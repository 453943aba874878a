//! Key hashing, shared by all filters and sketches.
//!
//! A key is hashed once, where it enters the engine, and the 64 bits are passed on to Bloom
//! filters, HyperLogLog and shards. Users of an independent hash of the same key (the buckets of
//! `skimpy`) take [`hash64_seeded`] with their own seed.
//!
//! Invariant: [`hash64`] of a key never changes, since stored filters depend on it. A change of the
//! hash is a change of format.
//!
//! Source: XXH3-64, the xxHash specification by Yann Collet. It passes SMHasher, runs at memory
//! speed for long keys, and takes about 2 ns for keys of 16 bytes.

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

use crate::ect::HashKey;

/// The seed of [`hash64`], part of the format of every stored filter.
const SEED: u64 = 0x5311_7573_746f_6e65;

/// Hashes a key to 64 bits, all of equal quality.
pub fn hash64(key: &[u8]) -> u64 {
    hash64_seeded(key, SEED)
}

/// Hashes a key with a seed; independent of [`hash64`] for any other seed than its own.
pub fn hash64_seeded(key: &[u8], seed: u64) -> u64 {
    xxh3_64_with_seed(key, seed)
}

/// Hashes a key to 160 bits under a seed, for the tries of [`crate::ect`].
///
/// XXH3-128, then 32 bits of XXH3-64 with another seed. Not a cryptographic hash: with a known seed
/// collisions can be constructed, so a store compares keys too. The value never changes, since
/// stored entries are in its order.
pub fn hash160_seeded(key: &[u8], seed: u64) -> HashKey {
    let mut hash = [0; 20];
    hash[..16].copy_from_slice(&xxh3_128_with_seed(key, seed).to_be_bytes());
    let rest = hash64_seeded(key, !seed) >> 32;
    hash[16..].copy_from_slice(&(rest as u32).to_be_bytes());
    hash
}

/// Distributes the entropy of a 64-bit value over all 64 bits; a bijection.
///
/// For structures that need more bits than a key's hash has: they mix the hash plus a counter
/// again. Source: the finaliser "variant 13" of David Stafford, "Better Bit Mixing", 2011, used by
/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014, figure 14).
pub fn mix64(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_is_unchanged() {
        // Pinned: a failure here means that stored filters can no longer be read.
        assert_eq!(hash64(b""), 0x78ac_f229_dcf2_13fc);
        assert_eq!(hash64(b"siltstone"), 0xbe38_9eb8_10cd_2760);
    }

    #[test]
    fn long_hash_is_unchanged() {
        let hash = hash160_seeded(b"siltstone", 7);
        assert_eq!(hash[..16], xxh3_128_with_seed(b"siltstone", 7).to_be_bytes());
        assert_eq!(hash[16..], hash64_seeded(b"siltstone", !7).to_be_bytes()[..4]);
        assert_ne!(hash, hash160_seeded(b"siltstone", 8));
    }

    #[test]
    fn every_input_bit_flips_about_half_of_the_output_bits() {
        for bit in 0..64 {
            let flips: u32 = (0..256u64)
                .map(|i| {
                    let x = i.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                    (mix64(x) ^ mix64(x ^ (1 << bit))).count_ones()
                })
                .sum();
            let mean = f64::from(flips) / 256.0;
            assert!((28.0..36.0).contains(&mean), "bit {bit} moves {mean} bits");
        }
    }

    #[test]
    fn hashes_with_different_seeds_are_independent() {
        let differing: u32 = (0..256u32)
            .map(|i| (hash64(&i.to_le_bytes()) ^ hash64_seeded(&i.to_le_bytes(), 1)).count_ones())
            .sum();
        assert!((28..36).contains(&(differing / 256)));
    }
}

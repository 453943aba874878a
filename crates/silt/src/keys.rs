//! The 160-bit hash of a key, and which bits of it each structure uses.
//!
//! ```text
//!  hash   [ 64 bits              │ 64 bits           │ 32 bits   ]
//!           order and index of     tag and bucket in   partition
//!           the SortedStore        cuckoo tables
//! ```
//!
//! The parts are disjoint: the index expects the leading bits to be uniform within a partition, and
//! filters stay selective only if tags are independent of partition and order.
//!
//! Invariant: the hash of a key depends only on the key and the table's seed, which the manifest
//! records. Stores compare whole keys, so two keys with one hash are never confused.
//!
//! Source: Lim, thesis, section 2.2.1 (hash functions).

use siltstone_structures::HashKey;
use siltstone_structures::hash::hash160_seeded;

/// Hashes keys and assigns them to partitions. Fixed when the table is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KeyHasher {
    pub(crate) seed: u64,
    pub(crate) partitions: u32,
}

impl KeyHasher {
    pub(crate) fn hash(&self, key: &[u8]) -> HashKey {
        hash160_seeded(key, self.seed)
    }

    /// The partition of a hash.
    pub(crate) fn partition(&self, hash: &HashKey) -> usize {
        let [.., a, b, c, d] = *hash;
        let bits = u64::from(u32::from_be_bytes([a, b, c, d]));
        ((bits * u64::from(self.partitions)) >> 32) as usize
    }
}

/// The bits that cuckoo tables and filters use.
pub(crate) fn cuckoo_bits(hash: &HashKey) -> u64 {
    let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = *hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_get_equal_shares_of_keys() {
        for partitions in [1, 3, 4] {
            let keys = KeyHasher { seed: 7, partitions };
            let mut counts = vec![0; partitions as usize];
            (0..9_000u32).for_each(|i| counts[keys.partition(&keys.hash(&i.to_le_bytes()))] += 1);
            let share = 9_000 / partitions;
            assert!(counts.iter().all(|&n: &u32| n.abs_diff(share) < 300), "{counts:?}");
        }
    }
}

//! What a key is to the stores: 160 bits, of which each structure takes its own.
//!
//! ```text
//!  hash   [ 64 bits              │ 64 bits           │ 32 bits   ]
//!           order and index of     tag and bucket in   partition
//!           the SortedStore        cuckoo tables
//! ```
//!
//! The index expects every value of the first bits equally often, which would not hold if they chose
//! the partition; tags are independent of both, so that filters stay as selective as they should be.
//!
//! Invariant: the hash of a key depends on the key and the table's seed alone, which the manifest
//! keeps. Stores compare whole keys: two keys of one hash are never taken for each other.
//!
//! Source: Lim, thesis, section 2.2.1 (hash functions); the parts are ours.

use siltstone_structures::HashKey;
use siltstone_structures::hash::hash160_seeded;

/// How a table hashes and divides its keys; fixed when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Keys {
    pub(crate) seed: u64,
    pub(crate) partitions: u32,
}

impl Keys {
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

/// The bits that cuckoo tables and filters take.
pub(crate) fn cuckoo_bits(hash: &HashKey) -> u64 {
    let [_, _, _, _, _, _, _, _, a, b, c, d, e, f, g, h, ..] = *hash;
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_every_partition_get_its_share() {
        for partitions in [1, 3, 4] {
            let keys = Keys { seed: 7, partitions };
            let mut counts = vec![0; partitions as usize];
            (0..9_000u32).for_each(|i| counts[keys.partition(&keys.hash(&i.to_le_bytes()))] += 1);
            let share = 9_000 / partitions;
            assert!(counts.iter().all(|&n: &u32| n.abs_diff(share) < 300), "{counts:?}");
        }
    }
}

//! The view of a hash in an index: a virtual bucket, and a path that distinguishes the bucket's
//! keys.
//!
//! ```text
//!  hash         [    the first 64 bits    │ 96 bits more ]
//!                           × buckets
//!               [ bucket ][ 64 bits       │ 96 bits more ]
//!                          └──── the path in the trie ───┘
//! ```
//!
//! With 2^k buckets the product is a shift: the bucket is the first k bits of the hash, as in the
//! thesis, and the path the bits after them. Multiplication serves any other number of buckets too,
//! so that the average bucket size is as requested for any number of keys, where powers of two
//! would miss it by up to 41 %.
//!
//! Invariant: bucket and path order as the hashes do and differ where hashes differ, because
//! multiplying by a positive number preserves order, and the whole product is kept.
//!
//! Source: Lim, thesis, section 3.1.3; the product is from Lemire, "Fast random integer generation
//! in an interval", TOMACS 2019.

/// The hash of a key: 160 uniform bits, the first byte the most significant.
///
/// Any well-distributed hash is suitable; SHA-1 in the thesis. A store that is partitioned by the
/// same hash must use its *last* bits, because tries expect the first bits to be uniform.
pub type HashKey = [u8; 20];

/// The bits of a path.
pub(super) const PATH_BITS: u32 = 160;

/// The path of a key from the root of its bucket's trie, the first bit the most significant of the
/// first word; the last 32 bits are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Path([u64; 3]);

impl Path {
    /// The bit at a depth.
    #[inline]
    pub(super) fn bit(&self, depth: u32) -> bool {
        let word = self.0.get(depth as usize / 64).copied().unwrap_or(0);
        (word << (depth % 64)) >> 63 == 1
    }

    /// The path's cell if all paths are split into equal cells, and the path within the cell.
    #[inline]
    pub(super) fn scale(&self, cells: u64) -> (u64, Path) {
        let product = u128::from(self.0[0]) * u128::from(cells);
        ((product >> 64) as u64, Path([product as u64, self.0[1], self.0[2]]))
    }
}

/// The bucket of a hash, less than `buckets`, and its path there.
#[inline]
pub(super) fn place(hash: &HashKey, buckets: u32) -> (u32, Path) {
    let [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = *hash;
    let first = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let second = u64::from_be_bytes([i, j, k, l, m, n, o, p]);
    let third = u64::from(u32::from_be_bytes([q, r, s, t])) << 32;
    let (bucket, path) = Path([first, second, third]).scale(buckets.into());
    (bucket as u32, path)
}

#[cfg(all(test, not(loom)))]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Distinct paths, many of which share long prefixes, in order.
    pub(in super::super) fn paths() -> impl Strategy<Value = Vec<Path>> {
        let hash = (any::<HashKey>(), 0usize..20, 0u8..3).prop_map(|(mut hash, shared, fill)| {
            hash[..shared].fill(fill);
            hash
        });
        prop::collection::btree_set(hash, 0..300)
            .prop_map(|hashes| hashes.iter().map(|hash| place(hash, 1).1).collect())
    }

    #[test]
    fn bucket_of_power_of_two_is_hash_prefix() {
        let mut hash = [0; 20];
        hash[0] = 0b1010_0110;
        hash[8] = 0b0100_0000;
        let (bucket, path) = place(&hash, 16);
        assert_eq!(bucket, 0b1010);
        let set: Vec<u32> = (0..PATH_BITS).filter(|&depth| path.bit(depth)).collect();
        assert_eq!(set, [1, 2, 65]);
        assert!(!path.bit(u32::MAX));
    }

    proptest! {
        #[test]
        fn bucket_and_path_order_as_hashes(
            left in any::<HashKey>(),
            mut right in any::<HashKey>(),
            shared in 0usize..=20,
            buckets in 1u32..,
        ) {
            right[..shared].copy_from_slice(&left[..shared]);
            let (one, other) = (place(&left, buckets), place(&right, buckets));
            prop_assert_eq!(one.cmp(&other), left.cmp(&right));
            prop_assert!(one.0 < buckets);
        }
    }
}

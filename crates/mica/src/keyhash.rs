//! How the 64 bits of a keyhash are used.
//!
//! ```text
//! 63 ........ 48 47 ............ 16 15 ........ 0
//! partition      bucket             tag           the ranges do not overlap
//! ```
//!
//! A client computes the hash with the store's seed and sends it along, so that the store need not
//! hash keys. A wrong hash affects only its sender: an item is found only under the hash it was
//! stored with, and keys are always compared.
//!
//! Source: Lim, thesis, sections 5.3.1 and 5.3.3.

/// Maximum number of partition bits.
pub(crate) const MAX_PARTITION_BITS: u32 = 16;

/// The partition, one of 2^`bits`.
#[inline(always)]
pub(crate) fn partition(hash: u64, bits: u32) -> usize {
    // Two shifts, because a shift by 64 would overflow.
    (hash >> 1 >> (63 - bits)) as usize
}

/// The bucket, one of `count`, which may be any number up to 2^32.
#[inline(always)]
pub(crate) fn bucket(hash: u64, count: usize) -> usize {
    ((u64::from((hash >> 16) as u32) * count as u64) >> 32) as usize
}

/// The tag, never 0: an empty entry is 0.
#[inline(always)]
pub(crate) fn tag(hash: u64) -> u64 {
    (hash & 0xffff).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bit_ranges_do_not_overlap() {
        for bit in 0..64 {
            let hash = 1u64 << bit;
            let parts = [
                partition(hash, MAX_PARTITION_BITS) != 0,
                bucket(hash, 1 << 32) != 0,
                tag(hash) != 1 || bit == 0,
            ];
            assert_eq!(parts.iter().filter(|&&part| part).count(), 1, "bit {bit}");
        }
        assert_eq!((partition(u64::MAX, 0), partition(u64::MAX, 3)), (0, 7));
        assert_eq!((bucket(u64::MAX, 10), bucket(0, 10)), (9, 0));
        assert_eq!(tag(0xabc0_0000), 1);
    }
}

//! What the 64 bits of a keyhash are for.
//!
//! ```text
//! 63 ........ 48 47 ............ 16 15 ........ 0
//! partition      bucket             tag           no bit serves twice
//! ```
//!
//! The client computes the hash, under the seed that the store tells it, and sends it along: nobody
//! hashes a key again. A hash that is not the key's harms only who sent it: an item is found under
//! the hash it was stored with, and keys are always compared.
//!
//! Source: thesis, sections 5.3.1 and 5.3.3.

/// Bits that choose the partition.
pub(crate) const MAX_PARTITION_BITS: u32 = 16;

/// The partition among 2^`bits`.
#[inline(always)]
pub(crate) fn partition(hash: u64, bits: u32) -> usize {
    // Two shifts, because one by 64 would be none.
    (hash >> 1 >> (63 - bits)) as usize
}

/// The bucket among `count`, any number up to 2^32.
#[inline(always)]
pub(crate) fn bucket(hash: u64, count: usize) -> usize {
    ((u64::from((hash >> 16) as u32) * count as u64) >> 32) as usize
}

/// The tag, never 0: that is what an empty entry has.
#[inline(always)]
pub(crate) fn tag(hash: u64) -> u64 {
    (hash & 0xffff).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn do_the_parts_not_overlap() {
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

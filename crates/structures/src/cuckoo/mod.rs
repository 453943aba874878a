//! Partial-key cuckoo hashing: a table of tags and offsets for keys stored elsewhere, and a filter.
//!
//! ```text
//!  hash  [high 32 bits ─▶ tag, 1 ..= 2^t - 1][low 32 bits ─▶ bucket]
//!
//!  bucket        tag tag  0  tag │ offset offset  -  offset       4 entries of 2 + 4 bytes
//!    │  ▲
//!    ▼  │ XOR hash(tag)                an entry moves between its two buckets without its key
//!  alternative    0  tag tag tag │   -    offset offset offset
//! ```
//!
//! [`CuckooTable`] is the index of a log: it maps the hash of a key to candidate offsets, where the
//! caller compares keys. [`CuckooFilter`] is what remains of a table when its entries are written
//! out in table order: the tags alone, which select the slots that may hold a key.
//!
//! No key has the tag 0, which marks an empty slot. The thesis uses a valid bit for that; without
//! it the filter packs 15 bits per entry, which gives the 16.12 bits per key of the thesis, and
//! tags may have up to 16 bits in an entry of 6 bytes.
//!
//! Invariant: an entry is in one of the two buckets of its hash, so that a lookup reads at most two
//! buckets; each bucket and the tag determine the other.
//!
//! Source: Lim, "Resource-Efficient Data-Intensive System Designs for High Performance and
//! Capacity", 2015 (SILT), sections 2.2.1 and 2.2.2; the alternative bucket by XOR is from Fan,
//! Andersen, Kaminsky, "MemC3", NSDI 2013, section 3.1. The tag 0 and breadth-first search
//! ([`CuckooTable::insert`]) are additions.

mod filter;
mod table;

pub use self::filter::{CandidateSlots, CuckooFilter};
pub use self::table::{CandidateOffsets, CuckooTable, TableFull};

use std::fmt;

use crate::hash::mix64;

/// Entries per bucket.
pub const WAYS: usize = 4;
/// The width of tags by default: 1 in 4096 lookups of an absent key in a full table finds a match.
pub const TAG_BITS: u32 = 15;
/// Maximum number of buckets (log₂), so that 32 bits address a slot.
const MAX_LOG2_BUCKETS: u32 = 30;
/// Header size of the stored forms, in bytes.
const HEADER: usize = 12;

/// Invalid bytes for a cuckoo table or filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CuckooError {
    /// Wrong magic, version or tag width.
    Header {
        /// The expected tag width.
        tag_bits: u32,
    },
    /// The length does not match the header.
    Length {
        /// The length found.
        bytes: usize,
        /// The length according to the header.
        wanted: u64,
    },
    /// The tag is too wide, or the slot is empty but has an offset.
    Slot {
        /// The first invalid slot.
        slot: u32,
    },
    /// The number of entries does not match the header.
    Entries {
        /// The number in the header.
        wanted: u32,
        /// The number found.
        found: u32,
    },
    /// The padding of a filter is not zero.
    Padding,
}

impl fmt::Display for CuckooError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CuckooError::Header { tag_bits } => {
                write!(
                    f,
                    "wrong magic or version of a cuckoo table or filter with tags of {tag_bits} bits"
                )
            }
            CuckooError::Length { bytes, wanted } => {
                write!(f, "a cuckoo table or filter of {bytes} bytes should have {wanted}")
            }
            CuckooError::Slot { slot } => {
                write!(f, "slot {slot} of a cuckoo table is invalid")
            }
            CuckooError::Entries { wanted, found } => {
                write!(f, "a cuckoo table or filter of {wanted} entries holds {found}")
            }
            CuckooError::Padding => f.write_str("the padding of a cuckoo filter is not zero"),
        }
    }
}

impl std::error::Error for CuckooError {}

/// Common to table and filter: the mapping of a hash to a tag and two buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Geometry<const TAG_BITS: u32> {
    log2_buckets: u32,
}

impl<const TAG_BITS: u32> Geometry<TAG_BITS> {
    /// Checked at compile time: an entry has 16 bits for the tag.
    const WIDTH_FITS: () = assert!(2 <= TAG_BITS && TAG_BITS <= 16, "tags have 2 to 16 bits");

    /// The fewest buckets, a power of two, with at least this many slots.
    fn with_slots(slots: u32) -> Self {
        let () = Self::WIDTH_FITS;
        let buckets = slots.div_ceil(WAYS as u32).max(1).next_power_of_two();
        Self { log2_buckets: buckets.trailing_zeros() }
    }

    fn buckets(self) -> u32 {
        1 << self.log2_buckets
    }

    /// The tag of a hash: every value but 0 is equally likely.
    #[inline]
    fn tag(self, hash: u64) -> u16 {
        let values = (1 << TAG_BITS) - 1;
        (((hash >> 32) * values) >> 32) as u16 + 1
    }

    /// The first bucket of a hash.
    #[inline]
    fn home(self, hash: u64) -> u32 {
        hash as u32 & (self.buckets() - 1)
    }

    /// The other bucket of an entry. This is its own inverse.
    #[inline]
    fn alternative(self, bucket: u32, tag: u16) -> u32 {
        let mask = self.buckets() - 1;
        // Never 0 if there are two buckets: an entry with one choice would lower the load.
        let step = (mix64(u64::from(tag)) as u32 & mask).max(1) & mask;
        bucket ^ step
    }

    /// Encodes a header.
    ///
    /// ```text
    ///  0  magic, 4 bytes │ 4  version 1 │ 5  tag bits │ 6  log2 buckets │ 7  0 │ 8  entries, u32
    /// ```
    fn header(self, magic: [u8; 4], entries: u32) -> [u8; HEADER] {
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&magic);
        header[4..8].copy_from_slice(&[1, TAG_BITS as u8, self.log2_buckets as u8, 0]);
        header[8..].copy_from_slice(&entries.to_le_bytes());
        header
    }

    /// Decodes a header; returns the geometry, the number of entries, and the remaining bytes.
    fn read_header(bytes: &[u8], magic: [u8; 4]) -> Result<(Self, u32, &[u8]), CuckooError> {
        let () = Self::WIDTH_FITS;
        let wrong = CuckooError::Header { tag_bits: TAG_BITS };
        let (header, rest) = bytes.split_first_chunk::<HEADER>().ok_or(wrong)?;
        let geometry = Self { log2_buckets: header[6].into() };
        let [.., a, b, c, d] = *header;
        let entries = u32::from_le_bytes([a, b, c, d]);
        if geometry.log2_buckets > MAX_LOG2_BUCKETS || *header != geometry.header(magic, entries) {
            return Err(wrong);
        }
        Ok((geometry, entries, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alternative_bucket_is_an_involution() {
        for log2_buckets in [0, 1, 5, 15, 30] {
            let geometry = Geometry::<15> { log2_buckets };
            for tag in 1..1 << 15 {
                let bucket = geometry.home(mix64(tag));
                let other = geometry.alternative(bucket, tag as u16);
                assert!(other < geometry.buckets());
                assert_eq!(other == bucket, log2_buckets == 0);
                assert_eq!(geometry.alternative(other, tag as u16), bucket);
            }
        }
    }

    #[test]
    fn hashes_give_every_tag_but_zero() {
        let geometry = Geometry::<16> { log2_buckets: 3 };
        assert_eq!((geometry.tag(0), geometry.tag(u64::MAX)), (1, u16::MAX));
        let geometry = Geometry::<2> { log2_buckets: 3 };
        let mut counts = [0u32; 4];
        (0..3_000u64).for_each(|i| counts[usize::from(geometry.tag(mix64(i)))] += 1);
        assert!(counts[0] == 0 && counts[1..].iter().all(|&count| (900..1_100).contains(&count)));
    }
}

//! Cuckoo filter: the packed tags of a table, without the offsets.
//!
//! ```text
//!  bucket of 4 tags of t bits = 4t bits, from the lowest: tag₀ tag₁ tag₂ tag₃
//!  bucket i begins at bit 4t·i; bit j is bit j % 8 of byte j / 8
//!
//!  stored   header "sCKF" (12 bytes, see `super`) │ buckets │ zeros to the byte, 7 bytes more
//! ```
//!
//! A bucket starts at a byte or half byte, so with up to 60 bits (or 64 at a byte) it is within 8
//! bytes and is read by one unaligned load. The 7 bytes of padding allow that for the last bucket.
//!
//! Invariant: no false negatives for the hashes of the table.
//!
//! Source: as [`super`], section 2.2.2.

use super::{CuckooError, CuckooTable, Geometry, HEADER, TAG_BITS, WAYS};

/// The first bytes of a stored filter.
const MAGIC: [u8; 4] = *b"sCKF";
/// Padding at the end, in bytes.
const PADDING: usize = 7;

/// A filter of tags of `TAG` bits, per slot; 15.4 bits per key at a load of 0.974 and `TAG` = 15.
///
/// In a full filter an absent key matches with probability `8 / 2^TAG`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CuckooFilter<const TAG: u32 = TAG_BITS> {
    geometry: Geometry<TAG>,
    bytes: Vec<u8>,
    len: u32,
}

impl<const TAG: u32> CuckooFilter<TAG> {
    /// The filter of a table's entries, in the table's slots.
    pub fn from_table(table: &CuckooTable<TAG>) -> Self {
        let geometry = table.geometry();
        let mut bytes = Vec::with_capacity(packed(geometry) as usize);
        let (mut pending, mut count) = (0u128, 0);
        for tags in table.tags() {
            for tag in tags {
                pending |= u128::from(tag) << count;
                count += TAG;
            }
            while count >= 8 {
                bytes.push(pending as u8);
                pending >>= 8;
                count -= 8;
            }
        }
        if count > 0 {
            bytes.push(pending as u8);
        }
        bytes.extend([0; PADDING]);
        Self { geometry, bytes, len: table.len() }
    }

    /// The number of entries.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of slots, filled or empty.
    pub fn slots(&self) -> u64 {
        u64::from(self.geometry.buckets()) * WAYS as u64
    }

    /// Memory of the tags, in bytes.
    pub fn memory(&self) -> usize {
        self.bytes.len()
    }

    /// Memory of the tags of a table with this many slots, in bytes.
    pub fn memory_of(slots: u64) -> u64 {
        (slots * u64::from(TAG)).div_ceil(8) + PADDING as u64
    }

    /// Whether a key with this hash may exist; costs two cache lines, at most four.
    #[inline]
    pub fn contains(&self, hash: u64) -> bool {
        self.candidates(hash).matches != 0
    }

    /// The slots where a key with this hash may be, numbered as by [`CuckooTable::iter`].
    #[inline]
    pub fn candidates(&self, hash: u64) -> CandidateSlots {
        let (tag, home) = (self.geometry.tag(hash), self.geometry.home(hash));
        let other = self.geometry.alternative(home, tag);
        let mut matches = self.matches(home, tag);
        if home != other {
            matches |= self.matches(other, tag) << WAYS;
        }
        CandidateSlots { buckets: [home, other], matches }
    }

    /// The stored form: 19 bytes and `TAG` bits per slot. It has no checksum; the file around it
    /// has.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = self.geometry.header(MAGIC, self.len).to_vec();
        bytes.extend(&self.bytes);
        bytes
    }

    /// Reads the stored form.
    ///
    /// # Errors
    ///
    /// If the length or the number of entries is not that of the header, or padding is not zero.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CuckooError> {
        let (geometry, len, rest) = Geometry::<TAG>::read_header(bytes, MAGIC)?;
        let wanted = packed(geometry);
        if rest.len() as u64 != wanted {
            return Err(CuckooError::Length { bytes: bytes.len(), wanted: HEADER as u64 + wanted });
        }
        let filter = Self { geometry, bytes: rest.to_vec(), len };
        let (tags, padding) = rest.split_at(rest.len() - PADDING);
        // With one bucket of tags of odd width, half of the last byte is padding too.
        let used = (u64::from(geometry.buckets()) * u64::from(TAG) * WAYS as u64 % 8) as u32;
        let unused = tags.last().map_or(0, |&last| if used == 0 { 0 } else { last >> used });
        if unused != 0 || padding.iter().any(|&byte| byte != 0) {
            return Err(CuckooError::Padding);
        }
        let empty: u32 = (0..geometry.buckets()).map(|i| filter.matches(i, 0).count_ones()).sum();
        // A filter of all 2^32 slots is rejected by its length where memory cannot hold it.
        let found = (filter.slots() - u64::from(empty)) as u32;
        if found != len {
            return Err(CuckooError::Entries { wanted: len, found });
        }
        Ok(filter)
    }

    /// A bit for every slot of a bucket with this tag.
    #[inline]
    fn matches(&self, bucket: u32, tag: u16) -> u8 {
        let bit = u64::from(bucket) * u64::from(TAG) * WAYS as u64;
        let (byte, shift) = ((bit / 8) as usize, bit % 8);
        // The padding provides 8 bytes from the start of any bucket.
        let word = self.bytes[byte..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let (word, mask) = (word >> shift, (1 << TAG) - 1);
        (0..WAYS as u32).fold(0, |bits, way| {
            bits | u8::from((word >> (way * TAG)) & mask == u64::from(tag)) << way
        })
    }
}

/// Size of the tags and the padding, in bytes.
fn packed<const TAG: u32>(geometry: Geometry<TAG>) -> u64 {
    CuckooFilter::<TAG>::memory_of(u64::from(geometry.buckets()) * WAYS as u64)
}

/// The slots that a lookup has to check, at most 8.
#[derive(Clone, Debug)]
pub struct CandidateSlots {
    buckets: [u32; 2],
    /// A bit per slot: the 4 of the first bucket, then those of the second.
    matches: u8,
}

impl Iterator for CandidateSlots {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        if self.matches == 0 {
            return None;
        }
        let way = self.matches.trailing_zeros() as usize;
        self.matches &= self.matches - 1;
        Some(self.buckets[way / WAYS] * WAYS as u32 + (way % WAYS) as u32)
    }
}

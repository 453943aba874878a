//! The stored form of a trie, and its validation.
//!
//! ```text
//!   0  magic "sECT" │ 4  version 1 │ 5  hmax │ 6  log2 buckets a group │ 7  0
//!   8  entries per block, u32        │ 12 buckets, u32
//!  16  keys, u64                   │ 24 bits of all tries, u64
//!  32  groups        bits u64, rank u64 each                integers little-endian
//!      relatives     bits u16, rank u16 each, one more than buckets
//!      tries         or separators; the last byte padded with zeros
//! ```
//!
//! Reading validates the bits of every bucket, at about 4 nanoseconds per key, so that lookups can
//! rely on them. There is no checksum; the enclosing file has one. A reader rejects unknown
//! versions.
//!
//! Invariant: an accepted form is what writing it again would give.

use super::coder::MAX_HMAX;
use super::cursor::Cursor;
use super::index::{BucketIndex, MAX_LOG2_GROUP, Start};
use super::lookup::Form;
use super::{Ect, EctError};

/// Size of the header.
pub(super) const HEADER: usize = 32;
/// Maximum number of entries of a block.
pub(super) const MAX_ENTRIES_PER_BLOCK: u32 = 1 << 24;
/// Magic and version.
const MAGIC: [u8; 5] = *b"sECT\x01";

impl Ect {
    /// The stored form, of [`Ect::size`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend(MAGIC);
        // Both were checked to be far below 256.
        bytes.extend([self.hmax as u8, self.index.log2_group() as u8, 0]);
        bytes.extend(self.form.block().to_le_bytes());
        bytes.extend(self.buckets.to_le_bytes());
        bytes.extend(self.end.rank.to_le_bytes());
        bytes.extend(self.end.bits.to_le_bytes());
        for group in self.index.groups() {
            bytes.extend(group.bits.to_le_bytes());
            bytes.extend(group.rank.to_le_bytes());
        }
        for [bits, rank] in self.index.relatives() {
            bytes.extend(bits.to_le_bytes());
            bytes.extend(rank.to_le_bytes());
        }
        bytes.extend(&self.bits);
        bytes
    }

    /// Decodes and fully validates the stored form; takes no more memory than its length, plus the
    /// codes of its `hmax`.
    ///
    /// # Errors
    ///
    /// The header, the index of buckets or a trie may be invalid: the last four of [`EctError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, EctError> {
        let header = Header::read(bytes)?;
        let starts = u64::from(header.buckets) + 1;
        let groups = starts.div_ceil(1 << header.log2_group);
        let wanted = HEADER as u128
            + u128::from(groups) * 16
            + u128::from(starts) * 4
            + u128::from(header.end.bits.div_ceil(8));
        if bytes.len() as u128 != wanted {
            return Err(EctError::Length { bytes: bytes.len(), wanted });
        }
        // The length was checked to be that of all parts.
        let (groups, rest) = bytes[HEADER..].split_at(groups as usize * 16);
        let (relatives, bits) = rest.split_at(starts as usize * 4);
        let index = read_index(&header, groups.as_chunks().0, relatives.as_chunks().0)?;
        let form = Form::new(header.hmax, header.block);
        check_buckets(&form, &index, header.buckets, bits)?;
        Ok(Self::new(form, header.hmax, header.buckets, index, bits.to_vec()))
    }
}

/// The fields of a header, each valid by itself.
struct Header {
    hmax: u32,
    log2_group: u32,
    block: u32,
    buckets: u32,
    end: Start,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, EctError> {
        let header = bytes.first_chunk::<HEADER>().ok_or(EctError::Header)?;
        let (words, _) = header.as_chunks();
        let (longs, _) = header.as_chunks();
        let read = Self {
            hmax: header[5].into(),
            log2_group: header[6].into(),
            block: u32::from_le_bytes(words[2]),
            buckets: u32::from_le_bytes(words[3]),
            end: Start { bits: u64::from_le_bytes(longs[3]), rank: u64::from_le_bytes(longs[2]) },
        };
        let possible = header[..5] == MAGIC
            && read.hmax <= MAX_HMAX
            && read.log2_group <= MAX_LOG2_GROUP
            && header[7] == 0
            && (1..=MAX_ENTRIES_PER_BLOCK).contains(&read.block)
            && (1..u32::MAX).contains(&read.buckets);
        possible.then_some(read).ok_or(EctError::Header)
    }
}

/// Decodes the index: starts that do not decrease, from zero to the end of all.
fn read_index(
    header: &Header,
    groups: &[[u8; 16]],
    relatives: &[[u8; 4]],
) -> Result<BucketIndex, EctError> {
    let mut index = BucketIndex::with_group(header.log2_group, relatives.len());
    let mut last = Start::default();
    for (bucket, &[a, b, c, d]) in (0..).zip(relatives) {
        let wrong = EctError::Index { bucket };
        let (group, _) = groups[bucket as usize >> header.log2_group].as_chunks();
        let add = |base: [u8; 8], relative: [u8; 2]| {
            u64::from_le_bytes(base).checked_add(u16::from_le_bytes(relative).into()).ok_or(wrong)
        };
        let start = Start { bits: add(group[0], [a, b])?, rank: add(group[1], [c, d])? };
        let is_first_of_group = bucket.is_multiple_of(1 << header.log2_group);
        let rises = last.bits <= start.bits
            && last.rank <= start.rank
            // A trie has at most 2^32 keys.
            && start.rank - last.rank <= u32::MAX.into();
        if !rises || (is_first_of_group && [a, b, c, d] != [0; 4]) || !index.push(start) {
            return Err(wrong);
        }
        if bucket == 0 && start != Start::default() {
            return Err(wrong);
        }
        last = start;
    }
    if last != header.end {
        return Err(EctError::Index { bucket: header.buckets });
    }
    Ok(index)
}

/// Validates the trie or the separators of every bucket, which must end where the next starts, and
/// the zero padding at the end.
fn check_buckets(
    form: &Form,
    index: &BucketIndex,
    buckets: u32,
    bits: &[u8],
) -> Result<(), EctError> {
    let mut start = index.start(0);
    for bucket in 0..buckets {
        let damaged = EctError::Trie { bucket };
        let next = index.start(bucket + 1);
        let mut cursor = Cursor::new(bits, start.bits);
        let place = start.rank % u64::from(form.block());
        let n = (next.rank - start.rank) as u32;
        form.skip(n, place as u32, next.bits, &mut cursor).map_err(|_| damaged)?;
        if cursor.position() != next.bits {
            return Err(damaged);
        }
        start = next;
    }
    // At most 7 bits follow the last, and then zeros.
    let is_zero = Cursor::new(bits, start.bits).peek(8) == 0;
    is_zero.then_some(()).ok_or(EctError::Trie { bucket: buckets - 1 })
}

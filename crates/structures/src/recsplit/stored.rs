//! The stored form of an index, and its validation.
//!
//! ```text
//!   0  magic "sRSP" │ 4  version 1 │ 5  keys of a leaf │ 6  0, u16
//!   8  keys per bucket on average, u32  │ 12 buckets, u32
//!  16  keys, u64                      │ 24 salts, u32   │ 28 0, u32
//!  32  ranks     lines of 64 bytes
//!      salts     bucket u32, salt u32 each                integers little-endian
//!      bits      the last byte padded with zeros
//! ```
//!
//! Reading validates what lookups rely on: the ranks and the lengths, some nanoseconds per bucket.
//! The numbers in the bits cannot be validated without the keys; damage there gives wrong
//! positions, never an error. There is no checksum; the enclosing file has one. A reader rejects
//! unknown versions.
//!
//! Invariant: an accepted form is what writing it again would give.

use super::lookup::{PADDING, Salt};
use super::ranks::{LINE, MAX_KEYS, Ranks};
use super::shape::Shape;
use super::{RecSplit, RecSplitError, RecSplitOptions};

/// Size of the header.
pub(super) const HEADER: usize = 32;
/// Magic and version.
const MAGIC: [u8; 5] = *b"sRSP\x01";

impl RecSplit {
    /// The stored form, of [`RecSplit::size`] bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.size());
        bytes.extend(MAGIC);
        // A leaf has at most 8 keys.
        bytes.extend([self.shape.options.leaf as u8, 0, 0]);
        bytes.extend(self.shape.options.keys_per_bucket.to_le_bytes());
        bytes.extend(self.buckets.to_le_bytes());
        bytes.extend(self.len().to_le_bytes());
        bytes.extend((self.salts.len() as u32).to_le_bytes());
        bytes.extend([0; 4]);
        self.ranks.write(&mut bytes);
        for Salt { bucket, salt } in &self.salts {
            bytes.extend(bucket.to_le_bytes());
            bytes.extend(salt.to_le_bytes());
        }
        bytes.extend(&self.bits[PADDING..]);
        bytes
    }

    /// Decodes and validates the stored form; takes no more memory than its length, plus the tables
    /// of sizes, at most 192 KiB.
    ///
    /// # Errors
    ///
    /// The header, the ranks, a salt or the last byte may be invalid: the last five of
    /// [`RecSplitError`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecSplitError> {
        let header = Header::read(bytes)?;
        let shape = Shape::new(header.options).map_err(|_| RecSplitError::Header)?;
        let lines = Ranks::lines_of(header.options.keys_per_bucket, header.buckets) as usize;
        let bits = shape.start(header.buckets, header.keys);
        let wanted = HEADER as u128
            + lines as u128 * LINE as u128
            + u128::from(header.salts) * 8
            + u128::from(bits.div_ceil(8));
        if bytes.len() as u128 != wanted {
            return Err(RecSplitError::Length { bytes: bytes.len(), wanted });
        }
        // The length was checked to be that of all parts.
        let (ranks, rest) = bytes[HEADER..].split_at(lines * LINE);
        let (salts, rest) = rest.split_at(header.salts as usize * 8);
        let keys_per_bucket = header.options.keys_per_bucket;
        let ranks =
            Ranks::read(ranks.as_chunks().0, keys_per_bucket, header.buckets, shape.limit())
                .map_err(|line| RecSplitError::Ranks { line })?;
        if ranks.keys() != header.keys {
            return Err(RecSplitError::Ranks { line: lines as u32 });
        }
        let salts = read_salts(salts.as_chunks().0, header.buckets)?;
        let unused = (8 - bits % 8) % 8;
        if rest.last().is_some_and(|last| last & ((1 << unused) - 1) != 0) {
            return Err(RecSplitError::Padding);
        }
        let bits = [&[0; PADDING], rest].concat();
        Ok(Self::new(shape, header.buckets, ranks, salts, bits))
    }
}

/// The fields of a header, each valid by itself.
struct Header {
    options: RecSplitOptions,
    buckets: u32,
    keys: u64,
    salts: u32,
}

impl Header {
    fn read(bytes: &[u8]) -> Result<Self, RecSplitError> {
        let header = bytes.first_chunk::<HEADER>().ok_or(RecSplitError::Header)?;
        let (words, _) = header.as_chunks();
        let (longs, _) = header.as_chunks();
        let read = Self {
            options: RecSplitOptions {
                keys_per_bucket: u32::from_le_bytes(words[2]),
                leaf: header[5].into(),
            },
            buckets: u32::from_le_bytes(words[3]),
            keys: u64::from_le_bytes(longs[2]),
            salts: u32::from_le_bytes(words[6]),
        };
        let is_possible = header.starts_with(&MAGIC)
            && header[6..8] == [0; 2]
            && words[7] == [0; 4]
            && (1..u32::MAX).contains(&read.buckets)
            && read.keys < MAX_KEYS;
        is_possible.then_some(read).ok_or(RecSplitError::Header)
    }
}

/// Decodes the salts, which must be of ascending buckets.
fn read_salts(bytes: &[[u8; 8]], buckets: u32) -> Result<Vec<Salt>, RecSplitError> {
    let mut salts: Vec<Salt> = Vec::with_capacity(bytes.len());
    for (at, &[a, b, c, d, e, f, g, h]) in (0..).zip(bytes) {
        let bucket = u32::from_le_bytes([a, b, c, d]);
        let salt = u32::from_le_bytes([e, f, g, h]);
        let follows = salts.last().is_none_or(|last| last.bucket < bucket);
        if !follows || bucket >= buckets || salt == 0 {
            return Err(RecSplitError::Salt { at });
        }
        salts.push(Salt { bucket, salt });
    }
    Ok(salts)
}

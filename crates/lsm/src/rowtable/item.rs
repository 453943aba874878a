//! One version of a key as it stands in a row's data.
//!
//! ```text
//!   at an address that is a multiple of 8 (address = data page · page size + offset in it):
//!
//!    0  key_sum     u32    CRC-32C of bytes 4.. up to the value
//!    4  value_sum   u32    CRC-32C of the value
//!    8  tag         u64    sequence << 3 | kind
//!   16  key_len     u32
//!   20  value_len   u32
//!   24  expires_at  u64    of kind PutExpiring alone
//!   ..  key  value         then zeros up to a multiple of 8, which nobody reads
//! ```
//!
//! Items stand one after the other and may cross from a page to the next, so a value of any length
//! is one item and no page has a waste at its end. Both sums start from the row's number and the
//! item's address: an item of another row or place is damage. The two are apart so that a search
//! that compares keys need not read values.
//!
//! Invariant: a key or a value leaves this module only after its sum was checked.
//!
//! Source: TriangleKV paper, section 3.1 (items serialised in key order); the layout is ours.

use siltstone_table::{EntryRef, Kind};

/// Items start at multiples of this many bytes.
pub(super) const ALIGNMENT: u64 = 8;
/// The part of an item that has the same length in all.
pub(super) const FIXED: usize = 24;

/// The checksums of one row: all start from its number.
#[derive(Debug, Clone, Copy)]
pub(super) struct RowSum(u32);

impl RowSum {
    pub(super) fn new(number: u64) -> Self {
        RowSum(crc32c::crc32c(&number.to_le_bytes()))
    }

    /// The checksum of bytes at a place.
    #[inline]
    pub(super) fn of(self, place: u64, bytes: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.0, &place.to_le_bytes()), bytes)
    }
}

/// Where an item's parts are, and all but its key and value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) address: u64,
    pub(super) sequence: u64,
    pub(super) kind: Kind,
    pub(super) expires_at: u64,
    pub(super) key_len: usize,
    pub(super) value_len: usize,
    pub(super) value_sum: u32,
    key_sum: u32,
}

impl Item {
    /// Reads the fixed part of the item at an address.
    ///
    /// # Errors
    /// What it cannot be.
    pub(super) fn parse(address: u64, fixed: &[u8]) -> Result<Self, &'static str> {
        let (Some(key_sum), Some(value_sum), Some(tag), Some(key_len), Some(value_len)) = (
            u32_at(fixed, 0),
            u32_at(fixed, 4),
            u64_at(fixed, 8),
            u32_at(fixed, 16),
            u32_at(fixed, 20),
        ) else {
            return Err("an item is cut off");
        };
        let kind = Kind::from_bits((tag & 7) as u8).ok_or("an item is of an unknown kind")?;
        Ok(Item {
            address,
            sequence: tag >> 3,
            kind,
            expires_at: 0,
            key_len: key_len as usize,
            value_len: value_len as usize,
            value_sum,
            key_sum,
        })
    }

    fn header_len(&self) -> usize {
        if self.kind == Kind::PutExpiring { FIXED + 8 } else { FIXED }
    }

    /// How many bytes stand before the value.
    pub(super) fn head_len(&self) -> usize {
        self.header_len() + self.key_len
    }

    /// Where the value is.
    pub(super) fn value_address(&self) -> u64 {
        self.address + self.head_len() as u64
    }

    /// Checks all that stands before the value, and gives the item with its key's place in it.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) fn check(mut self, sum: RowSum, head: &[u8]) -> Result<Self, &'static str> {
        if head.len() != self.head_len() || sum.of(self.address, &head[4..]) != self.key_sum {
            return Err("an item does not match its checksum");
        }
        if self.kind == Kind::PutExpiring {
            self.expires_at = u64_at(head, FIXED).unwrap_or(0);
        }
        Ok(self)
    }

    /// The key in what `check` held.
    pub(super) fn key_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.header_len()..]
    }
}

/// Appends all of an item but its value, which is to stand at `address`.
pub(super) fn encode_head(entry: &EntryRef<'_>, sum: RowSum, address: u64, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sum.of(address, entry.value).to_le_bytes());
    out.extend_from_slice(&(entry.sequence << 3 | entry.kind as u64).to_le_bytes());
    out.extend_from_slice(&(entry.key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(entry.value.len() as u32).to_le_bytes());
    if entry.kind == Kind::PutExpiring {
        out.extend_from_slice(&entry.expires_at.to_le_bytes());
    }
    out.extend_from_slice(entry.key);
    let key_sum = sum.of(address, &out[from + 4..]);
    out[from..from + 4].copy_from_slice(&key_sum.to_le_bytes());
}

/// The little-endian number at an offset.
#[inline]
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|chunk| u32::from_le_bytes(*chunk))
}

/// The little-endian number at an offset.
#[inline]
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|chunk| u64::from_le_bytes(*chunk))
}

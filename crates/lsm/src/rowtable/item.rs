//! One version of a key in the data of a row.
//!
//! ```text
//!   at an address that is a multiple of 8 (address = data page · page size + offset in it):
//!
//!    0  key_sum     u32    CRC-32C of bytes 4.. up to the value
//!    4  value_sum   u32    CRC-32C of the value
//!    8  tag         u64    sequence << 3 | kind
//!   16  key_len     u32
//!   20  value_len   u32
//!   24  expires_at  u64    of kinds PutExpiring and Merge alone
//!   ..  key  value         then zeros up to a multiple of 8, which are never read
//! ```
//!
//! Items are adjacent and may cross page boundaries, so a value of any length is one item and no
//! page has unused space at its end. Both checksums start from the row's number and the item's
//! address: an item of another row or address is detected as damage. They are separate so that a
//! search that compares keys need not read values.
//!
//! Invariant: a key or a value leaves this module only after its checksum was verified.
//!
//! Source: TriangleKV paper, section 3.1 (items serialised in key order).

use siltstone_table::{EntryRef, FileSum, Kind};

/// Items start at multiples of this number of bytes.
pub(super) const ALIGNMENT: u64 = 8;
/// The size of the fixed part of an item.
pub(super) const ITEM_HEADER_BYTES: usize = 24;

/// A decoded item, except for its key and value.
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
    /// Decodes the fixed part of the item at an address.
    ///
    /// # Errors
    /// A description of what is malformed.
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
        if self.kind.stores_expiry() { ITEM_HEADER_BYTES + 8 } else { ITEM_HEADER_BYTES }
    }

    /// The number of bytes before the value.
    pub(super) fn head_len(&self) -> usize {
        self.header_len() + self.key_len
    }

    /// The address of the value.
    pub(super) fn value_address(&self) -> u64 {
        self.address + self.head_len() as u64
    }

    /// Verifies everything before the value, and decodes the expiry.
    ///
    /// # Errors
    /// A description of what does not match.
    pub(super) fn check(mut self, sum: FileSum, head: &[u8]) -> Result<Self, &'static str> {
        if head.len() != self.head_len() || sum.of(self.address, &head[4..]) != self.key_sum {
            return Err("an item does not match its checksum");
        }
        if self.kind.stores_expiry() {
            self.expires_at = u64_at(head, ITEM_HEADER_BYTES).unwrap_or(0);
        }
        Ok(self)
    }

    /// The key in the bytes that `check` verified.
    pub(super) fn key_in<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        &head[self.header_len()..]
    }
}

/// Encodes an item at `address`, except for its value.
pub(super) fn encode_head(entry: &EntryRef<'_>, sum: FileSum, address: u64, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&sum.of(address, entry.value).to_le_bytes());
    out.extend_from_slice(&(entry.sequence << 3 | entry.kind as u64).to_le_bytes());
    out.extend_from_slice(&(entry.key.len() as u32).to_le_bytes());
    out.extend_from_slice(&(entry.value.len() as u32).to_le_bytes());
    if entry.kind.stores_expiry() {
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

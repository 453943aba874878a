//! One element of a row's sorted metadata array.
//!
//! ```text
//!    0  fragment  8 bytes   of the key, after the common prefix of all keys of the row;
//!                           padded with zeros
//!    8  forward   28 bits   the index in the previous row of the first key that is not less
//!       gap        4 bits   the forward pointer minus that of the previous element; 15: unknown
//!   12  place     u32       the address of the item / 8: page number in the row and offset in it
//! ```
//!
//! An element has 16 bytes, four per cache line. The gap (the upper bits of the word) gives the
//! hint of the previous element, so that a search reads one element for both of its bounds.
//! Different fragments are ordered as their keys; for equal fragments the keys in the items are
//! compared. (The paper's element contains the key itself, of 16 bytes; here keys have up to 64
//! KiB.)
//!
//! Invariant: the fragments of a row ascend, and so do its forward pointers.
//!
//! Source: TriangleKV paper, sections 3.1 and 3.4: key, page number, offset, forward pointer of
//! four bytes. The fragment follows the key prefixes of Graefe and Larson, "B-Tree Indexes and CPU
//! Caches", ICDE 2001.

use super::item::{ALIGNMENT, u32_at};

/// The size of an element.
pub(super) const ELEMENT_BYTES: usize = 16;
/// Elements per cache line of 64 bytes; pages are aligned to lines.
pub(super) const ELEMENTS_PER_LINE: usize = 64 / ELEMENT_BYTES;
/// The maximum number of elements of a row, and the largest index.
pub(super) const MAX_ENTRIES: u32 = (1 << 28) - 1;
/// The value of an unknown gap.
const UNKNOWN_GAP: u32 = 15;

/// The bytes of a key in an element.
pub(super) const FRAGMENT_BYTES: usize = 8;

/// A decoded element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// Ordered as its bytes.
    pub(super) fragment: u64,
    /// The forward pointer, and in the upper four bits the gap.
    hint: u32,
    place: u32,
}

impl Element {
    /// An element for the item at `place`, with its [hint].
    pub(super) fn new(fragment: u64, hint: u32, place: u32) -> Self {
        Element { fragment, hint, place }
    }

    /// The index in the previous row of the first key that is not less.
    pub(super) fn forward(&self) -> usize {
        (self.hint & MAX_ENTRIES) as usize
    }

    /// The forward pointer of the previous element, if the gap is known.
    pub(super) fn forward_before(&self) -> Option<usize> {
        let gap = self.hint >> 28;
        let before = self.forward().saturating_sub(gap as usize);
        (gap != UNKNOWN_GAP).then_some(before)
    }

    #[inline]
    pub(super) fn parse(bytes: &[u8; ELEMENT_BYTES]) -> Self {
        let number = |at| u32_at(bytes, at).unwrap_or(0);
        Element { fragment: fragment(bytes), hint: number(8), place: number(12) }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fragment.to_be_bytes());
        out.extend_from_slice(&self.hint.to_le_bytes());
        out.extend_from_slice(&self.place.to_le_bytes());
    }

    /// The address of the item in the row's data, in bytes.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.place) * ALIGNMENT
    }
}

/// Encodes a forward pointer and its gap to the previous one.
pub(super) fn hint(forward: u32, before: Option<u32>) -> u32 {
    let gap = before.map_or(UNKNOWN_GAP, |before| forward.saturating_sub(before).min(UNKNOWN_GAP));
    forward | gap << 28
}

/// Encodes an address as a place.
pub(super) fn encode_place(address: u64) -> Option<u32> {
    u32::try_from(address / ALIGNMENT).ok()
}

/// The first bytes as a number with the same order.
#[inline]
pub(super) fn fragment(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<FRAGMENT_BYTES>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; FRAGMENT_BYTES];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(chunk)
        }
    }
}

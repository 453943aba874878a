//! One element of a row's sorted metadata array.
//!
//! ```text
//!    0  fragment  8 bytes   of the key, behind the bytes that all keys of the row begin with;
//!                           zeros where the key ends before
//!    8  forward   28 bits   the index in the row before of the first key that is not less
//!       gap        4 bits   how much less the forward pointer of the element before is; 15: unknown
//!   12  place     u32       the item's address / 8: page number in the row and offset in one
//! ```
//!
//! Sixteen bytes, four to a cache line. The gap (the upper bits of the word) says where the hint of
//! the element before points, so that a search reads one element for both of its bounds. Two fragments that differ are in the order of their keys; of two that are equal the keys are
//! compared, in the data. (The paper's element holds the key itself, of 16 bytes; ours may have up to
//! 64 KiB.)
//!
//! Invariant: in one row fragments ascend, and so do forward pointers.
//!
//! Source: TriangleKV paper, sections 3.1 and 3.4: key, page number, offset, forward pointer of four
//! bytes. The gap is ours, and so is the fragment, after the key prefixes of Graefe and Larson, "B-Tree Indexes and CPU
//! Caches", ICDE 2001.

use super::item::{ALIGNMENT, u32_at};

/// Bytes of an element.
pub(super) const ELEMENT: usize = 16;
/// How many share a cache line of 64 bytes; pages begin with one.
pub(super) const ELEMENTS_A_LINE: usize = 64 / ELEMENT;
/// The most elements that a row may have, and the largest index.
pub(super) const MAX_ENTRIES: u32 = (1 << 28) - 1;
/// The gap that says nothing.
const UNKNOWN_GAP: u32 = 15;

/// Bytes of a key in an element.
pub(super) const FRAGMENT: usize = 8;

/// An element, read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Element {
    /// Compares as its bytes do.
    pub(super) fragment: u64,
    /// The index, and in the upper four bits the gap.
    hint: u32,
    place: u32,
}

impl Element {
    /// An element for the item at a place, with its [hint].
    pub(super) fn new(fragment: u64, hint: u32, place: u32) -> Self {
        Element { fragment, hint, place }
    }

    /// The index in the row before of the first key that is not less.
    pub(super) fn forward(&self) -> usize {
        (self.hint & MAX_ENTRIES) as usize
    }

    /// The forward pointer of the element before, if the gap says it.
    pub(super) fn forward_before(&self) -> Option<usize> {
        let gap = self.hint >> 28;
        let before = self.forward().saturating_sub(gap as usize);
        (gap != UNKNOWN_GAP).then_some(before)
    }

    #[inline]
    pub(super) fn parse(bytes: &[u8; ELEMENT]) -> Self {
        let number = |at| u32_at(bytes, at).unwrap_or(0);
        Element { fragment: fragment(bytes), hint: number(8), place: number(12) }
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.fragment.to_be_bytes());
        out.extend_from_slice(&self.hint.to_le_bytes());
        out.extend_from_slice(&self.place.to_le_bytes());
    }

    /// Where the item is, in bytes of the row's data.
    pub(super) fn address(&self) -> u64 {
        u64::from(self.place) * ALIGNMENT
    }
}

/// A forward pointer and its gap to the one before, as an element keeps them.
pub(super) fn hint(forward: u32, before: Option<u32>) -> u32 {
    let gap = before.map_or(UNKNOWN_GAP, |before| forward.saturating_sub(before).min(UNKNOWN_GAP));
    forward | gap << 28
}

/// An address in the unit of places.
pub(super) fn place_of(address: u64) -> Option<u32> {
    u32::try_from(address / ALIGNMENT).ok()
}

/// The first bytes as a number that compares as they do.
#[inline]
pub(super) fn fragment(bytes: &[u8]) -> u64 {
    match bytes.first_chunk::<FRAGMENT>() {
        Some(chunk) => u64::from_be_bytes(*chunk),
        None => {
            let mut chunk = [0; FRAGMENT];
            chunk[..bytes.len()].copy_from_slice(bytes);
            u64::from_be_bytes(chunk)
        }
    }
}

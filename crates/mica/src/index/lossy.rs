//! The lossy index: a full bucket gives up its oldest entry.
//!
//! An item whose entry was given up cannot be found any more and leaves with the log's head. Entries
//! of items that the log has overwritten are as good as empty: nobody removes them when the item
//! goes, they are found out by their offsets, used again by the next item, or swept.
//!
//! Source: thesis, section 5.3.3, "Lossy Concurrent Hash Index".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Buckets, entry, offset_of};
use crate::ring::Ring;

/// Words of a bucket: two cache lines.
pub(crate) const WORDS: usize = 16;

/// 15 entries a bucket, none beyond.
pub(crate) type LossyIndex = Buckets<WORDS>;

impl LossyIndex {
    /// Enters an item that is not in the index; the offset of the oldest, if it had to go for it.
    #[inline]
    pub(crate) fn place(&self, hash: u64, offset: u64, ring: &Ring) -> Option<u64> {
        let slots = &self.of(hash)[1..];
        let (mut oldest, mut most) = (&slots[0], 0);
        for slot in slots {
            let old = slot.load(Relaxed);
            if old == 0 || !ring.contains(offset_of(old)) {
                slot.store(entry(hash, offset), Relaxed);
                return None;
            }
            let age = ring.age(offset_of(old));
            if age > most {
                (oldest, most) = (slot, age);
            }
        }
        let gone = offset_of(oldest.load(Relaxed));
        oldest.store(entry(hash, offset), Relaxed);
        Some(gone)
    }

    /// Empties an entry.
    pub(crate) fn remove(&self, slot: &AtomicU64) {
        slot.store(0, Relaxed);
    }
}

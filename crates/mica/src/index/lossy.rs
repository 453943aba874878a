//! The lossy index: a full bucket gives up its oldest entry.
//!
//! An item whose entry was given up cannot be found any more and leaves with the log's head. Entries
//! of items that the log has overwritten are as good as empty: nobody removes them when the item
//! goes, they are found out by their offsets, used again by the next item, or swept.
//!
//! Source: thesis, section 5.3.3, "Lossy Concurrent Hash Index".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Buckets, LINE, entry, offset_of};
use crate::ring::Ring;

/// Words of a bucket: two cache lines.
pub(crate) const WORDS: usize = 16;

/// 15 entries a bucket, none beyond.
pub(crate) type LossyIndex = Buckets<WORDS>;

impl LossyIndex {
    /// Enters an item that is not in the index; the offset of the oldest, if it had to go for it.
    #[inline]
    pub(crate) fn place(&self, hash: u64, offset: u64, ring: &Ring) -> Option<u64> {
        let bucket = self.of(hash);
        let slots = &bucket[1..];
        let (mut oldest, mut most) = (&slots[0], 0);
        for (at, slot) in (1..).zip(slots) {
            let old = slot.load(Relaxed);
            if old == 0 || !ring.contains(offset_of(old)) {
                if at >= LINE {
                    self.set_wide(bucket, true);
                }
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

    /// Notes that entries of a bucket were emptied.
    pub(crate) fn narrow(&self, bucket: &[AtomicU64; WORDS]) {
        let is_wide = bucket[LINE..].iter().any(|slot| slot.load(Relaxed) != 0);
        self.set_wide(bucket, is_wide);
    }

    /// Empties an entry.
    pub(crate) fn remove(&self, slot: &AtomicU64) {
        slot.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_an_entry_found_in_either_line_and_the_second_not_looked_at_in_vain() {
        let index = LossyIndex::new(1, 0).unwrap();
        let ring = Ring::new(1000, 20);
        ring.advance(500);
        let find =
            |tag: u64| index.find(index.main(0), tag, None, |slot, offset| Some((slot, offset)));
        for tag in 1..=15 {
            assert_eq!(index.place(tag, tag * 10, &ring), None);
            assert_eq!(LossyIndex::is_wide(index.main(0)), tag >= 8);
            for earlier in 1..=tag {
                assert_eq!(find(earlier).map(|found| found.1), Some(earlier * 10));
            }
        }
        assert_eq!(index.place(16, 160, &ring), Some(10));
        assert_eq!(index.wide.load(Relaxed), 1);
        // One entry of the second line is left, then none.
        for tag in (1..=16).filter(|tag| *tag != 12) {
            find(tag).into_iter().for_each(|found| index.remove(found.0));
        }
        index.narrow(index.main(0));
        assert_eq!(find(12).map(|found| found.1), Some(120));
        find(12).into_iter().for_each(|found| index.remove(found.0));
        index.narrow(index.main(0));
        assert_eq!(index.wide.load(Relaxed), 0);
        assert!(!LossyIndex::is_wide(index.main(0)));
        assert_eq!(index.place(3, 30, &ring), None);
        assert_eq!(find(3).map(|found| found.1), Some(30));
    }
}

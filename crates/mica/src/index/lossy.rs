//! Lossy hash index: a full bucket evicts its oldest entry.
//!
//! An item without an entry can no longer be found and is dropped by the log's head. Entries of
//! overwritten items dangle: they are not removed with the item, but recognized by their offsets,
//! reused by a later insert, or removed by the sweep.
//!
//! Source: Lim, thesis, section 5.3.3, "Lossy Concurrent Hash Index".

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{Buckets, LINE_WORDS, entry, offset_of};

/// Words of a bucket: two cache lines.
pub(crate) const BUCKET_WORDS: usize = 16;

/// The order of an empty place, and of an entry that is worth nothing.
pub(crate) const EMPTY: (bool, u64) = (true, u64::MAX);

/// 15 entries per bucket, no spare buckets.
pub(crate) type LossyIndex = Buckets<BUCKET_WORDS>;

impl LossyIndex {
    /// Inserts an entry that is not in the index; returns the offset of an evicted one.
    ///
    /// A full bucket loses the entry with the greatest `order`, which says first whether it
    /// dangles: a dangling one is not returned.
    #[inline]
    pub(crate) fn insert(
        &self,
        hash: u64,
        offset: u64,
        order: impl Fn(u64) -> (bool, u64),
    ) -> Option<u64> {
        let bucket = self.of(hash);
        let slots = &bucket[1..];
        let (mut replaced, mut greatest) = (0, (false, 0));
        for (number, slot) in slots.iter().enumerate() {
            let old = slot.load(Relaxed);
            let order = if old == 0 { EMPTY } else { order(offset_of(old)) };
            if order > greatest {
                (replaced, greatest) = (number, order);
            }
            if order == EMPTY {
                break;
            }
        }
        if replaced + 1 >= LINE_WORDS {
            self.set_wide(bucket, true);
        }
        let evicted = offset_of(slots[replaced].load(Relaxed));
        slots[replaced].store(entry(hash, offset), Relaxed);
        (!greatest.0).then_some(evicted)
    }

    /// Recomputes whether the bucket's second line has entries, after some were cleared.
    pub(crate) fn update_wide(&self, bucket: &[AtomicU64; BUCKET_WORDS]) {
        let is_wide = bucket[LINE_WORDS..].iter().any(|slot| slot.load(Relaxed) != 0);
        self.set_wide(bucket, is_wide);
    }

    /// Clears an entry.
    pub(crate) fn remove(&self, slot: &AtomicU64) {
        slot.store(0, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_found_in_either_line_and_wide_bit_is_maintained() {
        let index = LossyIndex::new(1, 0).unwrap();
        let age = |offset| (false, 500 - offset);
        let find =
            |tag: u64| index.find(index.main(0), tag, None, |slot, offset| Some((slot, offset)));
        for tag in 1..=15 {
            assert_eq!(index.insert(tag, tag * 10, age), None);
            assert_eq!(LossyIndex::is_wide(index.main(0)), tag >= 8);
            for earlier in 1..=tag {
                assert_eq!(find(earlier).map(|found| found.1), Some(earlier * 10));
            }
        }
        assert_eq!(index.insert(16, 160, age), Some(10));
        assert_eq!(index.wide.load(Relaxed), 1);
        // One entry of the second line remains, then none.
        for tag in (1..=16).filter(|tag| *tag != 12) {
            find(tag).into_iter().for_each(|found| index.remove(found.0));
        }
        index.update_wide(index.main(0));
        assert_eq!(find(12).map(|found| found.1), Some(120));
        find(12).into_iter().for_each(|found| index.remove(found.0));
        index.update_wide(index.main(0));
        assert_eq!(index.wide.load(Relaxed), 0);
        assert!(!LossyIndex::is_wide(index.main(0)));
        assert_eq!(index.insert(3, 30, age), None);
        assert_eq!(find(3).map(|found| found.1), Some(30));
    }
}

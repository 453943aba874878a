//! Lossless hash index: overflowing buckets are chained to spare buckets.
//!
//! ```text
//! main bucket ─next─▶ spare bucket ─next─▶ spare bucket       all full but the last, filled
//!   7 entries           7 entries            3 entries        from its first entry on
//! ```
//!
//! A removed entry is replaced by the last entry of its chain, so a chain is as short as possible,
//! and the number of spare buckets in use depends only on the stored entries. Unused spare buckets
//! form a free list. When it is empty, an insert fails.
//!
//! Source: Lim, thesis, section 5.3.3, "Store Mode" and figure 5.9; shrinking chains are an
//! addition.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{Buckets, entry};
use crate::keyhash;
use crate::prefetch::prefetch;

/// Words of a bucket: one cache line.
pub(crate) const BUCKET_WORDS: usize = 8;

type Bucket = [AtomicU64; BUCKET_WORDS];

/// 7 entries per bucket, with spare buckets.
pub(crate) struct LosslessIndex {
    pub(crate) buckets: Buckets<BUCKET_WORDS>,
    spare: Mutex<FreeBuckets>,
}

/// The free list of spare buckets.
struct FreeBuckets {
    /// Number of the first free bucket, counted from 1; 0 if there is none.
    first: u64,
    left: usize,
}

fn next_of(bucket: &Bucket) -> u64 {
    bucket[0].load(Relaxed) >> 32
}

/// Sets the next bucket and keeps the version. The caller has exclusive access to the chain.
fn set_next(bucket: &Bucket, next: u64) {
    let version = bucket[0].load(Relaxed) & 0xffff_ffff;
    bucket[0].store(next << 32 | version, Relaxed);
}

impl LosslessIndex {
    /// An empty index.
    pub(crate) fn new(main: usize, spare: usize) -> io::Result<Self> {
        let buckets = Buckets::new(main, spare)?;
        let index = LosslessIndex { buckets, spare: Mutex::new(FreeBuckets { first: 0, left: 0 }) };
        for number in (1..=spare as u64).rev() {
            index.push_free(number);
        }
        Ok(index)
    }

    /// Number of free spare buckets.
    pub(crate) fn spare_left(&self) -> usize {
        self.spare.lock().left
    }

    fn push_free(&self, number: u64) {
        let mut spare = self.spare.lock();
        let bucket = self.spare(number);
        set_next(bucket, spare.first);
        *spare = FreeBuckets { first: number, left: spare.left + 1 };
    }

    fn pop_free(&self) -> Option<u64> {
        let mut spare = self.spare.lock();
        let number = spare.first;
        if number == 0 {
            return None;
        }
        *spare = FreeBuckets { first: next_of(self.spare(number)), left: spare.left - 1 };
        Some(number)
    }

    fn spare(&self, number: u64) -> &Bucket {
        &self.buckets.all()[self.buckets.main + number as usize - 1]
    }

    /// Inserts an entry that is not in the index; returns `false`, without any change, if there is
    /// no room.
    pub(crate) fn insert(&self, hash: u64, offset: u64) -> bool {
        let mut bucket = self.buckets.of(hash);
        while let Some(next) = self.buckets.next(bucket[0].load(Relaxed)) {
            bucket = next;
        }
        if let Some(slot) = bucket[1..].iter().find(|slot| slot.load(Relaxed) == 0) {
            slot.store(entry(hash, offset), Relaxed);
            return true;
        }
        let Some(number) = self.pop_free() else { return false };
        let spare = self.spare(number);
        set_next(spare, 0);
        spare[1].store(entry(hash, offset), Relaxed);
        set_next(bucket, number);
        true
    }

    /// Removes an entry of the chain of `hash`.
    pub(crate) fn remove(&self, hash: u64, slot: &AtomicU64) {
        let (mut before, mut bucket) = (None, self.buckets.of(hash));
        while let Some(next) = self.buckets.next(bucket[0].load(Relaxed)) {
            (before, bucket) = (Some(bucket), next);
        }
        let last = bucket[1..].iter().rposition(|slot| slot.load(Relaxed) != 0).unwrap_or(0);
        let moved = bucket[1 + last].load(Relaxed);
        slot.store(moved, Relaxed);
        bucket[1 + last].store(0, Relaxed);
        if let Some(before) = before
            && last == 0
        {
            let number = next_of(before);
            set_next(before, 0);
            self.push_free(number);
        }
    }

    /// Number of entries in main buckets and in spare buckets.
    pub(crate) fn entries(&self) -> (u64, u64) {
        let used = |bucket: &Bucket| {
            bucket[1..].iter().filter(|slot| slot.load(Relaxed) != 0).count() as u64
        };
        let (main, spare) = self.buckets.all().split_at(self.buckets.main);
        (main.iter().map(used).sum(), spare.iter().map(used).sum())
    }

    /// Prefetches the items, in `words`, of entries with the hash's tag in the main bucket and the
    /// first spare bucket, which are nearly all.
    #[inline(always)]
    pub(crate) fn prefetch_items(&self, main: &Bucket, hash: u64, words: &[AtomicU64]) {
        self.buckets.for_first_buckets(main, keyhash::tag(hash), |offset| {
            let at = offset as usize;
            // An item of 32 bytes may end on another line.
            [at, at + 3].iter().filter_map(|&at| words.get(at)).for_each(prefetch);
        });
    }

    /// Describes an inconsistency of the chains, if there is one.
    pub(crate) fn check(&self) -> Option<String> {
        let mut reached = 0;
        for number in 0..self.buckets.main {
            let mut bucket = self.buckets.main(number);
            while let Some(next) = self.buckets.next(bucket[0].load(Relaxed)) {
                reached += 1;
                if bucket[1..].iter().any(|slot| slot.load(Relaxed) == 0) {
                    return Some(format!("bucket {number} is chained but not full"));
                }
                bucket = next;
            }
        }
        let spare = self.buckets.all().len() - self.buckets.main;
        let left = self.spare_left();
        (reached + left != spare)
            .then(|| format!("{reached} spare buckets in chains and {left} left of {spare}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::offset_of;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn slot_of(index: &LosslessIndex, hash: u64, offset: u64) -> Option<&AtomicU64> {
        index.buckets.find(index.buckets.of(hash), hash, None, |slot, found| {
            (found == offset).then_some(slot)
        })
    }

    proptest! {
        /// Few buckets and few hashes, so that chains grow and shrink all the time.
        #[test]
        fn accepted_entries_are_never_lost(
            main in 1usize..4,
            spare in 0usize..6,
            steps in proptest::collection::vec((0u64..60, any::<bool>()), 1..400),
        ) {
            let index = LosslessIndex::new(main, spare).unwrap();
            let mut model = BTreeMap::new();
            let hash_of = |key: u64| key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for (offset, (key, inserts)) in steps.into_iter().enumerate() {
                let (hash, offset) = (hash_of(key), offset as u64);
                match (inserts, model.get(&key)) {
                    (true, None) => {
                        let chain = |other: &u64| {
                            crate::keyhash::bucket(hash_of(*other), main)
                                == crate::keyhash::bucket(hash, main)
                        };
                        let length = model.keys().filter(|key| chain(key)).count();
                        let needs = length > 0 && length % (BUCKET_WORDS - 1) == 0;
                        let fits = !needs || index.spare_left() > 0;
                        prop_assert_eq!(index.insert(hash, offset), fits);
                        if fits {
                            model.insert(key, offset);
                        }
                    }
                    (false, Some(&offset)) => {
                        index.remove(hash, slot_of(&index, hash, offset).unwrap());
                        model.remove(&key);
                    }
                    _ => {}
                }
                prop_assert_eq!(index.check(), None);
                let (in_main, in_spare) = index.entries();
                prop_assert_eq!(in_main + in_spare, model.len() as u64);
                for (&key, &offset) in &model {
                    prop_assert!(slot_of(&index, hash_of(key), offset).is_some());
                }
            }
        }
    }

    /// What a prefetch may find if concurrent writers have freed a bucket.
    #[test]
    fn prefetch_does_not_follow_free_list() {
        let index = LosslessIndex::new(1, 1000).unwrap();
        set_next(index.buckets.main(0), 1);
        let mut seen = 0;
        // Empty entries have the tag 0, which no hash has.
        index.buckets.for_first_buckets(index.buckets.main(0), 0, |_| seen += 1);
        assert_eq!(seen, 2 * (BUCKET_WORDS - 1));
    }

    #[test]
    fn entry_stores_offset() {
        let index = LosslessIndex::new(1, 0).unwrap();
        assert!(index.insert(0xffff, 0xffff_ffff_ffff));
        let held: Vec<_> = index.buckets.chain(0).map(|slot| slot.load(Relaxed)).collect();
        assert_eq!(offset_of(held[0]), 0xffff_ffff_ffff);
    }
}

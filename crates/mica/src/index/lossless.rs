//! The lossless index: a full bucket is given a spare one, chained in bulk.
//!
//! ```text
//! main bucket ─next─▶ spare bucket ─next─▶ spare bucket       all full but the last, and that from
//!   7 entries           7 entries            3 entries        its first entry on
//! ```
//!
//! A removed entry is replaced by the last of its chain, so a chain has as few buckets as its
//! entries need, and how many spare ones are in use follows from what is stored alone. Spare buckets
//! that nobody uses are a list, linked where chains are. With none left, an entry is refused.
//!
//! Source: thesis, section 5.3.3, "Store Mode" and figure 5.9. That chains shrink is ours.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;

use super::{Buckets, entry};
use crate::keyhash;
use crate::prefetch::prefetch;

/// Words of a bucket: one cache line.
pub(crate) const WORDS: usize = 8;

type Bucket = [AtomicU64; WORDS];

/// 7 entries a bucket, and spare buckets.
pub(crate) struct LosslessIndex {
    pub(crate) buckets: Buckets<WORDS>,
    spare: Mutex<Spare>,
}

/// The spare buckets that nobody uses.
struct Spare {
    /// The first, counted from 1; 0 is none.
    first: u64,
    left: usize,
}

fn next_of(bucket: &Bucket) -> u64 {
    bucket[0].load(Relaxed) >> 32
}

/// Names the next bucket, and leaves the version as it is. The caller has the chain to itself.
fn set_next(bucket: &Bucket, next: u64) {
    let version = bucket[0].load(Relaxed) & 0xffff_ffff;
    bucket[0].store(next << 32 | version, Relaxed);
}

impl LosslessIndex {
    /// An empty index.
    pub(crate) fn new(main: usize, spare: usize) -> io::Result<Self> {
        let buckets = Buckets::new(main, spare)?;
        let index = LosslessIndex { buckets, spare: Mutex::new(Spare { first: 0, left: 0 }) };
        for number in (1..=spare as u64).rev() {
            index.give_back(number);
        }
        Ok(index)
    }

    /// Spare buckets that are left.
    pub(crate) fn spare_left(&self) -> usize {
        self.spare.lock().left
    }

    fn give_back(&self, number: u64) {
        let mut spare = self.spare.lock();
        let bucket = self.spare(number);
        set_next(bucket, spare.first);
        *spare = Spare { first: number, left: spare.left + 1 };
    }

    fn take(&self) -> Option<u64> {
        let mut spare = self.spare.lock();
        let number = spare.first;
        if number == 0 {
            return None;
        }
        *spare = Spare { first: next_of(self.spare(number)), left: spare.left - 1 };
        Some(number)
    }

    fn spare(&self, number: u64) -> &Bucket {
        &self.buckets.all()[self.buckets.main + number as usize - 1]
    }

    /// Enters an item that is not in the index; `false`, and nothing has changed, if there is no
    /// room.
    pub(crate) fn insert(&self, hash: u64, offset: u64) -> bool {
        let mut bucket = self.buckets.of(hash);
        while let Some(next) = self.buckets.next(bucket[0].load(Relaxed)) {
            bucket = next;
        }
        if let Some(slot) = bucket[1..].iter().find(|slot| slot.load(Relaxed) == 0) {
            slot.store(entry(hash, offset), Relaxed);
            return true;
        }
        let Some(number) = self.take() else { return false };
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
            self.give_back(number);
        }
    }

    /// Entries in main buckets, and in spare ones.
    pub(crate) fn entries(&self) -> (u64, u64) {
        let used = |bucket: &Bucket| {
            bucket[1..].iter().filter(|slot| slot.load(Relaxed) != 0).count() as u64
        };
        let (main, spare) = self.buckets.all().split_at(self.buckets.main);
        (main.iter().map(used).sum(), spare.iter().map(used).sum())
    }

    /// Fetches the items, in `words`, that entries with the hash's tag lead to: those of its main
    /// bucket and of the first spare one, which are nearly all.
    #[inline(always)]
    pub(crate) fn prefetch_items(&self, main: &Bucket, hash: u64, words: &[AtomicU64]) {
        self.buckets.near(main, keyhash::tag(hash), |offset| {
            let at = offset as usize;
            // Where an item of 32 bytes ends may be another line.
            [at, at + 3].iter().filter_map(|&at| words.get(at)).for_each(prefetch);
        });
    }

    /// What does not hold of the chains' shape, if anything.
    pub(crate) fn damage(&self) -> Option<String> {
        let mut reached = 0;
        for number in 0..self.buckets.main {
            let mut bucket = self.buckets.main(number);
            while let Some(next) = self.buckets.next(bucket[0].load(Relaxed)) {
                reached += 1;
                if bucket[1..].iter().any(|slot| slot.load(Relaxed) == 0) {
                    return Some(format!("bucket {number} is chained and not full"));
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
        fn is_nothing_lost_of_what_was_taken(
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
                        let needs = length > 0 && length % (WORDS - 1) == 0;
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
                prop_assert_eq!(index.damage(), None);
                let (in_main, in_spare) = index.entries();
                prop_assert_eq!(in_main + in_spare, model.len() as u64);
                for (&key, &offset) in &model {
                    prop_assert!(slot_of(&index, hash_of(key), offset).is_some());
                }
            }
        }
    }

    /// What a prefetch may find beside writers that have given a bucket back meanwhile.
    #[test]
    fn does_a_prefetch_not_walk_through_the_buckets_that_nobody_uses() {
        let index = LosslessIndex::new(1, 1000).unwrap();
        set_next(index.buckets.main(0), 1);
        let mut seen = 0;
        // Empty entries have the tag that no hash has.
        index.buckets.near(index.buckets.main(0), 0, |_| seen += 1);
        assert_eq!(seen, 2 * (WORDS - 1));
    }

    #[test]
    fn does_an_entry_hold_its_offset() {
        let index = LosslessIndex::new(1, 0).unwrap();
        assert!(index.insert(0xffff, 0xffff_ffff_ffff));
        let held: Vec<_> = index.buckets.chain(0).map(|slot| slot.load(Relaxed)).collect();
        assert_eq!(offset_of(held[0]), 0xffff_ffff_ffff);
    }
}

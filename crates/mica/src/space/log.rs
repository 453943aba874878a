//! The circular log: items are appended at the tail; what the head meets goes.
//!
//! ```text
//!            head              tail
//!             ▼                 ▼
//! ┌───────────┬─────────────────┬──────────┐
//! │ … items   │ oldest … newest │  free,   │ goes on at the beginning
//! └───────────┴─────────────────┴──────────┘
//! ```
//!
//! Free is less than one item, once the log has been round. The head walks from item to item by
//! their sizes; what it has passed can be read until the tail comes, because only the tail's
//! distance decides whether an offset is good.
//!
//! Items never split. In a mirrored region the end goes on at the beginning; in a plain one an item
//! that would not fit before the end is put at the beginning, and a filler in its place.
//!
//! Invariant: head to tail are whole items, at most the log's length. One writer at a time.
//!
//! Source: thesis, section 5.3.3, "Circular Log".

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::item::{self, Item};
use crate::mapping::{Mapping, Region};
use crate::prefetch::prefetch;
use crate::ring::Ring;

/// A circular log.
pub(crate) struct CircularLog {
    region: Region,
    ring: Ring,
    head: AtomicU64,
}

impl CircularLog {
    /// An empty log of so many words; a mirrored one must fill pages.
    pub(crate) fn new(words: usize, mapping: Mapping, offset_bits: u32) -> io::Result<Self> {
        let region = Region::for_log(words, mapping)?;
        let ring = Ring::new(words as u64, offset_bits);
        let head = AtomicU64::new(ring.tail());
        Ok(CircularLog { region, ring, head })
    }

    /// Its offsets.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Bytes of memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    /// Whether the end is mapped twice.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.region.is_mirrored()
    }

    /// The largest item, in words: half of the log.
    pub(crate) fn largest(&self) -> usize {
        self.ring.words() as usize / 2
    }

    /// The item at an offset, unless it was overwritten.
    #[inline]
    pub(crate) fn item(&self, offset: u64) -> Option<Item<'_>> {
        if !self.ring.contains(offset) {
            return None;
        }
        Item::parse(&self.region[self.ring.position(offset) as usize..])
    }

    /// Fetches the item at an offset.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: u64) {
        if self.ring.contains(offset) {
            let at = self.ring.position(offset) as usize;
            prefetch(&self.region[at]);
            // The line where an item of 32 bytes ends, if it is another.
            self.region.get(at + 3).into_iter().for_each(prefetch);
        }
    }

    /// Words from head to tail.
    pub(crate) fn used(&self) -> u64 {
        self.ring.distance(self.head.load(Relaxed), self.ring.tail())
    }

    /// Words that stay empty before the end, if an item of so many words is next.
    fn gap(&self, words: usize) -> u64 {
        let left = self.ring.words() - self.ring.position(self.ring.tail());
        if self.region.is_mirrored() || words as u64 <= left { 0 } else { left }
    }

    /// Whether an item of so many words can be appended without another going.
    #[inline]
    pub(crate) fn has_room(&self, words: usize) -> bool {
        self.used() + self.gap(words) + words as u64 <= self.ring.words()
    }

    /// The offset and the header of the oldest item; the log is not empty.
    pub(crate) fn oldest(&self) -> (u64, u64) {
        let head = self.head.load(Relaxed);
        (head, self.region[self.ring.position(head) as usize].load(Relaxed))
    }

    /// Offsets and headers of all items, the oldest first.
    pub(crate) fn items(&self) -> impl Iterator<Item = (u64, u64)> {
        let (mut at, mut left) = (self.head.load(Relaxed), self.used());
        std::iter::from_fn(move || {
            let header = self.region[self.ring.position(at) as usize].load(Relaxed);
            let (offset, size) = (at, item::size_of(header) as u64);
            left = left.checked_sub(size).filter(|_| size > 0)?;
            at = self.ring.after(at, size);
            Some((offset, header))
        })
    }

    /// Words in all of the item at an offset that is within the log.
    pub(crate) fn size_at(&self, offset: u64) -> usize {
        item::size_of(self.region[self.ring.position(offset) as usize].load(Relaxed))
    }

    /// Takes the oldest item, of so many words, out of the log.
    pub(crate) fn pass(&self, words: usize) {
        self.head.store(self.ring.after(self.head.load(Relaxed), words as u64), Relaxed);
    }

    /// Takes so many words, for which there is room; their offset and place. From here on whatever
    /// was there reads as gone.
    #[inline]
    pub(crate) fn append(&self, words: usize) -> (u64, &[AtomicU64]) {
        debug_assert!(self.has_room(words));
        let gap = self.gap(words);
        if gap > 0 {
            let at = self.ring.position(self.ring.tail()) as usize;
            self.ring.advance(gap);
            self.region[at].store(item::filler(gap as usize), Relaxed);
        }
        let offset = self.ring.tail();
        self.ring.advance(words as u64);
        let at = self.ring.position(offset) as usize;
        (offset, &self.region[at..at + words])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::{Meta, NewItem};
    use proptest::prelude::*;
    use std::collections::VecDeque;

    proptest! {
        /// Against a queue, many times round, with offsets so narrow that they repeat.
        #[test]
        fn is_what_the_log_has_what_was_appended_last(
            words in 24usize..200,
            lens in proptest::collection::vec(0usize..300, 1..500),
        ) {
            let bits = words.next_power_of_two().trailing_zeros() + 3;
            let log = CircularLog::new(words, Mapping::Plain, bits).unwrap();
            check(&log, &lens)?;
        }

        #[test]
        #[cfg(not(miri))]
        fn does_a_mirrored_log_split_no_item(
            lens in proptest::collection::vec(0usize..2000, 1..100),
        ) {
            let log = CircularLog::new(512, Mapping::Mirrored, 12).unwrap();
            check(&log, &lens)?;
            if lens.len() > 20 {
                prop_assert!(log.used() > 0);
            }
        }
    }

    fn check(log: &CircularLog, lens: &[usize]) -> Result<(), TestCaseError> {
        let mut model: VecDeque<(u64, Vec<u8>)> = VecDeque::new();
        let mut appended = 0;
        for (number, &len) in lens.iter().enumerate() {
            let value = vec![number as u8; len];
            let new =
                NewItem { hash: number as u64, key: b"k", value: &value, meta: Meta::default() };
            let size = new.words();
            if size > log.largest() {
                continue;
            }
            while !log.has_room(size) {
                let (offset, header) = log.oldest();
                if !item::is_dead(header) {
                    prop_assert_eq!(model.pop_front().map(|item| item.0), Some(offset));
                }
                log.pass(item::size_of(header));
            }
            let (offset, place) = log.append(size);
            new.write(place, size);
            model.push_back((offset, value));
            appended += 1;
            prop_assert!(log.used() <= log.ring().words());
            for (offset, value) in &model {
                let item = log.item(*offset).unwrap();
                let mut back = vec![0; item.value_len()];
                item.copy_value(&mut back);
                prop_assert_eq!(&back, value);
            }
        }
        prop_assert!(appended == 0 || !model.is_empty());
        Ok(())
    }
}

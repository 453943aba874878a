//! Circular log: items are appended at the tail and evicted at the head.
//!
//! ```text
//!            head              tail
//!             ▼                 ▼
//! ┌───────────┬─────────────────┬──────────┐
//! │ … items   │ oldest … newest │  free,   │ continues at the beginning
//! └───────────┴─────────────────┴──────────┘
//! ```
//!
//! After the first lap, less than one item is free. The head moves from item to item by their
//! sizes. An item that it has passed stays readable until the tail reaches it, because an offset is
//! valid by its distance from the tail alone.
//!
//! Items are never split. In a mirrored region the end is followed by the beginning; in a plain one
//! an item that does not fit before the end goes to the beginning, with a filler in its place.
//!
//! Invariant: head to tail are whole items, at most the log's length. One writer at a time.
//!
//! Source: Lim, thesis, section 5.3.3, "Circular Log".

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::Damage;

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
    /// An empty log of this size; a mirrored one must consist of whole pages.
    pub(crate) fn new(words: usize, mapping: Mapping, offset_bits: u32) -> io::Result<Self> {
        let region = Region::for_log(words, mapping)?;
        let ring = Ring::new(words as u64, offset_bits);
        let head = AtomicU64::new(ring.tail());
        Ok(CircularLog { region, ring, head })
    }

    /// The offsets.
    #[inline(always)]
    pub(crate) fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Memory in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.region.bytes()
    }

    /// Whether the log is mapped twice.
    pub(crate) fn is_mirrored(&self) -> bool {
        self.region.is_mirrored()
    }

    /// Maximum size of an item, in words: half of the log.
    pub(crate) fn max_item_words(&self) -> usize {
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

    /// Prefetches the item at an offset.
    #[inline(always)]
    pub(crate) fn prefetch(&self, offset: u64) {
        if self.ring.contains(offset) {
            let at = self.ring.position(offset) as usize;
            prefetch(&self.region[at]);
            // An item of 32 bytes may end on another line.
            self.region.get(at + 3).into_iter().for_each(prefetch);
        }
    }

    /// Words from head to tail.
    pub(crate) fn used(&self) -> u64 {
        self.ring.distance(self.head.load(Relaxed), self.ring.tail())
    }

    /// Words left unused before the end if the next item has this size.
    fn filler_words(&self, words: usize) -> u64 {
        let left = self.ring.words() - self.ring.position(self.ring.tail());
        if self.region.is_mirrored() || words as u64 <= left { 0 } else { left }
    }

    /// Whether an item of this size can be appended without an eviction.
    #[inline]
    pub(crate) fn has_room(&self, words: usize) -> bool {
        self.used() + self.filler_words(words) + words as u64 <= self.ring.words()
    }

    /// Offset and header of the oldest item; the log must not be empty.
    pub(crate) fn oldest(&self) -> (u64, u64) {
        let head = self.head.load(Relaxed);
        (head, self.region[self.ring.position(head) as usize].load(Relaxed))
    }

    /// Offsets and headers of all items, oldest first.
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

    /// Where the items from the head do not lead to the tail. Requires that nobody appends.
    pub(crate) fn damage(&self, name: &str) -> Option<Damage> {
        let (mut at, mut left) = (self.head.load(Relaxed), self.used());
        while left > 0 {
            let position = self.ring.position(at);
            let size = item::size_of(self.region[position as usize].load(Relaxed)) as u64;
            if size == 0 || size > left {
                let reason = format!("an item of {size} words, {left} words before the tail");
                return Some(Damage { file: name.to_owned(), offset: position * 8, reason });
            }
            at = self.ring.after(at, size);
            left -= size;
        }
        None
    }

    /// Moves the head past the oldest item, of this size.
    pub(crate) fn advance_head(&self, words: usize) {
        self.head.store(self.ring.after(self.head.load(Relaxed), words as u64), Relaxed);
    }

    /// Allocates space, of which there must be enough; returns its offset and words. Data at that
    /// place dangles from now on.
    #[inline]
    pub(crate) fn append(&self, words: usize) -> (u64, &[AtomicU64]) {
        debug_assert!(self.has_room(words));
        let gap = self.filler_words(words);
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
        /// Compared with a queue over many laps, with offsets so narrow that they repeat.
        #[test]
        fn log_contains_newest_items(
            words in 24usize..200,
            lens in proptest::collection::vec(0usize..300, 1..500),
        ) {
            let bits = words.next_power_of_two().trailing_zeros() + 3;
            let log = CircularLog::new(words, Mapping::Plain, bits).unwrap();
            check(&log, &lens)?;
        }

        #[test]
        #[cfg(all(target_os = "linux", not(any(miri, siltstone_portable))))]
        fn mirrored_log_splits_no_item(
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
            if size > log.max_item_words() {
                continue;
            }
            while !log.has_room(size) {
                let (offset, header) = log.oldest();
                if !item::is_dead(header) {
                    prop_assert_eq!(model.pop_front().map(|item| item.0), Some(offset));
                }
                log.advance_head(item::size_of(header));
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

//! The packing buffer: records that wait for their page.
//!
//! ```text
//!   gathering    17 18 20 21              what is put, in its order
//!                 │ settled: by when collection will read it again
//!                 ▼
//!   laid out     │ 14 11 │ 21 17 · 20 │ 18         pages, programmed one by one as others come in
//!                    19 ──┘ what is remapped, and what is not buffered, is laid out at once
//! ```
//!
//! What is put lies by age, what is remapped goes by bucket: so a page of what was put would be read for each of its
//! records apart. Where several pages gather and are sorted, a page's records are wanted at about one time, and it is
//! read once for them. But recovery yields a prefix of the writes, and theirs was another order: so what was
//! sorted together is one group, there as a whole or not at all.
//!
//! A record is found by its number until it is placed; then links to it become places on flash. A page gets its number
//! when it is programmed, not before: so one that fails costs nothing but the page.
//!
//! Invariant: links of a pending record lead to records that are placed, or before it in the order of the pages, those
//! that gather being the last: records of one bucket stay in their order, and nothing is laid out while its bucket
//! gathers. A record leaves after whoever maps to it was told its place.
//!
//! Source: the packing logic of SkimpyFTL's section 4; sorting is ours.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::location::{self, Location};
use crate::record::{FIRST, LAST, Record};

/// Pages of records that gather at most: more would be of little use, and memory.
const TOGETHER: u64 = 16;
/// The share of the device's pages that gather at most, one in so many.
const OF_PAGES: u64 = 64;

/// Pages of records that gather on a device of so many.
pub(crate) fn together(pages: u64) -> usize {
    (pages / OF_PAGES).clamp(1, TOGETHER) as usize
}

/// Less room than this in a page is none.
const SMALL: usize = 64;

pub(crate) struct Pending {
    page: Room,
    queue: Mutex<Queue>,
}

/// What an empty page has room for.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    slots: usize,
}

#[derive(Default)]
struct Queue {
    /// The number of the first of `records`.
    first: u64,
    /// By number; `None` has left before others.
    records: VecDeque<Option<Arc<Record>>>,
    /// Numbers of what is not laid out yet, the least first.
    gathering: Vec<u64>,
    pages: VecDeque<Page>,
    bytes: usize,
}

/// A page that is laid out.
struct Page {
    slots: Vec<Slot>,
    left: usize,
    is_full: bool,
}

#[derive(Clone, Copy)]
struct Slot {
    number: u64,
    /// The record's marks in its page.
    marks: u8,
}

/// Records of one page: the places that they had while they were pending, by slot, and the first one's place.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placed {
    pub(crate) from: Vec<Location>,
    pub(crate) base: Location,
}

impl Placed {
    /// Where a link leads now.
    pub(crate) fn resolve(&self, at: Location) -> Location {
        if !location::is_pending(at) {
            return at;
        }
        match self.from.iter().position(|from| *from == at) {
            Some(slot) => self.base + slot as u32,
            None => at,
        }
    }
}

/// The next page: its records, their marks in it, and where they are found until they are placed.
#[derive(Default)]
pub(crate) struct Front {
    pub(crate) records: Vec<Arc<Record>>,
    pub(crate) marks: Vec<u8>,
    pub(crate) from: Vec<Location>,
}

impl Queue {
    fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    fn get(&self, number: u64) -> Option<&Arc<Record>> {
        self.records.get(number.checked_sub(self.first)? as usize)?.as_ref()
    }

    /// Takes a record in: its number.
    fn add(&mut self, record: Arc<Record>) -> u64 {
        self.bytes += record.encoded_bytes();
        self.records.push_back(Some(record));
        self.end() - 1
    }

    /// Every record fits an empty page.
    fn lay_out(&mut self, slot: Slot, empty: Room) {
        let bytes = self.get(slot.number).map_or(0, |record| record.encoded_bytes());
        debug_assert!(bytes <= empty.bytes, "a record that fits no page would wait for ever");
        if let Some(last) = self.pages.back_mut() {
            last.is_full |= bytes > last.left;
        }
        if self.pages.back().is_none_or(|last| last.is_full) {
            let page = Page { slots: Vec::new(), left: empty.bytes, is_full: false };
            self.pages.push_back(page);
        }
        if let Some(last) = self.pages.back_mut() {
            last.slots.push(slot);
            last.left = last.left.saturating_sub(bytes);
            last.is_full = last.slots.len() == empty.slots || last.left < SMALL;
        }
    }
}

impl Pending {
    /// A buffer of pages with room for so many bytes and so many records.
    pub(crate) fn new(bytes: usize, slots: usize) -> Self {
        Pending { page: Room { bytes, slots }, queue: Mutex::default() }
    }

    /// The pending record at a place, unless it left.
    pub(crate) fn get(&self, at: Location) -> Option<Arc<Record>> {
        let queue = self.queue.lock();
        queue.get(location::number(at, queue.first)?).cloned()
    }

    /// The number of the first record that waits: all before it were programmed.
    pub(crate) fn first(&self) -> u64 {
        self.queue.lock().first
    }

    /// The number of the next record.
    pub(crate) fn end(&self) -> u64 {
        self.queue.lock().end()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().records.is_empty()
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Takes in records that are laid out when they are [settled](Self::settle).
    pub(crate) fn gather(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        let mut queue = self.queue.lock();
        for record in records {
            let number = queue.add(record);
            queue.gathering.push(number);
        }
    }

    /// Whether the record at this place gathers.
    pub(crate) fn gathers(&self, at: Location) -> bool {
        let queue = self.queue.lock();
        let number = location::number(at, queue.first);
        number.is_some_and(|number| queue.gathering.binary_search(&number).is_ok())
    }

    /// Lays out what has gathered, sorted by a key, as one group: it counts as a whole, whatever its order. Records of
    /// one key stay in theirs. `false` if there is nothing.
    pub(crate) fn settle<K: Ord>(&self, key: impl Fn(&Record) -> K) -> bool {
        let mut queue = self.queue.lock();
        let mut group = std::mem::take(&mut queue.gathering);
        group.sort_by_cached_key(|number| queue.get(*number).map(|record| key(record)));
        let last = group.len().saturating_sub(1);
        for (index, number) in group.iter().enumerate() {
            let first = if index == 0 { FIRST } else { 0 };
            let marks = first | if index == last { LAST } else { 0 };
            queue.lay_out(Slot { number: *number, marks }, self.page);
        }
        !group.is_empty()
    }

    /// Takes in records and lays them out, before what gathers.
    pub(crate) fn push(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        let mut queue = self.queue.lock();
        for record in records {
            let marks = record.marks;
            let number = queue.add(record);
            queue.lay_out(Slot { number, marks }, self.page);
        }
    }

    /// Takes back what was pushed as the last, from the record with this number on.
    pub(crate) fn truncate(&self, end: u64) {
        let mut queue = self.queue.lock();
        while queue.end() > end {
            let number = queue.end() - 1;
            let Some(record) = queue.records.pop_back() else { return };
            let bytes = record.map_or(0, |record| record.encoded_bytes());
            queue.bytes -= bytes;
            let Some(page) = queue.pages.back_mut() else { continue };
            if page.slots.pop_if(|slot| slot.number == number).is_some() {
                page.left += bytes;
                page.is_full = false;
            }
            if page.slots.is_empty() {
                queue.pages.pop_back();
            }
        }
    }

    /// Lets the last page be programmed as it is.
    pub(crate) fn end_page(&self) {
        if let Some(last) = self.queue.lock().pages.back_mut() {
            last.is_full = true;
        }
    }

    /// Bytes that the page has room for which the next record is laid out in.
    pub(crate) fn room(&self) -> usize {
        let queue = self.queue.lock();
        queue.pages.back().filter(|last| !last.is_full).map_or(self.page.bytes, |last| last.left)
    }

    /// The next page, if it is full, or any.
    pub(crate) fn front(&self, any: bool) -> Option<Front> {
        let queue = self.queue.lock();
        let page = queue.pages.front().filter(|page| page.is_full || any)?;
        let mut front = Front::default();
        for slot in &page.slots {
            front.records.push(queue.get(slot.number)?.clone());
            front.marks.push(slot.marks);
            front.from.push(location::pending(slot.number));
        }
        Some(front)
    }

    /// Lets the links of pending records follow those that were placed.
    pub(crate) fn follow(&self, placed: &Placed) {
        for record in self.queue.lock().records.iter().flatten() {
            record.resolve(placed);
        }
    }

    /// Removes the next page.
    pub(crate) fn leave(&self) {
        let mut queue = self.queue.lock();
        let queue = &mut *queue;
        for slot in queue.pages.pop_front().into_iter().flat_map(|page| page.slots) {
            if let Some(record) = queue.records[(slot.number - queue.first) as usize].take() {
                queue.bytes -= record.encoded_bytes();
            }
        }
        while let Some(None) = queue.records.front() {
            queue.records.pop_front();
            queue.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Content, REMAPPED};

    /// Room for four of these records.
    const BODY: usize = 4000;

    fn record(timestamp: u64, bucket: u64, marks: u8) -> Arc<Record> {
        let value = Content::Value(vec![0; 900]);
        Arc::new(Record { marks, ..Record::new(timestamp, bucket, b"k".to_vec(), value) })
    }

    /// Batches of one record, of these buckets, in this order; their timestamps are their numbers.
    fn gather(pending: &Pending, buckets: &[u64]) {
        for bucket in buckets {
            pending.gather([record(pending.end(), *bucket, FIRST | LAST)]);
        }
    }

    fn gathered(buckets: &[u64]) -> Pending {
        let pending = Pending::new(BODY, 256);
        gather(&pending, buckets);
        pending
    }

    fn settle(pending: &Pending) -> bool {
        pending.settle(|record| record.hash)
    }

    /// Timestamps in the order of the pages, page by page, each with its marks there.
    fn drained(pending: &Pending) -> Vec<Vec<(u64, u8)>> {
        let mut pages = Vec::new();
        while let Some(front) = pending.front(true) {
            let of = front.records.iter().zip(&front.marks);
            pages.push(of.map(|(record, marks)| (record.timestamp, *marks)).collect());
            pending.leave();
        }
        pages
    }

    #[test]
    fn what_is_sorted_is_one_group_and_those_of_one_bucket_stay_in_their_order() {
        let pending = gathered(&[3, 1, 2, 1, 3, 0]);
        assert!(pending.front(true).is_none(), "nothing is laid out before it is settled");
        assert!(settle(&pending) && !settle(&pending));
        let pages = drained(&pending);
        assert_eq!(pages.concat(), [(5, FIRST), (1, 0), (3, 0), (2, 0), (0, 0), (4, LAST)]);
        assert_eq!(pages[0].len(), 4);
        assert_eq!((pending.bytes(), pending.end(), pending.first()), (0, 6, 6));
        gather(&pending, &[7]);
        settle(&pending);
        assert_eq!(drained(&pending).concat(), [(6, FIRST | LAST)], "one alone is a group");
        // Parts of a batch are as whole as what they are sorted with.
        pending.gather([record(7, 9, FIRST), record(8, 3, LAST)]);
        gather(&pending, &[5]);
        settle(&pending);
        assert_eq!(drained(&pending).concat(), [(8, FIRST), (9, 0), (7, LAST)]);
    }

    #[test]
    fn what_is_laid_out_at_once_is_before_what_gathers_and_behind_what_is_settled() {
        let pending = gathered(&[3, 1]);
        settle(&pending);
        gather(&pending, &[9, 8]);
        pending.push([record(4, 2, FIRST | REMAPPED), record(5, 0, LAST | REMAPPED)]);
        settle(&pending);
        let (first, last) = (FIRST | REMAPPED, LAST | REMAPPED);
        let order = [(1, FIRST), (0, LAST), (4, first), (5, last), (3, FIRST), (2, LAST)];
        assert_eq!(drained(&pending).concat(), order);
    }

    #[test]
    fn a_page_is_next_when_no_more_fits_or_it_was_ended() {
        let pending = gathered(&[]);
        let push = |count: usize| pending.push((0..count).map(|_| record(0, 0, FIRST | LAST)));
        let bytes = record(0, 0, 0).encoded_bytes();
        push(4);
        assert!(pending.front(false).is_none() && pending.front(true).is_some());
        assert_eq!(pending.room(), BODY - 4 * bytes);
        push(1);
        assert_eq!(pending.front(false).map(|front| front.records.len()), Some(4));
        assert_eq!(pending.room(), BODY - bytes);
        pending.leave();
        assert!(pending.front(false).is_none());
        pending.end_page();
        assert_eq!(pending.room(), BODY);
        push(1);
        assert_eq!(pending.front(false).map(|front| front.records.len()), Some(1));
        let few = Pending::new(BODY, 2);
        few.push((0..2).map(|_| record(0, 0, FIRST | LAST)));
        assert!(few.front(false).is_some(), "a page has so many slots");
    }

    #[test]
    fn a_record_is_found_by_its_place_until_it_leaves() {
        let pending = gathered(&[4, 3, 2, 1, 0]);
        settle(&pending);
        let found = |number| pending.get(location::pending(number)).map(|it| it.timestamp);
        pending.leave();
        assert_eq!([0, 1, 4, 5].map(found), [Some(0), None, None, None]);
        assert_eq!((pending.first(), pending.end()), (0, 5), "the first still waits");
        // What came last may be taken back.
        pending.push([record(5, 7, FIRST), record(6, 7, 0), record(7, 7, 0), record(8, 7, LAST)]);
        pending.truncate(5);
        assert_eq!(pending.room(), BODY - record(0, 0, 0).encoded_bytes());
        assert_eq!(drained(&pending).concat(), [(0, LAST)]);
        assert_eq!((pending.first(), pending.bytes(), pending.is_empty()), (5, 0, true));
    }

    #[test]
    fn who_gathers_is_told_by_its_place() {
        let pending = gathered(&[3, 1]);
        settle(&pending);
        gather(&pending, &[2]);
        pending.push([record(3, 0, FIRST | LAST)]);
        let gathers = |number| pending.gathers(location::pending(number));
        assert_eq!([0, 1, 2, 3, 4].map(gathers), [false, false, true, false, false]);
        assert!(!pending.gathers(location::NONE) && !pending.gathers(7));
        settle(&pending);
        assert!(!gathers(2));
    }

    #[test]
    fn links_follow_records_to_their_slots() {
        let placed = Placed { from: vec![location::pending(9), location::pending(4)], base: 40 };
        let at = [9, 4, 5].map(|number| placed.resolve(location::pending(number)));
        assert_eq!(at, [40, 41, location::pending(5)]);
        assert_eq!(placed.resolve(7), 7);
    }
}

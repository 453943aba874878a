//! The write buffer (the paper's packing buffer): records that wait to be programmed.
//!
//! ```text
//!   accumulating 17 18 20 21              in the order of writes
//!                 │ packed: sorted by the time of their next collection
//!                 ▼
//!   packed       │ 14 11 │ 21 17 · 20 │ 18         pages, programmed one by one
//!                    19 ──┘ relocated records, and those of synced batches, are packed at once
//! ```
//!
//! Writes arrive by time and are collected by bucket. In the order of writes, collection would read
//! a page once for each of its records. So several pages of records accumulate and are sorted: the
//! records of a page are then collected at about the same time, and the page is read once. Recovery
//! yields a prefix of the writes, but the sorted order is another one; so the records that were
//! sorted together are one group, which is recovered as a whole or not at all.
//!
//! A record is identified by its number until it is programmed; then links to it become locations
//! on flash. A page gets its number only when it is programmed, so a failed program costs no more
//! than the page.
//!
//! Invariant: links of a pending record point to programmed records, or to pending ones before it
//! in packing order, where accumulating ones are last. Records of one bucket stay in their order,
//! and no record is packed while its bucket has accumulating ones. A record is removed after the
//! mapping knows its location.
//!
//! Source: the packing logic of SkimpyFTL, section 4. Sorting is not in the paper.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::location::{self, Location, Placement};
use crate::record::{FIRST, LAST, Record};

/// Pages of records that accumulate at most; more take memory and save few reads.
const MAX_ACCUMULATED_PAGES: u64 = 16;
/// The accumulated pages are at most this fraction (1/64) of the device.
const DEVICE_PAGES_PER_ACCUMULATED: u64 = 64;

/// Pages of records that accumulate on a device of `pages` pages.
pub(crate) fn accumulated_pages(pages: u64) -> usize {
    (pages / DEVICE_PAGES_PER_ACCUMULATED).clamp(1, MAX_ACCUMULATED_PAGES) as usize
}

/// A page with fewer bytes left is full.
const MIN_ROOM_BYTES: usize = 64;

pub(crate) struct WriteBuffer {
    page: PageCapacity,
    queue: Mutex<Queue>,
}

/// The capacity of an empty page.
#[derive(Clone, Copy)]
struct PageCapacity {
    bytes: usize,
    slots: usize,
}

#[derive(Default)]
struct Queue {
    /// The number of the first of `records`.
    first: u64,
    /// By number; `None`: removed before earlier ones.
    records: VecDeque<Option<Arc<Record>>>,
    /// Numbers of accumulating records, ascending.
    accumulating: Vec<u64>,
    pages: VecDeque<Page>,
    bytes: usize,
}

/// A packed page.
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

/// The content of the next page: its records, their marks, and their pending locations.
#[derive(Default)]
pub(crate) struct PageContent {
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

    /// Adds a record; returns its number.
    fn add(&mut self, record: Arc<Record>) -> u64 {
        self.bytes += record.encoded_bytes();
        self.records.push_back(Some(record));
        self.end() - 1
    }

    /// Packs a record into the last page, or into a new one. Every record fits an empty page.
    fn pack(&mut self, slot: Slot, empty: PageCapacity) {
        let bytes = self.get(slot.number).map_or(0, |record| record.encoded_bytes());
        debug_assert!(bytes <= empty.bytes, "a record is larger than a page");
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
            last.is_full = last.slots.len() == empty.slots || last.left < MIN_ROOM_BYTES;
        }
    }
}

impl WriteBuffer {
    /// A buffer of pages with room for `bytes` bytes and `slots` records each.
    pub(crate) fn new(bytes: usize, slots: usize) -> Self {
        WriteBuffer { page: PageCapacity { bytes, slots }, queue: Mutex::default() }
    }

    /// The pending record at a location, unless it was removed.
    pub(crate) fn get(&self, at: Location) -> Option<Arc<Record>> {
        let queue = self.queue.lock();
        queue.get(location::number(at, queue.first)?).cloned()
    }

    /// The number of the oldest pending record; all records before it are programmed.
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

    /// Bytes of the pending records.
    pub(crate) fn bytes(&self) -> usize {
        self.queue.lock().bytes
    }

    /// Adds records that are packed by [`pack_accumulated`](Self::pack_accumulated).
    pub(crate) fn accumulate(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        let mut queue = self.queue.lock();
        for record in records {
            let number = queue.add(record);
            queue.accumulating.push(number);
        }
    }

    /// Whether the record at this location is accumulating.
    pub(crate) fn is_accumulating(&self, at: Location) -> bool {
        let queue = self.queue.lock();
        let number = location::number(at, queue.first);
        number.is_some_and(|number| queue.accumulating.binary_search(&number).is_ok())
    }

    /// Packs the accumulated records, sorted by a key, as one group that is valid as a whole. Equal
    /// keys keep their order. Returns `false` if there are none.
    pub(crate) fn pack_accumulated<K: Ord>(&self, key: impl Fn(&Record) -> K) -> bool {
        let mut queue = self.queue.lock();
        let mut group = std::mem::take(&mut queue.accumulating);
        group.sort_by_cached_key(|number| queue.get(*number).map(|record| key(record)));
        let last = group.len().saturating_sub(1);
        for (index, number) in group.iter().enumerate() {
            let first = if index == 0 { FIRST } else { 0 };
            let marks = first | if index == last { LAST } else { 0 };
            queue.pack(Slot { number: *number, marks }, self.page);
        }
        !group.is_empty()
    }

    /// Adds records and packs them at once, before the accumulating ones.
    pub(crate) fn push(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        let mut queue = self.queue.lock();
        for record in records {
            let marks = record.marks;
            let number = queue.add(record);
            queue.pack(Slot { number, marks }, self.page);
        }
    }

    /// Removes the records from number `end` on, which were pushed last.
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

    /// Ends the last page, so that it is programmed as it is.
    pub(crate) fn end_page(&self) {
        if let Some(last) = self.queue.lock().pages.back_mut() {
            last.is_full = true;
        }
    }

    /// Bytes left in the page that the next record is packed into.
    pub(crate) fn room(&self) -> usize {
        let queue = self.queue.lock();
        queue.pages.back().filter(|last| !last.is_full).map_or(self.page.bytes, |last| last.left)
    }

    /// The next page to program: a full one, or any if `any`.
    pub(crate) fn next_page(&self, any: bool) -> Option<PageContent> {
        let queue = self.queue.lock();
        let page = queue.pages.front().filter(|page| page.is_full || any)?;
        let mut content = PageContent::default();
        for slot in &page.slots {
            content.records.push(queue.get(slot.number)?.clone());
            content.marks.push(slot.marks);
            content.from.push(location::pending(slot.number));
        }
        Some(content)
    }

    /// Updates the links of pending records to the programmed ones.
    pub(crate) fn resolve_links(&self, placement: &Placement) {
        for record in self.queue.lock().records.iter().flatten() {
            record.resolve(placement);
        }
    }

    /// Removes the next page.
    pub(crate) fn remove_page(&self) {
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
    use crate::record::{Content, RELOCATED};

    /// The capacity of a page: four of these records.
    const BODY: usize = 4000;

    fn record(timestamp: u64, bucket: u64, marks: u8) -> Arc<Record> {
        let value = Content::Value(vec![0; 900]);
        Arc::new(Record { marks, ..Record::new(timestamp, bucket, b"k".to_vec(), value) })
    }

    /// Batches of one record for each bucket, in this order; their timestamps are their numbers.
    fn accumulate(buffer: &WriteBuffer, buckets: &[u64]) {
        for bucket in buckets {
            buffer.accumulate([record(buffer.end(), *bucket, FIRST | LAST)]);
        }
    }

    fn accumulated(buckets: &[u64]) -> WriteBuffer {
        let buffer = WriteBuffer::new(BODY, 256);
        accumulate(&buffer, buckets);
        buffer
    }

    fn pack_all(buffer: &WriteBuffer) -> bool {
        buffer.pack_accumulated(|record| record.hash)
    }

    /// Timestamps in the order of the pages, page by page, each with its marks.
    fn drained(buffer: &WriteBuffer) -> Vec<Vec<(u64, u8)>> {
        let mut pages = Vec::new();
        while let Some(content) = buffer.next_page(true) {
            let marked = content.records.iter().zip(&content.marks);
            pages.push(marked.map(|(record, marks)| (record.timestamp, *marks)).collect());
            buffer.remove_page();
        }
        pages
    }

    #[test]
    fn accumulated_records_are_packed_as_one_group_in_bucket_order() {
        let buffer = accumulated(&[3, 1, 2, 1, 3, 0]);
        assert!(buffer.next_page(true).is_none(), "no page is packed yet");
        assert!(pack_all(&buffer) && !pack_all(&buffer));
        let pages = drained(&buffer);
        assert_eq!(pages.concat(), [(5, FIRST), (1, 0), (3, 0), (2, 0), (0, 0), (4, LAST)]);
        assert_eq!(pages[0].len(), 4);
        assert_eq!((buffer.bytes(), buffer.end(), buffer.first()), (0, 6, 6));
        accumulate(&buffer, &[7]);
        pack_all(&buffer);
        assert_eq!(drained(&buffer).concat(), [(6, FIRST | LAST)], "a single record is a group");
        // Batches of several records become part of the group.
        buffer.accumulate([record(7, 9, FIRST), record(8, 3, LAST)]);
        accumulate(&buffer, &[5]);
        pack_all(&buffer);
        assert_eq!(drained(&buffer).concat(), [(8, FIRST), (9, 0), (7, LAST)]);
    }

    #[test]
    fn pushed_records_are_packed_between_packed_and_accumulating_ones() {
        let buffer = accumulated(&[3, 1]);
        pack_all(&buffer);
        accumulate(&buffer, &[9, 8]);
        buffer.push([record(4, 2, FIRST | RELOCATED), record(5, 0, LAST | RELOCATED)]);
        pack_all(&buffer);
        let (first, last) = (FIRST | RELOCATED, LAST | RELOCATED);
        let order = [(1, FIRST), (0, LAST), (4, first), (5, last), (3, FIRST), (2, LAST)];
        assert_eq!(drained(&buffer).concat(), order);
    }

    #[test]
    fn page_is_next_when_it_is_full_or_ended() {
        let buffer = accumulated(&[]);
        let push = |count: usize| buffer.push((0..count).map(|_| record(0, 0, FIRST | LAST)));
        let bytes = record(0, 0, 0).encoded_bytes();
        push(4);
        assert!(buffer.next_page(false).is_none() && buffer.next_page(true).is_some());
        assert_eq!(buffer.room(), BODY - 4 * bytes);
        push(1);
        assert_eq!(buffer.next_page(false).map(|content| content.records.len()), Some(4));
        assert_eq!(buffer.room(), BODY - bytes);
        buffer.remove_page();
        assert!(buffer.next_page(false).is_none());
        buffer.end_page();
        assert_eq!(buffer.room(), BODY);
        push(1);
        assert_eq!(buffer.next_page(false).map(|content| content.records.len()), Some(1));
        let few = WriteBuffer::new(BODY, 2);
        few.push((0..2).map(|_| record(0, 0, FIRST | LAST)));
        assert!(few.next_page(false).is_some(), "a page with all slots used is full");
    }

    #[test]
    fn record_is_found_by_location_until_it_is_removed() {
        let buffer = accumulated(&[4, 3, 2, 1, 0]);
        pack_all(&buffer);
        let found = |number| buffer.get(location::pending(number)).map(|it| it.timestamp);
        buffer.remove_page();
        assert_eq!([0, 1, 4, 5].map(found), [Some(0), None, None, None]);
        assert_eq!((buffer.first(), buffer.end()), (0, 5), "the first is still pending");
        // The records pushed last can be removed.
        buffer.push([record(5, 7, FIRST), record(6, 7, 0), record(7, 7, 0), record(8, 7, LAST)]);
        buffer.truncate(5);
        assert_eq!(buffer.room(), BODY - record(0, 0, 0).encoded_bytes());
        assert_eq!(drained(&buffer).concat(), [(0, LAST)]);
        assert_eq!((buffer.first(), buffer.bytes(), buffer.is_empty()), (5, 0, true));
    }

    #[test]
    fn accumulating_records_are_recognized_by_location() {
        let buffer = accumulated(&[3, 1]);
        pack_all(&buffer);
        accumulate(&buffer, &[2]);
        buffer.push([record(3, 0, FIRST | LAST)]);
        let is_accumulating = |number| buffer.is_accumulating(location::pending(number));
        assert_eq!([0, 1, 2, 3, 4].map(is_accumulating), [false, false, true, false, false]);
        assert!(!buffer.is_accumulating(location::NONE) && !buffer.is_accumulating(7));
        pack_all(&buffer);
        assert!(!is_accumulating(2));
    }

    #[test]
    fn links_resolve_to_slots_of_programmed_records() {
        let placement =
            Placement { from: vec![location::pending(9), location::pending(4)], base: 40 };
        let at = [9, 4, 5].map(|number| placement.resolve(location::pending(number)));
        assert_eq!(at, [40, 41, location::pending(5)]);
        assert_eq!(placement.resolve(7), 7);
    }
}

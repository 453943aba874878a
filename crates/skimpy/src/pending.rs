//! The packing buffer: records that wait for their page.
//!
//! ```text
//!   number    17   18   19   20        a record is found by its number until it is placed
//!             ├── a page ──┤ …         17..20 are placed: links to them become places on flash
//! ```
//!
//! A page gets its number when it is programmed, not before: so one that fails costs nothing but the page.
//!
//! Invariant: links of a pending record lead to records before it, placed or pending. A record leaves
//! after whoever maps to it was told its place.
//!
//! Source: the packing logic of SkimpyFTL's section 4.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::location::{self, Location, PENDING};
use crate::record::Record;

#[derive(Default)]
pub(crate) struct Pending(Mutex<Queue>);

#[derive(Default)]
struct Queue {
    /// The number of the record in front.
    first: u64,
    records: VecDeque<Arc<Record>>,
    bytes: usize,
}

/// Pending records that became placed: from this number on, so many, at this place and those after it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) first: u64,
    pub(crate) count: usize,
    pub(crate) base: Location,
}

impl Placed {
    /// Where a link leads now.
    pub(crate) fn resolve(&self, at: Location) -> Location {
        if !location::is_pending(at) {
            return at;
        }
        let offset =
            u64::from(at.wrapping_sub(location::pending(0))) + PENDING - self.first % PENDING;
        let offset = offset % PENDING;
        if offset < self.count as u64 { self.base + offset as u32 } else { at }
    }
}

impl Pending {
    /// The pending record at a place, unless it left.
    pub(crate) fn get(&self, at: Location) -> Option<Arc<Record>> {
        let queue = self.0.lock();
        let placed = Placed { first: queue.first, count: queue.records.len(), base: 0 };
        match placed.resolve(at) {
            same if same == at => None,
            index => queue.records.get(index as usize).cloned(),
        }
    }

    /// The number of the next record, and how many wait.
    pub(crate) fn end(&self) -> (u64, usize) {
        let queue = self.0.lock();
        (queue.first + queue.records.len() as u64, queue.records.len())
    }

    /// Bytes that wait.
    pub(crate) fn bytes(&self) -> usize {
        self.0.lock().bytes
    }

    pub(crate) fn push(&self, records: impl IntoIterator<Item = Arc<Record>>) {
        let mut queue = self.0.lock();
        for record in records {
            queue.bytes += record.encoded_bytes();
            queue.records.push_back(record);
        }
    }

    /// Takes back what was pushed behind the record with this number.
    pub(crate) fn truncate(&self, end: u64) {
        let mut queue = self.0.lock();
        while queue.first + queue.records.len() as u64 > end {
            let Some(record) = queue.records.pop_back() else { return };
            queue.bytes -= record.encoded_bytes();
        }
    }

    /// The records in front that fill a page, and whether it is full. Every record fits a page.
    pub(crate) fn front(&self, page_bytes: usize, slots: usize) -> (u64, Vec<Arc<Record>>, bool) {
        /// Less room than this is none.
        const SMALL: usize = 64;
        let queue = self.0.lock();
        let mut left = page_bytes;
        let mut chosen = Vec::new();
        for record in &queue.records {
            let bytes = record.encoded_bytes();
            debug_assert!(bytes <= page_bytes, "a record that fits no page would wait for ever");
            if bytes > left || chosen.len() == slots {
                return (queue.first, chosen, true);
            }
            left -= bytes;
            chosen.push(record.clone());
        }
        let is_full = chosen.len() == slots || left < SMALL;
        (queue.first, chosen, is_full)
    }

    /// Lets the links of pending records follow those that were placed.
    pub(crate) fn follow(&self, placed: &Placed) {
        for record in &self.0.lock().records {
            record.resolve(placed);
        }
    }

    /// Removes records from the front.
    pub(crate) fn leave(&self, count: usize) {
        let mut queue = self.0.lock();
        for _ in 0..count {
            if let Some(record) = queue.records.pop_front() {
                queue.bytes -= record.encoded_bytes();
            }
        }
        queue.first += count as u64;
    }
}

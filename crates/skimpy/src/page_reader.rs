//! Reads of device pages, with a page cache and prefetching. A lookup, a scan and a run of garbage
//! collection each have a reader.
//!
//! ```text
//!   prefetch ─▶ in flight ── used: waits for it ─▶ cached ── the least recently used is evicted
//! ```
//!
//! A link to a record in a cached page costs no read, prefetches keep several channels busy, and
//! collection reads a page once for all buckets that it relocates together. Records needed later go
//! to the [`RecordCache`] when their page is evicted.
//!
//! Invariant: a page that was erased since it was read is not used.

use std::collections::HashSet;
use std::time::Duration;

use siltstone_engine::{Purpose, Result};

use crate::device::Device;
use crate::flash::Completion;
use crate::location::Location;
use crate::page::Page;
use crate::record::Record;
use crate::record_cache::RecordCache;

/// The cache size of a lookup: more pages than a lookup usually reads.
const LOOKUP_CACHE_PAGES: usize = 16;

/// The state that persists between steps of collection.
#[derive(Default)]
pub(crate) struct PageCache {
    /// Pages with the erase counts of their blocks, the most recently used last.
    pages: Vec<(Page, u64)>,
    in_flight: Vec<InFlightRead>,
    pub(crate) records: RecordCache,
}

impl PageCache {
    /// Bytes of memory of the pages and records.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let in_flight = self.in_flight.iter().map(|read| read.bytes.capacity() as u64);
        let pages = self.pages.iter().map(|(page, _)| page.memory_bytes());
        pages.chain(in_flight).chain([self.records.memory_bytes()]).sum()
    }
}

/// A submitted read of a page.
struct InFlightRead {
    number: u32,
    erases: u64,
    bytes: Vec<u8>,
    completion: Completion,
}

/// Reads pages of a device for one purpose.
pub(crate) struct PageReader<'d> {
    device: &'d Device,
    purpose: Purpose,
    /// The maximum number of cached pages.
    capacity: usize,
    pub(crate) cache: PageCache,
    /// The number of pages read.
    pub(crate) pages_read: u64,
    /// Cached pages that were read since the last call of [`take_fresh`](Self::take_fresh).
    fresh: Vec<u32>,
}

impl<'d> PageReader<'d> {
    pub(crate) fn new(device: &'d Device, purpose: Purpose) -> Self {
        Self::with_cache(device, purpose, LOOKUP_CACHE_PAGES, PageCache::default())
    }

    /// Continues with a cache; caches up to `capacity` pages, at least one.
    pub(crate) fn with_cache(
        device: &'d Device,
        purpose: Purpose,
        capacity: usize,
        cache: PageCache,
    ) -> Self {
        PageReader {
            device,
            purpose,
            capacity: capacity.max(1),
            cache,
            pages_read: 0,
            fresh: Vec::new(),
        }
    }

    /// The cache, for a later reader.
    pub(crate) fn into_cache(self) -> PageCache {
        self.cache
    }

    /// Submits reads of the pages of these locations, except of cached ones; returns when all are
    /// complete.
    pub(crate) fn prefetch(&mut self, places: &[Location]) -> Result<Duration> {
        let mut numbers = Vec::with_capacity(places.len());
        for at in places {
            let number = self.device.slots.page(*at);
            if !self.cache.records.contains(*at, self.erases(number)?) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut complete_at = Duration::ZERO;
        for number in numbers {
            let erases = self.erases(number)?;
            if self.cache.pages.iter().any(|(page, then)| page.page == number && *then == erases) {
                continue;
            }
            let is_same = |read: &&InFlightRead| read.number == number && read.erases == erases;
            if let Some(read) = self.cache.in_flight.iter().find(is_same) {
                complete_at = complete_at.max(read.completion.at());
            } else {
                if self.cache.in_flight.len() >= self.capacity {
                    // The oldest one may not be needed any more.
                    self.cache.in_flight.remove(0);
                }
                let (bytes, completion) = self.device.submit_read(number, self.purpose)?;
                complete_at = complete_at.max(completion.at());
                self.pages_read += 1;
                self.cache.in_flight.push(InFlightRead { number, erases, bytes, completion });
            }
        }
        Ok(complete_at)
    }

    /// The record at a location.
    pub(crate) fn record(&mut self, at: Location) -> Result<Record> {
        let number = self.device.slots.page(at);
        let erases = self.erases(number)?;
        if let Some(record) = self.cache.records.get(at, erases) {
            return Ok(record);
        }
        let page = self.page(number, erases)?;
        let record = page.record(self.device.slots.slot(at));
        if self.cache.pages.len() >= self.capacity {
            self.cache.pages.remove(0);
        }
        self.cache.pages.push((page, erases));
        record
    }

    fn page(&mut self, number: u32, erases: u64) -> Result<Page> {
        let cached = self.cache.pages.iter().position(|(page, _)| page.page == number);
        let cached = cached.map(|index| self.cache.pages.remove(index));
        if let Some((page, _)) = cached.filter(|(_, then)| *then == erases) {
            return Ok(page);
        }
        let read = self.cache.in_flight.iter().position(|read| read.number == number);
        let read = read.map(|index| self.cache.in_flight.remove(index));
        let page = match read.filter(|read| read.erases == erases) {
            Some(read) => self.device.finish_read(number, read.bytes, read.completion)?,
            None => {
                self.pages_read += 1;
                self.device.read(number, self.purpose)?
            }
        };
        self.fresh.push(number);
        Ok(page)
    }

    /// The cached pages that were read since the last call, with the erase counts of their blocks.
    pub(crate) fn take_fresh(&mut self) -> Vec<&(Page, u64)> {
        let fresh: HashSet<u32> = std::mem::take(&mut self.fresh).into_iter().collect();
        self.cache.pages.iter().filter(|(page, _)| fresh.contains(&page.page)).collect()
    }

    fn erases(&self, page: u32) -> Result<u64> {
        let device = self.device;
        Ok(device.flash.erases(device.geometry.block_of(page))?)
    }

    /// Loads the key of a record, and with `value` its value.
    pub(crate) fn load(&self, record: &mut Record, value: bool) -> Result<()> {
        self.device.load(record, value, self.purpose)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::flash::{Emulator, Geometry};

    use super::*;
    use crate::device::device_options;
    use crate::location::Placement;
    use crate::page::{self, HEADER_BYTES, Header, Kind};
    use crate::record::Content;

    fn device() -> Device {
        let geometry = Geometry::new(4096, 4, 32).unwrap();
        Device::new(Arc::new(Emulator::in_memory(device_options(geometry, 1))), 1)
    }

    /// Programs a page with one record, which is identified by its timestamp.
    fn program(device: &Device, number: u32, timestamp: u64) {
        let record =
            Record::new(timestamp, crate::keys::hash(b"k"), b"k".to_vec(), Content::Deleted);
        let mut bytes = vec![0; HEADER_BYTES];
        record.encode(record.marks, &Placement::default(), &mut bytes);
        bytes.resize(4096, 0);
        let (kind, count) = (Kind::Records, 1);
        let header = Header { kind, count, number: 1, epoch: 1, durable: 0, floor: 0, sequence: 1 };
        page::seal(&mut bytes, number, &header);
        let programmed = device.flash.submit_program(number, &bytes, Purpose::Flush).unwrap();
        device.flash.wait(programmed).unwrap();
    }

    fn erase(device: &Device, block: u32) {
        let erased = device.flash.submit_erase(block, Purpose::Compaction).unwrap();
        device.flash.wait(erased).unwrap();
    }

    #[test]
    fn page_is_read_once_with_and_without_prefetch() {
        let device = device();
        (0..3).for_each(|number| program(&device, number, u64::from(number) + 10));
        let at = |number: u32| device.slots.at(number, 0);
        let mut pages = PageReader::new(&device, Purpose::Compaction);
        pages.prefetch(&[at(0), at(1), at(0)]).unwrap();
        pages.prefetch(&[at(1)]).unwrap();
        for number in [0, 1, 2, 1, 0, 2] {
            assert_eq!(pages.record(at(number)).unwrap().timestamp, u64::from(number) + 10);
        }
        pages.prefetch(&[at(2)]).unwrap();
        let mut pages = PageReader::with_cache(&device, Purpose::Compaction, 2, pages.into_cache());
        assert_eq!(pages.record(at(2)).unwrap().timestamp, 12);
        assert_eq!(pages.pages_read, 0, "the cache persists");
        // The cache has two of three pages.
        (0..3).for_each(|number| drop(pages.record(at(number)).unwrap()));
        pages.record(at(0)).unwrap();
        assert!(pages.pages_read >= 1);
    }

    #[test]
    fn cached_record_is_neither_prefetched_nor_read() {
        let device = device();
        (0..3).for_each(|number| program(&device, number, u64::from(number) + 10));
        let at = |number: u32| device.slots.at(number, 0);
        let mut pages =
            PageReader::with_cache(&device, Purpose::Compaction, 1, PageCache::default());
        let mut bytes = Vec::new();
        pages.record(at(0)).unwrap().encode(0, &Placement::default(), &mut bytes);
        pages.cache.records.insert(at(0), 0, 7, &bytes);
        pages.record(at(1)).unwrap();
        let read = pages.pages_read;
        pages.prefetch(&[at(0)]).unwrap();
        assert_eq!((pages.record(at(0)).unwrap().timestamp, pages.pages_read), (10, read));
        // It is invalid once its block was erased.
        erase(&device, 0);
        program(&device, 0, 20);
        assert_eq!(pages.record(at(0)).unwrap().timestamp, 20);
        assert_eq!(pages.pages_read, read + 1);
    }

    #[test]
    fn page_is_fresh_once() {
        let device = device();
        (0..3).for_each(|number| program(&device, number, 10));
        let mut pages =
            PageReader::with_cache(&device, Purpose::Compaction, 2, PageCache::default());
        let mut fresh_after = |numbers: &[u32]| {
            numbers.iter().for_each(|number| drop(pages.record(device.slots.at(*number, 0))));
            pages.take_fresh().into_iter().map(|(page, _)| page.page).collect::<Vec<_>>()
        };
        assert_eq!(fresh_after(&[0]), [0]);
        assert_eq!(fresh_after(&[0, 1]), [1]);
        assert_eq!(fresh_after(&[0, 2, 1, 2]), [1, 2], "the first was evicted again");
    }

    #[test]
    fn page_that_was_erased_since_is_read_again() {
        let device = device();
        let (one, other) = (device.slots.at(0, 0), device.slots.at(4, 0));
        program(&device, 0, 10);
        program(&device, 4, 20);
        let mut pages = PageReader::new(&device, Purpose::Compaction);
        assert_eq!(pages.record(one).unwrap().timestamp, 10);
        pages.prefetch(&[other]).unwrap();
        (0..2).for_each(|block| erase(&device, block));
        assert!(pages.record(one).is_err(), "nothing is there");
        program(&device, 0, 11);
        program(&device, 4, 21);
        pages.prefetch(&[one]).unwrap();
        assert_eq!(pages.record(one).unwrap().timestamp, 11);
        assert_eq!(pages.record(other).unwrap().timestamp, 21);
    }
}

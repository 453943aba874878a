//! Pages of the device that are kept for a while, or asked for ahead.
//!
//! ```text
//!   ask ─▶ asked ── used: waited for, if it is not there yet ─▶ kept ── the one not used longest makes room
//! ```
//!
//! So links within a page cost nothing, channels work side by side, and collection reads a page once for all the
//! buckets that it remaps together. Records that others will need are [held](Held) when their page makes room.
//!
//! Invariant: a page that was erased since it was read is not used.
//!
//! Source: ours.

use std::collections::HashSet;
use std::time::Duration;

use siltstone_engine::{Purpose, Result};

use crate::device::Device;
use crate::flash::Completion;
use crate::held::Held;
use crate::location::Location;
use crate::page::Page;
use crate::record::Record;

/// More than a lookup reads, as a rule.
const OF_A_LOOKUP: usize = 16;

/// What outlives a step of collection.
#[derive(Default)]
pub(crate) struct Kept {
    /// With how often its block had been erased; the last one last.
    pages: Vec<(Page, u64)>,
    asked: Vec<Asked>,
    pub(crate) held: Held,
}

impl Kept {
    /// Bytes of memory that it takes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let asked = self.asked.iter().map(|asked| asked.bytes.capacity() as u64);
        let pages = self.pages.iter().map(|(page, _)| page.memory_bytes());
        pages.chain(asked).chain([self.held.memory_bytes()]).sum()
    }
}

/// A page that the device was asked for.
struct Asked {
    number: u32,
    erases: u64,
    bytes: Vec<u8>,
    completion: Completion,
}

pub(crate) struct Pages<'d> {
    device: &'d Device,
    purpose: Purpose,
    /// How many are kept.
    room: usize,
    pub(crate) kept: Kept,
    /// Pages that were read.
    pub(crate) read: u64,
    /// Of those that are kept, which came since they were asked for last.
    fresh: Vec<u32>,
}

impl<'d> Pages<'d> {
    pub(crate) fn new(device: &'d Device, purpose: Purpose) -> Self {
        Self::with(device, purpose, OF_A_LOOKUP, Kept::default())
    }

    /// Goes on with what was kept; keeps so many pages, one at least.
    pub(crate) fn with(device: &'d Device, purpose: Purpose, room: usize, kept: Kept) -> Self {
        Pages { device, purpose, room: room.max(1), kept, read: 0, fresh: Vec::new() }
    }

    /// What is to be gone on with.
    pub(crate) fn into_kept(self) -> Kept {
        self.kept
    }

    /// Asks for the pages of these places, as far as what is there is not kept: when they will be there.
    pub(crate) fn ask(&mut self, places: &[Location]) -> Result<Duration> {
        let mut numbers = Vec::with_capacity(places.len());
        for at in places {
            let number = self.device.slots.page(*at);
            if !self.kept.held.has(*at, self.erases(number)?) {
                numbers.push(number);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut there = Duration::ZERO;
        for number in numbers {
            let erases = self.erases(number)?;
            if self.kept.pages.iter().any(|(page, then)| page.page == number && *then == erases) {
                continue;
            }
            let is_it = |asked: &&Asked| asked.number == number && asked.erases == erases;
            if let Some(asked) = self.kept.asked.iter().find(is_it) {
                there = there.max(asked.completion.at());
            } else {
                if self.kept.asked.len() >= self.room {
                    // Nobody may want it any more.
                    self.kept.asked.remove(0);
                }
                let (bytes, completion) = self.device.submit_read(number, self.purpose)?;
                there = there.max(completion.at());
                self.read += 1;
                self.kept.asked.push(Asked { number, erases, bytes, completion });
            }
        }
        Ok(there)
    }

    /// The record at a place.
    pub(crate) fn record(&mut self, at: Location) -> Result<Record> {
        let number = self.device.slots.page(at);
        let erases = self.erases(number)?;
        if let Some(record) = self.kept.held.get(at, erases) {
            return Ok(record);
        }
        let page = self.page(number, erases)?;
        let record = page.record(self.device.slots.slot(at));
        if self.kept.pages.len() >= self.room {
            self.kept.pages.remove(0);
        }
        self.kept.pages.push((page, erases));
        record
    }

    fn page(&mut self, number: u32, erases: u64) -> Result<Page> {
        let kept = self.kept.pages.iter().position(|(page, _)| page.page == number);
        let kept = kept.map(|index| self.kept.pages.remove(index));
        if let Some((page, _)) = kept.filter(|(_, then)| *then == erases) {
            return Ok(page);
        }
        let asked = self.kept.asked.iter().position(|asked| asked.number == number);
        let asked = asked.map(|index| self.kept.asked.remove(index));
        let page = match asked.filter(|asked| asked.erases == erases) {
            Some(asked) => self.device.finish_read(number, asked.bytes, asked.completion)?,
            None => {
                self.read += 1;
                self.device.read(number, self.purpose)?
            }
        };
        self.fresh.push(number);
        Ok(page)
    }

    /// The pages that came since this was asked last, as far as they are kept, with how often their block had been
    /// erased.
    pub(crate) fn fresh(&mut self) -> Vec<&(Page, u64)> {
        let fresh: HashSet<u32> = std::mem::take(&mut self.fresh).into_iter().collect();
        self.kept.pages.iter().filter(|(page, _)| fresh.contains(&page.page)).collect()
    }

    fn erases(&self, page: u32) -> Result<u64> {
        let device = self.device;
        Ok(device.flash.erases(device.geometry.block_of(page))?)
    }

    /// The key of a record, and its value if that is wanted.
    pub(crate) fn load(&self, record: &mut Record, value: bool) -> Result<()> {
        self.device.load(record, value, self.purpose)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::flash::{Emulator, Geometry};

    use super::*;
    use crate::engine::device_options;
    use crate::page::{self, HEADER_BYTES, Header, Kind};
    use crate::pending::Placed;
    use crate::record::Content;

    fn device() -> Device {
        let geometry = Geometry::new(4096, 4, 32).unwrap();
        Device::new(Arc::new(Emulator::in_memory(device_options(geometry, 1))), 1)
    }

    /// Programs a page with one record, which is told by its timestamp.
    fn program(device: &Device, number: u32, timestamp: u64) {
        let record =
            Record::new(timestamp, crate::keys::hash(b"k"), b"k".to_vec(), Content::Deleted);
        let mut bytes = vec![0; HEADER_BYTES];
        record.encode(record.marks, &Placed::default(), &mut bytes);
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
    fn a_page_is_read_once_whether_asked_for_or_not() {
        let device = device();
        (0..3).for_each(|number| program(&device, number, u64::from(number) + 10));
        let at = |number: u32| device.slots.at(number, 0);
        let mut pages = Pages::new(&device, Purpose::Compaction);
        pages.ask(&[at(0), at(1), at(0)]).unwrap();
        pages.ask(&[at(1)]).unwrap();
        for number in [0, 1, 2, 1, 0, 2] {
            assert_eq!(pages.record(at(number)).unwrap().timestamp, u64::from(number) + 10);
        }
        pages.ask(&[at(2)]).unwrap();
        let mut pages = Pages::with(&device, Purpose::Compaction, 2, pages.into_kept());
        assert_eq!(pages.record(at(2)).unwrap().timestamp, 12);
        assert_eq!(pages.read, 0, "what is kept outlives a step");
        // Of three two are kept.
        (0..3).for_each(|number| drop(pages.record(at(number)).unwrap()));
        pages.record(at(0)).unwrap();
        assert!(pages.read >= 1);
    }

    #[test]
    fn a_record_that_is_held_is_neither_asked_for_nor_read() {
        let device = device();
        (0..3).for_each(|number| program(&device, number, u64::from(number) + 10));
        let at = |number: u32| device.slots.at(number, 0);
        let mut pages = Pages::with(&device, Purpose::Compaction, 1, Kept::default());
        let mut bytes = Vec::new();
        pages.record(at(0)).unwrap().encode(0, &Placed::default(), &mut bytes);
        pages.kept.held.hold(at(0), 0, 7, &bytes);
        pages.record(at(1)).unwrap();
        let read = pages.read;
        pages.ask(&[at(0)]).unwrap();
        assert_eq!((pages.record(at(0)).unwrap().timestamp, pages.read), (10, read));
        // Held from before its block was erased it is of no use.
        erase(&device, 0);
        program(&device, 0, 20);
        assert_eq!(pages.record(at(0)).unwrap().timestamp, 20);
        assert_eq!(pages.read, read + 1);
    }

    #[test]
    fn a_page_is_fresh_once() {
        let device = device();
        (0..3).for_each(|number| program(&device, number, 10));
        let mut pages = Pages::with(&device, Purpose::Compaction, 2, Kept::default());
        let mut fresh_after = |numbers: &[u32]| {
            numbers.iter().for_each(|number| drop(pages.record(device.slots.at(*number, 0))));
            pages.fresh().into_iter().map(|(page, _)| page.page).collect::<Vec<_>>()
        };
        assert_eq!(fresh_after(&[0]), [0]);
        assert_eq!(fresh_after(&[0, 1]), [1]);
        assert_eq!(fresh_after(&[0, 2, 1, 2]), [1, 2], "the first made room again");
    }

    #[test]
    fn a_page_that_was_erased_since_is_read_anew() {
        let device = device();
        let (one, other) = (device.slots.at(0, 0), device.slots.at(4, 0));
        program(&device, 0, 10);
        program(&device, 4, 20);
        let mut pages = Pages::new(&device, Purpose::Compaction);
        assert_eq!(pages.record(one).unwrap().timestamp, 10);
        pages.ask(&[other]).unwrap();
        (0..2).for_each(|block| erase(&device, block));
        assert!(pages.record(one).is_err(), "nothing is there");
        program(&device, 0, 11);
        program(&device, 4, 21);
        pages.ask(&[one]).unwrap();
        assert_eq!(pages.record(one).unwrap().timestamp, 11);
        assert_eq!(pages.record(other).unwrap().timestamp, 21);
    }
}

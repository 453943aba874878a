//! The flash device, as the engine reads it: pages that hold, or an error that names them.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::flash::{Flash, FlashError, Geometry};

use crate::location::{Location, Slots};
use crate::page::{self, Page, Unfit};
use crate::record::{Content, Record};

pub(crate) struct Device {
    pub(crate) flash: Arc<dyn Flash>,
    pub(crate) geometry: Geometry,
    pub(crate) slots: Slots,
    name: Arc<str>,
}

impl Device {
    pub(crate) fn new(flash: Arc<dyn Flash>) -> Self {
        let geometry = flash.geometry();
        let (slots, name) = (Slots::for_pages(geometry.pages()), flash.name().into());
        Device { flash, geometry, slots, name }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A page that must be there.
    ///
    /// # Errors
    /// `Corruption` if it does not hold or was erased.
    pub(crate) fn read(&self, page: u32, purpose: Purpose) -> Result<Page> {
        let mut bytes = vec![0; self.geometry.page_bytes()];
        let read = self.flash.read(page, &mut bytes, purpose);
        read.map_err(|error| self.unread(page, error))?;
        self.parse(page, bytes)
    }

    /// Pages that must be there, asked for at once.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    fn read_all(&self, numbers: &[u32], purpose: Purpose) -> Result<Vec<Page>> {
        let mut submitted = Vec::with_capacity(numbers.len());
        for &number in numbers {
            let mut bytes = vec![0; self.geometry.page_bytes()];
            let read = self.flash.submit_read(number, &mut bytes, purpose);
            submitted.push((number, bytes, read.map_err(|error| self.unread(number, error))?));
        }
        let mut pages = Vec::with_capacity(numbers.len());
        for (number, bytes, completion) in submitted {
            self.flash.wait(completion).map_err(|error| self.unread(number, error))?;
            pages.push(self.parse(number, bytes)?);
        }
        Ok(pages)
    }

    fn unread(&self, page: u32, error: FlashError) -> Error {
        match error {
            FlashError::Erased { .. } | FlashError::NoSuchPage { .. } => {
                self.corrupt(page, "a page that is needed is erased")
            }
            other => other.into(),
        }
    }

    fn parse(&self, page: u32, bytes: Vec<u8>) -> Result<Page> {
        Page::parse(page, bytes, &self.name).map_err(|unfit| self.corrupt(page, unfit.told()))
    }

    /// A page that may be torn or erased: `None` then.
    ///
    /// # Errors
    /// `Refused` if it is of another version of the format.
    pub(crate) fn look(&self, page: u32, purpose: Purpose) -> Result<Option<Page>> {
        let Some(bytes) = self.bytes(page, purpose)? else { return Ok(None) };
        self.held(page, Page::parse(page, bytes, &self.name))
    }

    /// What is torn or damaged is not there; what holds but can't be understood is refused.
    fn held(&self, number: u32, parsed: Result<Page, Unfit>) -> Result<Option<Page>> {
        match parsed {
            Ok(page) => Ok(Some(page)),
            Err(Unfit::Damaged(_)) => Ok(None),
            Err(foreign @ Unfit::Foreign(_)) => {
                let reason = format!("page {number}: {}", foreign.told());
                Err(Error::Refused { path: self.name.to_string(), reason })
            }
        }
    }

    /// The same, whatever number the page says it has.
    pub(crate) fn look_as_any(&self, page: u32, purpose: Purpose) -> Result<Option<Page>> {
        let Some(bytes) = self.bytes(page, purpose)? else { return Ok(None) };
        self.held(page, Page::parse_any(bytes, &self.name))
    }

    fn bytes(&self, page: u32, purpose: Purpose) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; self.geometry.page_bytes()];
        match self.flash.read(page, &mut bytes, purpose) {
            Ok(()) => Ok(Some(bytes)),
            Err(FlashError::Erased { .. } | FlashError::Unreadable { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Gives a record whose payload is in pages its key and, if it is wanted, its value.
    pub(crate) fn load(&self, record: &mut Record, value: bool, purpose: Purpose) -> Result<()> {
        let Some(payload) = &record.payload else { return Ok(()) };
        if !record.key.is_empty() && !value {
            return Ok(());
        }
        let wanted = payload.key_bytes + if value { payload.value_bytes } else { 0 };
        let mut bytes = Vec::with_capacity(wanted);
        for &page in &payload.pages {
            if bytes.len() >= wanted {
                break;
            }
            let page = self.read(page, purpose)?;
            if page.header.kind != page::Kind::Payload || page.owner() != record.hash {
                return Err(page.corrupt("the page is not the payload that it should be"));
            }
            bytes.extend_from_slice(page.part());
        }
        if bytes.len() < wanted {
            return Err(
                self.corrupt(payload.pages.first().copied().unwrap_or(0), "a payload is short")
            );
        }
        bytes.truncate(wanted);
        let rest = bytes.split_off(payload.key_bytes);
        record.key = bytes;
        if value && record.content != Content::Deleted {
            record.content = Content::Value(rest);
        }
        Ok(())
    }

    pub(crate) fn corrupt(&self, page: u32, reason: impl Into<String>) -> Error {
        let offset = u64::from(page) * self.geometry.page_bytes() as u64;
        Error::corruption(&*self.name, offset, reason)
    }

    /// The device has no room.
    pub(crate) fn full(&self, reason: &str) -> Error {
        let source = std::io::Error::new(std::io::ErrorKind::StorageFull, reason);
        Error::io("write", &*self.name, &source)
    }
}

/// The pages that were read last, so that links within a page cost nothing, and collection reads one once
/// for all the buckets of a run.
pub(crate) struct Pages<'d> {
    device: &'d Device,
    purpose: Purpose,
    /// How many are kept.
    room: usize,
    /// The last one last.
    kept: Vec<Page>,
    /// Pages that were read.
    pub(crate) read: u64,
}

impl<'d> Pages<'d> {
    /// Keeps sixteen pages: more than a lookup reads, as a rule.
    pub(crate) fn new(device: &'d Device, purpose: Purpose) -> Self {
        Self::with_room(device, purpose, 16)
    }

    /// Keeps so many pages, one at least.
    pub(crate) fn with_room(device: &'d Device, purpose: Purpose, room: usize) -> Self {
        Pages { device, purpose, room: room.max(1), kept: Vec::new(), read: 0 }
    }

    /// Reads the pages of these places, all at once, as far as they are not kept and there is room.
    pub(crate) fn fetch(&mut self, places: &[Location]) -> Result<()> {
        let mut numbers: Vec<u32> = places.iter().map(|at| self.device.slots.page(*at)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers.retain(|number| self.kept.iter().all(|page| page.page != *number));
        numbers.truncate(self.room);
        let pages = self.device.read_all(&numbers, self.purpose)?;
        self.read += pages.len() as u64;
        pages.into_iter().for_each(|page| self.keep(page));
        Ok(())
    }

    /// The record at a place.
    pub(crate) fn record(&mut self, at: Location) -> Result<Record> {
        let number = self.device.slots.page(at);
        let page = match self.kept.iter().position(|page| page.page == number) {
            Some(index) => self.kept.remove(index),
            None => {
                self.read += 1;
                self.device.read(number, self.purpose)?
            }
        };
        let record = page.record(self.device.slots.slot(at));
        self.keep(page);
        record
    }

    fn keep(&mut self, page: Page) {
        if self.kept.len() == self.room {
            self.kept.remove(0);
        }
        self.kept.push(page);
    }

    /// The key of a record, and its value if that is wanted.
    pub(crate) fn load(&self, record: &mut Record, value: bool) -> Result<()> {
        self.device.load(record, value, self.purpose)
    }
}

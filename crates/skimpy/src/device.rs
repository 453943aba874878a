//! The flash device, as the engine reads it: pages that hold, or an error that names them; and how much each of its
//! lanes has yet to do.
//!
//! Source: ours.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use siltstone_engine::{Error, Purpose, Result};

use crate::flash::{Completion, Flash, FlashError, FlashResult, Geometry};
use crate::location::Slots;
use crate::page::{self, Page, Unfit};
use crate::record::{Content, Record};

pub(crate) struct Device {
    pub(crate) flash: Arc<dyn Flash>,
    pub(crate) geometry: Geometry,
    pub(crate) slots: Slots,
    name: Arc<str>,
    /// By lane: when what was asked of its blocks will be done, in nanoseconds.
    done: Vec<AtomicU64>,
}

impl Device {
    /// A device of so many lanes; of one where a block's number does not tell its lane.
    pub(crate) fn new(flash: Arc<dyn Flash>, lanes: u32) -> Self {
        let geometry = flash.geometry();
        let (slots, name) = (Slots::for_pages(geometry.pages()), flash.name().into());
        let done = (0..lanes.max(1)).map(|_| AtomicU64::new(0)).collect();
        Device { flash, geometry, slots, name, done }
    }

    /// When a lane will have done what it was asked for; not before now.
    pub(crate) fn done(&self, lane: usize) -> Duration {
        let done = self.done[lane % self.done.len()].load(Relaxed);
        Duration::from_nanos(done).max(self.flash.now())
    }

    /// A request to a block was submitted.
    pub(crate) fn submitted(&self, block: u32, completion: Completion) -> Completion {
        let lane = &self.done[block as usize % self.done.len()];
        lane.fetch_max(completion.at().as_nanos() as u64, Relaxed);
        completion
    }

    pub(crate) fn submit_program(
        &self,
        page: u32,
        bytes: &[u8],
        purpose: Purpose,
    ) -> FlashResult<Completion> {
        let completion = self.flash.submit_program(page, bytes, purpose)?;
        Ok(self.submitted(self.geometry.block_of(page), completion))
    }

    pub(crate) fn submit_erase(&self, block: u32, purpose: Purpose) -> FlashResult<Completion> {
        let completion = self.flash.submit_erase(block, purpose)?;
        Ok(self.submitted(block, completion))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// A page that must be there.
    ///
    /// # Errors
    /// `Corruption` if it does not hold or was erased.
    pub(crate) fn read(&self, page: u32, purpose: Purpose) -> Result<Page> {
        let (bytes, completion) = self.submit_read(page, purpose)?;
        self.finish_read(page, bytes, completion)
    }

    /// Asks for such a page. What it has is to be looked at when it is [there](Self::finish_read).
    pub(crate) fn submit_read(&self, page: u32, purpose: Purpose) -> Result<(Vec<u8>, Completion)> {
        let mut bytes = vec![0; self.geometry.page_bytes()];
        let read = self.flash.submit_read(page, &mut bytes, purpose);
        let completion = read.map_err(|error| self.unread(page, error))?;
        Ok((bytes, self.submitted(self.geometry.block_of(page), completion)))
    }

    /// Waits for a page that was asked for.
    pub(crate) fn finish_read(
        &self,
        page: u32,
        bytes: Vec<u8>,
        completion: Completion,
    ) -> Result<Page> {
        self.flash.wait(completion).map_err(|error| self.unread(page, error))?;
        self.parse(page, bytes)
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

#[cfg(test)]
mod tests {
    use crate::flash::{Emulator, FlashOptions, Timing, VirtualTime};

    use super::*;

    #[test]
    fn what_a_lane_was_asked_for_is_what_it_has_to_do() {
        let device = Emulator::in_memory(FlashOptions {
            geometry: Geometry::new(4096, 4, 32).unwrap(),
            timing: Timing { channels: 2, ..Timing::PAPER },
            clock: Arc::new(VirtualTime::start()),
            endurance: u64::MAX,
        });
        let device = Device::new(Arc::new(device), 2);
        let micros = |lane: usize| device.done(lane).as_micros();
        // Block 3 is of the second lane.
        assert!(device.submit_program(12, &[0; 4096], Purpose::Flush).is_ok());
        assert_eq!((micros(0), micros(1)), (0, 100));
        assert!(device.submit_read(12, Purpose::Get).is_ok());
        assert_eq!((micros(0), micros(1)), (0, 150));
        assert!(device.submit_erase(3, Purpose::Compaction).is_ok());
        assert_eq!((micros(0), micros(1)), (0, 1150));
        assert!(device.submit_erase(4, Purpose::Compaction).is_ok());
        assert_eq!((micros(0), micros(1)), (1000, 1150));
    }
}

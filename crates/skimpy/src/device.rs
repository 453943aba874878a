//! Access to the flash device: validated pages, and the load of its channels.
//!
//! Block b is on channel b mod c. A request completes some time after it was submitted; the device
//! keeps the last such time of each channel, so that writes can go to the channel that is free
//! first.
//!
//! Invariant: a page is used only after its checksum, kind and number were checked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::flash::{
    Completion, Flash, FlashError, FlashOptions, FlashResult, Geometry, RealTime, Timing,
};
use siltstone_engine::{Error, Purpose, Result};

use crate::location::Slots;
use crate::page::{self, Page, PageError};
use crate::record::{Content, Record};

/// The name of the device's file.
pub(crate) const DEVICE: &str = "flash";

/// The flash device of a table.
pub(crate) struct Device {
    pub(crate) flash: Arc<dyn Flash>,
    pub(crate) geometry: Geometry,
    pub(crate) slots: Slots,
    name: Arc<str>,
    /// By channel: when its submitted requests will be complete, in nanoseconds.
    busy_until: Vec<AtomicU64>,
}

impl Device {
    /// A device with this many channels; 1 if the block's number does not determine the channel.
    pub(crate) fn new(flash: Arc<dyn Flash>, channels: u32) -> Self {
        let geometry = flash.geometry();
        let (slots, name) = (Slots::for_pages(geometry.pages()), flash.name().into());
        let busy_until = (0..channels.max(1)).map(|_| AtomicU64::new(0)).collect();
        Device { flash, geometry, slots, name, busy_until }
    }

    /// When the submitted requests of a channel will be complete; not before now.
    pub(crate) fn busy_until(&self, channel: usize) -> Duration {
        let busy_until = self.busy_until[channel % self.busy_until.len()].load(Relaxed);
        Duration::from_nanos(busy_until).max(self.flash.now())
    }

    /// Records a request that was submitted to a block.
    pub(crate) fn record_submission(&self, block: u32, completion: Completion) -> Completion {
        let channel = &self.busy_until[block as usize % self.busy_until.len()];
        channel.fetch_max(completion.at().as_nanos() as u64, Relaxed);
        completion
    }

    pub(crate) fn submit_program(
        &self,
        page: u32,
        bytes: &[u8],
        purpose: Purpose,
    ) -> FlashResult<Completion> {
        let completion = self.flash.submit_program(page, bytes, purpose)?;
        Ok(self.record_submission(self.geometry.block_of(page), completion))
    }

    pub(crate) fn submit_erase(&self, block: u32, purpose: Purpose) -> FlashResult<Completion> {
        let completion = self.flash.submit_erase(block, purpose)?;
        Ok(self.record_submission(block, completion))
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Reads a page that must exist.
    ///
    /// # Errors
    /// `Corruption` if it is damaged or was erased.
    pub(crate) fn read(&self, page: u32, purpose: Purpose) -> Result<Page> {
        let (bytes, completion) = self.submit_read(page, purpose)?;
        self.finish_read(page, bytes, completion)
    }

    /// Submits such a read; its bytes are valid after [`finish_read`](Self::finish_read).
    pub(crate) fn submit_read(&self, page: u32, purpose: Purpose) -> Result<(Vec<u8>, Completion)> {
        let mut bytes = vec![0; self.geometry.page_bytes()];
        let read = self.flash.submit_read(page, &mut bytes, purpose);
        let completion = read.map_err(|error| self.read_error(page, error))?;
        Ok((bytes, self.record_submission(self.geometry.block_of(page), completion)))
    }

    /// Waits for a submitted read.
    pub(crate) fn finish_read(
        &self,
        page: u32,
        bytes: Vec<u8>,
        completion: Completion,
    ) -> Result<Page> {
        self.flash.wait(completion).map_err(|error| self.read_error(page, error))?;
        self.parse(page, bytes)
    }

    /// The error of a read of a page that must exist.
    fn read_error(&self, page: u32, error: FlashError) -> Error {
        match error {
            FlashError::Erased { .. } | FlashError::NoSuchPage { .. } => {
                self.corrupt(page, "a page that is needed is erased")
            }
            other => other.into(),
        }
    }

    fn parse(&self, page: u32, bytes: Vec<u8>) -> Result<Page> {
        Page::parse(page, bytes, &self.name).map_err(|unfit| self.corrupt(page, unfit.message()))
    }

    /// Reads a page that may be torn or erased: `None` then.
    ///
    /// # Errors
    /// `Refused` if it is of another version of the format.
    pub(crate) fn try_read(&self, page: u32, purpose: Purpose) -> Result<Option<Page>> {
        let Some(bytes) = self.bytes(page, purpose)? else { return Ok(None) };
        self.accept(page, Page::parse(page, bytes, &self.name))
    }

    /// Maps damage to `None`, and another version to an error.
    fn accept(&self, number: u32, parsed: Result<Page, PageError>) -> Result<Option<Page>> {
        match parsed {
            Ok(page) => Ok(Some(page)),
            Err(PageError::Damaged(_)) => Ok(None),
            Err(foreign @ PageError::OtherVersion(_)) => {
                let reason = format!("page {number}: {}", foreign.message());
                Err(Error::Refused { path: self.name.to_string(), reason })
            }
        }
    }

    /// As [`try_read`](Self::try_read), with the page number that the page itself states.
    pub(crate) fn try_read_any(&self, page: u32, purpose: Purpose) -> Result<Option<Page>> {
        let Some(bytes) = self.bytes(page, purpose)? else { return Ok(None) };
        self.accept(page, Page::parse_any(bytes, &self.name))
    }

    fn bytes(&self, page: u32, purpose: Purpose) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; self.geometry.page_bytes()];
        match self.flash.read(page, &mut bytes, purpose) {
            Ok(()) => Ok(Some(bytes)),
            Err(FlashError::Erased { .. } | FlashError::Unreadable { .. }) => Ok(None),
            Err(other) => Err(other.into()),
        }
    }

    /// Loads the key of a record whose payload is in pages, and with `value` its value.
    pub(crate) fn load(&self, record: &mut Record, value: bool, purpose: Purpose) -> Result<()> {
        let Some(payload) = &record.payload else { return Ok(()) };
        if record.has_key() && !value {
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

    /// The error for a full device.
    pub(crate) fn full(&self, reason: &str) -> Error {
        let source = std::io::Error::new(std::io::ErrorKind::StorageFull, reason);
        Error::io("write", &*self.name, &source)
    }
}

/// A device without latencies and wear.
pub(crate) fn device_options(geometry: Geometry, channels: u32) -> FlashOptions {
    FlashOptions {
        geometry,
        timing: Timing { channels, ..Timing::INSTANT },
        clock: Arc::new(RealTime::start()),
        endurance: u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use crate::flash::{Emulator, VirtualTime};

    use super::*;

    #[test]
    fn submitted_requests_add_to_the_load_of_their_channel() {
        let device = Emulator::in_memory(FlashOptions {
            geometry: Geometry::new(4096, 4, 32).unwrap(),
            timing: Timing { channels: 2, ..Timing::PAPER },
            clock: Arc::new(VirtualTime::start()),
            endurance: u64::MAX,
        });
        let device = Device::new(Arc::new(device), 2);
        let micros = |channel: usize| device.busy_until(channel).as_micros();
        // Block 3 is on the second channel.
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

//! State that lookups, cursors, the writer and the mapping share.
//!
//! Locks, in the order in which they are taken: the writer lock (one batch, or the collection of
//! one bucket, at a time), then those of the history, the mapping and the write buffer, which are
//! held for a few instructions. Readers hold no lock over I/O: a pin keeps blocks from being
//! erased.

use std::sync::atomic::Ordering::Acquire;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{Error, EventKind, Result, Timestamp};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::clears::Clears;
use crate::device::Device;
use crate::history::{History, SnapshotPin};
use crate::options::Options;
use crate::pins::Pins;
use crate::record::Record;
use crate::timestamp;
use crate::write_buffer::WriteBuffer;

/// The engine's name.
pub(crate) const ENGINE: &str = "skimpy";

/// The shared state, without the mapping and the state of the writer.
pub(crate) struct Shared {
    pub(crate) device: Device,
    /// The directory of the device's file and of the journal, if they are in files.
    pub(crate) vfs: Option<Arc<dyn Vfs>>,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) buffer: WriteBuffer,
    pub(crate) history: History,
    pub(crate) clears: Clears,
    pub(crate) pins: Pins,
    /// The highest timestamp that is visible to readers.
    pub(crate) visible: AtomicU64,
    pub(crate) closed: AtomicBool,
    pub(crate) poisoned: OnceLock<String>,
    pub(crate) counters: Counters,
}

/// The moments that decide which versions are still needed.
#[derive(Clone, Copy)]
pub(crate) struct Horizon {
    /// Versions above it are needed, and of each key the youngest one not above it.
    pub(crate) watermark: u64,
    /// The newest clear not above the watermark: versions up to it are not needed.
    pub(crate) cleared: u64,
    pub(crate) now: Timestamp,
}

impl Horizon {
    /// Whether the version is not needed although no younger one hides it.
    pub(crate) fn is_past(&self, record: &Record) -> bool {
        record.timestamp <= self.watermark
            && (record.is_gone(self.now) || record.timestamp <= self.cleared)
    }
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) user_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) gets_found: AtomicU64,
    pub(crate) seeks: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    /// Expired versions that collection dropped.
    pub(crate) expired: AtomicU64,
}

impl Shared {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_not_poisoned()
    }

    /// Refuses writes after a fault.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Makes the table read-only after a failure that leaves the state of the device unknown.
    pub(crate) fn poison(&self, doing: &str, error: Error) -> Error {
        let cause = if let Error::ReadOnly { cause } = &error { cause } else { &error.to_string() };
        let cause = format!("cannot {doing}: {cause}");
        if self.poisoned.set(cause.clone()).is_ok() {
            self.env.events.emit(|| EventKind::ReadOnly { cause });
        }
        error
    }

    /// Poisons the table unless the error is transient, e.g. a full device.
    pub(crate) fn poison_unless_transient(&self, doing: &str, error: Error) -> Error {
        if error.is_transient() { error } else { self.poison(doing, error) }
    }

    /// The lowest timestamp that can still be read; older versions may be discarded.
    pub(crate) fn watermark(&self) -> u64 {
        let retention = self.options.retention.as_millis() as u64;
        let now = self.env.clock.now();
        self.history.advance(|| {
            let visible = self.visible.load(Acquire);
            match retention {
                0 => visible,
                millis => visible.min(timestamp::first_of(now.saturating_sub(millis))),
            }
        })
    }

    /// The horizon now, below which collection may discard versions.
    pub(crate) fn horizon(&self) -> Horizon {
        let watermark = self.watermark();
        let cleared = self.clears.seen_at(watermark);
        Horizon { watermark, cleared, now: self.env.clock.earliest() }
    }

    /// Pins the timestamp that `at` returns; nothing is discarded in between.
    pub(crate) fn pin_at(&self, at: impl FnOnce() -> u64) -> Result<SnapshotPin> {
        self.check_open()?;
        self.history
            .pin(at)
            .map_err(|floor| Error::BelowWatermark { watermark: timestamp::millis(floor) })
    }

    pub(crate) fn pin_now(&self) -> Result<SnapshotPin> {
        self.pin_at(|| self.visible.load(Acquire))
    }

    pub(crate) fn pages_per_block(&self) -> u64 {
        u64::from(self.device.geometry.pages_per_block())
    }
}

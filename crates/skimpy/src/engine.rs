//! Public API and shared state.
//!
//! Locks, in the order in which they are taken: the writer lock (one batch, or the collection of
//! one bucket, at a time), then those of the history, the mapping and the write buffer, which are
//! held for a few instructions. Readers hold no lock over I/O: a pin keeps blocks from being
//! erased.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use siltstone_engine::{
    Capabilities, CheckpointSink, Cursor, Durability, Engine, Entry, Error, Forward, Purpose,
    ReadPoint, Result, Stats, Timestamp, VerifyReport, WriteBatch, entry,
};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::cursor::SkimpyCursor;
use crate::device::Device;
use crate::flash::{Emulator, Flash, FlashOptions, Geometry, RealTime, Timing};
use crate::history::{History, SnapshotPin};
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::options::Options;
use crate::pins::Pins;
use crate::timestamp;
use crate::write_buffer::WriteBuffer;

/// The name of the device's file.
pub(crate) const DEVICE: &str = "flash";
/// The engine's name.
pub(crate) const ENGINE: &str = "skimpy";

/// An open table of the engine.
pub struct Skimpy {
    pub(crate) inner: Arc<Inner>,
}

/// The state that all threads share.
pub(crate) struct Inner {
    pub(crate) device: Device,
    /// The directory of the device's file and of the journal, if they are in files.
    pub(crate) vfs: Option<Arc<dyn Vfs>>,
    pub(crate) env: Env,
    pub(crate) options: Options,
    pub(crate) mapping: Box<dyn Mapping>,
    pub(crate) buffer: WriteBuffer,
    pub(crate) history: History,
    pub(crate) pins: Pins,
    /// The highest timestamp that is visible to readers.
    pub(crate) visible: AtomicU64,
    /// `None` once the table is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
    pub(crate) closed: AtomicBool,
    pub(crate) poisoned: OnceLock<String>,
    pub(crate) counters: Counters,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) user_bytes: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(crate) gets: AtomicU64,
    pub(crate) gets_found: AtomicU64,
    pub(crate) seeks: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
}

impl Skimpy {
    /// Opens the table in `vfs`, or creates it if there is none: a flash device in the file
    /// `flash`, without simulated latencies. The caller ensures that it is not open elsewhere.
    ///
    /// # Errors
    /// `Refused` for a device of another geometry or mapping, or with missing files; corruption;
    /// I/O errors. Nothing is changed then.
    pub fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Self> {
        let is_complete = crate::recover::is_complete(&*vfs)?;
        let flash_options = device_options(options.geometry()?, options.channels);
        let open = || Emulator::in_file(&*vfs, DEVICE, flash_options.clone());
        let mut device = open()?;
        // Recreate a device whose creation was interrupted: its name may not be durable, and after
        // a failed directory sync another one does not repair it.
        if !is_complete && crate::recover::is_blank(&device)? {
            drop(device);
            vfs.remove(DEVICE)?;
            device = open()?;
        }
        let inner = crate::recover::open(Arc::new(device), Some(vfs), env, options)?;
        Ok(Skimpy { inner })
    }

    /// Opens the table on a device, or creates it on an erased device. Buffered writes are in
    /// memory until enough have accumulated, or a write finds them older than `buffer_delay`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn over(flash: Arc<dyn Flash>, env: Env, options: Options) -> Result<Self> {
        Ok(Skimpy { inner: crate::recover::open(flash, None, env, options)? })
    }

    /// The device.
    pub fn device(&self) -> &Arc<dyn Flash> {
        &self.inner.device.flash
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

impl Inner {
    pub(crate) fn check_open(&self) -> Result<()> {
        if self.closed.load(Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_open()?;
        self.check_not_poisoned()
    }

    /// Refuses writes after a fault.
    fn check_not_poisoned(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(cause) => Err(Error::ReadOnly { cause: cause.clone() }),
            None => Ok(()),
        }
    }

    /// Makes the table read-only after a failure that leaves the state of the device unknown.
    pub(crate) fn poison(&self, doing: &str, error: Error) -> Error {
        let cause = if let Error::ReadOnly { cause } = &error { cause } else { &error.to_string() };
        let _ = self.poisoned.set(format!("cannot {doing}: {cause}"));
        error
    }

    /// Poisons the table unless the error is transient, e.g. a full device.
    pub(crate) fn poison_unless_transient(&self, doing: &str, error: Error) -> Error {
        if error.is_transient() { error } else { self.poison(doing, error) }
    }

    /// Runs `act` with the writer's state, under its lock.
    pub(crate) fn with_writer<T>(&self, act: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let mut guard = self.writer.lock();
        self.check_writable()?;
        act(guard.as_mut().ok_or(Error::Closed)?)
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

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.check_open()?;
        entry::check_key(key)?;
        self.counters.gets.fetch_add(1, Relaxed);
        loop {
            let at = self.visible.load(Acquire);
            let (found, saw_younger) = self.mapping.find(self, key, at, Purpose::Get)?;
            // A version that became visible meanwhile may have caused this one to be discarded.
            if found.is_none() && saw_younger && self.visible.load(Acquire) > at {
                continue;
            }
            let entry = found.and_then(|record| record.into_entry(self.env.clock.now()));
            self.counters.gets_found.fetch_add(u64::from(entry.is_some()), Relaxed);
            if self.mapping.needs_read_compaction() {
                self.read_compaction();
            }
            return Ok(entry);
        }
    }

    /// Runs the pending read compaction, unless a writer holds the lock. An error is left to the
    /// next write.
    fn read_compaction(&self) {
        let Some(mut guard) = self.writer.try_lock() else { return };
        let Some(writer) = guard.as_mut() else { return };
        let has_room = writer.space.free_blocks() > self.min_free_blocks(writer);
        if self.check_writable().is_ok() && has_room {
            let _ = self.mapping.read_compaction(self, writer);
        }
    }

    fn get_at(&self, key: &[u8], point: &ReadPoint) -> Result<Option<Entry>> {
        self.check_open()?;
        entry::check_key(key)?;
        let pin = self.own_pin(point)?;
        self.counters.gets.fetch_add(1, Relaxed);
        let (found, _) = self.mapping.find(self, key, pin.at(), Purpose::Get)?;
        if self.mapping.needs_read_compaction() {
            self.read_compaction();
        }
        let entry = found.and_then(|record| record.into_entry(self.env.clock.now()));
        self.counters.gets_found.fetch_add(u64::from(entry.is_some()), Relaxed);
        Ok(entry)
    }

    fn own_pin<'p>(&self, point: &'p ReadPoint) -> Result<&'p SnapshotPin> {
        let pin = point.hold().downcast_ref::<SnapshotPin>().filter(|pin| self.history.owns(pin));
        pin.ok_or_else(|| Error::Invalid("the snapshot is of another table or opening".into()))
    }

    fn point(pin: SnapshotPin) -> ReadPoint {
        ReadPoint::new(pin.at(), Arc::new(pin))
    }

    fn at(&self, millis: Timestamp) -> Result<ReadPoint> {
        let at = timestamp::last_of(millis);
        let now = self.env.clock.now();
        // Later writes must get later timestamps than the read point.
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or(Error::Closed)?;
        if millis > now.max(timestamp::millis(writer.used)) {
            let reason = format!(
                "time {millis} is in the future: it is {now} now, in milliseconds since 1970"
            );
            return Err(Error::Invalid(reason));
        }
        let pin = self.pin_at(|| at)?;
        writer.used = writer.used.max(at);
        self.visible.fetch_max(at, AcqRel);
        Ok(Self::point(pin))
    }

    fn close(&self) -> Result<()> {
        if self.closed.swap(true, AcqRel) {
            return Ok(());
        }
        let mut guard = self.writer.lock();
        let Some(mut writer) = guard.take() else { return Ok(()) };
        // After a fault the state of the log is unknown; the next open recovers it.
        self.check_not_poisoned()?;
        let closed = self.checkpoint(&mut writer);
        closed.inspect_err(|error| drop(self.poison("close", error.clone())))
    }
}

impl Engine for Skimpy {
    fn name(&self) -> &'static str {
        ENGINE
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            ordered: false,
            durable: true,
            versioned: true,
            incremental_gc: true,
            max_value_bytes: self.inner.options.max_value_bytes(),
        }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.inner.get(key)
    }

    fn get_at(&self, key: &[u8], at: &ReadPoint) -> Result<Option<Entry>> {
        self.inner.get_at(key, at)
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.inner.write(batch, durability)
    }

    fn sync(&self) -> Result<()> {
        self.inner.with_writer(|writer| writer.force(&self.inner))
    }

    fn iter(&self) -> Result<Box<dyn Cursor>> {
        self.inner.counters.seeks.fetch_add(1, Relaxed);
        Ok(Box::new(Forward::new(SkimpyCursor::new(&self.inner)?)))
    }

    fn snapshot(&self) -> Result<ReadPoint> {
        Ok(Inner::point(self.inner.pin_now()?))
    }

    fn at(&self, time: Timestamp) -> Result<ReadPoint> {
        self.inner.at(time)
    }

    fn flush(&self) -> Result<()> {
        self.inner.with_writer(|writer| writer.force(&self.inner))
    }

    fn maintain(&self) -> Result<()> {
        self.inner.with_writer(|writer| self.inner.collect_all(writer))
    }

    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()> {
        self.inner.copy_to(sink)
    }

    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.inner.verify(progress)
    }

    fn stats(&self) -> Stats {
        self.inner.stats()
    }

    fn trouble(&self) -> Option<String> {
        let cause = self.inner.poisoned.get()?;
        Some(format!("it is read-only since an earlier fault ({cause})"))
    }

    fn warnings(&self) -> Vec<String> {
        let checked = self.inner.device.flash.check_end();
        checked.err().map(|error| Error::from(error).to_string()).into_iter().collect()
    }

    fn close(&self) -> Result<()> {
        self.inner.close()
    }
}

//! An open table: the shared state, the mapping, and the writer.

use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use parking_lot::Mutex;
use siltstone_engine::{
    Durability, Entry, Error, Purpose, ReadPoint, Result, Timestamp, WriteBatch, entry,
};

use crate::checkpoint;
use crate::history::SnapshotPin;
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::shared::Shared;
use crate::{tail, timestamp, write};

pub(crate) struct Table {
    pub(crate) shared: Shared,
    pub(crate) mapping: Box<dyn Mapping>,
    /// `None` once the table is closed.
    pub(crate) writer: Mutex<Option<Writer>>,
}

impl Table {
    /// Runs `act` with the writer's state, under its lock.
    pub(crate) fn with_writer<T>(&self, act: impl FnOnce(&mut Writer) -> Result<T>) -> Result<T> {
        let mut guard = self.writer.lock();
        self.shared.check_writable()?;
        act(guard.as_mut().ok_or(Error::Closed)?)
    }

    pub(crate) fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.shared.check_writable()?;
        write::check(&self.shared, batch)?;
        self.with_writer(|writer| {
            write::write(&self.shared, &*self.mapping, writer, batch, durability)
        })?;
        self.shared.counters.writes.fetch_add(batch.len() as u64, Relaxed);
        self.shared.counters.user_bytes.fetch_add(batch.user_bytes(), Relaxed);
        Ok(())
    }

    pub(crate) fn sync(&self) -> Result<()> {
        self.with_writer(|writer| writer.force(&self.shared, &*self.mapping))
    }

    /// Removes every key at one timestamp, durably.
    ///
    /// # Errors
    /// `StorageFull` and other transient errors: nothing has changed. After any other error the
    /// next open decides.
    pub(crate) fn clear(&self) -> Result<()> {
        let (shared, mapping) = (&self.shared, &*self.mapping);
        self.with_writer(|writer| {
            if writer.last <= shared.clears.newest() {
                return Ok(());
            }
            let clear = timestamp::after(writer.used, shared.env.clock.now());
            let before = shared.clears.add(clear, shared.watermark());
            writer.used = clear;
            checkpoint::write_in_new_epoch(shared, mapping, writer)
                .inspect_err(|_| shared.clears.set(before))?;
            shared.visible.fetch_max(clear, AcqRel);
            // The clear is durable. The second checkpoint is a copy against damage: after a
            // transient error a later one serves, and after any other the table is read-only.
            let _ = checkpoint::write(shared, mapping, writer);
            Ok(())
        })
    }

    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        let shared = &self.shared;
        shared.check_open()?;
        entry::check_key(key)?;
        shared.counters.gets.fetch_add(1, Relaxed);
        loop {
            let at = shared.visible.load(Acquire);
            let (found, saw_younger) = self.mapping.find(shared, key, at, Purpose::Get)?;
            // A version that became visible meanwhile may have caused this one to be discarded.
            if found.is_none() && saw_younger && shared.visible.load(Acquire) > at {
                continue;
            }
            let entry = found.and_then(|record| record.into_entry(shared.env.clock.now()));
            shared.counters.gets_found.fetch_add(u64::from(entry.is_some()), Relaxed);
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
        let min_free = tail::min_free_blocks(&self.shared, &*self.mapping, writer);
        let has_room = writer.space.free_blocks() > min_free;
        if self.shared.check_writable().is_ok() && has_room {
            let _ = self.mapping.read_compaction(&self.shared, writer);
        }
    }

    pub(crate) fn get_at(&self, key: &[u8], point: &ReadPoint) -> Result<Option<Entry>> {
        let shared = &self.shared;
        shared.check_open()?;
        entry::check_key(key)?;
        let pin = self.own_pin(point)?;
        shared.counters.gets.fetch_add(1, Relaxed);
        let (found, _) = self.mapping.find(shared, key, pin.at(), Purpose::Get)?;
        if self.mapping.needs_read_compaction() {
            self.read_compaction();
        }
        let entry = found.and_then(|record| record.into_entry(shared.env.clock.now()));
        shared.counters.gets_found.fetch_add(u64::from(entry.is_some()), Relaxed);
        Ok(entry)
    }

    fn own_pin<'p>(&self, point: &'p ReadPoint) -> Result<&'p SnapshotPin> {
        let pin = point.guard().downcast_ref::<SnapshotPin>();
        let pin = pin.filter(|pin| self.shared.history.owns(pin));
        pin.ok_or_else(|| Error::Invalid("the snapshot is of another table or opening".into()))
    }

    pub(crate) fn snapshot(&self) -> Result<ReadPoint> {
        Ok(point(self.shared.pin_now()?))
    }

    /// The read point at a time, in milliseconds since 1970.
    pub(crate) fn at(&self, millis: Timestamp) -> Result<ReadPoint> {
        let at = timestamp::last_of(millis);
        let now = self.shared.env.clock.now();
        // Later writes must get later timestamps than the read point.
        let mut guard = self.writer.lock();
        let writer = guard.as_mut().ok_or(Error::Closed)?;
        if millis > now.max(timestamp::millis(writer.used)) {
            let reason = format!(
                "time {millis} is in the future: it is {now} now, in milliseconds since 1970"
            );
            return Err(Error::Invalid(reason));
        }
        let pin = self.shared.pin_at(|| at)?;
        writer.used = writer.used.max(at);
        self.shared.visible.fetch_max(at, AcqRel);
        Ok(point(pin))
    }

    pub(crate) fn close(&self) -> Result<()> {
        if self.shared.closed.swap(true, AcqRel) {
            return Ok(());
        }
        let mut guard = self.writer.lock();
        let Some(mut writer) = guard.take() else { return Ok(()) };
        // After a fault the state of the log is unknown; the next open recovers it.
        self.shared.check_not_poisoned()?;
        let closed = checkpoint::write(&self.shared, &*self.mapping, &mut writer);
        closed.inspect_err(|error| drop(self.shared.poison("close", error.clone())))
    }
}

fn point(pin: SnapshotPin) -> ReadPoint {
    ReadPoint::new(pin.at(), Arc::new(pin))
}

//! A full memtable becomes a row of level 0.
//!
//! Oldest first, one at a time: rows must enter level 0 in the order of their writes. The manifest
//! edit that adds the row also moves the first log that is needed; only then is the old log removed.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use siltstone_engine::{Error, Priority, Purpose, Result};
use siltstone_table::{FileNumber, Kind, TableWriter, VersionedEntry};

use crate::compact::BackgroundJob;
use crate::engine::Inner;
use crate::memtable::Memtable;
use crate::retain::Retain;
use crate::version::{Edit, FileEntry};

impl Inner {
    /// Queues a flush if one is due and none is queued.
    pub(crate) fn schedule_flush(&self) {
        let mut state = self.state.lock();
        if state.flushing == 0 || state.is_flush_queued || self.stopping.load(Acquire) {
            return;
        }
        state.is_flush_queued = true;
        drop(state);
        let weak = self.me.clone();
        self.env.scheduler.spawn(Priority::Flush, move || {
            let Some(inner) = weak.upgrade() else { return };
            let Some(job) = BackgroundJob::begin(&inner, |state| state.is_flush_queued = false)
            else {
                return;
            };
            let result = inner.flush_oldest();
            job.end(result);
            inner.schedule_flush();
            inner.schedule_compaction();
        });
    }

    fn flush_oldest(&self) -> Result<()> {
        let view = self.view.load_full();
        let Some(memtable) = view.flushing.first() else { return Ok(()) };
        let next = view.flushing.get(1).unwrap_or(&view.active);
        let added = self.write_row(memtable)?;
        let edit = Edit {
            first_log: Some(next.first_log),
            added: added.into_iter().collect(),
            ..Edit::default()
        };
        self.install(edit, |view| {
            view.flushing.remove(0);
        })?;
        self.counters.flushes.fetch_add(1, Relaxed);
        self.remove_logs_before(next.first_log);
        Ok(())
    }

    /// Writes the versions of a memtable that anyone can see to a table; `None` if there are none.
    pub(crate) fn write_row(&self, memtable: &Memtable) -> Result<Option<FileEntry>> {
        let began = Instant::now();
        let number = FileNumber(self.versions.new_number());
        let mut retain = Retain::new(self.snapshots.boundaries(&self.visible));
        let mut table = self.table_writer(number, Purpose::Flush)?;
        let mut saved = 0;
        let mut cursor = memtable.list().cursor();
        cursor.seek_to_first();
        while cursor.valid() {
            if self.stopping.load(Relaxed) {
                table.abandon();
                return Err(Error::Closed);
            }
            let mut next = cursor.newest();
            while let Some(version) = next {
                match retain.keep(cursor.key(), version.sequence) {
                    None => saved += 1,
                    Some(_) => table.add(&VersionedEntry {
                        key: cursor.key(),
                        sequence: version.sequence,
                        kind: Kind::from_u8(version.kind).unwrap_or(Kind::Delete),
                        expires_at: version.expires_at,
                        value: version.value,
                    })?,
                }
                next = version.older();
            }
            cursor.next();
        }
        self.counters.flush_entries_saved.fetch_add(saved, Relaxed);
        let meta = table.finish()?;
        self.media.sync_dir(Purpose::Flush)?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(meta.map(|meta| FileEntry::of(&meta, 0)))
    }

    /// A writer of the table `number` that keeps to the rate limit.
    pub(crate) fn table_writer(&self, number: FileNumber, purpose: Purpose) -> Result<TableWriter> {
        TableWriter::create(self.media.as_ref(), number, self.options.table_options(), purpose)
    }

    /// Removes the logs whose writes are all in tables.
    fn remove_logs_before(&self, first_log: u64) {
        let mut state = self.state.lock();
        let (gone, kept) = state.logs.iter().partition(|&&number| number < first_log);
        state.logs = kept;
        drop(state);
        let gone: Vec<u64> = gone;
        for number in gone {
            // A log that stays behind is removed by the next open.
            let _ = self.media.remove(&FileNumber(number).log_name());
        }
    }
}

//! A full memtable becomes a row of level 0.
//!
//! Oldest first, one at a time: rows must enter level 0 in the order of their writes. The manifest
//! edit that adds the row also moves the first log that is needed; only then is the old log removed.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use siltstone_engine::{Error, Priority, Purpose, Result};
use siltstone_table::{FileKind, FileNumber, TableMeta, TableWriter};

use crate::compact::BackgroundJob;
use crate::engine::Inner;
use crate::memtable::Memtable;
use crate::retain::Retain;
use crate::version::{Edit, FileEntry};

/// How often a flush looks whether it should stop, in entries.
const LOOK_UP_EVERY: u64 = 1024;

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

    /// Moves what was replayed at opening into a table, so that no new log hangs on an old one.
    pub(crate) fn leave_old_logs(&self) -> Result<()> {
        self.flush()?;
        let first_log = self.view.load().active.first_log;
        self.install(Edit { first_log: Some(first_log), ..Edit::default() }, |_| ())?;
        self.remove_logs_before(first_log);
        Ok(())
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
    fn write_row(&self, memtable: &Memtable) -> Result<Option<FileEntry>> {
        if memtable.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        let number = FileNumber(self.versions.new_number());
        let table = self.table_writer(number, Purpose::Flush)?;
        let written = self.write_versions(memtable, table);
        if written.is_err() {
            self.remove_table(number.0);
        }
        let meta = written?;
        self.media.sync_dir(Purpose::Flush)?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.counters.wrote(0, meta.bytes);
        Ok(Some(FileEntry::of(&meta, 0)))
    }

    fn write_versions(&self, memtable: &Memtable, mut table: TableWriter) -> Result<TableMeta> {
        let mut retain = Retain::new(self.snapshots.boundaries(&self.visible));
        let mut saved = 0;
        let mut seen = 0u64;
        memtable.for_each(|entry| {
            seen += 1;
            if seen.is_multiple_of(LOOK_UP_EVERY) && self.stopping.load(Relaxed) {
                return Err(Error::Closed);
            }
            match retain.keep(entry.key, entry.sequence) {
                Some(_) => table.add(entry),
                None => {
                    saved += 1;
                    Ok(())
                }
            }
        })?;
        self.counters.flush_entries_saved.fetch_add(saved, Relaxed);
        table.finish()
    }

    /// Removes a table that no manifest names; one that stays behind goes at the next open.
    pub(crate) fn remove_table(&self, number: u64) {
        let _ = self.media.remove(&FileKind::Table.name(FileNumber(number)));
    }

    /// A writer of the table `number` that keeps to the rate limit.
    pub(crate) fn table_writer(&self, number: FileNumber, purpose: Purpose) -> Result<TableWriter> {
        let name = FileKind::Table.name(number);
        let options = self.options.table_options();
        let writer = TableWriter::create(self.media.as_ref(), &name, number, options, purpose)?;
        let rate = self.env.rate.clone();
        Ok(writer.with_rate_hook(Box::new(move |bytes| rate.take(bytes))))
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
            let _ = self.media.remove(&FileKind::Log.name(FileNumber(number)));
        }
    }
}

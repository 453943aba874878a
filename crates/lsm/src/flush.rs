//! A full memtable becomes a row of level 0.
//!
//! Oldest first, one at a time: rows must enter level 0 in the order of their writes. The manifest
//! edit that adds the row also moves the first log that is needed; only then is the old log removed.
//!
//! With TRIAD-LOG the log is not removed but becomes the larger part of the row, a CL-SSTable: what
//! is written is a table of positions in it. Values that are no longer than a position stay in the
//! table, and so does everything of a memtable that no single log holds (after recovery).
//!
//! Source: TRIAD paper, section 4.3.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::Instant;

use siltstone_engine::batch::write_varint;
use siltstone_engine::{Error, Priority, Purpose, Result};
use siltstone_table::{EntryRef, FileKind, FileNumber, Kind, TableMeta, TableWriter};

use crate::carry::Carried;
use crate::compact::BackgroundJob;
use crate::engine::Inner;
use crate::memtable::{FullLog, Memtable};
use crate::read::View;
use crate::record::Position;
use crate::retain::Retain;
use crate::version::{Edit, FileEntry, LOG_OF_ROW, TableFile};

/// A value of at most this many bytes costs no more than the position of one.
const INLINE_BYTES: usize = 8;

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
        self.install(Edit { first_log: Some(first_log), ..Edit::default() }, &[], |_| ())?;
        self.remove_logs_before(first_log, None);
        Ok(())
    }

    fn flush_oldest(&self) -> Result<()> {
        let view = self.view.load_full();
        let Some(memtable) = view.flushing.first() else { return Ok(()) };
        let next = view.flushing.get(1).unwrap_or(&view.active);
        let carried = self.carry(memtable)?;
        let by_position = self.options.triad.log && !self.is_apart(&view, memtable);
        let log = memtable.full_log().filter(|_| by_position);
        if let Some(log) = log {
            // It is to be the row: all of it must be there before the manifest says so.
            log.sync.sync()?;
        }
        let added = self.write_row(memtable, &carried, log)?;
        let has_row = added.is_some();
        let edit = Edit {
            first_log: Some(next.first_log),
            added: added.into_iter().collect(),
            ..Edit::default()
        };
        self.install(edit, &[], |view| {
            view.flushing.remove(0);
        })?;
        self.counters.flushes.fetch_add(1, Relaxed);
        let kept = log.filter(|_| has_row).map(|log| log.number);
        self.remove_logs_before(next.first_log, kept);
        Ok(())
    }

    /// Whether nothing in level 0 or 1 shares the memtable's span of keys, as in a sequential load.
    /// A sorted table of it only changes its level later; a CL-SSTable would have to be rewritten.
    fn is_apart(&self, view: &View, memtable: &Memtable) -> bool {
        let Some((smallest, largest)) = memtable.span() else { return true };
        let has_keys =
            |table: &TableFile| table.largest() >= smallest && table.smallest() <= largest;
        let rows = view.version.level0.iter().map(|row| &**row.file());
        let level1 = view.version.levels.first().into_iter().flatten().map(|table| &**table);
        !rows.chain(level1).any(has_keys)
    }

    /// Writes the versions of a memtable that anyone can see to a table; `None` if there are none.
    /// With a `log` the table holds positions in it.
    fn write_row(
        &self,
        memtable: &Memtable,
        carried: &Carried,
        log: Option<&FullLog>,
    ) -> Result<Option<FileEntry>> {
        if memtable.is_empty() {
            return Ok(None);
        }
        let began = Instant::now();
        let number = FileNumber(self.versions.new_number());
        let mut table = self.table_writer(number, Purpose::Flush)?;
        if let Some(log) = log {
            let mut contents = Vec::new();
            write_varint(&mut contents, log.number);
            write_varint(&mut contents, log.bytes);
            table.add_meta(LOG_OF_ROW, contents)?;
        }
        let written = self.write_versions(memtable, carried, table, log.is_some());
        if !matches!(written, Ok(Some(_))) {
            self.remove_table(number.0);
        }
        let Some((meta, data_bytes)) = written? else { return Ok(None) };
        self.media.sync_dir(Purpose::Flush)?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.counters.wrote(0, meta.bytes);
        self.counters.flushed_bytes.fetch_add(data_bytes, Relaxed);
        let mut entry = FileEntry::of(&meta, 0);
        if let Some(row) = &mut entry.row {
            row.log = log.map(|log| (log.number, log.bytes));
            row.data_bytes = data_bytes;
        }
        Ok(Some(entry))
    }

    /// Returns what the table is, and the bytes of keys and values that it stands for; `None` if
    /// nothing is left to write.
    fn write_versions(
        &self,
        memtable: &Memtable,
        carried: &Carried,
        mut table: TableWriter,
        by_position: bool,
    ) -> Result<Option<(TableMeta, u64)>> {
        let mut retain = Retain::new(self.snapshots.boundaries(&self.visible));
        let mut saved = 0;
        let (mut seen, mut data_bytes) = (0u64, 0u64);
        let mut encoded = Vec::new();
        memtable.for_each(|entry, place| {
            seen += 1;
            if seen.is_multiple_of(LOOK_UP_EVERY) && self.stopping.load(Relaxed) {
                return Err(Error::Closed);
            }
            let is_carried = place.is_newest && carried.has(place.key);
            if retain.keep(entry.key, entry.sequence).is_none() || is_carried {
                saved += 1;
                return Ok(());
            }
            data_bytes += (entry.key.len() + entry.value.len()) as u64;
            if by_position && entry.value.len() > INLINE_BYTES {
                table.add(as_position(entry, place.position, &mut encoded))
            } else {
                table.add(entry)
            }
        })?;
        self.counters.flush_entries_saved.fetch_add(saved, Relaxed);
        if table.entries() == 0 {
            return Ok(None);
        }
        Ok(Some((table.finish()?, data_bytes)))
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

    /// Forgets the logs whose writes are all in tables, and removes them, but for one that is part
    /// of a row now.
    fn remove_logs_before(&self, first_log: u64, kept: Option<u64>) {
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.forget_before(first_log));
        drop(unused);
        let mut state = self.state.lock();
        let (gone, needed): (Vec<u64>, _) =
            state.logs.iter().partition(|&&number| number < first_log);
        state.logs = needed;
        drop(state);
        for number in gone.into_iter().filter(|&number| kept != Some(number)) {
            // A log that stays behind is removed by the next open.
            let _ = self.media.remove(&FileKind::Log.name(FileNumber(number)));
        }
    }
}

/// The entry with its position in the log in place of its value.
fn as_position<'a>(
    entry: EntryRef<'a>,
    position: Position,
    encoded: &'a mut Vec<u8>,
) -> EntryRef<'a> {
    encoded.clear();
    position.encode(encoded);
    EntryRef { kind: Kind::Position, expires_at: 0, value: encoded, ..entry }
}

//! A full memtable becomes a row of level 0.
//!
//! Oldest first, one at a time: rows must enter level 0 in the order of their writes. The manifest
//! edit that adds the row also moves the first log that is needed; only then is the old log removed. Before
//! all else a flush prepares the log in which writers will go on next.
//!
//! With TRIAD-LOG the log is not removed but becomes the larger part of the row, a CL-SSTable: what
//! is written is a table of positions in it. Values that are no longer than a position stay in the
//! table, and so does everything of a memtable that no single log holds (after recovery).
//!
//! With a pool of persistent memory (`nvm`) the row goes there, as a RowTable, made durable by one
//! barrier before the edit names it. A row that the pool has no room for becomes a file after all, and
//! so does one whose keys nothing in level 0 or 1 shares: it will only change its level. The log stays
//! on the disk in any case (the paper has it in persistent memory).
//!
//! Sources: TRIAD paper, section 4.3; TriangleKV paper, sections 3.1 and 5.2 (sequential writes).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::batch::write_varint;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::{BackgroundWork, Priority};
use siltstone_table::log::remove_logs;
use siltstone_table::{EntryRef, FileKind, FileNumber, Kind, TableMeta, TableOptions, TableWriter};
use siltstone_vfs::PmemPool;

use crate::carry::Carried;
use crate::compact::Seen;
use crate::engine::{Inner, State};
use crate::memtable::{FullLog, Memtable};
use crate::read::View;
use crate::record::Position;
use crate::retain::Retain;
use crate::rowtable::{RowBuilder, RowTable};
use crate::version::{Edit, FileEntry, LOG_OF_ROW, RowEntry, TELLS_EXPIRY};

/// A value of at most this many bytes costs about as much as the position of one.
const INLINE_BYTES: usize = 8;

/// The row of a smaller memtable has no sketch of its keys, whose 4 KiB would be much for it.
const LEAST_SKETCHED: u64 = 256 << 10;

/// What came of building a row in persistent memory.
enum Built {
    Row(FileEntry, Arc<RowTable>),
    /// Nothing of the memtable is left to write.
    Nothing,
    NoRoom,
}

/// How often a flush looks up, in entries.
const STEP: u64 = 64;

impl Inner {
    /// Queues a flush if one is due and none is queued.
    pub(crate) fn schedule_flush(&self) {
        let mut state = self.background.lock();
        if state.flushing == 0 || state.is_flush_queued || self.background.is_stopping() {
            return;
        }
        state.is_flush_queued = true;
        drop(state);
        let weak = self.me.clone();
        self.env.scheduler.spawn(Priority::Flush, move || {
            let Some(inner) = weak.upgrade() else { return };
            let settle = |state: &mut State| state.is_flush_queued = false;
            if inner.background.run(settle, || inner.flush_oldest()) {
                inner.schedule();
            }
        });
    }

    /// Queues the learning of the sizes of levels, if what is known is outdated.
    fn schedule_sizing(&self, seen: Seen) {
        let is_due = || self.sizes.is_outdated(&self.view.load().version, seen);
        if !self.options.sizes_by_model || !is_due() {
            return;
        }
        let mut state = self.background.lock();
        if std::mem::replace(&mut state.is_sizing_queued, true) {
            return;
        }
        drop(state);
        let weak = self.me.clone();
        self.env.scheduler.spawn(Priority::Idle, move || {
            let Some(inner) = weak.upgrade() else { return };
            let settle = |state: &mut State| state.is_sizing_queued = false;
            let learn = || {
                inner.sizes.learn(&inner.options, &inner.view.load_full().version, seen);
                Ok(())
            };
            if inner.background.run(settle, learn) {
                inner.schedule();
            }
        });
    }

    /// Moves what was replayed at opening into a table, so that no new log hangs on an old one.
    pub(crate) fn leave_old_logs(&self) -> Result<()> {
        self.flush()?;
        let first_log = self.view.load().active.first_log;
        let edit = Edit { first_log: Some(first_log), ..Edit::default() };
        let generation = self.view.load().generation;
        self.install(generation, edit, None, &[], |_| ())?;
        self.remove_logs_before(first_log, &[]);
        Ok(())
    }

    fn flush_oldest(&self) -> Result<()> {
        let view = self.view.load_full();
        let flushed = self.flush_oldest_of(&view);
        // What was removed meanwhile need not be flushed, and what a flush of it met is nobody's
        // concern.
        if self.is_cleared_since(view.generation) { Ok(()) } else { flushed }
    }

    fn flush_oldest_of(&self, view: &View) -> Result<()> {
        let Some(memtable) = view.flushing.first() else { return Ok(()) };
        if !memtable.is_wanted() {
            self.prepare_next_log();
        }
        let rest = view.memtables().filter(|other| !Arc::ptr_eq(other, memtable));
        let first_log = rest.map(|other| other.first_log).min().unwrap_or(memtable.first_log);
        let mut synced_log = None;
        if self.has_large() {
            // What the large memtable took before the last write of this one.
            synced_log = Some(self.sync_logs_from(first_log)?);
        }
        let carried = self.carry(memtable)?;
        let is_apart = self.is_apart(view, memtable);
        let pool = self.pool.lock().clone().filter(|_| !is_apart && !memtable.is_empty());
        let built = match pool {
            Some(pool) => self.build_row(&pool, view, memtable, &carried)?,
            None => Built::NoRoom,
        };
        let (added, row, kept_log) = match built {
            Built::Nothing => (None, None, None),
            Built::Row(entry, row) => (Some(entry), Some(row), None),
            Built::NoRoom => {
                let log = memtable.full_log().filter(|_| self.options.rows_are_logs() && !is_apart);
                if let Some(log) = log {
                    log.sync.finish();
                    log.sync.begin();
                }
                let added = self.write_row(memtable, &carried, log)?;
                if let Some(log) = log {
                    // It is to be the row: all of it must be there before the manifest says so.
                    log.sync.sync()?;
                }
                let log = log.filter(|_| added.is_some()).map(|log| log.number);
                (added, None, log)
            }
        };
        let edit = Edit {
            first_log: Some(first_log),
            synced_log: carried.synced_log.or(synced_log),
            added: added.into_iter().collect(),
            ..Edit::default()
        };
        let written: Vec<FileEntry> =
            edit.added.iter().filter(|entry| !entry.is_in_nvm()).cloned().collect();
        let installed = self.install(view.generation, edit, row, &[], |view| {
            view.flushing.remove(0);
        });
        if !installed.inspect_err(|error| self.remove_if_unnamed(error, &written))? {
            self.remove_tables(&written);
            return Ok(());
        }
        self.counters.flushes.fetch_add(1, Relaxed);
        self.remove_logs_before(first_log, kept_log.as_slice());
        self.schedule_sizing(memtable.seen());
        Ok(())
    }

    /// Whether nothing in level 0 or 1 shares the memtable's span of keys, as in a sequential load.
    /// A sorted table of it only changes its level later; a CL-SSTable would have to be rewritten.
    fn is_apart(&self, view: &View, memtable: &Memtable) -> bool {
        let Some((smallest, largest)) = memtable.span() else { return true };
        let rows = view.version.level0.iter().map(|row| (row.smallest(), row.largest()));
        let level1 = view.version.levels.first().into_iter().flat_map(|tables| tables.iter());
        let level1 = level1.map(|table| (table.smallest(), table.largest()));
        !rows.chain(level1).any(|(first, last)| last >= smallest && first <= largest)
    }

    /// Builds a row in persistent memory of the versions of a memtable that anyone can see.
    fn build_row(
        &self,
        pool: &PmemPool,
        view: &View,
        memtable: &Memtable,
        carried: &Carried,
    ) -> Result<Built> {
        let began = Instant::now();
        let number = self.versions.new_number();
        let previous = view.version.nvm_rows().next().filter(|_| self.options.hints).cloned();
        let build = || -> Result<_> {
            let mut row = RowBuilder::new(pool, number, previous, Purpose::Flush)?;
            let data_bytes = self.write_versions(memtable, carried, |entry, _| row.add(entry))?;
            if row.is_empty() {
                return Ok(None);
            }
            Ok(Some((row.finish()?, data_bytes)))
        };
        let (row, data_bytes) = match build() {
            Ok(Some(row)) => row,
            Ok(None) => return Ok(Built::Nothing),
            // Compaction frees pages, but the writers that wait for it may be those of this row.
            Err(error) if error.is_disk_full() => {
                self.counters.nvm_rows_refused.fetch_add(1, Relaxed);
                return Ok(Built::NoRoom);
            }
            Err(error) => return Err(error),
        };
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.counters.nvm_rows_built.fetch_add(1, Relaxed);
        let bytes = row.held_bytes().iter().sum();
        let (smallest, largest) = row.bounds();
        let entry = FileEntry {
            level: 0,
            number,
            bytes,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            row: Some(RowEntry { nvm: Some(row.handle()), data_bytes, ..RowEntry::default() }),
        };
        Ok(Built::Row(entry, Arc::new(row)))
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
        let mut options = self.options.table_options();
        // It tells how full a container is: see `version/room.rs`.
        options.sketch |= self.options.is_container() && memtable.bytes() >= LEAST_SKETCHED;
        let mut table = self.table_writer_as(number, Purpose::Flush, options)?;
        if let Some(log) = log {
            let mut contents = Vec::new();
            write_varint(&mut contents, log.number);
            write_varint(&mut contents, log.bytes);
            write_varint(&mut contents, TELLS_EXPIRY);
            table.add_meta(LOG_OF_ROW, contents)?;
        }
        let written = self.write_table(memtable, carried, table, log.is_some());
        if !matches!(written, Ok(Some(_))) {
            self.remove_table(number.0);
        }
        let Some((meta, data_bytes)) = written? else { return Ok(None) };
        self.vfs.sync_dir(Purpose::Flush)?;
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
    fn write_table(
        &self,
        memtable: &Memtable,
        carried: &Carried,
        mut table: TableWriter,
        by_position: bool,
    ) -> Result<Option<(TableMeta, u64)>> {
        let mut encoded = Vec::new();
        let data_bytes = self.write_versions(memtable, carried, |entry, position| {
            if by_position && entry.value.len() > INLINE_BYTES {
                table.add(as_position(entry, position, &mut encoded))
            } else {
                table.add(entry)
            }
        })?;
        if table.entries() == 0 {
            return Ok(None);
        }
        Ok(Some((table.finish()?, data_bytes)))
    }

    /// Writes the versions that anyone can see, with their positions in the log; returns their
    /// keys and values in bytes.
    fn write_versions(
        &self,
        memtable: &Memtable,
        carried: &Carried,
        mut write: impl FnMut(EntryRef<'_>, Position) -> Result<()>,
    ) -> Result<u64> {
        let mut retain = Retain::new(self.snapshots.boundaries(&self.visible));
        let mut saved = 0;
        let (mut seen, mut data_bytes) = (0u64, 0u64);
        memtable.for_each(|entry, place| {
            seen += 1;
            if seen.is_multiple_of(STEP) {
                self.background.check_cancelled()?;
            }
            let is_carried = place.is_newest && carried.has(place.key);
            if retain.keep(entry.key, entry.sequence).is_none() || is_carried {
                saved += 1;
                return Ok(());
            }
            data_bytes += (entry.key.len() + entry.value.len()) as u64;
            write(entry, place.position)
        })?;
        self.counters.flush_entries_saved.fetch_add(saved, Relaxed);
        Ok(data_bytes)
    }

    /// Removes tables after their edit has failed with `error`, if that says that no manifest names
    /// them: the next attempt writes others.
    pub(crate) fn remove_if_unnamed(&self, error: &Error, written: &[FileEntry]) {
        if error.is_transient() {
            self.remove_tables(written);
        }
    }

    /// Removes a table that no manifest names; one that stays behind goes at the next open.
    pub(crate) fn remove_table(&self, number: u64) {
        let _ = self.vfs.remove(&FileKind::Table.name(FileNumber(number)));
    }

    /// A writer of the table `number` that keeps to the rate limit.
    pub(crate) fn table_writer(&self, number: FileNumber, purpose: Purpose) -> Result<TableWriter> {
        self.table_writer_as(number, purpose, self.options.table_options())
    }

    /// The same with `options` of its own.
    pub(crate) fn table_writer_as(
        &self,
        number: FileNumber,
        purpose: Purpose,
        options: TableOptions,
    ) -> Result<TableWriter> {
        let name = FileKind::Table.name(number);
        let writer = TableWriter::create(self.vfs.as_ref(), &name, number, options, purpose)?;
        let rate = self.env.rate.clone();
        Ok(writer.with_rate_hook(Box::new(move |bytes| rate.take(bytes))))
    }

    /// Forgets the logs whose writes are all in tables, and removes them, but for one that is part
    /// of a row now.
    pub(crate) fn remove_logs_before(&self, first_log: u64, kept: &[u64]) {
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.release_before(first_log));
        drop(unused);
        let mut state = self.background.lock();
        let gone: Vec<u64> = state.logs.extract_if(.., |number| *number < first_log).collect();
        drop(state);
        remove_logs(self.vfs.as_ref(), gone.into_iter().filter(|number| !kept.contains(number)));
    }
}

/// The entry with its position in the log in place of its value.
fn as_position<'a>(
    entry: EntryRef<'a>,
    position: Position,
    encoded: &'a mut Vec<u8>,
) -> EntryRef<'a> {
    encoded.clear();
    position.encode((entry.kind == Kind::PutExpiring).then_some(entry.expires_at), encoded);
    EntryRef { kind: Kind::Position, expires_at: 0, value: encoded, ..entry }
}

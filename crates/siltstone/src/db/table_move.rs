//! Moving a table to another engine, or to other creation options, while it is in use.
//!
//! ```text
//!   begin_move   source: records written keys ─ empty target
//!   copy         all rows ─ rows of recorded keys, again and again, until few are left
//!   switch       no writers: rows of the last recorded keys ─ syncs ─ one write of the catalogue
//!                source: Closed to its handles
//!   retire       source closed and removed
//! ```
//!
//! Rows are copied in their state, not as a history: for each recorded key the target gets the row
//! that the source has then. So it does not matter in which order keys were recorded, nor whether
//! the source can be read as of one moment. Ranges that were deleted or ingested are recorded and
//! copied in the same way, if the target can delete ranges. Otherwise, and after a clear, the copy
//! begins again.
//!
//! Memory: a batch of rows, and the keys that were written since they were last copied.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use siltstone_engine::{Entry, Error, KeyRange, Result, WriteBatch};

use super::bulk_copy::BulkCopy;
use super::switch::Target;
use super::{Db, Inner};
use crate::catalogue::TableSpec;
use crate::names::directory;
use crate::{Durability, Table};

/// Size of a batch of copied rows, in bytes.
const BATCH_BYTES: usize = 256 << 10;
/// The switch waits until no more keys are left than this, unless writers are faster than the copy.
const MAX_LAST_KEYS: usize = 500;
/// The switch is put off if more keys than this are left then, as after a long transaction.
const MAX_SWITCH_KEYS: usize = 2000;
/// Rounds in which the number of left keys does not shrink, after which the copy ends nevertheless,
/// and how often the switch is put off.
const MAX_STALLED_ROUNDS: usize = 8;
/// How often the copy begins again because of removals that it cannot follow.
const MAX_RESTARTS: u64 = 16;
/// Bytes of a key that an error shows.
const MAX_SHOWN_KEY_BYTES: usize = 64;
/// Counters of an engine that drops rows to make room for others.
const EVICTIONS: [&str; 2] = ["evictions", "index_evictions"];

/// Changes a row on its way from one engine to the other, by its key, or refuses the move.
type Conversion = Box<dyn Fn(&[u8], &mut Entry) -> Result<()> + Send>;

/// How far a move is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MoveProgress {
    /// Rows copied since the copy last began.
    pub rows: u64,
    /// Rows copied again because they were written meanwhile.
    pub changes: u64,
    /// How often the copy began again, after a removal of ranges or of all keys.
    pub restarts: u64,
}

/// A table on its way to another engine. Dropping it before the switch cancels the move: the table
/// stays as it is, and the half-made copy is removed.
pub struct TableMove {
    db: Db,
    source: Table,
    target: Target,
    conversion: Option<Conversion>,
    progress: MoveProgress,
    is_copied: bool,
    /// How often the switch was put off because of many keys.
    delays: usize,
    /// The directory of the source, after the switch.
    old: Option<String>,
    is_ended: bool,
}

impl fmt::Debug for TableMove {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableMove")
            .field("table", &self.source.name())
            .field("progress", &self.progress)
            .finish_non_exhaustive()
    }
}

impl Db {
    /// The store of a table; `None` if it is in none, or in one that is no longer open.
    #[must_use]
    pub fn of_table(table: &Table) -> Option<Db> {
        table.store()?.into_any().downcast::<Inner>().ok().map(|inner| Db { inner })
    }

    /// Begins to move the table `name` to `engine` with `options`, while it is in use. It may be
    /// its own engine, with other options. Nothing is copied yet.
    ///
    /// ```
    /// # use std::ops::ControlFlow;
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let words = db.table_or_create("words", "lsm", &Default::default())?;
    /// words.put(b"granite", b"1")?;
    ///
    /// let mut moving = db.begin_move("words", "silt", &Default::default())?;
    /// moving.copy(&mut |_progress| ControlFlow::Continue(()))?;
    /// words.put(b"basalt", b"2")?; // meanwhile
    /// let moved = moving.finish()?;
    ///
    /// assert_eq!(moved.engine().name(), "silt");
    /// assert_eq!(moved.get(b"basalt")?.as_deref(), Some(&b"2"[..]));
    /// assert!(matches!(words.get(b"basalt"), Err(siltstone::Error::Closed)));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// What does not move: snapshots, the history of `skimpy`, the change feed and its positions,
    /// and a compaction filter that was set on the open table.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such table, if it is moving already, or if the options of
    /// the store have a hook for it that the engine lacks; [`Error::InvalidOptions`];
    /// [`Error::Unsupported`] for a table with a merge operator and an engine without merges;
    /// [`Error::Refused`] in a read-only store; I/O errors. Nothing has changed then.
    pub fn begin_move(
        &self,
        name: &str,
        engine: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<TableMove> {
        let source = self.table(name)?;
        let recorder = source.recorder().ok_or(Error::Closed)?;
        let spec = TableSpec { engine: engine.to_owned(), options: options.clone() };
        let target = self.open_target(&source, spec)?;
        recorder.begin();
        Ok(TableMove {
            db: self.clone(),
            source,
            target,
            conversion: None,
            progress: MoveProgress::default(),
            is_copied: false,
            delays: 0,
            old: None,
            is_ended: false,
        })
    }
}

impl TableMove {
    /// Changes each row on its way. An error of `conversion` ends the copy. Call it before
    /// [`copy`](Self::copy).
    #[must_use]
    pub fn with_conversion(
        mut self,
        conversion: impl Fn(&[u8], &mut Entry) -> Result<()> + Send + 'static,
    ) -> Self {
        self.conversion = Some(Box::new(conversion));
        self
    }

    /// The table that moves.
    #[must_use]
    pub fn table(&self) -> &Table {
        &self.source
    }

    /// The target, for its capabilities: it is written by the move alone.
    #[must_use]
    pub fn target(&self) -> &Table {
        &self.target.table
    }

    /// How far the move is.
    #[must_use]
    pub fn progress(&self) -> MoveProgress {
        self.progress
    }

    /// Copies all rows, then those that were written meanwhile, until few are left. Called again,
    /// it continues. Readers and writers go on; a table on `mica` is locked while the engine makes
    /// its own copy in memory. `on_progress` is called after each batch, and cancels the copy by
    /// `Break`: then the result is false.
    ///
    /// Cost: the table is read once and written once, with the write amplification of the target.
    ///
    /// # Errors
    /// [`Error::Refused`] for a value that the target does not take, if the target has no room, or
    /// if the table is cleared again and again; those of reads of the source and writes of the
    /// target. The table is as before, and dropping this removes the copy.
    pub fn copy(
        &mut self,
        on_progress: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<bool> {
        loop {
            let is_whole = (self.is_copied || self.copy_rows(on_progress)?)
                && self.copy_recorded(on_progress)?;
            if is_whole {
                break;
            }
            if on_progress(&self.progress).is_break() {
                return Ok(false);
            }
        }
        self.check_room()?;
        // Those of the switch are short then.
        self.source.sync()?;
        self.target.table.sync()?;
        // A checkpoint in progress delays the switch: no writer should wait for it.
        drop(self.db.inner.switches.write());
        Ok(true)
    }

    /// Copies all rows. Returns false if that was interrupted or must be repeated.
    fn copy_rows(
        &mut self,
        on_progress: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<bool> {
        self.progress.rows = 0;
        let mut cursor = self.source.engine().iter()?;
        let mut bulk = self.bulk_copy()?;
        let mut batch = WriteBatch::new();
        let mut is_at_row = cursor.first()?;
        while is_at_row {
            let entry = Entry { value: cursor.value().to_vec(), expires_at: cursor.expires_at() };
            self.add(&mut batch, cursor.key(), Some(entry))?;
            self.progress.rows += 1;
            is_at_row = cursor.next()?;
            if batch.as_bytes().len() >= BATCH_BYTES || !is_at_row {
                match &mut bulk {
                    Some(files) => files.append(&batch)?,
                    None => self.write(&batch)?,
                }
                batch.clear();
                if on_progress(&self.progress).is_break() {
                    return Ok(false);
                }
            }
        }
        bulk.iter_mut().try_for_each(BulkCopy::ingest)?;
        self.is_copied = true;
        Ok(true)
    }

    /// The copy by sorted files, if the target takes some.
    fn bulk_copy(&self) -> Result<Option<BulkCopy>> {
        let Target { table, spec, directory: name } = &self.target;
        let vfs = self.db.inner.vfs.subdirectory(&directory(name))?;
        BulkCopy::of(self.source.engine().as_ref(), table.engine(), spec, vfs)
    }

    /// Copies the rows of recorded keys until few are left. Returns false if that was interrupted,
    /// or if the copy must begin again.
    fn copy_recorded(
        &mut self,
        on_progress: &mut dyn FnMut(&MoveProgress) -> ControlFlow<()>,
    ) -> Result<bool> {
        let (mut least, mut stalled) = (usize::MAX, 0);
        loop {
            let Some(copied) = self.copy_record()? else { return Ok(false) };
            if copied <= MAX_LAST_KEYS || stalled == MAX_STALLED_ROUNDS {
                return Ok(true);
            }
            if on_progress(&self.progress).is_break() {
                return Ok(false);
            }
            stalled = if copied < least { 0 } else { stalled + 1 };
            least = least.min(copied);
        }
    }

    /// Copies the rows of the keys that are recorded now, and returns their number; `None`: the
    /// copy must begin again, and the target is empty.
    fn copy_record(&mut self) -> Result<Option<usize>> {
        let record = self.source.recorder().ok_or(Error::Closed)?.take();
        let has_ranges = self.target.table.engine().capabilities().range_deletes;
        if record.is_cleared || !(record.ranges.is_empty() || has_ranges) {
            self.progress.restarts += 1;
            self.is_copied = false;
            if self.progress.restarts > MAX_RESTARTS {
                return Err(self.refused(
                    "all keys, or ranges of keys, are removed again and again; move it at another \
                     time",
                ));
            }
            self.target.table.clear()?;
            return Ok(None);
        }
        record.ranges.iter().try_for_each(|range| self.copy_range(range))?;
        let mut batch = WriteBatch::new();
        for key in &record.keys {
            self.add(&mut batch, key, self.source.engine().get(key)?)?;
            self.write_if_full(&mut batch)?;
        }
        self.write(&batch)?;
        self.progress.changes += record.keys.len() as u64;
        Ok(Some(record.keys.len()))
    }

    /// Gives a range, whose keys were deleted or ingested, the rows that it has now.
    fn copy_range(&self, range: &KeyRange) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range((range.start.clone(), range.end.clone()));
        let mut cursor = self.source.engine().range(range.clone(), None)?;
        let mut is_at_row = cursor.first()?;
        while is_at_row {
            let entry = Entry { value: cursor.value().to_vec(), expires_at: cursor.expires_at() };
            self.add(&mut batch, cursor.key(), Some(entry))?;
            self.write_if_full(&mut batch)?;
            is_at_row = cursor.next()?;
        }
        self.write(&batch)
    }

    fn add(&self, batch: &mut WriteBatch, key: &[u8], entry: Option<Entry>) -> Result<()> {
        match entry {
            None => batch.delete(key),
            Some(mut entry) => {
                self.conversion.iter().try_for_each(|convert| convert(key, &mut entry))?;
                self.check_size(key, &entry)?;
                batch.put_entry(key, &entry)
            }
        };
        Ok(())
    }

    fn write_if_full(&self, batch: &mut WriteBatch) -> Result<()> {
        if batch.as_bytes().len() >= BATCH_BYTES {
            self.write(batch)?;
            batch.clear();
        }
        Ok(())
    }

    fn write(&self, batch: &WriteBatch) -> Result<()> {
        match batch.is_empty() {
            true => Ok(()),
            false => self.target.table.write(batch, Durability::Buffered),
        }
    }

    /// Refuses a value that the target does not take.
    fn check_size(&self, key: &[u8], entry: &Entry) -> Result<()> {
        let target = self.target.table.engine();
        let (len, limit) = (entry.value.len(), target.capabilities().max_value_bytes);
        if len <= limit {
            return Ok(());
        }
        let key = key[..key.len().min(MAX_SHOWN_KEY_BYTES)].escape_ascii();
        let name = target.name();
        Err(self.refused(&format!(
            "key '{key}' has a value of {len} bytes, and {name} takes up to {limit}"
        )))
    }

    /// Refuses a target that has dropped rows to make room for others.
    fn check_room(&self) -> Result<()> {
        let counters = self.target.table.engine().stats().counters;
        let is_eviction = |name: &str| EVICTIONS.contains(&name);
        match counters.iter().any(|(name, count)| is_eviction(name) && *count > 0) {
            true => Err(self.refused("the target has no room for all rows; give it more memory")),
            false => Ok(()),
        }
    }

    fn refused(&self, reason: &str) -> Error {
        let path = format!("{}: table '{}'", self.db.inner.vfs.name(), self.source.name());
        Error::Refused { path, reason: format!("it does not move: {reason}") }
    }

    /// Copies the rows that are left, and puts the target in the place of the table, durably.
    /// Writers wait meanwhile; afterwards all handles of the table return [`Error::Closed`], and
    /// [`Db::table`] returns the new one. `None`: not now, because of a checkpoint, a removal of
    /// all keys or of ranges, or many keys that are left: [`copy`](Self::copy) again. `prepare` gets
    /// the complete target before it is the table; its error ends the switch, and all is as before.
    ///
    /// Writers that bypass the table's locks, through [`Table::engine`] on engines without
    /// versions, are excluded by the caller. A crash leaves the old table or the new one, and the
    /// next open removes the other. A table on `mica` is empty after a crash, as ever.
    ///
    /// # Errors
    /// As from [`copy`](Self::copy): the table is as before. After an I/O error of the catalogue
    /// that could not be undone, the table is closed, and the next open has the old or the new one.
    pub fn try_switch(
        &mut self,
        prepare: &mut dyn FnMut(&Table) -> Result<()>,
    ) -> Result<Option<Table>> {
        let db = self.db.clone();
        let Some(_switch) = db.inner.switches.try_write() else { return Ok(None) };
        let source = self.source.clone();
        let _no_writers = source.exclude_writes();
        let is_long =
            source.recorder().is_some_and(|recorder| recorder.has_more_than(MAX_SWITCH_KEYS));
        if is_long && self.delays < MAX_STALLED_ROUNDS {
            self.delays += 1;
            return Ok(None);
        }
        if !self.is_copied || self.copy_record()?.is_none() {
            return Ok(None);
        }
        self.check_room()?;
        prepare(&self.target.table)?;
        self.old = Some(db.switch(&source, &self.target)?);
        Ok(Some(self.target.table.clone()))
    }

    /// Closes the old table after [`try_switch`](Self::try_switch), and removes its files. Dropping
    /// does the same.
    ///
    /// # Errors
    /// I/O errors. The next open removes what is left.
    pub fn retire(mut self) -> Result<()> {
        self.end()
    }

    /// Copies what is left, switches, and removes the old table.
    ///
    /// # Errors
    /// Those of [`copy`](Self::copy) and [`try_switch`](Self::try_switch); after the switch, those
    /// of [`retire`](Self::retire).
    pub fn finish(mut self) -> Result<Table> {
        loop {
            self.copy(&mut |_| ControlFlow::Continue(()))?;
            if let Some(table) = self.try_switch(&mut |_| Ok(()))? {
                self.retire()?;
                return Ok(table);
            }
        }
    }

    fn end(&mut self) -> Result<()> {
        if std::mem::replace(&mut self.is_ended, true) {
            return Ok(());
        }
        match &self.old {
            Some(directory) => self.db.retire(&self.source, directory),
            None => {
                self.source.recorder().into_iter().for_each(|recorder| recorder.end());
                self.db.abort(&self.target)
            }
        }
    }
}

impl Drop for TableMove {
    fn drop(&mut self) {
        // The next open removes what is left.
        let _ = self.end();
    }
}

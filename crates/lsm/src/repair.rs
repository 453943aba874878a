//! Makes a damaged table open again, with all that can be read.
//!
//! 0. A table that is sound is left as it is.
//! 1. The manifest is read as far as it holds. If it does not hold at all, every sound table goes to
//!    level 0, newest file first; a table that a compaction had replaced and that was not yet
//!    removed may then show deleted keys again, and the report says so.
//! 2. Each table is read whole. From a damaged one the readable entries are copied to a new table
//!    on the same level. A CL-SSTable of which the table or the log is damaged is made anew as a
//!    sorted table from what its log holds.
//!    A row in persistent memory of which something is damaged is made anew as a sorted table from the
//!    versions that can be read; without its header, directory or metadata nothing can. Without a
//!    manifest nothing says where rows are, and the pool is put aside.
//! 3. Each log is replayed up to its first damage, into a new table of level 0.
//! 4. A new manifest names the result. Then damaged files are kept beside it under `*.damaged`, and logs
//!    that were replayed whole are removed: a repair that is cut off before can be run again.
//!
//! What is lost is told by file and byte. The table must not be open.

use std::collections::BTreeSet;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::{Media, Mode, PageClaims};
use siltstone_table::{
    BlockCache, FileKind, FileNumber, LogMode, LogReader, Manifest, Table, TableWriter, aside,
    parse_file_name,
};

use crate::closed::verify_closed;
use crate::live_range::LiveRange;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::pool::{self, POOL_FILE};
use crate::record::{Position, Record};
use crate::retain::Retain;
use crate::rowtable::{RowHandle, RowTable};
use crate::version::{
    ENGINE, Edit, FileEntry, LOG_OF_ROW, LogFile, NvmRows, Opened, Opener, RowEntry, Version, fold,
};

/// Repairs the table on `media`; the answer tells, line by line, what was found and done.
///
/// # Errors
/// Failures of the medium. Damage is not an error here: it is what is repaired.
pub fn repair(media: &Arc<dyn Media>) -> Result<Vec<String>> {
    let (story, aside, replayed) = Default::default();
    let mut repair = Repair { media, story, aside, replayed, next_file: 1, claims: None };
    repair.run()?;
    Ok(repair.story)
}

/// Whether nothing is to be repaired. What cannot be checked is no reason to leave it.
fn is_sound(media: &Arc<dyn Media>) -> bool {
    verify_closed(media).is_ok_and(|report| report.is_sound())
}

struct Repair<'a> {
    media: &'a Arc<dyn Media>,
    story: Vec<String>,
    /// Damaged files, to be kept under another name once the new manifest is in force.
    aside: Vec<String>,
    /// Logs, to be removed then.
    replayed: Vec<String>,
    next_file: u64,
    /// The pool of rows in persistent memory, while rows are looked at.
    claims: Option<PageClaims>,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        if Manifest::exists(self.media.as_ref())? && is_sound(self.media) {
            self.tell("everything that the manifest names is sound: nothing to repair".to_owned());
            return Ok(());
        }
        let names = self.media.list()?;
        let numbered: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        self.next_file = numbered.iter().map(|(_, number)| number.0 + 1).max().unwrap_or(1);

        let known = self.read_manifest()?;
        let mut state = Edit { first_log: Some(0), ..Edit::default() };
        let mut placed = BTreeSet::new();
        if let Some(known) = &known {
            state.cursors.clone_from(&known.cursors);
            state.cursor.clone_from(&known.cursor);
            for entry in &known.added {
                placed.insert(entry.number);
                match &entry.row {
                    Some(row @ RowEntry { nvm: Some(handle), .. }) => {
                        self.check_nvm_row(entry, row, *handle, &mut state)?;
                    }
                    Some(row @ RowEntry { log: Some(log), .. }) => {
                        self.check_row(entry, row, *log, &mut state)?;
                    }
                    row => self.check_table(entry.level, entry.number, row, &mut state)?,
                }
            }
        } else {
            for &(kind, number) in &numbered {
                if kind == FileKind::Table && placed.insert(number.0) {
                    self.check_table(0, number.0, &None, &mut state)?;
                }
            }
        }
        if known.is_none() && self.media.exists(POOL_FILE)? {
            self.tell(format!("without a manifest the rows in {POOL_FILE} cannot be found"));
            self.aside.push(POOL_FILE.to_owned());
        }
        let first_log = known.and_then(|known| known.first_log).unwrap_or(0);
        for (kind, number) in numbered {
            if kind == FileKind::Log && number.0 >= first_log {
                let arrival = state.cursor.clone().unwrap_or_default();
                let before = state.added.len();
                self.replay(number, &LiveRange::all(), &mut state)?;
                for row in state.added[before..].iter_mut().filter_map(|made| made.row.as_mut()) {
                    row.arrival.clone_from(&arrival);
                }
            }
        }
        self.write_manifest(state)
    }

    /// What the manifest says; `None`, and a line of the story, if it does not hold.
    fn read_manifest(&mut self) -> Result<Option<Edit>> {
        let read = || -> Result<Option<Edit>> {
            if !Manifest::exists(self.media.as_ref())? {
                return Ok(None);
            }
            let (_, edits) = Manifest::open(self.media.clone(), ENGINE)?;
            fold(&edits).map(Some)
        };
        match read() {
            Ok(Some(edit)) => Ok(Some(edit)),
            Ok(None) => {
                self.tell("there is no manifest: every readable table goes to level 0".to_owned());
                Ok(None)
            }
            Err(error) if error.is_corruption() || error.is_not_found() => {
                self.tell(format!(
                    "the manifest does not hold ({error}): every readable table goes to level 0; \
                     keys deleted shortly before the damage may show again"
                ));
                Ok(None)
            }
            Err(other) => Err(other),
        }
    }

    /// Adds a table to `state`: as it is if it is sound, else what can be read of it.
    fn check_table(
        &mut self,
        level: usize,
        number: u64,
        row: &Option<RowEntry>,
        state: &mut Edit,
    ) -> Result<()> {
        let name = FileKind::Table.name(FileNumber(number));
        match self.sound_table(number, level) {
            // Its log is replayed as every log is when no manifest says which are needed.
            Ok((_, true)) => {
                self.tell(format!("{name} is an index of a log: its log is read instead"));
                Ok(())
            }
            Ok((entry, false)) => {
                state.added.push(FileEntry { row: row.clone().or(entry.row), ..entry });
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.tell(format!("{name} is missing: what was in it is lost"));
                Ok(())
            }
            Err(Error::Corruption { offset, reason, .. }) => {
                let (saved, lost) = self.copy_readable(level, number, state)?;
                let lost: Vec<_> = lost.iter().map(shown).collect();
                let lost = match lost.is_empty() {
                    true => "no entry lost".to_owned(),
                    false => format!("lost what was in {}", lost.join(", ")),
                };
                self.tell(format!(
                    "{name} is damaged at byte {offset} ({reason}): {saved} entries saved, {lost}; \
                     the file kept as {name}.damaged"
                ));
                self.aside.push(name);
                Ok(())
            }
            Err(other) => Err(other),
        }
    }

    /// A table as the manifest would name it, and whether it is the index of a log; an error if any
    /// of it does not hold.
    fn sound_table(&self, number: u64, level: usize) -> Result<(FileEntry, bool)> {
        let table = self.open(number)?;
        table.verify(|_| ControlFlow::Continue(()))?;
        let is_index = table.meta_block(LOG_OF_ROW, Purpose::Maintenance)?.is_some();
        Ok((FileEntry::of(table.meta(), level), is_index))
    }

    /// Adds a CL-SSTable to `state`: as it is if table and log are sound, else what its log holds.
    fn check_row(
        &mut self,
        entry: &FileEntry,
        row: &RowEntry,
        (log, bytes): (u64, u64),
        state: &mut Edit,
    ) -> Result<()> {
        let table = self.sound_table(entry.number, 0);
        let log_is_sound = LogFile::open(self.media, log, bytes).and_then(|log| log.verify());
        let damage = match (table, log_is_sound) {
            (Ok(_), Ok(())) => {
                state.added.push(entry.clone());
                return Ok(());
            }
            (Err(damage), _) | (_, Err(damage)) => damage,
        };
        if !damage.is_corruption() && !damage.is_not_found() {
            return Err(damage);
        }
        let cursor = state.cursor.clone().unwrap_or_default();
        let live = LiveRange::new(&cursor, &row.arrival);
        self.tell(format!(
            "row {} does not hold ({damage}): its log is read instead",
            entry.number
        ));
        let before = state.added.len();
        if self.media.exists(&FileKind::Log.name(FileNumber(log)))? {
            self.replay(FileNumber(log), &live, state)?;
        }
        for made in &mut state.added[before..] {
            if let Some(made) = &mut made.row {
                made.arrival.clone_from(&row.arrival);
            }
        }
        Ok(())
    }

    /// Adds a row in persistent memory to `state`: as it is if it is sound, else what can be read.
    fn check_nvm_row(
        &mut self,
        entry: &FileEntry,
        row: &RowEntry,
        handle: RowHandle,
        state: &mut Edit,
    ) -> Result<()> {
        let cursor = state.cursor.clone().unwrap_or_default();
        let live = LiveRange::new(&cursor, &row.arrival);
        let open = |claims: &PageClaims| RowTable::open(claims, handle, entry.number, live);
        let opened = match self.claims.take().map_or_else(|| pool::claims(self.media, 0), Ok) {
            Ok(claims) => open(self.claims.insert(claims)),
            Err(error) => Err(error),
        };
        let (table, damage) = match opened {
            Ok(table) => match table.verify(Purpose::Maintenance) {
                Ok(()) => {
                    state.added.push(entry.clone());
                    return Ok(());
                }
                Err(damage) => (Some(table), damage),
            },
            Err(damage) => (None, damage),
        };
        if !damage.is_corruption() {
            return Err(damage);
        }
        let (mut saved, mut lost) = (0, None);
        if let Some(table) = table {
            let (number, mut writer) = self.writer()?;
            lost = Some(table.salvage(|entry| writer.add(entry))?);
            let before = state.added.len();
            saved = self.finish(number, writer, 0, state)?;
            for made in state.added[before..].iter_mut().filter_map(|made| made.row.as_mut()) {
                made.arrival.clone_from(&row.arrival);
            }
        }
        let lost = lost.map_or("the rest".to_owned(), |lost: u64| lost.to_string());
        self.tell(format!(
            "row {} in persistent memory does not hold ({damage}): {saved} entries saved in a table, \
             {lost} lost",
            entry.number
        ));
        Ok(())
    }

    fn open(&self, number: u64) -> Result<Table> {
        let name = FileKind::Table.name(FileNumber(number));
        let file = self.media.open(&name, Mode::Read)?;
        Table::open(file, &name, FileNumber(number), None)
    }

    /// Copies every entry in the readable blocks of a table into a new one; returns how many, and the bytes
    /// that could not be read.
    fn copy_readable(
        &mut self,
        level: usize,
        number: u64,
        state: &mut Edit,
    ) -> Result<(u64, Vec<Range<u64>>)> {
        let Ok(table) = self.open(number) else {
            // Without its footer and index nothing in a table can be found.
            let name = FileKind::Table.name(FileNumber(number));
            let bytes = self.media.open(&name, Mode::Read)?.len()?;
            return Ok((0, std::iter::once(0..bytes).collect()));
        };
        let (copy, mut writer) = self.writer()?;
        let lost = table.salvage(|entry| writer.add(entry))?;
        Ok((self.finish(copy, writer, level, state)?, lost))
    }

    /// Ends a table and adds it to `state`, unless it is empty; returns its entries.
    fn finish(
        &mut self,
        number: FileNumber,
        writer: TableWriter,
        level: usize,
        state: &mut Edit,
    ) -> Result<u64> {
        if writer.entries() == 0 {
            drop(writer);
            self.media.remove(&FileKind::Table.name(number))?;
            return Ok(0);
        }
        let meta = writer.finish()?;
        state.added.push(FileEntry::of(&meta, level));
        Ok(meta.entries)
    }

    /// Writes what a log holds of live keys, up to its first damage, to a table of level 0.
    fn replay(&mut self, number: FileNumber, live: &LiveRange, state: &mut Edit) -> Result<()> {
        let name = FileKind::Log.name(number);
        let mut reader = LogReader::open(self.media.as_ref(), &name, number.0, LogMode::Recover)?;
        let memtable = Memtable::new(number.0);
        let mut parts = Vec::new();
        // Behind the last record that is whole.
        let mut good = 0;
        let damage = loop {
            let record = match reader.next() {
                Ok(None) => break None,
                Ok(Some(record)) => record,
                Err(error @ Error::Corruption { .. }) => break Some(error.to_string()),
                Err(other) => return Err(other),
            };
            match Record::decode(record.bytes) {
                Ok(Record::Link(_)) => {}
                Ok(Record::Batch { first_sequence, batch, is_last }) => {
                    parts.push((first_sequence, batch));
                    // A batch whose end is missing never was.
                    for (first_sequence, batch) in
                        is_last.then(|| parts.drain(..)).into_iter().flatten()
                    {
                        for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                            memtable.add(sequence, op, Position::new(0, 0));
                        }
                    }
                }
                Ok(Record::Carried { sequences, batch }) => {
                    for (sequence, op) in sequences.into_iter().zip(batch.iter()) {
                        memtable.add(sequence, op, Position::new(0, 0));
                    }
                }
                Err(reason) => break Some(reason),
            }
            if parts.is_empty() {
                good = reader.valid_bytes();
            }
        };
        let (row, mut writer) = self.writer()?;
        let mut retain = Retain::new(vec![u64::MAX]);
        memtable.for_each(|entry, _| {
            let is_kept =
                live.contains(entry.key) && retain.keep(entry.key, entry.sequence).is_some();
            if is_kept { writer.add(entry) } else { Ok(()) }
        })?;
        let saved = self.finish(row, writer, 0, state)?;
        match damage {
            None => {
                self.tell(format!("{name}: {saved} entries replayed into level 0"));
                self.replayed.push(name);
            }
            Some(damage) => {
                let lost = good..self.media.open(&name, Mode::Read)?.len()?;
                self.tell(format!(
                    "{name} is damaged ({damage}): {saved} entries before that saved, lost what was in \
                     {}; the file kept as {name}.damaged",
                    shown(&lost)
                ));
                self.aside.push(name);
            }
        }
        Ok(())
    }

    fn writer(&mut self) -> Result<(FileNumber, TableWriter)> {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        let options = Options::default().table_options();
        let name = FileKind::Table.name(number);
        let media = self.media.as_ref();
        Ok((number, TableWriter::create(media, &name, number, options, Purpose::Maintenance)?))
    }

    fn write_manifest(&mut self, mut state: Edit) -> Result<()> {
        state.next_file = Some(self.next_file);
        state.first_log = Some(self.next_file);
        let cache = Arc::new(BlockCache::new(0));
        // Claimed anew: each page once.
        self.claims = None;
        let has_nvm = state.added.iter().any(FileEntry::is_in_nvm);
        let claims = has_nvm.then(|| pool::claims(self.media, 0)).transpose()?;
        let nvm = claims.as_ref().map_or(NvmRows::None, NvmRows::Claimed);
        let cursor = state.cursor.clone().unwrap_or_default();
        let opener = Opener { media: self.media, cache: &cache, nvm, cursor: &cursor };
        let tables = opener.open_all(&state.added)?;
        state.last_sequence = tables.iter().map(Opened::max_sequence).max();
        // Levels that no longer fit together (a table saved in part, say) go to level 0.
        if Version::new(1).apply(&state, &tables).is_err() {
            self.tell("levels overlap: every table goes to level 0".to_owned());
            let arrival = state.cursor.clone().unwrap_or_default();
            for entry in state.added.iter_mut().filter(|entry| entry.level > 0) {
                let arrival = arrival.clone();
                let data_bytes = entry.bytes;
                entry.level = 0;
                entry.row = Some(RowEntry { arrival, log: None, nvm: None, data_bytes });
            }
        }
        self.aside.iter().try_for_each(|name| aside::keep(self.media.as_ref(), name))?;
        self.media.sync_dir(Purpose::Maintenance)?;
        match Manifest::open(self.media.clone(), ENGINE) {
            Ok((mut manifest, _)) => {
                manifest.rewrite(&state.encode())?;
                manifest.close()?;
            }
            Err(_) => {
                for name in self.media.list()?.iter().filter(|name| Manifest::owns(name)) {
                    self.media.rename(name, &format!("{name}.damaged"))?;
                }
                Manifest::create(self.media.clone(), ENGINE, &state.encode())?.close()?;
            }
        }
        self.aside.iter().try_for_each(|name| aside::leave(self.media.as_ref(), name))?;
        self.replayed.iter().try_for_each(|name| self.media.remove(name))?;
        self.media.sync_dir(Purpose::Maintenance)?;
        self.tell(format!("the new manifest names {} table files", state.added.len()));
        Ok(())
    }

    fn tell(&mut self, line: String) {
        self.story.push(line);
    }
}

/// Bytes of a file, in words.
fn shown(bytes: &Range<u64>) -> String {
    format!("bytes {} to {}", bytes.start, bytes.end)
}

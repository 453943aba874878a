//! Makes a damaged table open again, with all that can be read.
//!
//! 1. The manifest is read as far as it holds. If it does not hold at all, every sound table goes to
//!    level 0, newest file first; a table that a compaction had replaced and that was not yet
//!    removed may then show deleted keys again, and the report says so.
//! 2. Each table is read whole. From a damaged one the readable entries are copied to a new table
//!    on the same level.
//! 3. Each log is replayed up to its first damage, into a new table of level 0.
//! 4. A new manifest names the result. Damaged files are kept beside it under `*.damaged`.
//!
//! Nothing is deleted. The table must not be open.

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_media::Media;
use siltstone_table::{
    BlockCache, FileKind, FileNumber, LogMode, LogReader, Manifest, Table, TableWriter,
    parse_file_name,
};

use crate::memtable::Memtable;
use crate::options::Options;
use crate::version::{ENGINE, Edit, FileEntry, TableFile, Version, fold};
use crate::write::Record;

/// Repairs the table on `media`; the answer tells, line by line, what was found and done.
///
/// # Errors
/// Failures of the medium. Damage is not an error here: it is what is repaired.
pub fn repair(media: &Arc<dyn Media>) -> Result<Vec<String>> {
    let mut repair = Repair { media, story: Vec::new(), next_file: 1 };
    repair.run()?;
    Ok(repair.story)
}

struct Repair<'a> {
    media: &'a Arc<dyn Media>,
    story: Vec<String>,
    next_file: u64,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        let names = self.media.list()?;
        let numbered: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        self.next_file = numbered.iter().map(|(_, number)| number.0 + 1).max().unwrap_or(1);

        let known = self.read_manifest()?;
        let mut state = Edit { first_log: Some(0), ..Edit::default() };
        let mut placed = BTreeSet::new();
        if let Some(known) = &known {
            state.cursors.clone_from(&known.cursors);
            for entry in &known.added {
                placed.insert(entry.number);
                self.check_table(entry.level, entry.number, &mut state)?;
            }
        } else {
            for &(kind, number) in &numbered {
                if kind == FileKind::Table && placed.insert(number.0) {
                    self.check_table(0, number.0, &mut state)?;
                }
            }
        }
        let first_log = known.and_then(|known| known.first_log).unwrap_or(0);
        for (kind, number) in numbered {
            if kind == FileKind::Log && number.0 >= first_log {
                self.replay(number, &mut state)?;
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
            Err(error @ (Error::Corruption { .. } | Error::Io { .. })) => {
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
    fn check_table(&mut self, level: usize, number: u64, state: &mut Edit) -> Result<()> {
        let name = FileKind::Table.name(FileNumber(number));
        let open = || -> Result<FileEntry> {
            let table = self.open(number)?;
            table.verify(|_| ControlFlow::Continue(()))?;
            Ok(FileEntry::of(table.meta(), level))
        };
        match open() {
            Ok(entry) => {
                state.added.push(entry);
                Ok(())
            }
            Err(error) if error.is_not_found() => {
                self.tell(format!("{name} is missing: what was in it is lost"));
                Ok(())
            }
            Err(Error::Corruption { offset, reason, .. }) => {
                let saved = self.copy_readable(level, number, state)?;
                self.tell(format!(
                    "{name} is damaged at byte {offset} ({reason}): {saved} entries saved, the \
                     file kept as {name}.damaged"
                ));
                self.media.rename(&name, &format!("{name}.damaged"))
            }
            Err(other) => Err(other),
        }
    }

    fn open(&self, number: u64) -> Result<Table> {
        let name = FileKind::Table.name(FileNumber(number));
        let file = self.media.open(&name, siltstone_media::Mode::Read)?;
        Table::open(file, &name, FileNumber(number), None)
    }

    /// Copies every entry in the readable blocks of a table into a new one; returns how many.
    fn copy_readable(&mut self, level: usize, number: u64, state: &mut Edit) -> Result<u64> {
        // Without its footer and index nothing in a table can be found.
        let Ok(table) = self.open(number) else { return Ok(0) };
        let (copy, mut writer) = self.writer()?;
        table.salvage(|entry| writer.add(entry))?;
        self.finish(copy, writer, level, state)
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

    /// Writes what a log holds, up to its first damage, to a table of level 0.
    fn replay(&mut self, number: FileNumber, state: &mut Edit) -> Result<()> {
        let name = FileKind::Log.name(number);
        let mut reader = LogReader::open(self.media.as_ref(), &name, number.0, LogMode::Recover)?;
        let memtable = Memtable::new(number.0, number.0);
        let damage = loop {
            let record = match reader.next() {
                Ok(None) => break None,
                Ok(Some(record)) => record,
                Err(error @ Error::Corruption { .. }) => break Some(error.to_string()),
                Err(other) => return Err(other),
            };
            match Record::decode(record.bytes) {
                Ok(Record::Chain { .. }) => {}
                Ok(Record::Batch { first_sequence, batch }) => {
                    for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                        memtable.add(sequence, op, record.position);
                    }
                }
                Err(reason) => break Some(reason),
            }
        };
        let (row, mut writer) = self.writer()?;
        memtable.for_each(|entry| writer.add(entry))?;
        let saved = self.finish(row, writer, 0, state)?;
        match damage {
            None => {
                self.tell(format!("{name}: {saved} entries replayed into level 0"));
                self.media.remove(&name)
            }
            Some(damage) => {
                self.tell(format!(
                    "{name} is damaged ({damage}): {saved} entries before that saved, the file \
                     kept as {name}.damaged"
                ));
                self.media.rename(&name, &format!("{name}.damaged"))
            }
        }
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
        let tables: Vec<_> = state
            .added
            .iter()
            .map(|entry| TableFile::open(self.media, entry.clone(), &cache))
            .collect::<Result<_>>()?;
        state.last_sequence = tables.iter().map(|table| table.max_sequence()).max();
        // Levels that no longer fit together (a table saved in part, say) go to level 0.
        if Version::new(1).apply(&state, &tables).is_err() {
            self.tell("levels overlap: every table goes to level 0".to_owned());
            state.added.iter_mut().for_each(|entry| entry.level = 0);
        }
        for name in self.media.list()? {
            if name == "CURRENT" || name.starts_with("MANIFEST-") && !name.ends_with(".damaged") {
                self.media.rename(&name, &format!("{name}.damaged"))?;
            }
        }
        Manifest::create(self.media.clone(), ENGINE, &state.encode())?.close()?;
        self.media.sync_dir(Purpose::Maintenance)?;
        self.tell(format!("the new manifest names {} tables", state.added.len()));
        Ok(())
    }

    fn tell(&mut self, line: String) {
        self.story.push(line);
    }
}

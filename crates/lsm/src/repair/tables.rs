//! Checks the tables and L0 runs that a manifest names, and saves the readable entries of damaged
//! ones.
//!
//! A damaged table is replaced by a new one on the same level with all entries of its valid blocks.
//! It is within the bounds of the old one, so the levels still fit together.
//!
//! Invariant: every entry is in the resulting state, or in a reported loss.

use siltstone_engine::{Error, Loss, Purpose, Result};
use siltstone_table::{FileKind, FileNumber, Kind, salvage_table};
use siltstone_vfs::{Mode, PageClaims};

use super::Repair;
use super::blobs::{CopiedReferences, References};
use super::lost_references::{FoundVersions, whole};
use crate::live_range::LiveRange;
use crate::pool::{self, POOL_FILE};
use crate::rowtable::{RowHandle, RowTable};
use crate::version::{Edit, FileEntry, L0RunEntry};

/// The result of saving a table.
pub(super) struct SavedTable {
    /// The new table, if any entry was saved, and the number of its entries.
    pub(super) table: Option<(FileEntry, u64)>,
    pub(super) losses: Vec<Loss>,
    /// It is the index of a log, which contains the entries.
    pub(super) is_index: bool,
}

/// Whether an undamaged table is the one that the manifest names, and no older or other one.
pub(super) fn is_named(found: &FileEntry, named: &FileEntry) -> bool {
    let identity = |entry: &FileEntry| (entry.bytes, entry.smallest.clone(), entry.largest.clone());
    identity(found) == identity(named)
}

/// Adds the copy of a table, with its live range.
fn add_copy(saved: SavedTable, named: &FileEntry, state: &mut Edit) {
    let Some((mut made, _)) = saved.table else { return };
    if let (Some(made), Some(run)) = (&mut made.run, &named.run) {
        made.inserted_at.clone_from(&run.inserted_at);
    }
    state.added.push(made);
}

impl Repair<'_> {
    /// Adds a table to `state`: unchanged if it is undamaged, else with its readable entries.
    pub(super) fn check_table(
        &mut self,
        named: &FileEntry,
        known: &Edit,
        state: &mut Edit,
    ) -> Result<()> {
        let name = named.file_name();
        let mut is_other = false;
        let (at, reason) = match self.intact_table(named.kind(), named.number, named.level) {
            Ok((found, _)) if is_named(&found, named) => {
                if !self.has_damaged_blobs(named) {
                    state.added.push(named.clone());
                    return Ok(());
                }
                return self.copy_with_values(named, state);
            }
            Ok(_) => {
                is_other = true;
                (0, "it is another table than the manifest names".to_owned())
            }
            Err(error) if error.is_not_found() => {
                self.report.note(format!("{name} is missing"));
                let loss = whole(named);
                self.report.record_loss(loss.clone());
                return self.replace_missing(named, &[loss], known, state);
            }
            Err(Error::Corruption { offset, reason, .. }) => (offset, reason),
            Err(other) => return Err(other),
        };
        let table = (named.kind(), FileNumber(named.number));
        let losses = match is_other {
            true => vec![whole(named)],
            false => self.lost_blocks(named)?,
        };
        let found = self.find_lost(named, &losses, known)?;
        let references = References::Copied { uses: &named.blobs, found };
        let saved = self.copy_readable(named.level, table, Some(named.bytes), references)?;
        let entries = saved.table.as_ref().map_or(0, |(_, entries)| *entries);
        self.report
            .note(format!("{name} is damaged at byte {at} ({reason}): {entries} entries saved"));
        saved.losses.iter().for_each(|loss| self.report.record_loss(loss.clone()));
        self.files.keep(name, &mut self.report);
        add_copy(saved, named, state);
        Ok(())
    }

    /// The lost blocks of a damaged table that refers to values.
    fn lost_blocks(&self, named: &FileEntry) -> Result<Vec<Loss>> {
        if named.blobs.is_empty() {
            return Ok(Vec::new());
        }
        let (name, table) = (named.file_name(), (named.kind(), FileNumber(named.number)));
        let file = self.vfs.open(&name, Mode::Read)?;
        salvage_table(file.as_ref(), &name, table, Some(named.bytes), |_| Ok(()))
    }

    /// Adds a table with the values that a missing one referred to, if it did.
    fn replace_missing(
        &mut self,
        named: &FileEntry,
        losses: &[Loss],
        known: &Edit,
        state: &mut Edit,
    ) -> Result<()> {
        let mut found = self.find_lost(named, losses, known)?;
        let ((copy, mut writer), mut copied) = (self.writer()?, CopiedReferences::default());
        Self::add_found(&mut found, None, &mut copied, &mut writer)?;
        let mut table = self.finish(copy, writer, named.level)?;
        self.note_references(copied, &named.blobs, table.as_mut().map(|(made, _)| made));
        add_copy(SavedTable { table, losses: Vec::new(), is_index: false }, named, state);
        Ok(())
    }

    /// Adds a copy of an intact table that refers to damaged files, with the values that are
    /// readable.
    fn copy_with_values(&mut self, named: &FileEntry, state: &mut Edit) -> Result<()> {
        let table = (named.kind(), FileNumber(named.number));
        let found = FoundVersions::new();
        let references = References::Copied { uses: &named.blobs, found };
        let saved = self.copy_readable(named.level, table, Some(named.bytes), references)?;
        let (name, entries) =
            (named.file_name(), saved.table.as_ref().map_or(0, |(_, entries)| *entries));
        self.report.note(format!("{name} refers to damaged files: {entries} entries saved"));
        saved.losses.iter().for_each(|loss| self.report.record_loss(loss.clone()));
        self.files.remove(name);
        add_copy(saved, named, state);
        Ok(())
    }

    /// Copies every entry in the readable blocks of a table to a new one.
    pub(super) fn copy_readable(
        &mut self,
        level: usize,
        table: (FileKind, FileNumber),
        bytes: Option<u64>,
        mut references: References<'_>,
    ) -> Result<SavedTable> {
        let name = table.0.name(table.1);
        let file = self.vfs.open(&name, Mode::Read)?;
        let (copy, mut writer) = self.writer()?;
        let (mut is_index, mut copied) = (false, CopiedReferences::default());
        let losses = salvage_table(file.as_ref(), &name, table, bytes, |entry| {
            if entry.kind == Kind::Position {
                is_index = true;
                return Ok(());
            }
            if let References::Copied { found, .. } = &mut references {
                Self::add_found(found, Some(&entry), &mut copied, &mut writer)?;
            }
            match &references {
                References::Copied { uses, .. } if entry.kind == Kind::Reference => {
                    self.copy_reference(entry, &name, uses, &mut copied, &mut writer)
                }
                References::Skipped if entry.kind == Kind::Reference => Ok(()),
                _ => writer.add(entry),
            }
        })?;
        if let References::Copied { found, .. } = &mut references {
            Self::add_found(found, None, &mut copied, &mut writer)?;
        }
        let mut table = self.finish(copy, writer, level)?;
        if let References::Copied { uses, .. } = references {
            self.note_references(copied, uses, table.as_mut().map(|(made, _)| made));
        }
        Ok(SavedTable { table, losses, is_index })
    }

    /// Copies the readable versions of a run in persistent memory to a table; returns its number,
    /// if there are any.
    pub(super) fn save_pmem_run(&mut self, entry: &FileEntry) -> Result<Option<u64>> {
        let Some(handle) = entry.run.as_ref().and_then(|run| run.pmem) else { return Ok(None) };
        let claims = match self.claims.take().map_or_else(|| pool::claims(self.vfs, 0), Ok) {
            Ok(claims) => self.claims.insert(claims),
            Err(error) if error.is_corruption() => return Ok(None),
            Err(other) => return Err(other),
        };
        let run = match RowTable::open(claims, handle, entry.number, LiveRange::all()) {
            Ok(run) => run,
            // Its pages may belong to another run by now.
            Err(error) if error.is_corruption() => return Ok(None),
            Err(other) => return Err(other),
        };
        let (number, mut writer) = self.writer()?;
        run.salvage(|entry| writer.add(entry))?;
        drop(run);
        Ok(self.finish(number, writer, 0)?.map(|(made, _)| made.number))
    }

    /// Adds a run in persistent memory to `state`: unchanged if undamaged, else its readable
    /// versions.
    pub(super) fn check_pmem_run(
        &mut self,
        entry: &FileEntry,
        run: &L0RunEntry,
        handle: RowHandle,
        state: &mut Edit,
    ) -> Result<()> {
        let cursor = state.cursor.clone().unwrap_or_default();
        let live = LiveRange::new(&cursor, &run.inserted_at);
        let open = |claims: &PageClaims| RowTable::open(claims, handle, entry.number, live);
        let opened = match self.claims.take().map_or_else(|| pool::claims(self.vfs, 0), Ok) {
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
            if let Some((mut made, entries)) = self.finish(number, writer, 0)? {
                saved = entries;
                if let Some(made) = &mut made.run {
                    made.inserted_at.clone_from(&run.inserted_at);
                }
                state.added.push(made);
            }
        }
        let lost_text = lost.map_or("the rest".to_owned(), |lost: u64| lost.to_string());
        self.report.note(format!(
            "run {} in persistent memory is damaged ({damage}): {saved} entries saved in a table, \
             {lost_text} lost",
            entry.number
        ));
        if lost != Some(0) {
            let loss = Loss::entries(POOL_FILE, 0..u64::MAX);
            let keys = (&*entry.smallest, &*entry.largest);
            self.report.record_loss(loss.with_keys(Some(keys.0), Some(keys.1)));
        }
        self.is_pool_damaged = true;
        Ok(())
    }
}

//! Makes a damaged table open again, with all that can be read.
//!
//! 0. A table that is sound is left as it is.
//! 1. The manifest is read. If it does not hold, or names files that are missing while others are
//!    there that
//!    it does not name, every readable table and log is merged into level 1 (`merged`): nothing
//!    tells
//!    which files are current, so deleted keys may be visible again, and the report says so.
//! 2. Each table is read whole. From a damaged one the entries of all sound blocks are copied to a
//!    new
//!    table on the same level (`tables`). A CL-SSTable of which the table or the log is damaged is
//!    made
//!    anew as a sorted table from what its log holds.
//!    A row in persistent memory of which something is damaged is made anew as a sorted table from
//!    the
//!    versions that can be read; without its header, directory or metadata nothing can. Without a
//!    manifest nothing says where rows are, and the pool is put aside.
//! 3. The chain of logs is read as opening reads it, and behind each damage, too: every whole
//!    record of
//!    a log goes into a new table of level 0 (`logs`).
//! 4. A new manifest names the result. Then damaged files are kept beside it under `*.damaged`, and
//!    logs
//!    that were replayed whole are removed: a repair that is cut off before can be run again.
//!
//! Opening promises a prefix of the writes. Repair saves more on purpose, and reports each gap: a
//! file, its bytes, and where it is known the operations or keys that were there. The table must
//! not be open.
//!
//! Invariant: every entry is saved, or lies in a reported loss. No damaged file is deleted.

mod logs;
mod merged;
mod tables;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, RepairReport, Result};
use siltstone_table::{
    BlockCache, FileKind, FileNumber, Manifest, Table, TableWriter, aside, parse_file_name,
    salvage_chain,
};
use siltstone_vfs::{PageClaims, Vfs};

use crate::closed::verify_closed;
use crate::options::Options;
use crate::pool::{self, POOL_FILE};
use crate::version::{
    ENGINE, Edit, FileEntry, LOG_OF_ROW, NvmRows, Opened, Opener, RowEntry, Version, fold,
};

/// Repairs the table on `media`.
///
/// # Errors
/// Failures of the medium. Damage is not an error here: it is what is repaired.
pub fn repair(vfs: &Arc<dyn Vfs>) -> Result<RepairReport> {
    let mut repair = Repair {
        vfs,
        report: RepairReport::default(),
        aside: BTreeSet::new(),
        replayed: BTreeSet::new(),
        next_file: 1,
        claims: None,
        is_pool_damaged: false,
        pool_bytes: 0,
    };
    repair.run()?;
    Ok(repair.report)
}

struct Repair<'a> {
    vfs: &'a Arc<dyn Vfs>,
    report: RepairReport,
    /// Damaged files, to be kept under another name once the new manifest is in force.
    aside: BTreeSet<String>,
    /// Logs and drafts, to be removed then.
    replayed: BTreeSet<String>,
    next_file: u64,
    /// The pool of rows in persistent memory, while rows are looked at.
    claims: Option<PageClaims>,
    /// A row in it does not hold, while others may go on to lie there.
    is_pool_damaged: bool,
    /// How long the pool's file was before it was mapped, which may lengthen it.
    pool_bytes: u64,
}

/// What the manifest says, and whether it holds.
struct Known {
    edit: Option<Edit>,
    /// The manifest and `CURRENT` are as they should be.
    is_sound: bool,
    /// The manifest that was read.
    name: Option<String>,
    /// Which of them is damaged, and how.
    damage: Option<(String, String)>,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        if self.vfs.exists(POOL_FILE)? {
            self.pool_bytes = self.vfs.open(POOL_FILE, siltstone_vfs::Mode::Read)?.len()?;
        }
        let known = self.read_manifest()?;
        if known.is_sound && self.is_sound(known.edit.as_ref())? {
            self.report.note("everything that the manifest names is sound: nothing to repair");
            return Ok(());
        }
        let names = self.vfs.list()?;
        let numbered: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        let next = numbered.iter().map(|(_, number)| number.0 + 1).max().unwrap_or(1);
        let next_known = known.edit.as_ref().and_then(|edit| edit.next_file).unwrap_or(1);
        // What no table can have come to is no use.
        self.next_file = next.max(next_known.min(FileNumber::LAST.0));

        let Known { edit, mut is_sound, name, damage } = known;
        if let Some(edit) = &edit
            && !self.is_superseded(edit, &numbered)?
        {
            if let Some((file, reason)) = &damage {
                self.report.note(format!(
                    "{file} is damaged ({reason}): the newest manifest is read, and holds"
                ));
            }
            // A manifest that was sealed at close is no older one.
            let may_be_older = !is_sound || edit.sealed_log.is_none();
            let is_older = may_be_older && self.is_lacking(edit, &numbered)?;
            is_sound &= !is_older;
            if is_older && self.vfs.exists(POOL_FILE)? {
                // What the edits that are missing named may be there.
                self.report.note(format!("rows in {POOL_FILE} may be missing in the manifest"));
                self.report.lose(Loss::entries(POOL_FILE, 0..u64::MAX));
                self.report.lose(Loss::order(name.as_deref().unwrap_or("MANIFEST")));
                self.is_pool_damaged = true;
            }
            let mut state = self.check_known(edit)?;
            match self.fit(&mut state) {
                // Levels that do not fit together are no manifest to go by.
                Err(error) if error.is_corruption() => self.report.note(error.to_string()),
                fits => return fits.and_then(|()| self.write_manifest(&state, is_sound)),
            }
        }
        let (file, reason) = damage.unwrap_or_else(|| {
            let reason = "it does not fit the files that are there".to_owned();
            (name.unwrap_or_else(|| "MANIFEST".to_owned()), reason)
        });
        self.report.note(format!(
            "the manifest does not hold ({file}: {reason}): every readable table and log is merged"
        ));
        self.report.lose(Loss::order(file));
        let mut state = self.merge_all(&numbered, edit.as_ref())?;
        self.fit(&mut state)?;
        self.write_manifest(&state, false)
    }

    /// What the manifest says.
    fn read_manifest(&self) -> Result<Known> {
        let rescued = Manifest::rescue(self.vfs, ENGINE)?;
        let name = rescued.name;
        let (edit, damage) = match rescued.edits.as_ref().map(|edits| fold(edits)) {
            Some(Ok(edit)) => (Some(edit), rescued.damage),
            Some(Err(Error::Corruption { reason, .. })) => {
                (None, Some(("MANIFEST".to_owned(), reason)))
            }
            Some(Err(other)) => return Err(other),
            None => (None, rescued.damage),
        };
        let is_sound = edit.is_some() && damage.is_none() && !rescued.is_torn;
        Ok(Known { edit, is_sound, name, damage })
    }

    /// Whether nothing is to be repaired. What cannot be checked is no reason to leave it.
    fn is_sound(&self, edit: Option<&Edit>) -> Result<bool> {
        if !verify_closed(self.vfs).is_ok_and(|report| report.is_sound()) {
            return Ok(false);
        }
        let Some(edit) = edit else { return Ok(false) };
        let first = Some(edit.first_log.unwrap_or(0));
        let logs = salvage_chain(self.vfs.as_ref(), first, edit.sealed_log, edit.synced_log)?;
        Ok(logs.iter().all(|log| log.damage.is_none()))
    }

    /// Whether the manifest is of before the files that are there: it names some that are missing,
    /// and does not name all tables. An older copy would say so, or one that lost its end.
    fn is_superseded(&self, edit: &Edit, numbered: &[(FileKind, FileNumber)]) -> Result<bool> {
        let named: BTreeSet<u64> = edit.added.iter().map(|entry| entry.number).collect();
        let has_others = numbered
            .iter()
            .any(|(kind, number)| *kind == FileKind::Table && !named.contains(&number.0));
        Ok(has_others && self.is_lacking(edit, numbered)?)
    }

    /// Whether the manifest names files that are missing.
    fn is_lacking(&self, edit: &Edit, numbered: &[(FileKind, FileNumber)]) -> Result<bool> {
        let is_there = |kind, number| numbered.contains(&(kind, FileNumber(number)));
        let is_lacking = edit.added.iter().any(|entry| match &entry.row {
            Some(RowEntry { nvm: Some(_), .. }) => false,
            Some(RowEntry { log: Some((log, _)), .. }) => {
                !is_there(FileKind::Table, entry.number) || !is_there(FileKind::Log, *log)
            }
            _ => !is_there(FileKind::Table, entry.number),
        });
        let first = Some(edit.first_log.unwrap_or(0));
        let logs = salvage_chain(self.vfs.as_ref(), first, edit.sealed_log, edit.synced_log)?;
        Ok(is_lacking || logs.iter().any(|log| log.file.is_none()))
    }

    /// Checks and saves what the manifest names.
    fn check_known(&mut self, known: &Edit) -> Result<Edit> {
        let mut state = Edit { first_log: Some(0), ..Edit::default() };
        state.cursors.clone_from(&known.cursors);
        state.cursor.clone_from(&known.cursor);
        for entry in &known.added {
            match &entry.row {
                Some(row @ RowEntry { nvm: Some(handle), .. }) => {
                    self.check_nvm_row(entry, row, *handle, &mut state)?;
                }
                Some(row @ RowEntry { log: Some(log), .. }) => {
                    self.check_row(entry, row, *log, &mut state)?;
                }
                _ => self.check_table(entry, &mut state)?,
            }
        }
        let first = Some(known.first_log.unwrap_or(0));
        let logs = salvage_chain(self.vfs.as_ref(), first, known.sealed_log, known.synced_log)?;
        let arrival = state.cursor.clone().unwrap_or_default();
        let rows = self.replay_chain(&logs, known.last_sequence)?;
        for mut entry in rows {
            if let Some(row) = &mut entry.row {
                row.arrival.clone_from(&arrival);
            }
            state.added.push(entry);
        }
        Ok(state)
    }

    /// A table as the manifest would name it, and whether it is the index of a log; an error if any
    /// of it does not hold.
    fn sound_table(&self, number: u64, level: usize) -> Result<(FileEntry, bool)> {
        let table = self.open(number)?;
        table.verify(|_| ControlFlow::Continue(()))?;
        let is_index = table.meta_block(LOG_OF_ROW, Purpose::Maintenance)?.is_some();
        Ok((FileEntry::of(table.meta(), level), is_index))
    }

    fn open(&self, number: u64) -> Result<Table> {
        let name = FileKind::Table.name(FileNumber(number));
        let file = self.vfs.open(&name, siltstone_vfs::Mode::Read)?;
        Table::open(file, &name, FileNumber(number), None)
    }

    fn writer(&mut self) -> Result<(FileNumber, TableWriter)> {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        let options = Options::default().table_options();
        let name = FileKind::Table.name(number);
        let vfs = self.vfs.as_ref();
        Ok((number, TableWriter::create(vfs, &name, number, options, Purpose::Maintenance)?))
    }

    /// Ends a table; `None` if it is empty.
    fn finish(
        &mut self,
        number: FileNumber,
        writer: TableWriter,
        level: usize,
    ) -> Result<Option<(FileEntry, u64)>> {
        if writer.entries() == 0 {
            drop(writer);
            self.vfs.remove(&FileKind::Table.name(number))?;
            return Ok(None);
        }
        let meta = writer.finish()?;
        Ok(Some((FileEntry::of(&meta, level), meta.entries)))
    }

    /// Opens what the new manifest is to name, as the next opening will.
    fn fit(&mut self, state: &mut Edit) -> Result<()> {
        state.next_file = Some(self.next_file);
        state.first_log = Some(self.next_file);
        let cache = Arc::new(BlockCache::new(0));
        // Claimed anew: each page once.
        self.claims = None;
        let has_nvm = state.added.iter().any(FileEntry::is_in_nvm);
        let claims = has_nvm.then(|| pool::claims(self.vfs, 0)).transpose()?;
        let nvm = claims.as_ref().map_or(NvmRows::None, NvmRows::Claimed);
        let cursor = state.cursor.clone().unwrap_or_default();
        let opener = Opener { vfs: self.vfs, cache: &cache, nvm, cursor: &cursor };
        let tables = opener.open_all(&state.added)?;
        state.last_sequence = tables.iter().map(Opened::max_sequence).max();
        Version::new(1).apply(state, &tables).map(drop)
    }

    fn write_manifest(&mut self, state: &Edit, is_sound: bool) -> Result<()> {
        if self.is_pool_damaged && self.vfs.exists(POOL_FILE)? {
            self.report.note(format!("a copy of {POOL_FILE} is kept as {POOL_FILE}.damaged"));
            aside::copy(self.vfs.as_ref(), POOL_FILE, self.pool_bytes)?;
        }
        self.aside.iter().try_for_each(|name| aside::keep(self.vfs.as_ref(), name))?;
        self.vfs.sync_dir(Purpose::Maintenance)?;
        Manifest::replace(self.vfs, ENGINE, &state.encode(), is_sound)?;
        self.aside.iter().try_for_each(|name| aside::leave(self.vfs.as_ref(), name))?;
        let replayed = self.replayed.iter().filter(|name| !self.aside.contains(*name));
        replayed.into_iter().try_for_each(|name| self.vfs.remove(name))?;
        self.vfs.sync_dir(Purpose::Maintenance)?;
        self.report.note(format!("the new manifest names {} table files", state.added.len()));
        Ok(())
    }

    /// Keeps a damaged file under another name, and says so.
    fn keep(&mut self, name: String) {
        self.report.note(format!("{name} is kept as {name}.damaged"));
        self.aside.insert(name);
    }

    /// Saves the rows in persistent memory that a manifest names which does not hold; there may be
    /// others.
    fn save_pool(&mut self, known: Option<&Edit>) -> Result<Vec<u64>> {
        let mut drafts = Vec::new();
        let rows = known.into_iter().flat_map(|edit| &edit.added);
        for entry in rows.filter(|entry| entry.is_in_nvm()) {
            drafts.extend(self.save_nvm_row(entry)?);
        }
        self.claims = None;
        if self.vfs.exists(POOL_FILE)? {
            self.report
                .note(format!("without a manifest not all rows in {POOL_FILE} can be found"));
            self.report.lose(Loss::entries(POOL_FILE, 0..u64::MAX));
            self.is_pool_damaged = true;
        }
        Ok(drafts)
    }
}

//! Repairs a damaged table, so that it opens with everything that is readable.
//!
//! 0. A consistent table is not changed.
//! 1. The manifest is read. If it is damaged, or names missing files while there are tables that it
//!    does not name, every readable table and log is merged into level 1 (`merged`). Then the
//!    current files are unknown, so deleted keys may reappear, and the report says so.
//! 2. Each table is read completely. The entries in the valid blocks of a damaged one are copied to
//!    a new table on the same level (`tables`). Values that a table refers to in a damaged file are
//!    copied into the table, as far as they can be read (`blobs`). For the keys of a damaged block
//!    values are searched in the files that the table refers to (`lost_references`). A CL-SSTable
//!    with a damaged table or log is rebuilt as a sorted table from its log. A damaged run in
//!    persistent memory is rebuilt as a sorted table from its readable versions; none are readable
//!    without its header, directory and metadata. Without a manifest the runs in the pool cannot be
//!    found, and the pool is quarantined.
//! 3. The chain of logs is read as by recovery, and also behind each damaged part: every intact
//!    record of a log goes into a new table of level 0 (`logs`).
//! 4. A new manifest names the result. Then damaged files are renamed to `*.damaged`, and
//!    completely replayed logs are removed. A repair that is interrupted before can be run again.
//!
//! Recovery guarantees a prefix of the writes. Repair saves more than that, and reports each gap: a
//! file, a byte range, and if known the operations or keys in it. The table must not be open.
//!
//! Invariant: every entry is saved, or is in a reported loss. No damaged file is deleted.

mod blobs;
mod logs;
mod lost_references;
mod merged;
mod tables;

use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use siltstone_durable::repair::{KnownManifest, ReplacedFiles, salvage_logs};
use siltstone_engine::{Loss, Purpose, RepairReport, Result};
use siltstone_table::log::LogArchive;
use siltstone_table::{
    BlockCache, FileKind, FileNumber, SalvageItem, Table, TableWriter, parse_file_name, quarantine,
};
use siltstone_vfs::{PageClaims, Vfs};

use crate::closed::verify_closed;
use crate::options::Options;
use crate::pool::{self, POOL_FILE};
use crate::range_deletes::{RangeDelete, RangeDeletes};
use crate::record::Record;
use crate::version::{
    BlobOpener, Edit, FileEntry, FileOpener, L0RunEntry, LOG_OF_RUN, OpenFile, PmemRuns, Version,
};

/// Repairs the table in `vfs`.
///
/// # Errors
/// Failures of the file system. Damage is repaired and reported, and is not an error.
pub fn repair(vfs: &Arc<dyn Vfs>) -> Result<RepairReport> {
    let mut repair = Repair {
        vfs,
        logs: Arc::new(LogArchive::disabled(vfs.clone())),
        report: RepairReport::default(),
        files: ReplacedFiles::default(),
        next_file: 1,
        range_deletes: Vec::new(),
        damaged_blobs: BTreeSet::new(),
        claims: None,
        is_pool_damaged: false,
        pool_bytes: 0,
    };
    repair.run()?;
    Ok(repair.report)
}

struct Repair<'a> {
    vfs: &'a Arc<dyn Vfs>,
    logs: Arc<LogArchive>,
    report: RepairReport,
    /// Damaged files, replayed logs and drafts.
    files: ReplacedFiles,
    next_file: u64,
    /// The range deletions of the manifest and of all replayed logs.
    range_deletes: Vec<Arc<RangeDelete>>,
    /// The numbers of damaged or missing files with values that the manifest names.
    damaged_blobs: BTreeSet<u64>,
    /// The pool of runs in persistent memory, while they are checked.
    claims: Option<PageClaims>,
    /// A run in it is damaged, while others may stay.
    is_pool_damaged: bool,
    /// The length of the pool's file before it was mapped, which may extend it.
    pool_bytes: u64,
}

impl Repair<'_> {
    fn run(&mut self) -> Result<()> {
        if self.vfs.exists(POOL_FILE)? {
            self.pool_bytes = self.vfs.open(POOL_FILE, siltstone_vfs::Mode::Read)?.len()?;
        }
        let mut known = KnownManifest::<Version>::read(self.vfs)?;
        if known.is_intact && self.passes_verification(known.edit.as_ref())? {
            self.report.note("everything that the manifest names is intact: nothing to repair");
            return Ok(());
        }
        let names = self.vfs.list()?;
        let numbered: Vec<_> = names.iter().filter_map(|name| parse_file_name(name)).collect();
        let next = numbered.iter().map(|(_, number)| number.0 + 1).max().unwrap_or(1);
        let next_known = known.edit.as_ref().and_then(|edit| edit.header.next_file).unwrap_or(1);
        // A number that cannot have been allocated is ignored.
        self.next_file = next.max(next_known.min(FileNumber::LAST.0));

        let edit = known.edit.take();
        self.range_deletes.extend(edit.iter().flat_map(|edit| edit.range_deletes.iter().cloned()));
        if let Some(edit) = &edit
            && !self.is_superseded(edit, &numbered)?
        {
            known.report_damage(&mut self.report);
            // A manifest that was sealed at close is not an older one.
            let may_be_older = !known.is_intact || edit.header.sealed_log.is_none();
            let is_older = may_be_older && self.is_lacking(edit, &numbered)?;
            let is_intact = known.is_intact && !is_older;
            if self.lacks_ingestion(edit)? {
                // Its files are gone, too.
                self.report.note("files that were ingested are missing".to_owned());
                self.report.record_loss(Loss::order(known.name()));
            }
            if is_older && self.vfs.exists(POOL_FILE)? {
                // Missing edits may have named runs in it.
                self.report.note(format!("runs in {POOL_FILE} may be missing in the manifest"));
                self.report.record_loss(Loss::entries(POOL_FILE, 0..u64::MAX));
                self.report.record_loss(Loss::order(known.name()));
                self.is_pool_damaged = true;
            }
            let mut state = self.check_known(edit)?;
            match self.fit(&mut state) {
                // If the levels do not fit together, the manifest cannot be used.
                Err(error) if error.is_corruption() => self.report.note(error.to_string()),
                fits => return fits.and_then(|()| self.write_manifest(&state, is_intact)),
            }
        }
        known.report_unusable("every readable table and log is merged", &mut self.report);
        let mut state = self.merge_all(&numbered, edit.as_ref())?;
        self.fit(&mut state)?;
        self.write_manifest(&state, false)
    }

    /// Whether nothing needs repair; `false` if the check fails.
    fn passes_verification(&self, edit: Option<&Edit>) -> Result<bool> {
        if !verify_closed(self.vfs).is_ok_and(|report| report.is_intact()) {
            return Ok(false);
        }
        let Some(edit) = edit else { return Ok(false) };
        let logs = salvage_logs(self.vfs.as_ref(), &edit.header)?;
        Ok(logs.iter().all(|log| log.damage.is_none()))
    }

    /// Whether the manifest is older than the files: it names missing ones, and not all tables.
    /// That happens with an older copy, or one that lost its end.
    fn is_superseded(&self, edit: &Edit, numbered: &[(FileKind, FileNumber)]) -> Result<bool> {
        let named: BTreeSet<u64> = edit.added.iter().map(|entry| entry.number).collect();
        let has_others =
            numbered.iter().any(|(kind, number)| kind.is_table() && !named.contains(&number.0));
        Ok(has_others && (self.is_lacking(edit, numbered)? || self.lacks_ingestion(edit)?))
    }

    /// Whether the logs have evidence of an ingestion or of a removal of all keys that the manifest
    /// does not have.
    fn lacks_ingestion(&self, edit: &Edit) -> Result<bool> {
        let (known, mut newest) = (edit.header.last_sequence.unwrap_or(0), 0);
        for log in salvage_logs(self.vfs.as_ref(), &edit.header)? {
            log.visit(self.vfs.as_ref(), |item| {
                if let SalvageItem::Record { bytes, .. } = item
                    && let Ok(Record::Ingested(sequence) | Record::Cleared(sequence)) =
                        Record::decode(bytes)
                {
                    newest = newest.max(sequence);
                }
                Ok(())
            })?;
        }
        Ok(newest > known)
    }

    /// Whether the manifest names missing files.
    fn is_lacking(&self, edit: &Edit, numbered: &[(FileKind, FileNumber)]) -> Result<bool> {
        let is_there = |kind, number| numbered.contains(&(kind, FileNumber(number)));
        let lacks_blob = |entry: &FileEntry| {
            entry.blobs.iter().any(|used| !is_there(used.file.kind(), used.file.number))
        };
        let is_lacking = edit.added.iter().any(|entry| match &entry.run {
            _ if lacks_blob(entry) => true,
            Some(L0RunEntry { pmem: Some(_), .. }) => false,
            Some(L0RunEntry { log: Some((log, _)), .. }) => {
                !is_there(FileKind::Table, entry.number) || !is_there(FileKind::Log, *log)
            }
            _ => !is_there(entry.kind(), entry.number),
        });
        let logs = salvage_logs(self.vfs.as_ref(), &edit.header)?;
        Ok(is_lacking || logs.iter().any(|log| log.file.is_none()))
    }

    /// Checks and saves the files that the manifest names.
    fn check_known(&mut self, known: &Edit) -> Result<Edit> {
        let mut state = Edit::default();
        state.header.first_log = Some(0);
        state.cursors.clone_from(&known.cursors);
        state.cursor.clone_from(&known.cursor);
        state.merge_operator.clone_from(&known.merge_operator);
        self.check_blobs(known)?;
        for entry in &known.added {
            match &entry.run {
                Some(run @ L0RunEntry { pmem: Some(handle), .. }) => {
                    self.check_pmem_run(entry, run, *handle, &mut state)?;
                }
                Some(run @ L0RunEntry { log: Some(log), .. }) => {
                    self.check_row(entry, run, *log, &mut state)?;
                }
                _ => self.check_table(entry, known, &mut state)?,
            }
        }
        let logs = salvage_logs(self.vfs.as_ref(), &known.header)?;
        let inserted_at = state.cursor.clone().unwrap_or_default();
        let runs = self.replay_chain(&logs, known.header.last_sequence)?;
        for mut entry in runs {
            if let Some(run) = &mut entry.run {
                run.inserted_at.clone_from(&inserted_at);
            }
            state.added.push(entry);
        }
        Ok(state)
    }

    /// Reads a whole table; returns its entry, and whether it is the index of a log.
    ///
    /// # Errors
    /// `Corruption` if any of it does not match its checksum.
    fn intact_table(&self, kind: FileKind, number: u64, level: usize) -> Result<(FileEntry, bool)> {
        let table = self.open(kind, number)?;
        table.verify(|_| ControlFlow::Continue(()))?;
        let is_index = table.meta_block(LOG_OF_RUN, Purpose::Maintenance)?.is_some();
        Ok((FileEntry::of(table.meta(), level), is_index))
    }

    fn open(&self, kind: FileKind, number: u64) -> Result<Table> {
        let name = kind.name(FileNumber(number));
        let file = self.vfs.open(&name, siltstone_vfs::Mode::Read)?;
        Table::open_kind(file, &name, kind, FileNumber(number), None)
    }

    fn writer(&mut self) -> Result<(FileNumber, TableWriter)> {
        let number = FileNumber(self.next_file);
        self.next_file += 1;
        let options = Options::default().table_options();
        let name = FileKind::Table.name(number);
        let vfs = self.vfs.as_ref();
        Ok((number, TableWriter::create(vfs, &name, number, options, Purpose::Maintenance)?))
    }

    /// Finishes a table; `None` if it is empty.
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

    /// Opens the files of the new manifest, as the next open will.
    fn fit(&mut self, state: &mut Edit) -> Result<()> {
        state.header.next_file = Some(self.next_file);
        state.header.first_log = Some(self.next_file);
        let cache = Arc::new(BlockCache::new(0));
        // Claimed again, each page once.
        self.claims = None;
        let has_pmem = state.added.iter().any(FileEntry::is_in_pmem);
        let claims = has_pmem.then(|| pool::claims(self.vfs, 0)).transpose()?;
        let pmem = claims.as_ref().map_or(PmemRuns::None, PmemRuns::Claimed);
        let cursor = state.cursor.clone().unwrap_or_default();
        let blobs = BlobOpener::default();
        let opener = FileOpener { logs: &self.logs, cache: &cache, pmem, cursor: &cursor, blobs };
        let tables = opener.open_all(&state.added)?;
        let deletes = RangeDeletes::new(self.range_deletes.clone());
        state.range_deletes = deletes.iter().cloned().collect();
        let newest = tables.iter().map(OpenFile::max_sequence).max();
        state.header.last_sequence = newest.max(Some(deletes.max_sequence()).filter(|&s| s > 0));
        Version::new(1).apply(state, &tables).map(drop)
    }

    fn write_manifest(&mut self, state: &Edit, is_intact: bool) -> Result<()> {
        if self.is_pool_damaged && self.vfs.exists(POOL_FILE)? {
            self.report.note(format!("a copy of {POOL_FILE} is kept as {POOL_FILE}.damaged"));
            quarantine::copy_quarantined(self.vfs.as_ref(), POOL_FILE, self.pool_bytes)?;
        }
        // Logs of rebuilt runs may have values of other tables.
        let uses = state.added.iter().flat_map(|entry| &entry.blobs);
        uses.for_each(|used| {
            self.files.retain(&used.file.kind().name(FileNumber(used.file.number)));
        });
        self.files.replace_manifest::<Version>(&[self.vfs], state, is_intact)?;
        self.report.note(format!("the new manifest names {} table files", state.added.len()));
        Ok(())
    }

    /// Saves the runs in persistent memory that a damaged manifest names; there may be others.
    fn save_pool(&mut self, known: Option<&Edit>) -> Result<Vec<u64>> {
        let mut drafts = Vec::new();
        let runs = known.into_iter().flat_map(|edit| &edit.added);
        for entry in runs.filter(|entry| entry.is_in_pmem()) {
            drafts.extend(self.save_pmem_run(entry)?);
        }
        self.claims = None;
        if self.vfs.exists(POOL_FILE)? {
            self.report
                .note(format!("without a manifest not all runs in {POOL_FILE} can be found"));
            self.report.record_loss(Loss::entries(POOL_FILE, 0..u64::MAX));
            self.is_pool_damaged = true;
        }
        Ok(drafts)
    }
}

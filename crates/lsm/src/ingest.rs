//! Ingestion of sorted files: they become tables of the tree, all at once, without being rewritten.
//!
//! ```text
//!   prepare   000012.ingest = link or copy of the file ─ synced, checked      writers go on
//!   commit    writers paused ─ flush ─ sequence number G ─ 000012-G-identity.sst, durable
//!             ─ manifest edit with all files ─ log record ─ visible ─ writers go on
//! ```
//!
//! With another prefix for the keys, a file is rewritten under its staging name
//! (`ingest_rewrite`).
//!
//! All entries get one sequence number, the one after the last write. The files are not changed:
//! the number is in the manifest and in the file's name (see `siltstone_table::number`), and is
//! applied when the file is read.
//!
//! Everything in memory is flushed first, because readers search memtables before files, and
//! because the writes before an ingestion must not be lost while the ingestion is durable.
//! Meanwhile new writes wait as for a flush (`write`). A file goes to the deepest level at which
//! neither that level nor any above it has a table or run that overlaps its range of keys, and into
//! which no compaction that spans the range is writing; else to level 0. No compaction begins
//! between the choice of the level and the moment when the files are visible.
//!
//! A record in the log follows, before the files are visible and before any later write: a manifest
//! whose last edit is damaged would otherwise open as if a power cut had come before the ingestion,
//! with the writes after it.
//!
//! The active memtable is replaced by an empty one in the same view as the files. So a reader with
//! an older view, which lacks the files, does not see later writes either.
//!
//! Invariants: a power cut leaves all files or none, since one manifest edit names them, and
//! opening removes links and copies that no manifest names. A file that is moved is removed from
//! its place only after the edit is durable.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use siltstone_durable::commit::append;
use siltstone_durable::{LogStructured, Writer, apply_edit, flush};
use siltstone_engine::error::display_key;
use siltstone_engine::{
    Error, IngestMode, IngestOptions, IngestReport, PreparedIngestion, Purpose, Result,
};
use siltstone_table::{
    EXTERNAL_SEQUENCE, FileKind, FileNumber, Ingestion, Table, TableMeta, parse_file_name,
};
use siltstone_vfs::{File, Mode, Vfs};

use crate::compact::InProgress;
use crate::engine::Tree;
use crate::record;
use crate::version::{Edit, FileEntry, L0Run, L0RunEntry, Version};

/// Files are copied in chunks of this size.
const CHUNK_BYTES: usize = 1 << 20;

/// The purpose of all requests: the data enters the tree.
pub(crate) const PURPOSE: Purpose = Purpose::Flush;

/// Files that are linked or copied into the table's directory, and checked.
pub(crate) struct PreparedFiles<'a> {
    tree: &'a Tree,
    options: IngestOptions,
    files: Vec<StagedFile>,
}

/// A file under its staging name.
struct StagedFile {
    source: Source,
    number: FileNumber,
    is_copied: bool,
    /// Set once the file is checked.
    checked: Option<(FileNumber, TableMeta)>,
}

/// A file to be ingested, in its own directory.
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    pub(crate) directory: Arc<dyn Vfs>,
    pub(crate) name: String,
}

impl StagedFile {
    fn name(&self) -> String {
        FileKind::Staged.name(self.number)
    }

    fn meta(&self) -> Option<&TableMeta> {
        self.checked.as_ref().map(|(_, meta)| meta)
    }
}

impl Tree {
    /// See [`siltstone_engine::Engine::prepare_ingestion`].
    pub(crate) fn prepare_files(
        &self,
        paths: &[&Path],
        options: IngestOptions,
    ) -> Result<PreparedFiles<'_>> {
        if self.has_overlay() {
            let reason =
                "a table with l0_policy=novelsm ingests no files: open it with another policy";
            return Err(Error::Invalid(reason.to_owned()));
        }
        // Dropped after an error: removes what is staged.
        let mut prepared = PreparedFiles { tree: self, options, files: Vec::new() };
        for path in paths {
            let source = self.find_source(path)?;
            let number = FileNumber(self.versions.new_number());
            let file = StagedFile { source, number, is_copied: false, checked: None };
            prepared.files.push(file);
            if let Some(staged) = prepared.files.last_mut() {
                let is_rewritten = match &prepared.options.prefix {
                    None => {
                        self.stage(staged, prepared.options.mode)?;
                        false
                    }
                    Some(prefix) => {
                        staged.is_copied = true;
                        self.rewrite_sorted_file(&staged.source, &staged.name(), prefix)?;
                        true
                    }
                };
                let verify = prepared.options.verify && !is_rewritten;
                staged.checked = Some(self.check_staged(staged, verify)?);
            }
        }
        prepared.check_disjoint()?;
        Ok(prepared)
    }

    /// The directory and the name of a file. A relative path is within the table's directory.
    fn find_source(&self, path: &Path) -> Result<Source> {
        let invalid = || Error::Invalid(format!("{} does not name a file", path.display()));
        let name = path.file_name().and_then(|name| name.to_str()).ok_or_else(invalid)?.to_owned();
        if parse_file_name(&name).is_some() {
            let reason = "it has the name of a table's own file: give it another name";
            return Err(Error::Invalid(format!("{}: {reason}", path.display())));
        }
        let parent = path.parent().unwrap_or(Path::new(""));
        let directory = if path.is_absolute() {
            // Opening a directory would create it.
            if self.vfs.path().is_some() && !parent.is_dir() {
                let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
                return Err(Error::io("open directory", parent.display().to_string(), &missing));
            }
            self.vfs.open_dir(parent)?
        } else {
            let mut directory = self.vfs.clone();
            for part in parent {
                directory = directory.subdirectory(part.to_str().ok_or_else(invalid)?)?;
            }
            directory
        };
        Ok(Source { path: path.to_owned(), directory, name })
    }

    /// Links or copies a file to its staging name, and syncs its content.
    fn stage(&self, staged: &mut StagedFile, mode: IngestMode) -> Result<()> {
        let Source { directory, name, .. } = &staged.source;
        let target = self.vfs.link_target().unwrap_or(self.vfs.as_ref());
        if mode != IngestMode::Copy && directory.link(name, target, &staged.name())? {
            // Whoever brought it here may not have synced it.
            return self.vfs.open(&staged.name(), Mode::Read)?.sync(PURPOSE);
        }
        staged.is_copied = true;
        let from = directory.open(name, Mode::Read)?;
        let to = self.vfs.create(&staged.name())?;
        let (len, mut at) = (from.len()?, 0);
        let mut chunk = vec![0; CHUNK_BYTES.min(len as usize)];
        while at < len {
            self.background.check_open()?;
            let chunk = &mut chunk[..CHUNK_BYTES.min((len - at) as usize)];
            from.read_at(at, chunk, PURPOSE)?;
            self.env.rate.take(chunk.len() as u64);
            to.write_at(at, chunk, PURPOSE)?;
            to.begin_sync();
            at += chunk.len() as u64;
        }
        to.sync(PURPOSE)
    }

    /// Opens a staged file; its identity and its properties.
    fn check_staged(&self, staged: &StagedFile, verify: bool) -> Result<(FileNumber, TableMeta)> {
        let file = self.vfs.open(&staged.name(), Mode::Read)?;
        let (identity, table) = open_sorted_file(file, &staged.source.path, staged.number)?;
        if verify {
            table.verify(|_| std::ops::ControlFlow::Continue(()))?;
        }
        Ok((identity, table.meta().clone()))
    }

    /// Ingests prepared files; see the module.
    fn ingest(&self, prepared: &mut PreparedFiles<'_>) -> Result<IngestReport> {
        let _one_at_a_time = self.ingestion.lock();
        let _paused = WriterPause::begin(self);
        loop {
            flush::flush(self)?;
            let mut guard = self.writer.lock();
            self.background.check_writable()?;
            let writer = guard.as_mut().ok_or(Error::Closed)?;
            let view = self.view.load_full();
            // A part of a batch over several tables may have come in between.
            if self.has_unflushed(writer) || !view.flushing.is_empty() {
                continue;
            }
            let report = self.ingest_locked(writer, view.generation, prepared)?;
            drop((view, guard));
            return Ok(report);
        }
    }

    /// Ingests with the writer locked and nothing in memory.
    fn ingest_locked(
        &self,
        writer: &mut Writer<Tree>,
        generation: u64,
        prepared: &mut PreparedFiles<'_>,
    ) -> Result<IngestReport> {
        let expiring = prepared.files.iter().filter_map(StagedFile::meta).any(|it| it.expiring > 0);
        if expiring {
            self.merges.check_no_operator()?;
        }
        let sequence = writer.last_sequence + 1;
        let _held = CompactionHold::begin(self);
        let named = prepared.name_files(sequence)?;
        let edit = Edit { added: named.clone(), ..Edit::default() };
        let fresh = Arc::new(self.next_memtable(writer, writer.log.number(), false));
        let (mut levels, mut is_version_made) = (Vec::new(), false);
        let make_version = |version: &Version, edit: &mut Edit| {
            let state = self.background.lock();
            edit.added.iter_mut().for_each(|entry| place(entry, version, &state.in_progress));
            drop(state);
            levels = edit.added.iter().map(|entry| entry.level).collect();
            let made = version.open_and_apply(&self.logs, &self.cache, edit, None, &[])?;
            is_version_made = true;
            Ok(made)
        };
        let installed = apply_edit(self, generation, edit, make_version, |view| {
            view.active = fresh.clone();
        });
        match installed {
            Ok(true) => {}
            // Not possible while the writer is locked: a removal of all keys locks it, too.
            Ok(false) => {
                remove_names(self, &named);
                return Err(Error::Invalid("all keys were removed meanwhile".to_owned()));
            }
            Err(error) if !is_version_made || error.is_transient() => {
                remove_names(self, &named);
                return Err(error);
            }
            Err(error) => return Err(self.background.poison("ingesting files", error)),
        }
        writer.memtable = fresh;
        writer.last_sequence = sequence;
        // Only evidence: without it a manifest that loses its end may go unnoticed. If the log
        // fails, the next write reports it. Change feeds read the log up to what is visible.
        let record = record::ingested_record(sequence);
        let _ = append(self, writer, std::iter::once([&record[..], &[]]), &mut Vec::new());
        self.visible.store(sequence, Release);
        Ok(prepared.report(sequence, levels))
    }
}

/// Opens a sorted file, which is at `path` for messages; its identity.
pub(crate) fn open_sorted_file(
    file: Arc<dyn File>,
    path: &Path,
    number: FileNumber,
) -> Result<(FileNumber, Table)> {
    let shown = path.display().to_string();
    let Some(identity) = Table::external_identity(file.as_ref())? else {
        let reason = format!(
            "{shown} is no complete sorted file: write it with SortedFileWriter, to its end"
        );
        return Err(Error::Invalid(reason));
    };
    let kind = FileKind::Ingested(Ingestion { sequence: EXTERNAL_SEQUENCE, identity });
    Ok((identity, Table::open_kind(file, &shown, kind, number, None)?))
}

/// Removes files that no manifest names. If that fails, the next open removes them.
fn remove_names(tree: &Tree, named: &[FileEntry]) {
    named.iter().for_each(|entry| _ = tree.vfs.remove(&entry.file_name()));
}

/// Sets the level of a file: see the module.
fn place(entry: &mut FileEntry, version: &Version, in_progress: &InProgress) {
    let (smallest, largest) = (entry.smallest.as_slice(), entry.largest.as_slice());
    debug_assert!(in_progress.is_held(), "a compaction may begin before the files are visible");
    let mut deepest = 0;
    let is_above = |run: &L0Run| run.smallest() <= largest && smallest <= run.largest();
    if !version.level0.iter().any(is_above) {
        for level in 1..=version.levels.len() {
            if !version.overlapping(level, smallest, largest).is_empty() {
                break;
            }
            if !in_progress.writes_into(level, smallest, largest) {
                deepest = level;
            }
        }
    }
    entry.level = deepest;
    if deepest > 0 {
        entry.run = None;
    }
}

impl PreparedFiles<'_> {
    /// Refuses files that overlap one another.
    fn check_disjoint(&self) -> Result<()> {
        let mut spans: Vec<_> = (self.files.iter())
            .filter_map(|file| file.meta().map(|meta| (meta, &file.source.path)))
            .collect();
        spans.sort_by(|(a, _), (b, _)| a.smallest.cmp(&b.smallest));
        let overlap = spans.windows(2).find(|pair| pair[1].0.smallest <= pair[0].0.largest);
        match overlap {
            None => Ok(()),
            Some(pair) => Err(Error::Invalid(format!(
                "{} and {} overlap: the first ends at {}, the second begins at {}; ingest them one \
                 after the other",
                pair[0].1.display(),
                pair[1].1.display(),
                display_key(&pair[0].0.largest),
                display_key(&pair[1].0.smallest)
            ))),
        }
    }

    /// Renames the staged files to their final names, durably. They count as runs of level 0.
    fn name_files(&mut self, sequence: u64) -> Result<Vec<FileEntry>> {
        let mut named = Vec::new();
        let renamed = self.files.iter().try_for_each(|file| {
            let Some((identity, meta)) = &file.checked else { return Ok(()) };
            let run = L0RunEntry { data_bytes: meta.user_bytes, ..L0RunEntry::default() };
            let ingested = Some(Ingestion { sequence, identity: *identity });
            let entry = FileEntry { run: Some(run), ingested, ..FileEntry::of(meta, 0) };
            self.tree.vfs.rename(&file.name(), &entry.file_name())?;
            named.push(entry);
            Ok(())
        });
        let durable = renamed.and_then(|()| self.tree.vfs.sync_dir(PURPOSE));
        durable.inspect_err(|_| remove_names(self.tree, &named))?;
        Ok(named)
    }

    fn report(&self, sequence: u64, levels: Vec<usize>) -> IngestReport {
        let counters = &self.tree.counters;
        let mut report = IngestReport { sequence, ..IngestReport::default() };
        for (file, meta) in self.files.iter().filter_map(|file| Some((file, file.meta()?))) {
            report.entries += meta.entries;
            report.bytes += meta.bytes;
            report.copied_bytes += if file.is_copied { meta.bytes } else { 0 };
        }
        counters.ingested_files.fetch_add(levels.len() as u64, Relaxed);
        counters.ingested_bytes.fetch_add(report.bytes, Relaxed);
        IngestReport { levels, ..report }
    }

    /// Removes the files that were moved from their place.
    fn remove_sources(&self) -> Vec<PathBuf> {
        let removed = |source: &Source| {
            source.directory.remove(&source.name)?;
            source.directory.sync_dir(PURPOSE)
        };
        let sources = self.files.iter().map(|file| &file.source);
        sources.filter(|source| removed(source).is_err()).map(|it| it.path.clone()).collect()
    }
}

impl PreparedIngestion for PreparedFiles<'_> {
    fn ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let metas = self.files.iter().filter_map(StagedFile::meta);
        metas.map(|meta| (meta.smallest.clone(), meta.largest.clone())).collect()
    }

    fn commit(mut self: Box<Self>) -> Result<IngestReport> {
        if self.files.is_empty() {
            return Ok(IngestReport::default());
        }
        let tree = self.tree;
        let report = tree.ingest(&mut self)?;
        let not_removed = match self.options.mode {
            IngestMode::Move => self.remove_sources(),
            IngestMode::Copy | IngestMode::Link => Vec::new(),
        };
        tree.schedule_compaction();
        Ok(IngestReport { not_removed, ..report })
    }
}

impl Drop for PreparedFiles<'_> {
    /// Removes what is still under its staging name.
    fn drop(&mut self) {
        self.files.iter().for_each(|file| _ = self.tree.vfs.remove(&file.name()));
    }
}

/// Writers wait while it lives: see [`Tree::are_writers_paused`].
struct WriterPause<'a>(&'a Tree);

impl<'a> WriterPause<'a> {
    fn begin(tree: &'a Tree) -> Self {
        tree.writers_paused.store(true, Relaxed);
        WriterPause(tree)
    }
}

impl Drop for WriterPause<'_> {
    fn drop(&mut self) {
        // With the lock, so that no writer begins to wait after the notification.
        let state = self.0.background.lock();
        self.0.writers_paused.store(false, Relaxed);
        drop(state);
        self.0.background.notify();
    }
}

/// No compaction begins while it lives.
struct CompactionHold<'a>(&'a Tree);

impl<'a> CompactionHold<'a> {
    fn begin(tree: &'a Tree) -> Self {
        tree.background.lock().in_progress.hold();
        CompactionHold(tree)
    }
}

impl Drop for CompactionHold<'_> {
    fn drop(&mut self) {
        self.0.background.lock().in_progress.release();
        self.0.background.notify();
    }
}

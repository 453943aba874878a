//! Flush: writes a full memtable to an L0 run.
//!
//! Memtables are flushed one at a time, oldest first, so that runs enter level 0 in write order.
//! The manifest edit that adds the run also advances the first log that recovery needs; the old log
//! is removed only after it. A flush first prepares the next log, so that no writer waits for its
//! creation.
//!
//! With TRIAD-LOG the log is kept as the larger part of the run, a CL-SSTable, and the flush writes
//! a table of positions in it. Values no longer than a position are stored in the table, and so are
//! all values of a memtable that is not contained in a single log (after recovery).
//!
//! With key-value separation (`blob_threshold`) the table has references to the large values in the
//! log, whether it is a CL-SSTable or not, and the log is kept for them.
//!
//! Range deletions go into the manifest edit. Those that are durable then, of the memtable and of
//! the version, are applied to the keys that are written.
//!
//! With a pool of persistent memory (`pmem.size`) the run is built there as a RowTable, and one
//! barrier makes it durable before the edit names it. The run becomes a file if the pool has no
//! space for it, or if no key range in level 0 or 1 overlaps it, because then it will only be
//! moved. The log stays on the disk (the paper has it in persistent memory).
//!
//! Sources: TRIAD paper, section 4.3; TriangleKV paper, sections 3.1 and 5.2 (sequential writes).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_durable::{EditHeader, spawn_job};
use siltstone_engine::varint::write_varint;
use siltstone_engine::{Error, FileInfo, Purpose, Result};
use siltstone_runtime::Priority;
use siltstone_table::{EntryRef, FileKind, FileNumber, Kind, TableMeta, TableOptions, TableWriter};
use siltstone_vfs::PmemPool;

use crate::blob_ref::BlobRef;
use crate::compact::MemtableStats;
use crate::engine::{State, Tree};
use crate::folder::{FoldedVersion, Folder};
use crate::hot_key_retention::RetainedKeys;
use crate::memtable::{Memtable, SealedWal};
use crate::range_deletes::{DeleteFilter, DeletedVersion, RangeDeletes};
use crate::record::Position;
use crate::rowtable::{RowBuilder, RowTable};
use crate::version::{BlobFileId, BlobUse, Edit, FileEntry, HAS_EXPIRY, L0RunEntry, LOG_OF_RUN};
use crate::version_gc::VersionGc;
use crate::view::View;

/// Values up to this size are stored inline: a position takes about as many bytes.
const MAX_INLINE_BYTES: usize = 8;

/// The run of a smaller memtable gets no sketch of its keys, because a sketch takes 4 KiB.
const MIN_SKETCHED_BYTES: u64 = 256 << 10;

/// The input of a flush.
struct FlushInput<'a> {
    memtable: &'a Memtable,
    retained: &'a RetainedKeys,
    /// The range deletions of the memtable and of the version: they are durable before the flush or
    /// with it.
    deletes: &'a RangeDeletes,
}

/// How the table of a flush uses the log of its memtable, which is kept then.
struct LogUses<'a> {
    /// It has positions in the log (a CL-SSTable).
    positions: Option<&'a SealedWal>,
    /// It refers to values from this length on.
    references: Option<(&'a SealedWal, usize)>,
}

impl LogUses<'_> {
    /// The log, if the table refers to a value of it.
    fn log_of_value(&self, value: &[u8]) -> Option<&SealedWal> {
        self.references.filter(|(_, threshold)| value.len() >= *threshold).map(|(log, _)| log)
    }
}

/// The result of a flush.
struct FlushResult {
    /// Bytes of keys and values.
    data_bytes: u64,
    /// See [`FileEntry::deletes_applied`].
    deletes_applied: u64,
}

/// The result of building a run in persistent memory.
enum PmemBuild {
    Run(Box<FileEntry>, Arc<RowTable>),
    /// No version of the memtable is left to write.
    Empty,
    OutOfSpace,
}

/// The entries between two checks for cancellation.
const CHECK_INTERVAL: u64 = 64;

impl Tree {
    /// Counts a flushed memtable for the level sizes, and queues their computation if the present
    /// ones are outdated.
    fn schedule_sizing(&self, stats: MemtableStats) {
        self.sizes.record_flush(stats);
        let is_due = || self.sizes.is_outdated(&self.view.load().version, stats);
        if !self.options.load().sizes_by_model || !is_due() {
            return;
        }
        let mut state = self.background.lock();
        if std::mem::replace(&mut state.is_sizing_queued, true) {
            return;
        }
        drop(state);
        let on_finish = |state: &mut State| state.is_sizing_queued = false;
        spawn_job(self, Priority::Idle, on_finish, move |tree: &Tree| {
            tree.sizes.learn(&tree.options.load(), &tree.view.load_full().version, stats);
            Ok(())
        });
    }

    pub(crate) fn flush_oldest_of(&self, view: &View) -> Result<Vec<FileInfo>> {
        let Some(memtable) = view.flushing.first() else { return Ok(Vec::new()) };
        if !memtable.is_flush_forced() {
            self.prepare_next_log();
        }
        let rest = view.memtables().filter(|other| !Arc::ptr_eq(other, memtable));
        let first_log = rest.map(|other| other.first_log).min().unwrap_or(memtable.first_log);
        let mut synced_log = None;
        if self.has_overlay() {
            // Writes that the NoveLSM memtable took before the last write of this one.
            synced_log = Some(self.sync_logs_from(first_log)?);
        }
        let retained = self.retain_hot_keys(memtable)?;
        let is_disjoint = self.is_disjoint(view, memtable);
        let own_deletes = memtable.range_deletes();
        let known = &view.version.range_deletes;
        let deletes = match &own_deletes {
            None => known.clone(),
            Some(own) => {
                Arc::new(RangeDeletes::new(known.iter().chain(own.iter()).cloned().collect()))
            }
        };
        let input = FlushInput { memtable, retained: &retained, deletes: &deletes };
        let pool = self.pool.lock().clone().filter(|_| !is_disjoint && memtable.has_keys());
        let built = match pool {
            Some(pool) => self.build_pmem_run(&pool, view, &input)?,
            None => PmemBuild::OutOfSpace,
        };
        let (added, run, kept_log) = match built {
            PmemBuild::Empty => (None, None, None),
            PmemBuild::Run(entry, run) => (Some(*entry), Some(run), None),
            PmemBuild::OutOfSpace => {
                let options = self.options.load();
                let log = memtable.sealed_wal();
                let uses = LogUses {
                    positions: log.filter(|_| options.uses_cl_sstables() && !is_disjoint),
                    references: log.zip(options.flush_blob_threshold()),
                };
                let used = uses.positions.or(uses.references.map(|(log, _)| log));
                if let Some(log) = used {
                    log.sync.trim_preallocation();
                    log.sync.start_writeback();
                }
                let added = self.write_l0_table(&input, &uses)?;
                let log = used.filter(|_| added.as_ref().is_some_and(FileEntry::needs_log));
                if let Some(log) = log {
                    // The log becomes part of the run: it must be durable before the manifest edit.
                    log.sync.sync()?;
                }
                (added, None, log.map(|log| log.number))
            }
        };
        if self.logs.is_enabled()
            && let Some(log) = memtable.sealed_wal()
        {
            // The archived log must not lose writes that the table keeps.
            log.sync.trim_preallocation();
            log.sync.sync_alone()?;
        }
        let edit = Edit {
            header: EditHeader {
                first_log: Some(first_log),
                // Also if the files have less: later writes must not get these numbers again.
                last_sequence: Some(memtable.last_sequence()),
                synced_log: retained.synced_log.or(synced_log),
                ..EditHeader::default()
            },
            added: added.into_iter().collect(),
            range_deletes: own_deletes.iter().flat_map(|own| own.iter().cloned()).collect(),
            ..Edit::default()
        };
        let written: Vec<FileEntry> =
            edit.added.iter().filter(|entry| !entry.is_in_pmem()).cloned().collect();
        let files = edit.added.iter().map(FileEntry::info).collect();
        let installed = self.install(view.generation, edit, run, &[], |view| {
            view.flushing.remove(0);
        });
        if !installed.inspect_err(|error| self.remove_if_unnamed(error, &written))? {
            self.remove_tables(&written);
            return Ok(Vec::new());
        }
        self.counters.flushes.fetch_add(1, Relaxed);
        let version = self.view.load().version.clone();
        let kept: Vec<u64> = version.logs().map(|log| log.number()).chain(kept_log).collect();
        drop(version);
        self.discard_logs_before(first_log, &kept);
        self.schedule_sizing(memtable.stats());
        written.iter().for_each(|entry| self.charge_flush(entry.number));
        self.forget_range_deletes().map(|()| files)
    }

    /// Whether the key range of the memtable overlaps nothing in level 0 or 1, as in a sequential
    /// load. A sorted table is then moved to level 1 later; a CL-SSTable would have to be
    /// rewritten.
    fn is_disjoint(&self, view: &View, memtable: &Memtable) -> bool {
        let Some((smallest, largest)) = memtable.span() else { return true };
        let runs = view.version.level0.iter().map(|run| (run.smallest(), run.largest()));
        let level1 = view.version.levels.first().into_iter().flat_map(|tables| tables.iter());
        let level1 = level1.map(|table| (table.smallest(), table.largest()));
        !runs.chain(level1).any(|(first, last)| last >= smallest && first <= largest)
    }

    /// Builds a run in persistent memory from the visible versions of a memtable.
    fn build_pmem_run(
        &self,
        pool: &PmemPool,
        view: &View,
        input: &FlushInput<'_>,
    ) -> Result<PmemBuild> {
        let began = Instant::now();
        let number = self.versions.new_number();
        let previous = view.version.pmem_runs().next().filter(|_| self.hints).cloned();
        let build = || -> Result<_> {
            let mut run = RowBuilder::new(pool, number, previous, Purpose::Flush)?;
            let flushed = self.write_versions(input, |entry, _| run.add(entry))?;
            if run.is_empty() {
                return Ok(None);
            }
            Ok(Some((run.finish()?, flushed)))
        };
        let (run, FlushResult { data_bytes, deletes_applied }) = match build() {
            Ok(Some(run)) => run,
            Ok(None) => return Ok(PmemBuild::Empty),
            // Compaction frees pages, but the writers that wait for it may be waiting for this
            // flush.
            Err(error) if error.is_disk_full() => {
                self.counters.pmem_alloc_failures.fetch_add(1, Relaxed);
                return Ok(PmemBuild::OutOfSpace);
            }
            Err(error) => return Err(error),
        };
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.counters.pmem_runs_built.fetch_add(1, Relaxed);
        let bytes = run.owned_bytes().iter().sum();
        let (smallest, largest) = run.bounds();
        let entry = FileEntry {
            level: 0,
            number,
            bytes,
            smallest: smallest.to_vec(),
            largest: largest.to_vec(),
            deletes_applied,
            run: Some(L0RunEntry { pmem: Some(run.handle()), data_bytes, ..L0RunEntry::default() }),
            ingested: None,
            blobs: Vec::new(),
        };
        Ok(PmemBuild::Run(Box::new(entry), Arc::new(run)))
    }

    /// Writes the visible versions of a memtable to a table; `None` if there are none.
    fn write_l0_table(
        &self,
        input: &FlushInput<'_>,
        uses: &LogUses<'_>,
    ) -> Result<Option<FileEntry>> {
        let memtable = input.memtable;
        if !memtable.has_keys() {
            return Ok(None);
        }
        let began = Instant::now();
        let number = FileNumber(self.versions.new_number());
        let mut options = self.options.load().table_options();
        // L0 occupancy is estimated from it: see `version/l0_occupancy.rs`.
        options.sketch |=
            self.options.load().is_l0_sliced() && memtable.bytes() >= MIN_SKETCHED_BYTES;
        let table = self.table_writer_as(number, Purpose::Flush, options)?;
        // Filters of one size are asked together: see `version/l0_filter.rs`.
        let mut table = table.with_filter_sizes(self.view.load().version.l0_filter_sizes());
        if let Some(log) = uses.positions {
            let mut contents = Vec::new();
            write_varint(&mut contents, log.number);
            write_varint(&mut contents, log.bytes);
            write_varint(&mut contents, HAS_EXPIRY);
            table.add_meta(LOG_OF_RUN, contents)?;
        }
        let mut blobs = Vec::new();
        let written = self.write_table(input, table, uses, &mut blobs);
        if !matches!(written, Ok(Some(_))) {
            self.remove_table(number.0);
        }
        let Some((meta, FlushResult { data_bytes, deletes_applied })) = written? else {
            return Ok(None);
        };
        self.vfs.sync_dir(Purpose::Flush)?;
        self.counters.background_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        self.counters.wrote(0, meta.bytes);
        self.counters.flushed_bytes.fetch_add(data_bytes, Relaxed);
        let mut entry = FileEntry { deletes_applied, blobs, ..FileEntry::of(&meta, 0) };
        if let Some(run) = &mut entry.run {
            run.log = uses.positions.map(|log| (log.number, log.bytes));
            run.data_bytes = data_bytes;
        }
        Ok(Some(entry))
    }

    /// Returns the metadata of the table, and what it represents; `None` if no version is left to
    /// write. Adds the log to `blobs` if the table refers to it.
    fn write_table(
        &self,
        input: &FlushInput<'_>,
        mut table: TableWriter,
        uses: &LogUses<'_>,
        blobs: &mut Vec<BlobUse>,
    ) -> Result<Option<(TableMeta, FlushResult)>> {
        let (mut encoded, mut referred_bytes) = (Vec::new(), 0);
        let flushed = self.write_versions(input, |entry, position| {
            let Some(position) = position else { return table.add(entry) };
            if let Some(log) = uses.log_of_value(entry.value) {
                let reference = as_reference(&entry, log.number, position);
                referred_bytes += reference.stored_bytes(entry.key);
                return table.add(reference.entry(entry, &mut encoded));
            }
            if uses.positions.is_some() && entry.value.len() > MAX_INLINE_BYTES {
                return table.add(as_position(entry, position, &mut encoded));
            }
            table.add(entry)
        })?;
        if let Some((log, _)) = uses.references.filter(|_| referred_bytes > 0) {
            let file = BlobFileId { number: log.number, is_log: true, bytes: log.bytes };
            blobs.push(BlobUse { file, used_bytes: referred_bytes });
        }
        if table.entries() == 0 {
            return Ok(None);
        }
        Ok(Some((table.finish()?, flushed)))
    }

    /// Passes the visible versions, with the positions of puts in the log, to `write`. Operands of
    /// merges are folded.
    fn write_versions(
        &self,
        input: &FlushInput<'_>,
        mut write: impl FnMut(EntryRef<'_>, Option<Position>) -> Result<()>,
    ) -> Result<FlushResult> {
        let &FlushInput { memtable, retained, deletes } = input;
        let (mut filter, mut oldest_hiding) = (DeleteFilter::new(deletes), u64::MAX);
        let mut gc = VersionGc::new(self.snapshots.boundaries(&self.visible));
        let mut saved = 0;
        let (mut visited, mut data_bytes) = (0u64, 0u64);
        let mut folder = Folder::new(self.merges.operator(), self.env.clock.earliest());
        let mut write = |entry: EntryRef<'_>, deleted: DeletedVersion, position| {
            if let DeletedVersion::ForLater(oldest) = deleted {
                oldest_hiding = oldest_hiding.min(oldest);
            }
            data_bytes += (entry.key.len() + entry.value.len()) as u64;
            write(entry, position)
        };
        memtable.for_each(|entry, location| {
            visited += 1;
            if visited.is_multiple_of(CHECK_INTERVAL) {
                self.background.check_cancelled()?;
            }
            let is_retained = location.is_newest && retained.contains(location.key_index);
            let is_merge = entry.kind == Kind::Merge && !is_retained;
            let kept = gc.keep(entry.key, entry.sequence, is_merge).filter(|_| !is_retained);
            let mut emit = |made: FoldedVersion<'_>| write(made.entry, made.deleted, None);
            let Some(kept) = kept else {
                saved += 1;
                return Ok(());
            };
            if folder.is_pending() && !folder.is_below(entry.key, kept.last_read_at) {
                folder.end(true, &mut emit)?;
            }
            let deleted = filter.check(entry.key, entry.sequence, kept.last_read_at);
            if deleted == DeletedVersion::ForAll {
                saved += 1;
                return if folder.is_pending() { folder.end(false, &mut emit) } else { Ok(()) };
            }
            if is_merge {
                folder.push(&entry, kept, deleted);
                return Ok(());
            }
            if folder.is_pending() && folder.fold_over(&entry, &mut emit)? {
                return Ok(());
            }
            write(entry, deleted, Some(location.position))
        })?;
        if folder.is_pending() {
            folder.end(true, &mut |made| write(made.entry, made.deleted, None))?;
        }
        self.counters.operands_folded.fetch_add(folder.folded(), Relaxed);
        self.counters.flush_entries_saved.fetch_add(saved, Relaxed);
        let deletes_applied = deletes.max_sequence().min(oldest_hiding - 1);
        Ok(FlushResult { data_bytes, deletes_applied })
    }

    /// Removes tables after their edit has failed with `error`, if the error guarantees that no
    /// manifest names them: a retry writes new ones.
    pub(crate) fn remove_if_unnamed(&self, error: &Error, written: &[FileEntry]) {
        if error.is_transient() {
            self.remove_tables(written);
        }
    }

    /// Removes a table that no manifest names. If that fails, the next open removes it.
    pub(crate) fn remove_table(&self, number: u64) {
        let _ = self.vfs.remove(&FileKind::Table.name(FileNumber(number)));
    }

    /// A writer of the table `number` that respects the rate limit.
    pub(crate) fn table_writer(&self, number: FileNumber, purpose: Purpose) -> Result<TableWriter> {
        self.table_writer_as(number, purpose, self.options.load().table_options())
    }

    /// As [`table_writer`](Self::table_writer), with other `options`.
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
}

/// A reference to the value of an entry, which is in the record at `position` of the log.
fn as_reference(entry: &EntryRef<'_>, log: u64, position: Position) -> BlobRef {
    let expires_at = (entry.kind == Kind::PutExpiring).then_some(entry.expires_at);
    BlobRef { file: log, value_bytes: entry.value.len() as u64, position, expires_at }
}

/// The entry with its position in the log in place of the value.
fn as_position<'a>(
    entry: EntryRef<'a>,
    position: Position,
    encoded: &'a mut Vec<u8>,
) -> EntryRef<'a> {
    encoded.clear();
    position.encode((entry.kind == Kind::PutExpiring).then_some(entry.expires_at), encoded);
    EntryRef { kind: Kind::Position, expires_at: 0, value: encoded, ..entry }
}

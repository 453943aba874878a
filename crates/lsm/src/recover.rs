//! Opens a table: reads the manifest and replays the logs into a memtable. See
//! [`siltstone_durable::recovery`] for the order of the steps.
//!
//! Specific to the tree is the pool of persistent memory: the pages that the manifest names are
//! claimed before the logs are replayed, and a pool without runs is recreated.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_durable::recovery::{
    confirm_recovery, must_flush, remove_obsolete_files, replay_logs,
};
use siltstone_durable::{Core, CoreParts};
use siltstone_engine::{BatchOp, Result, WriteBatch};
use siltstone_runtime::{Env, WriteController};
use siltstone_structures::ChunkPool;
use siltstone_table::log::{LogArchive, logs_from, malformed};
use siltstone_table::{
    BlockCache, FileKind, ReplayHandler, SpareSegment, WalWriter, parse_file_name,
};
use siltstone_vfs::{FailStopVfs, Vfs};

use crate::checkpoint_lock::CheckpointLock;
use crate::compact::{LevelSizes, LeveledStrategy, Strategy};
use crate::counters::Counters;
use crate::engine::{Jobs, Tree};
use crate::memtable::Memtable;
use crate::merge_state::MergeState;
use crate::options::{LiveOptions, MemtableLimits, Options};
use crate::pool;
use crate::read::ReplayFilter;
use crate::record::{Position, Record};
use crate::snapshots::Snapshots;
use crate::version::{Version, open_versions};

/// The longest delay of one write. Only large writes near the hard limit reach it.
const MAX_WRITE_DELAY: Duration = Duration::from_millis(7);

/// This much of the first log is preallocated when the table is opened: else the writes of the
/// first milliseconds would overtake the preallocation, and each would take a system call.
const INITIAL_PREALLOC_BYTES: u64 = 256 << 10;

/// Opens the table. Returns `true` if the recovered memtable must be flushed before the table is
/// used.
pub(crate) fn open(
    vfs: Arc<dyn Vfs>,
    env: Env,
    options: Options,
    cache: Option<Arc<BlockCache>>,
) -> Result<(Arc<Tree>, bool)> {
    let vfs: Arc<dyn Vfs> = Arc::new(FailStopVfs::new(vfs));
    let shares_cache = cache.is_some();
    let cache = cache.unwrap_or_else(|| Arc::new(BlockCache::new(options.cache_bytes)));
    let levels = options.level_bytes.len();
    let (clock, limits) = (env.clock.clone(), options.archive_limits());
    let archive = Arc::new(LogArchive::new(vfs.clone(), clock, limits));
    let (versions, recovered, pool) =
        open_versions(&archive, &cache, levels, options.pool_bytes())?;
    let (known, version) = (recovered.edit, recovered.version);

    let spares = Arc::new(ChunkPool::new(options.memtable_limits().1 as usize));
    let mut writes = Writes::new(known.header.last_sequence.unwrap_or(0), spares.clone());
    writes.filter = ReplayFilter::new(&version, writes.last_sequence);
    let replayed = replay_logs(vfs.as_ref(), known.header, &mut writes)?;
    // Files and pool pages that the manifest on disk may name are kept until the manifest just read
    // is durable.
    confirm_recovery(&versions, &replayed)?;
    let first_log = known.header.first_log.unwrap_or(0);
    remove_obsolete(&archive, &version, &replayed.logs, first_log)?;
    let wanted = options.pool_bytes();
    let pool = match pool {
        Some(pool) => Some(pool),
        None => {
            pool::remove_garbage(vfs.as_ref())?;
            (wanted > 0).then(|| pool::create(&vfs, wanted)).transpose()?
        }
    };

    let number = versions.new_number();
    let log = SpareSegment::create(vfs.as_ref(), number)?;
    log.preallocate(options.memtable_limits().0, INITIAL_PREALLOC_BYTES);
    let log = WalWriter::create_in(&vfs, log, replayed.end)?;
    let must_flush = must_flush(&replayed);
    let merges = MergeState::recovered(version.merge_operator.as_deref());
    let sizes = Arc::new(LevelSizes::new(&options, &version));
    let memtable_limits = MemtableLimits::new(&options);
    let (hints, l0_policy) = (options.hints, options.l0_policy());
    let options = Arc::new(LiveOptions::from_pointee(options));
    let strategy = LeveledStrategy::new(options.clone(), sizes.clone(), &known.cursors);
    let write_controller = WriteController::with_max_delay(MAX_WRITE_DELAY);
    write_controller.set(strategy.pressure(&version));
    let memtable = writes.memtable.take();
    let memtable = memtable.unwrap_or_else(|| Memtable::with_chunk_pool(number, &spares));
    let parts = CoreParts {
        vfs,
        archive,
        env,
        versions,
        log,
        logs: replayed.logs.into_iter().chain([number]).collect(),
        // Logs may end before the newest table: a NoveLSM overlay's, with all of it in tables.
        last_sequence: writes.last_sequence.max(known.header.last_sequence.unwrap_or(0)),
        last_batch: replayed.last_batch.max(known.header.durable_batch.unwrap_or(0)),
        active: Arc::new(memtable),
        flushing: Vec::new(),
        version,
        write_controller,
        jobs: Jobs::default(),
    };
    let tree = Arc::new_cyclic(|me| Tree {
        core: Core::new(me.clone(), parts),
        cache,
        shares_cache,
        pool: Mutex::new(pool.filter(|_| wanted > 0)),
        compaction_filter: Mutex::new(None),
        merges,
        range_compaction: Mutex::new(()),
        compaction_waiters: AtomicUsize::new(0),
        strategy: Box::new(strategy),
        sizes,
        spares,
        next_log: Mutex::new(None),
        snapshots: Arc::new(Snapshots::default()),
        checkpoint_lock: CheckpointLock::default(),
        ingestion: Mutex::new(()),
        writers_paused: AtomicBool::new(false),
        counters: Counters::default(),
        options,
        memtable_limits,
        l0_policy,
        hints,
    });
    Ok((tree, must_flush))
}

/// Returns the error with which [`open`] would fail, without changing anything.
///
/// # Errors
/// Those of `open`.
pub(crate) fn check(vfs: &Arc<dyn Vfs>) -> Result<()> {
    let archive = Arc::new(LogArchive::disabled(vfs.clone()));
    let (_, recovered, _) = open_versions(&archive, &Arc::new(BlockCache::new(0)), 1, 0)?;
    let last_sequence = recovered.edit.header.last_sequence.unwrap_or(0);
    let mut writes = Writes::new(last_sequence, Arc::new(ChunkPool::new(0)));
    replay_logs(vfs.as_ref(), recovered.edit.header, &mut writes).map(drop)
}

/// Replays the logs into a memtable.
struct Writes {
    memtable: Option<Memtable>,
    last_sequence: u64,
    /// The newest one in any table that the manifest names.
    tables_sequence: u64,
    /// The parts of a batch whose last part has not been read yet. If it never comes, all of them
    /// are dropped.
    parts: Vec<(u64, WriteBatch, Position)>,
    /// The log that is being replayed.
    log: u64,
    /// The first log that was replayed.
    first_log: Option<u64>,
    spares: Arc<ChunkPool>,
    filter: Option<ReplayFilter>,
}

impl Writes {
    fn new(last_sequence: u64, spares: Arc<ChunkPool>) -> Self {
        let (memtable, parts) = (None, Vec::new());
        let (log, first_log, filter) = (0, None, None);
        let tables_sequence = last_sequence;
        Writes { memtable, last_sequence, tables_sequence, parts, log, first_log, spares, filter }
    }

    fn memtable(&mut self) -> &mut Memtable {
        let first_log = self.first_log.unwrap_or(self.log);
        let fresh = || Memtable::with_chunk_pool(first_log, &self.spares);
        self.memtable.get_or_insert_with(fresh)
    }

    /// Adds an operation to the memtable, unless a table with merges has it already.
    fn replay(&mut self, sequence: u64, op: BatchOp<'_>, position: Position) -> Result<()> {
        let key = match op {
            BatchOp::Point(op) => Some(op.key()),
            BatchOp::Merge { key, .. } => Some(key),
            BatchOp::DeleteRange { .. } => None,
        };
        let is_in_tables = match (key, &self.filter) {
            (Some(key), Some(filter)) => filter.is_in_tables(key, sequence)?,
            _ => false,
        };
        // Also without its operation: it marks that a record was replayed.
        let memtable = self.memtable();
        if !is_in_tables {
            memtable.apply(sequence, op, position);
        }
        Ok(())
    }

    fn enter_parts(&mut self) -> Result<()> {
        for (first_sequence, batch, position) in std::mem::take(&mut self.parts) {
            for (sequence, op) in (first_sequence..).zip(batch.iter_all()) {
                self.replay(sequence, op, position)?;
            }
            self.last_sequence = first_sequence + batch.len() as u64 - 1;
        }
        Ok(())
    }
}

impl ReplayHandler for Writes {
    fn begin(&mut self, number: u64) -> Result<()> {
        self.log = number;
        self.first_log.get_or_insert(number);
        self.parts.clear();
        Ok(())
    }

    fn record(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        let log = self.log;
        let damaged = |reason: &str| malformed(log, position, reason);
        let here = Position::new(position, bytes.len());
        match Record::decode(bytes).map_err(|reason| damaged(&reason))? {
            Record::Batch { first_sequence, batch, is_last } => {
                let before = self.parts.last().map(|(first, batch, _)| first + batch.len() as u64);
                let expected = before.unwrap_or(first_sequence);
                let is_newer = first_sequence > self.last_sequence;
                if (!is_newer && self.memtable.is_some()) || first_sequence != expected {
                    return Err(damaged("sequence numbers go astray"));
                }
                self.parts.push((first_sequence, batch, here));
                if is_last {
                    self.enter_parts()?;
                }
            }
            Record::Retained { sequences, batch } if self.parts.is_empty() => {
                for (sequence, op) in sequences.into_iter().zip(batch.iter()) {
                    self.replay(sequence, BatchOp::Point(op), here)?;
                    self.last_sequence = self.last_sequence.max(sequence);
                }
            }
            Record::Ingested(sequence) if self.parts.is_empty() => {
                if sequence > self.tables_sequence {
                    let reason = format!("the manifest lacks the files that @{sequence} ingested");
                    return Err(damaged(&reason));
                }
                self.last_sequence = self.last_sequence.max(sequence);
            }
            Record::Cleared(sequence) if self.parts.is_empty() => {
                if sequence > self.tables_sequence {
                    let reason = format!("the manifest lacks the removal of all keys @{sequence}");
                    return Err(damaged(&reason));
                }
                self.last_sequence = self.last_sequence.max(sequence);
            }
            _ => return Err(damaged("a record out of place")),
        }
        Ok(())
    }
}

/// Removes files that neither the manifest nor the chain of logs names. Logs before `first_log` go
/// to the archive: their writes are in tables. A later log that was not replayed is removed, since
/// its writes are lost.
fn remove_obsolete(
    archive: &LogArchive,
    version: &Version,
    logs: &[u64],
    first_log: u64,
) -> Result<()> {
    let tables: HashSet<String> = version.files().map(|(_, file)| file.name()).collect();
    let kept: HashSet<u64> = version.logs().map(|log| log.number()).collect();
    let vfs = archive.vfs().as_ref();
    let numbers = logs_from(vfs, 0)?.into_iter().take_while(|number| *number < first_log);
    for number in numbers.filter(|number| !kept.contains(number)) {
        archive.discard(number);
    }
    archive.trim();
    remove_obsolete_files(vfs, |name| match parse_file_name(name) {
        Some((FileKind::Table | FileKind::Ingested(_), _)) => !tables.contains(name),
        Some((FileKind::Staged, _)) => true,
        Some((FileKind::Log, number)) => !logs.contains(&number.0) && !kept.contains(&number.0),
        Some((FileKind::Blob, number)) => !kept.contains(&number.0),
        None => false,
    })
    .map(drop)
}

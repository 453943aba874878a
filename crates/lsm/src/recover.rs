//! Opening: the manifest, then the chain of logs, then the garbage.
//!
//! ```text
//!   manifest → version, first log needed
//!   logs     → replayed in order while each says that the one before ended where it was found to
//!   new log  → chained to the last one replayed
//!   manifest → settled: what was read may not be durable yet, and without it garbage is none
//!   garbage  → files that neither names, removed last: nothing is touched before all is known good
//! ```
//!
//! What is replayed stays in the memtable and in its logs, so that opening and closing often does
//! not fill level 0 with crumbs. Not so after a crash: it may have followed a failed sync, whose
//! bytes are read back although the medium never got them, and which no later sync writes. Then all
//! that was replayed goes into a table of its own before anything else is promised.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result, WriteBatch};
use siltstone_runtime::{Background, Env, GroupCommit, WriteController};
use siltstone_structures::ChunkPool;
use siltstone_table::log::{malformed, replay_synced};
use siltstone_table::{
    BlockCache, FileKind, ReplayHandler, SpareSegment, WalWriter, parse_file_name,
};
use siltstone_vfs::Vfs;

use crate::checkpoint::Copies;
use crate::compact::{LevelSizes, Leveled, Strategy};
use crate::counters::Counters;
use crate::engine::{Inner, State};
use crate::memtable::Memtable;
use crate::options::Options;
use crate::pool;
use crate::read::View;
use crate::record::{Position, Record};
use crate::snapshots::Snapshots;
use crate::version::{Version, Versions};
use crate::write::Writer;

/// A group of writes takes at most this many bytes of other writers' batches.
const GROUP_BYTES: usize = 1 << 20;

/// The longest delay of one write. Only large writes near the hard limit reach it.
const MAX_DELAY: Duration = Duration::from_millis(7);

/// So much of the first log is ready when the table opens: else the writes of the first milliseconds would
/// overtake what is made ready as they come, and each would take as long as a call of the system does.
const READY_AT_FIRST: u64 = 256 << 10;

/// Opening and closing this often without a flush leaves so many logs that they are left for a table.
const MOST_OLD_LOGS: usize = 8;

/// Opens the table. `true`: the old logs are to be left for a table of level 0. They are in doubt,
/// because the table was not closed and no sync repairs a failed sync before it; or they are many.
pub(crate) fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<(Arc<Inner>, bool)> {
    let cache = Arc::new(BlockCache::new(options.cache_bytes));
    let levels = options.level_bytes.len();
    let (versions, recovered) = Versions::open(&vfs, &cache, levels, options.pool_bytes())?;

    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let spares = Arc::new(ChunkPool::new(options.memtable_limits().1 as usize));
    let mut writes = Writes::new(recovered.last_sequence, spares.clone());
    let synced = recovered.synced_log;
    let replayed = replay_synced(vfs.as_ref(), recovered.first_log, sealed, synced, &mut writes)?;
    for &number in &replayed.found {
        versions.skip_number(number);
    }
    // What the medium's manifest may name stays, pages of a pool included, until it has this one.
    versions.settle()?;
    remove_garbage(vfs.as_ref(), &recovered.version, &replayed.logs)?;
    let wanted = options.pool_bytes();
    let pool = match recovered.pool {
        Some(pool) => Some(pool),
        None => {
            pool::remove_garbage(vfs.as_ref())?;
            (wanted > 0).then(|| pool::create(&vfs, wanted)).transpose()?
        }
    };

    let number = versions.new_number();
    let log = SpareSegment::create(vfs.as_ref(), number)?;
    log.preallocate(options.memtable_limits().0, READY_AT_FIRST);
    let log = WalWriter::create_in(&vfs, log, replayed.end)?;
    let first_log = replayed.logs.first().copied().unwrap_or(number);
    let memtable = writes.memtable.take();
    let memtable = memtable.unwrap_or_else(|| Memtable::with_chunk_pool(number, &spares));
    let memtable = Arc::new(memtable);
    let mut logs = replayed.logs;
    let are_many = logs.len() >= MOST_OLD_LOGS;
    logs.push(number);
    let view = View {
        active: memtable.clone(),
        large: None,
        flushing: Vec::new(),
        version: recovered.version.clone(),
        generation: 0,
    };
    let sizes = Arc::new(LevelSizes::new(&options, &view.version));
    let strategy = Leveled::new(&options, sizes.clone(), &recovered.cursors);
    let pressure = WriteController::with_max_delay(MAX_DELAY);
    pressure.set(strategy.pressure(&view.version));
    let state = State { first_log, logs, ..State::default() };
    let inner = Arc::new_cyclic(|me| Inner {
        me: me.clone(),
        vfs,
        cache,
        versions,
        pool: Mutex::new(pool.filter(|_| wanted > 0)),
        strategy: Box::new(strategy),
        sizes,
        spares,
        group: GroupCommit::new(GROUP_BYTES),
        writer: Mutex::new(Some(Writer::new(log, memtable, writes.last_sequence))),
        next_log: Mutex::new(None),
        visible: AtomicU64::new(writes.last_sequence),
        snapshots: Arc::new(Snapshots::default()),
        background: Background::new(env.scheduler.clone(), state),
        pressure,
        copies: Copies::default(),
        env,
        view: ArcSwap::from_pointee(view),
        counters: Counters::default(),
        options,
    });
    Ok((inner, replayed.is_unconfirmed || are_many))
}

/// What keeps [`open`] from opening the table that is there; nothing is changed.
///
/// # Errors
/// Those of `open`.
pub(crate) fn check(vfs: &Arc<dyn Vfs>) -> Result<()> {
    let (_, recovered) = Versions::open(vfs, &Arc::new(BlockCache::new(0)), 1, 0)?;
    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let mut writes = Writes::new(recovered.last_sequence, Arc::new(ChunkPool::new(0)));
    let (first, synced) = (recovered.first_log, recovered.synced_log);
    replay_synced(vfs.as_ref(), first, sealed, synced, &mut writes).map(drop)
}

/// What the logs give.
struct Writes {
    memtable: Option<Memtable>,
    last_sequence: u64,
    /// The parts of a batch whose end has not come yet. If it never does, none of them counts.
    parts: Vec<(u64, WriteBatch, Position)>,
    /// The log that is being replayed, and the first one.
    log: u64,
    first_log: Option<u64>,
    spares: Arc<ChunkPool>,
}

impl Writes {
    fn new(last_sequence: u64, spares: Arc<ChunkPool>) -> Self {
        let (memtable, parts) = (None, Vec::new());
        Writes { memtable, last_sequence, parts, log: 0, first_log: None, spares }
    }

    fn memtable(&mut self) -> &mut Memtable {
        let first_log = self.first_log.unwrap_or(self.log);
        let fresh = || Memtable::with_chunk_pool(first_log, &self.spares);
        self.memtable.get_or_insert_with(fresh)
    }

    fn enter_parts(&mut self) {
        for (first_sequence, batch, position) in std::mem::take(&mut self.parts) {
            for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                self.memtable().add(sequence, op, position);
            }
            self.last_sequence = first_sequence + batch.len() as u64 - 1;
        }
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
                    self.enter_parts();
                }
            }
            Record::Retained { sequences, batch } if self.parts.is_empty() => {
                for (sequence, op) in sequences.into_iter().zip(batch.iter()) {
                    self.memtable().add(sequence, op, here);
                    self.last_sequence = self.last_sequence.max(sequence);
                }
            }
            _ => return Err(damaged("a record out of place")),
        }
        Ok(())
    }
}

/// Removes what neither the manifest nor the chain of logs names.
fn remove_garbage(vfs: &dyn Vfs, version: &Version, logs: &[u64]) -> Result<()> {
    let tables: HashSet<u64> = version.files().map(|(_, file)| file.number()).collect();
    let row_logs: HashSet<u64> = version.logs().map(|log| log.number()).collect();
    let mut removed = false;
    for name in vfs.list()? {
        let is_garbage = match parse_file_name(&name) {
            Some((FileKind::Table, number)) => !tables.contains(&number.0),
            Some((FileKind::Log, number)) => {
                !logs.contains(&number.0) && !row_logs.contains(&number.0)
            }
            _ => false,
        };
        if is_garbage {
            vfs.remove(&name)?;
            removed = true;
        }
    }
    if removed {
        vfs.sync_dir(Purpose::Recovery)?;
    }
    Ok(())
}

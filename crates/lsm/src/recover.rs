//! Opening: the manifest, then the chain of logs, then the garbage.
//!
//! ```text
//!   manifest → version, first log needed
//!   logs     → replayed in order while each says that the one before ended where it was found to
//!   new log  → chained to the last one replayed
//!   garbage  → files that neither names, removed last: nothing is touched before all is known good
//! ```
//!
//! What is replayed stays in the memtable and in its logs, so that opening and closing often does
//! not fill level 0 with crumbs. Not so after a crash: it may have followed a failed sync, whose
//! bytes are read back although the medium never got them, and which no later sync writes. Then all
//! that was replayed goes into a table of its own before anything else is promised.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Env, Error, GroupCommit, Purpose, Result, WriteBatch};
use siltstone_media::{Media, Mode};
use siltstone_table::{BlockCache, FileKind, FileNumber, LogMode, LogReader, parse_file_name};

use crate::compact::{Busy, Leveled, Strategy};
use crate::counters::Counters;
use crate::engine::{Inner, State};
use crate::memtable::Memtable;
use crate::options::Options;
use crate::pool;
use crate::read::View;
use crate::record::{Position, Record};
use crate::snapshots::Snapshots;
use crate::version::{Recovered, Version, Versions};
use crate::write::{Log, Writer};

/// A group of writes takes at most this many bytes of other writers' batches.
const GROUP_BYTES: usize = 1 << 20;

/// Opening and closing this often without a flush leaves so many logs that they are left for a table.
const MOST_OLD_LOGS: usize = 8;

/// Opens the table. `true`: the old logs are to be left for a table of level 0. They are in doubt,
/// because the table was not closed and no sync repairs a failed sync before it; or they are many.
pub(crate) fn open(
    media: Arc<dyn Media>,
    env: Env,
    options: Options,
) -> Result<(Arc<Inner>, bool)> {
    let cache = Arc::new(BlockCache::new(options.cache_bytes));
    let levels = options.level_bytes.len();
    let (versions, recovered) = Versions::open(&media, &cache, levels, options.pool_bytes())?;

    let logs = logs_from(media.as_ref(), recovered.first_log)?;
    let replayed = replay(media.as_ref(), &logs, &recovered, env.seed)?;
    for &number in &logs {
        versions.skip_number(number);
    }
    // What was read may be in the page cache only, if just the process had died. The next log is
    // about to claim that these are whole.
    for &number in &replayed.logs {
        let name = FileKind::Log.name(FileNumber(number));
        media.open(&name, Mode::ReadWrite)?.sync(Purpose::Recovery)?;
    }
    remove_garbage(media.as_ref(), &recovered.version, &replayed.logs)?;
    let wanted = options.pool_bytes();
    let pool = match recovered.pool {
        Some(pool) => Some(pool),
        None => {
            pool::remove_garbage(media.as_ref())?;
            (wanted > 0).then(|| pool::create(&media, wanted)).transpose()?
        }
    };

    let number = versions.new_number();
    let log = Log::create(&media, number, replayed.end)?;
    let first_log = replayed.logs.first().copied().unwrap_or(number);
    // A log behind the one that was sealed is from a run that was not closed.
    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let is_doubtful = !replayed.logs.is_empty() && replayed.logs.last() != sealed.as_ref();
    let memtable = Arc::new(replayed.memtable.unwrap_or_else(|| Memtable::new(number, env.seed)));
    let mut logs = replayed.logs;
    let are_many = logs.len() >= MOST_OLD_LOGS;
    logs.push(number);
    let view =
        View { active: memtable.clone(), flushing: Vec::new(), version: recovered.version.clone() };
    let strategy = Leveled::new(&options, &recovered.cursors);
    let pressure = (strategy.pressure(&view.version) * 1e6) as u32;
    let inner = Arc::new_cyclic(|me| Inner {
        me: me.clone(),
        media,
        env,
        cache,
        versions,
        pool: Mutex::new(pool.filter(|_| wanted > 0)),
        strategy: Box::new(strategy),
        group: GroupCommit::new(GROUP_BYTES),
        writer: Mutex::new(Some(Writer::new(log, memtable, replayed.last_sequence))),
        visible: AtomicU64::new(replayed.last_sequence),
        snapshots: Arc::new(Snapshots::default()),
        state: Mutex::new(State { first_log, logs, busy: Busy::default(), ..State::default() }),
        progress: Condvar::new(),
        pressure: AtomicU32::new(pressure),
        paused_at: AtomicU64::new(0),
        view: ArcSwap::from_pointee(view),
        closed: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        poisoned: std::sync::OnceLock::new(),
        counters: Counters::default(),
        options,
    });
    Ok((inner, is_doubtful || are_many))
}

/// What the logs gave.
pub(crate) struct Replayed {
    pub(crate) memtable: Option<Memtable>,
    pub(crate) last_sequence: u64,
    /// The logs that were replayed, in order.
    logs: Vec<u64>,
    /// The last of them and its length, for the next one's chain.
    end: (u64, u64),
}

/// The numbers of the logs that the manifest still needs, ascending.
fn logs_from(media: &dyn Media, first_log: u64) -> Result<Vec<u64>> {
    let mut logs: Vec<u64> = media
        .list()?
        .iter()
        .filter_map(|name| match parse_file_name(name) {
            Some((FileKind::Log, number)) if number.0 >= first_log => Some(number.0),
            _ => None,
        })
        .collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Replays the chain of logs into a memtable.
fn replay(media: &dyn Media, logs: &[u64], recovered: &Recovered, seed: u64) -> Result<Replayed> {
    let mut replayed = Replayed {
        memtable: None,
        last_sequence: recovered.last_sequence,
        logs: Vec::new(),
        end: (0, 0),
    };
    for &number in logs {
        replay_log(media, number, recovered, &mut replayed, seed)?;
    }
    if let Some((number, _)) = recovered.sealed_log
        && !replayed.logs.contains(&number)
    {
        let name = FileKind::Log.name(FileNumber(number));
        return Err(Error::corruption(name, 0, "this log was sealed at close, and it is missing"));
    }
    Ok(replayed)
}

fn replay_log(
    media: &dyn Media,
    number: u64,
    recovered: &Recovered,
    replayed: &mut Replayed,
    seed: u64,
) -> Result<()> {
    let name = FileKind::Log.name(FileNumber(number));
    let damaged = |position, reason: String| Error::corruption(&*name, position, reason);
    let was_sealed = recovered.sealed_log.is_some_and(|(sealed, _)| sealed == number);
    let mode = if was_sealed { LogMode::Sealed } else { LogMode::Recover };
    let mut reader = LogReader::open(media, &name, number, mode)?;
    let (mut is_first, mut is_chained) = (true, false);
    // The parts of a batch whose end has not come yet. If it never does, none of them counts.
    let mut parts: Vec<(u64, WriteBatch, Position)> = Vec::new();
    while let Some(record) = reader.next()? {
        let position = record.position;
        let here = Position::new(position, record.bytes.len());
        match Record::decode(record.bytes).map_err(|reason| damaged(position, reason))? {
            Record::Chain { previous, previous_len } if is_first => {
                is_chained = match replayed.logs.last() {
                    Some(_) => (previous, previous_len) == replayed.end,
                    // Logs below the first are in tables: whatever they held is there.
                    None => previous < recovered.first_log.max(1),
                };
                if is_chained {
                    replayed.logs.push(number);
                }
                is_first = false;
            }
            Record::Batch { first_sequence, batch, is_last } if is_chained => {
                let before = parts.last().map(|(first, batch, _)| first + batch.len() as u64);
                let expected = before.unwrap_or(first_sequence);
                let is_newer = first_sequence > replayed.last_sequence;
                if (!is_newer && replayed.memtable.is_some()) || first_sequence != expected {
                    return Err(damaged(position, "sequence numbers go astray".to_owned()));
                }
                parts.push((first_sequence, batch, here));
                if !is_last {
                    continue;
                }
                let first_log = replayed.logs[0];
                let memtable =
                    replayed.memtable.get_or_insert_with(|| Memtable::new(first_log, seed));
                for (first_sequence, batch, position) in parts.drain(..) {
                    for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                        memtable.add(sequence, op, position);
                    }
                    replayed.last_sequence = first_sequence + batch.len() as u64 - 1;
                }
            }
            Record::Carried { sequences, batch } if is_chained && parts.is_empty() => {
                let first_log = replayed.logs[0];
                let memtable =
                    replayed.memtable.get_or_insert_with(|| Memtable::new(first_log, seed));
                for (sequence, op) in sequences.into_iter().zip(batch.iter()) {
                    memtable.add(sequence, op, here);
                    replayed.last_sequence = replayed.last_sequence.max(sequence);
                }
            }
            // Only to learn whether anything in it was synced.
            Record::Batch { .. } | Record::Carried { .. } if !is_first && !is_chained => {}
            _ => return Err(damaged(position, "a record out of place".to_owned())),
        }
    }
    if is_chained {
        replayed.end = (number, reader.valid_bytes());
        return Ok(());
    }
    // Something before this log was lost. That is a power cut's right only if nothing of this log
    // was ever synced: a synced write syncs the logs before it first.
    if reader.was_synced() {
        return Err(damaged(0, "the log before this one lost writes that had been synced".into()));
    }
    Ok(())
}

/// Removes what neither the manifest nor the chain of logs names.
fn remove_garbage(media: &dyn Media, version: &Version, logs: &[u64]) -> Result<()> {
    let tables: HashSet<u64> = version.files().map(|(_, file)| file.number()).collect();
    let row_logs: HashSet<u64> = version.logs().map(|log| log.number()).collect();
    let mut removed = false;
    for name in media.list()? {
        let is_garbage = match parse_file_name(&name) {
            Some((FileKind::Table, number)) => !tables.contains(&number.0),
            Some((FileKind::Log, number)) => {
                !logs.contains(&number.0) && !row_logs.contains(&number.0)
            }
            _ => false,
        };
        if is_garbage {
            media.remove(&name)?;
            removed = true;
        }
    }
    if removed {
        media.sync_dir(Purpose::Recovery)?;
    }
    Ok(())
}

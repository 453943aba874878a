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
//! not fill the trie with crumbs. Not so after a crash: it may have followed a failed sync, whose
//! bytes are read back although the medium never got them, and which no later sync writes. Then all
//! that was replayed goes into a table of its own before anything else is promised.
//!
//! Invariant: what is recovered is a prefix of the write order, and holds all that was synced.
//!
//! Source: ours; "How a write becomes durable" in ARCHITECTURE.md.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Env, Error, Purpose, Result};
use siltstone_media::{Media, Mode};
use siltstone_table::{LogMode, LogReader};

use crate::counters::Counters;
use crate::engine::{Inner, State};
use crate::files::{Homes, Kind};
use crate::hash::HashKind;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::read::View;
use crate::record::Record;
use crate::version::{Recovered, TrieShape, Version, Versions};
use crate::write::{GroupCommit, Log, Writer};

/// A group of writes takes at most this many bytes of other writers' batches.
const GROUP_BYTES: usize = 1 << 20;

/// Opening and closing this often without a flush leaves so many logs that they are left for a
/// table.
const MOST_OLD_LOGS: usize = 8;

/// Opens the table. `true`: the old logs are to be left for a table. They are in doubt, because the
/// table was not closed and no sync repairs a failed sync before it; or they are many.
pub(crate) fn open(homes: Homes, env: Env, options: Options) -> Result<(Arc<Inner>, bool)> {
    let media = homes.main.clone();
    let hash = HashKind { seed: env.seed, weak_bits: options.weak_hash_bits };
    let shape = TrieShape { hash, fanout_bits: options.fanout_bits };
    let (versions, recovered) = Versions::open(&homes, shape)?;
    own_upper(&homes, versions.shape.hash.seed)?;

    let logs = logs_from(media.as_ref(), recovered.first_log)?;
    let replayed = replay(media.as_ref(), &logs, &recovered, env.seed)?;
    for &number in &logs {
        versions.skip_number(number);
    }
    // What was read may be in the page cache only, if just the process had died. The next log is
    // about to claim that these are whole.
    for &number in &replayed.logs {
        media.open(&Kind::Log.name(number), Mode::ReadWrite)?.sync(Purpose::Recovery)?;
    }
    remove_garbage(&homes, &recovered.version, &replayed.logs)?;

    let number = versions.new_number();
    let log = Log::create(&media, number, replayed.end)?;
    let first_log = replayed.logs.first().copied().unwrap_or(number);
    // A log behind the one that was sealed is from a run that was not closed. Without any log the
    // table may be one whose making failed at the last: its manifest is read back and in doubt.
    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let was_closed = sealed.is_some() && replayed.logs.last() == sealed.as_ref();
    let is_doubtful = !recovered.is_new && !was_closed;
    let memtable = Arc::new(replayed.memtable.unwrap_or_else(|| Memtable::new(number, env.seed)));
    let mut logs = replayed.logs;
    let are_many = logs.len() >= MOST_OLD_LOGS;
    logs.push(number);
    let view =
        View { active: memtable.clone(), flushing: Vec::new(), version: recovered.version.clone() };
    let inner = Arc::new_cyclic(|me| Inner {
        me: me.clone(),
        media,
        homes,
        env,
        versions,
        group: GroupCommit::new(GROUP_BYTES),
        writer: Mutex::new(Some(Writer::new(log, memtable, replayed.last_sequence))),
        visible: AtomicU64::new(replayed.last_sequence),
        state: Mutex::new(State { first_log, logs, ..State::default() }),
        progress: Condvar::new(),
        pressure: AtomicU32::new(0),
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
struct Replayed {
    memtable: Option<Memtable>,
    last_sequence: u64,
    /// The logs that were replayed, in order.
    logs: Vec<u64>,
    /// The last of them and its length, for the next one's chain.
    end: (u64, u64),
}

/// The numbers of the logs that the manifest still needs, ascending.
fn logs_from(media: &dyn Media, first_log: u64) -> Result<Vec<u64>> {
    let names = media.list()?;
    let logs = names.iter().filter_map(|name| match Kind::parse(name) {
        Some((Kind::Log, number)) if number >= first_log => Some(number),
        _ => None,
    });
    let mut logs: Vec<u64> = logs.collect();
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
        let name = Kind::Log.name(number);
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
    let name = Kind::Log.name(number);
    let damaged = |position, reason: String| Error::corruption(&*name, position, reason);
    let was_sealed = recovered.sealed_log.is_some_and(|(sealed, _)| sealed == number);
    let mode = if was_sealed { LogMode::Sealed } else { LogMode::Recover };
    let mut reader = LogReader::open(media, &name, number, mode)?;
    let (mut is_first, mut is_chained) = (true, false);
    while let Some(record) = reader.next()? {
        let position = record.position;
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
            Record::Batch { first_sequence, batch } if is_chained => {
                if first_sequence != replayed.last_sequence + 1 && replayed.memtable.is_some() {
                    return Err(damaged(position, "sequence numbers go astray".to_owned()));
                }
                let first_log = replayed.logs[0];
                let memtable =
                    replayed.memtable.get_or_insert_with(|| Memtable::new(first_log, seed));
                for (sequence, op) in (first_sequence..).zip(batch.iter()) {
                    memtable.add(sequence, op);
                    replayed.last_sequence = replayed.last_sequence.max(sequence);
                }
            }
            // Only to learn whether anything in it was synced.
            Record::Batch { .. } if !is_first => {}
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
fn remove_garbage(homes: &Homes, version: &Version, logs: &[u64]) -> Result<()> {
    let tables = version.tables().map(|table| (Kind::HTable, table.number()));
    let clusters = version.clusters().map(|cluster| (Kind::Cluster, cluster.number()));
    let logs = logs.iter().map(|&number| (Kind::Log, number));
    let named: HashSet<(Kind, u64)> = tables.chain(clusters).chain(logs).collect();
    let mut removed = false;
    for media in homes.all() {
        for name in media.list()? {
            if Kind::parse(&name).is_some_and(|file| !named.contains(&file)) {
                media.remove(&name)?;
                removed = true;
            }
        }
    }
    if removed { homes.sync_dirs(Purpose::Recovery) } else { Ok(()) }
}

/// The file by which a second medium says whose it is.
const OWNER: &str = "OWNER";

/// Checks that the second medium is this table's, or makes it so if it is nobody's: what this table
/// does not name is about to be removed from it.
///
/// ```text
///   OWNER := seed of the table's hashes:u64 LE  crc32c:u32 LE
/// ```
fn own_upper(homes: &Homes, seed: u64) -> Result<()> {
    let Some((media, _)) = &homes.upper else { return Ok(()) };
    let seed = seed.to_le_bytes();
    let owner = [&seed[..], &crc32c::crc32c(&seed).to_le_bytes()].concat();
    let refused = |reason: &str| Err(Error::Refused { path: media.name(), reason: reason.into() });
    match media.open(OWNER, Mode::Read) {
        Ok(file) => {
            let mut found = vec![0; owner.len()];
            if file.len()? == 0 {
                // A power cut came between making and writing it.
            } else if file.len()? != owner.len() as u64 {
                return refused("OWNER is not that of a second medium; give another directory");
            } else {
                file.read_at(0, &mut found, Purpose::Recovery)?;
                return match found == owner {
                    true => Ok(()),
                    false => refused("it holds the upper levels of another table; give that of this one"),
                };
            }
        }
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    if media.list()?.iter().any(|name| Kind::parse(name).is_some()) {
        return refused("there are files of a table, but OWNER is missing; give another directory");
    }
    let file = media.create(OWNER)?;
    file.write_at(0, &owner, Purpose::Recovery)?;
    file.sync(Purpose::Recovery)?;
    media.sync_dir(Purpose::Recovery)
}

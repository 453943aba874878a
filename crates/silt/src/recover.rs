//! Opening: the manifest, then the chain of logs, then the garbage.
//!
//! ```text
//!   manifest → version, keys, first log needed
//!   logs     → replayed in order, while each says that the one before ended where it was found to,
//!              into LogStores that index them where they lie
//!   new log  → chained to the last one replayed
//!   garbage  → files that neither names, removed last: nothing is touched before all is known good
//! ```
//!
//! After a clean close the newest generation goes on in the new log. Not so after a crash: it may
//! have followed a failed sync, whose bytes are read back although the medium never got them, and
//! which no later sync writes. Then all that was replayed is converted before anything else is
//! promised.
//!
//! Invariant: what is replayed is a prefix of what was written, in whole batches.
//!
//! Source: Lim, thesis, section 2.3 (crash tolerance); the chain and the doubt are the house's.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use arc_swap::ArcSwap;
use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Env, Error, GroupCommit, Purpose, RateLimiter, Result};
use siltstone_media::{Media, Mode};
use siltstone_table::{LogAccess, LogMode, LogReader};

use crate::counters::Counters;
use crate::engine::{Inner, State};
use crate::generation::{Entering, Generation};
use crate::keys::{Keys, cuckoo_bits};
use crate::names::{self, Kind};
use crate::options::Options;
use crate::record::Record;
use crate::version::{Edit, Recovered, Version, Versions};
use crate::view::View;
use crate::write::{Log, Writer};

/// A group of writes takes at most this many bytes of other writers' batches.
const GROUP_BYTES: usize = 1 << 20;
/// A generation of more logs, from opening and closing often, is converted.
const MOST_LOGS: usize = 8;

/// Opens the table. If its state is to be drained, generations wait that are in doubt.
pub(crate) fn open(media: Arc<dyn Media>, env: Env, options: Options) -> Result<Arc<Inner>> {
    let keys = Keys { seed: env.seed, partitions: options.partitions };
    let (versions, recovered) = Versions::open(&media, keys, options.index_memory_bytes)?;
    let logs = logs_from(media.as_ref(), recovered.first_log)?;
    let replayed = replay(media.as_ref(), &logs, &recovered, options.slots)?;
    for &number in &logs {
        versions.skip_number(number);
    }
    // What was read may be in the page cache only, if just the process had died. The next log is
    // about to claim that these are whole.
    for &number in &replayed.logs {
        media.open(&Kind::Log.name(number), Mode::ReadWrite)?.sync(Purpose::Recovery)?;
    }
    remove_garbage(media.as_ref(), &recovered.version, &replayed.logs)?;

    let number = versions.new_number();
    let log = Log::create(&media, number, replayed.end)?;
    // A log behind the one that was sealed is from a run that was not closed.
    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let is_doubtful = !replayed.logs.is_empty() && replayed.logs.last() != sealed.as_ref();
    let drains = is_doubtful || replayed.logs.len() >= MOST_LOGS;
    let mut frozen = replayed.generations;
    let goes_on = |last: &mut Generation| {
        !drains && last.base() + replayed.end.1 < options.log_bytes && !last.is_full(options.load)
    };
    let mut active = frozen
        .pop_if(goes_on)
        .unwrap_or_else(|| Generation::new(recovered.keys.partitions, options.slots));
    active.add_log(number, log.access(), replayed.end.1);
    let active = Arc::new(active);
    let frozen: Vec<Arc<Generation>> = frozen.into_iter().map(Arc::new).collect();
    let mut logs = replayed.logs;
    logs.push(number);
    let state = State {
        frozen: frozen.len(),
        drains: drains && !frozen.is_empty(),
        first_log: recovered.first_log,
        logs,
        ..State::default()
    };
    let view = View { active: active.clone(), frozen, version: recovered.version };
    Ok(Arc::new_cyclic(|me| Inner {
        me: me.clone(),
        media,
        env,
        versions,
        group: GroupCommit::new(GROUP_BYTES),
        writer: Mutex::new(Some(Writer { log, active })),
        view: ArcSwap::from_pointee(view),
        state: Mutex::new(state),
        progress: Condvar::new(),
        convert_rate: RateLimiter::new(options.convert_rate),
        merge_rate: RateLimiter::new(options.merge_rate),
        closed: AtomicBool::new(false),
        stopping: AtomicBool::new(false),
        poisoned: OnceLock::new(),
        counters: Counters::default(),
        options,
    }))
}

/// Checks that the logs replay which a manifest with this content needs.
///
/// # Errors
/// What opening the table would find.
pub(crate) fn check_logs(
    media: &dyn Media,
    state: &Edit,
    sealed_log: Option<(u64, u64)>,
) -> Result<()> {
    let keys = state.keys.unwrap_or(Keys { seed: 0, partitions: 1 });
    let version = Arc::new(Version::empty(keys.partitions));
    let first_log = state.first_log.unwrap_or(0);
    let recovered = Recovered { version, keys, first_log, sealed_log };
    let logs = logs_from(media, first_log)?;
    replay(media, &logs, &recovered, Options::default().slots).map(drop)
}

/// What the logs gave.
struct Replayed {
    /// The oldest first.
    generations: Vec<Generation>,
    /// The logs that were replayed, in order.
    logs: Vec<u64>,
    /// The last of them and its length, for the next one's chain.
    end: (u64, u64),
}

/// The numbers of the logs that the manifest still needs, ascending.
fn logs_from(media: &dyn Media, first_log: u64) -> Result<Vec<u64>> {
    let names = media.list()?;
    let logs = names.iter().filter_map(|name| match names::parse(name) {
        Some((Kind::Log, number)) if number >= first_log => Some(number),
        _ => None,
    });
    let mut logs: Vec<u64> = logs.collect();
    logs.sort_unstable();
    Ok(logs)
}

/// Replays the chain of logs into generations.
fn replay(media: &dyn Media, logs: &[u64], recovered: &Recovered, slots: u32) -> Result<Replayed> {
    let mut replayed = Replayed { generations: Vec::new(), logs: Vec::new(), end: (0, 0) };
    for &number in logs {
        replay_log(media, number, recovered, &mut replayed, slots)?;
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
    slots: u32,
) -> Result<()> {
    let name = Kind::Log.name(number);
    let damaged = |position, reason: String| Error::corruption(&*name, position, reason);
    let was_sealed = recovered.sealed_log.is_some_and(|(sealed, _)| sealed == number);
    let mode = if was_sealed { LogMode::Sealed } else { LogMode::Recover };
    let mut reader = LogReader::open(media, &name, number, mode)?;
    let (mut is_first, mut is_chained) = (true, false);
    // Positions and keys of a batch whose end has not come yet. If it never does, it never was.
    let mut batch: Vec<(u64, Vec<u8>, usize)> = Vec::new();
    while let Some(record) = reader.next()? {
        let position = record.position;
        match Record::decode(record.bytes).map_err(|reason| damaged(position, reason))? {
            Record::Chain { previous, previous_len } if is_first => {
                is_chained = match replayed.logs.last() {
                    Some(_) => (previous, previous_len) == replayed.end,
                    // Logs below the first are in stores: whatever they held is there.
                    None => previous < recovered.first_log.max(1),
                };
                if is_chained {
                    let access = LogAccess::open(media, &name, number)?;
                    replayed.begin_log(number, access, recovered.keys, slots);
                }
                is_first = false;
            }
            Record::Operation { op, is_last } if is_chained => {
                batch.push((position, op.key().to_vec(), record.bytes.len()));
                if is_last {
                    for (position, key, bytes) in batch.drain(..) {
                        replayed.enter(position, &key, bytes, recovered.keys)?;
                    }
                }
            }
            // Only to learn whether anything in it was synced.
            Record::Operation { .. } if !is_first => {}
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

impl Replayed {
    /// Goes on with another log, in a new generation if the last one's positions have no room for it.
    fn begin_log(&mut self, number: u64, access: LogAccess, keys: Keys, slots: u32) {
        let has_room = |last: &Generation| {
            last.base() + self.end.1 + access.file_bytes() <= u64::from(u32::MAX)
        };
        let is_new = !self.generations.last().is_some_and(has_room);
        if is_new {
            self.generations.push(Generation::new(keys.partitions, slots));
        }
        if let Some(last) = self.generations.last_mut() {
            last.add_log(number, access, self.end.1);
        }
        self.logs.push(number);
    }

    /// Enters an operation of the log begun last.
    fn enter(&mut self, place: u64, key: &[u8], bytes: usize, keys: Keys) -> Result<()> {
        let Some(generation) = self.generations.last() else { return Ok(()) };
        let hash = keys.hash(key);
        let partition = keys.partition(&hash);
        let old = generation.find(partition, &hash, key, Purpose::Recovery)?;
        generation.enter(&[Entering {
            partition,
            bits: cuckoo_bits(&hash),
            old: old.map(|(position, _)| position),
            // A generation takes a log only if its end has a position.
            position: (generation.base() + place) as u32,
            bytes: (bytes - crate::record::HEAD) as u32,
        }]);
        Ok(())
    }
}

/// Removes what neither the manifest nor the chain of logs names.
fn remove_garbage(media: &dyn Media, version: &Version, logs: &[u64]) -> Result<()> {
    let named: HashSet<String> =
        version.names().into_iter().chain(logs.iter().map(|&log| Kind::Log.name(log))).collect();
    let mut removed = false;
    for name in media.list()? {
        if names::parse(&name).is_some() && !named.contains(&name) {
            media.remove(&name)?;
            removed = true;
        }
    }
    if removed {
        media.sync_dir(Purpose::Recovery)?;
    }
    Ok(())
}

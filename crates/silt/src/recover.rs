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
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};
use siltstone_runtime::{Background, Env, GroupCommit, RateLimiter};
use siltstone_table::log::{malformed, replay};
use siltstone_table::{LogAccess, ReplayHandler, SegmentLink, WalWriter};
use siltstone_vfs::Vfs;

use crate::counters::Counters;
use crate::engine::{Inner, State};
use crate::generation::{Generation, IndexInsert};
use crate::keys::{KeyHasher, cuckoo_bits};
use crate::names::{self, Kind};
use crate::options::Options;
use crate::record::Record;
use crate::version::{Edit, Version, Versions};
use crate::view::View;
use crate::write::Writer;

/// A group of writes takes at most this many bytes of other writers' batches.
const GROUP_BYTES: usize = 1 << 20;
/// A generation of more logs, from opening and closing often, is converted.
const MOST_LOGS: usize = 8;

/// Opens the table. If its state is to be drained, generations wait that are in doubt.
pub(crate) fn open(vfs: Arc<dyn Vfs>, env: Env, options: Options) -> Result<Arc<Inner>> {
    let keys = KeyHasher { seed: env.seed, partitions: options.partitions };
    let (versions, recovered) = Versions::open(&vfs, keys)?;
    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let mut writes = Writes::new(vfs.clone(), recovered.keys, options.log_store_slots);
    let replayed = replay(vfs.as_ref(), recovered.first_log, sealed, &mut writes)?;
    for &number in &replayed.found {
        versions.skip_number(number);
    }
    // What the medium's manifest may name stays until it has this one.
    versions.settle()?;
    remove_garbage(vfs.as_ref(), &recovered.version, &replayed.logs)?;

    let number = versions.new_number();
    let log = WalWriter::create(&vfs, number, replayed.end)?;
    let drains = replayed.is_unconfirmed || replayed.logs.len() >= MOST_LOGS;
    let mut frozen = writes.generations;
    let goes_on = |last: &mut Generation| {
        !drains
            && last.base() + replayed.end.bytes < options.max_log_bytes
            && !last.is_full(options.max_load_factor)
    };
    let mut active = frozen
        .pop_if(goes_on)
        .unwrap_or_else(|| Generation::new(recovered.keys.partitions, options.log_store_slots));
    active.add_log(number, log.access(), replayed.end.bytes);
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
        vfs,
        versions,
        group: GroupCommit::new(GROUP_BYTES),
        writer: Mutex::new(Some(Writer { log, active })),
        view: ArcSwap::from_pointee(view),
        background: Background::new(env.scheduler.clone(), state),
        env,
        index_memory: AtomicU64::new(options.index_memory_bytes),
        convert_rate: RateLimiter::new(options.convert_rate),
        merge_rate: RateLimiter::new(options.merge_rate),
        counters: Counters::default(),
        options,
        opening: number,
    }))
}

/// Checks that the logs replay which a manifest with this content needs.
///
/// # Errors
/// What opening the table would find.
pub(crate) fn check_logs(
    vfs: &Arc<dyn Vfs>,
    state: &Edit,
    sealed_log: Option<(u64, u64)>,
) -> Result<()> {
    let keys = state.keys.unwrap_or(KeyHasher { seed: 0, partitions: 1 });
    let mut writes = Writes::new(vfs.clone(), keys, Options::default().log_store_slots);
    let sealed = sealed_log.map(|(number, _)| number);
    replay(vfs.as_ref(), state.first_log.unwrap_or(0), sealed, &mut writes).map(drop)
}

/// What the logs give.
struct Writes {
    vfs: Arc<dyn Vfs>,
    keys: KeyHasher,
    slots: u32,
    /// The oldest first.
    generations: Vec<Generation>,
    /// The log that is being replayed, and how long the one before is.
    log: u64,
    previous_bytes: u64,
    /// Positions and keys of a batch whose end has not come yet. If it never does, it never was.
    batch: Vec<(u64, Vec<u8>, usize)>,
}

impl Writes {
    fn new(vfs: Arc<dyn Vfs>, keys: KeyHasher, slots: u32) -> Self {
        let (generations, batch) = (Vec::new(), Vec::new());
        Writes { vfs, keys, slots, generations, log: 0, previous_bytes: 0, batch }
    }

    /// Enters an operation of the log begun last.
    fn insert(&self, place: u64, key: &[u8], bytes: usize) -> Result<()> {
        let Some(generation) = self.generations.last() else { return Ok(()) };
        let hash = self.keys.hash(key);
        let partition = self.keys.partition(&hash);
        let old = generation.find(partition, &hash, key, Purpose::Recovery)?;
        generation.insert(&[IndexInsert {
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

impl ReplayHandler for Writes {
    /// Goes on with another log, in a new generation if the last one's positions have no room for it.
    fn begin(&mut self, number: u64) -> Result<()> {
        let access = LogAccess::open(self.vfs.as_ref(), &Kind::Log.name(number), number)?;
        let has_room = |last: &Generation| {
            last.base() + self.previous_bytes + access.file_bytes() <= u64::from(u32::MAX)
        };
        if !self.generations.last().is_some_and(has_room) {
            self.generations.push(Generation::new(self.keys.partitions, self.slots));
        }
        if let Some(last) = self.generations.last_mut() {
            last.add_log(number, access, self.previous_bytes);
        }
        self.log = number;
        self.batch.clear();
        Ok(())
    }

    fn record(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        let damaged = |reason: &str| malformed(self.log, position, reason);
        let Record::Operation { op, is_last } =
            Record::decode(bytes).map_err(|reason| damaged(&reason))?
        else {
            return Err(damaged("a record out of place"));
        };
        self.batch.push((position, op.key().to_vec(), bytes.len()));
        if is_last {
            for (position, key, bytes) in std::mem::take(&mut self.batch) {
                self.insert(position, &key, bytes)?;
            }
        }
        Ok(())
    }

    fn end(&mut self, end: SegmentLink) {
        self.previous_bytes = end.bytes;
    }
}

/// Removes what neither the manifest nor the chain of logs names.
fn remove_garbage(vfs: &dyn Vfs, version: &Version, logs: &[u64]) -> Result<()> {
    let named: HashSet<String> =
        version.names().into_iter().chain(logs.iter().map(|&log| Kind::Log.name(log))).collect();
    let mut removed = false;
    for name in vfs.list()? {
        if names::parse(&name).is_some() && !named.contains(&name) {
            vfs.remove(&name)?;
            removed = true;
        }
    }
    if removed {
        vfs.sync_dir(Purpose::Recovery)?;
    }
    Ok(())
}

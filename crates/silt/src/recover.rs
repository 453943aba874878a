//! Opening a table: see [`siltstone_durable::recovery`] for the order of the steps.
//!
//! Logs are not copied into memory: they are replayed into LogStores that index them where they
//! are. After a clean close the newest generation continues in the new log. After a crash all that
//! was replayed is converted before the table is open.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use siltstone_durable::recovery::{
    confirm_recovery, must_flush, remove_obsolete_files, replay_logs,
};
use siltstone_durable::{Core, CoreParts, EditHeader};
use siltstone_engine::{Purpose, Result};
use siltstone_runtime::{Env, RateLimiter, WriteController};
use siltstone_table::log::{LogArchive, malformed};
use siltstone_table::{LogAccess, ReplayHandler, SegmentLink, WalWriter};
use siltstone_vfs::{FailStopVfs, Vfs};

use crate::counters::Counters;
use crate::engine::{Jobs, SiltEngine};
use crate::generation::{Generation, IndexInsert};
use crate::keys::{KeyHasher, cuckoo_bits};
use crate::names::{self, Kind};
use crate::options::Options;
use crate::position;
use crate::record::Record;
use crate::version::{Edit, Version, open_versions};

/// Opens the table. `true`: generations wait that must be converted.
pub(crate) fn open(
    vfs: Arc<dyn Vfs>,
    env: Env,
    options: Options,
) -> Result<(Arc<SiltEngine>, bool)> {
    let vfs: Arc<dyn Vfs> = Arc::new(FailStopVfs::new(vfs));
    let keys = KeyHasher { seed: env.seed, partitions: options.partitions };
    let (versions, recovered) = open_versions(&vfs, keys)?;
    let (known, version) = (recovered.edit, recovered.version);
    let keys = known.keys.unwrap_or(keys);
    let mut writes = Writes::new(vfs.clone(), keys, options.log_store_slots);
    let replayed = replay_logs(vfs.as_ref(), known.header, &mut writes)?;
    confirm_recovery(&versions, &replayed)?;
    remove_obsolete(vfs.as_ref(), &version, &replayed.logs)?;

    let number = versions.new_number();
    let log = WalWriter::create(&vfs, number, replayed.end)?;
    let is_in_doubt = must_flush(&replayed);
    let mut generations = writes.generations;
    let continues = |last: &mut Generation| {
        !is_in_doubt
            && last.base() + replayed.end.bytes < options.max_log_bytes
            && !last.is_full(options.max_load_factor)
    };
    let mut active = generations
        .pop_if(continues)
        .unwrap_or_else(|| Generation::new(keys.partitions, options.log_store_slots));
    active.add_log(number, log.access(), replayed.end.bytes);
    let drains = is_in_doubt && !generations.is_empty();
    let opening = position::opening(number, env.seed);
    let parts = CoreParts {
        archive: Arc::new(LogArchive::disabled(vfs.clone())),
        vfs,
        env,
        versions,
        log,
        logs: replayed.logs.into_iter().chain([number]).collect(),
        last_sequence: 0,
        last_batch: replayed.last_batch.max(known.header.durable_batch.unwrap_or(0)),
        active: Arc::new(active),
        jobs: Jobs { drains, ..Jobs::default() },
        flushing: generations.into_iter().map(Arc::new).collect(),
        version,
        write_controller: WriteController::default(),
    };
    let engine = Arc::new_cyclic(|me| SiltEngine {
        core: Core::new(me.clone(), parts),
        keys,
        index_memory: AtomicU64::new(options.index_memory_bytes),
        loading: Mutex::default(),
        convert_rate: RateLimiter::new(options.convert_rate),
        merge_rate: RateLimiter::new(options.merge_rate),
        counters: Counters::default(),
        options,
        opening,
    });
    Ok((engine, drains))
}

/// Checks that the logs replay which a manifest with this content needs.
///
/// # Errors
/// Checks the logs as opening the table would, without changing them.
pub(crate) fn check_logs(
    vfs: &Arc<dyn Vfs>,
    state: &Edit,
    sealed_log: Option<(u64, u64)>,
) -> Result<()> {
    let keys = state.keys.unwrap_or(KeyHasher { seed: 0, partitions: 1 });
    let mut writes = Writes::new(vfs.clone(), keys, Options::default().log_store_slots);
    let header = EditHeader { sealed_log, ..state.header };
    replay_logs(vfs.as_ref(), header, &mut writes).map(drop)
}

/// The content of the logs.
struct Writes {
    vfs: Arc<dyn Vfs>,
    keys: KeyHasher,
    slots: u32,
    /// The oldest first.
    generations: Vec<Generation>,
    /// The log that is being replayed, and the length of the one before.
    log: u64,
    previous_bytes: u64,
    /// Positions and keys of a batch whose last record has not been read yet. Without it, the batch
    /// does not count.
    batch: Vec<(u64, Vec<u8>, usize)>,
}

impl Writes {
    fn new(vfs: Arc<dyn Vfs>, keys: KeyHasher, slots: u32) -> Self {
        let (generations, batch) = (Vec::new(), Vec::new());
        Writes { vfs, keys, slots, generations, log: 0, previous_bytes: 0, batch }
    }

    /// Enters an operation of the current log.
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
    /// Continues with another log, in a new generation if the positions of the last one do not
    /// suffice for it.
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

/// Removes files that neither the manifest nor the chain of logs names.
fn remove_obsolete(vfs: &dyn Vfs, version: &Version, logs: &[u64]) -> Result<()> {
    let logs = logs.iter().map(|&log| Kind::Log.name(log));
    let named: HashSet<String> = version.names().into_iter().chain(logs).collect();
    let is_obsolete = |name: &str| names::parse(name).is_some() && !named.contains(name);
    remove_obsolete_files(vfs, is_obsolete).map(drop)
}

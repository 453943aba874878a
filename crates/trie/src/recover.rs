//! Opening a table: see [`siltstone_durable::recovery`] for the order of the steps.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_durable::recovery::{
    confirm_recovery, must_flush, remove_obsolete_files, replay_logs,
};
use siltstone_durable::{Core, CoreParts};
use siltstone_engine::Result;
use siltstone_runtime::{Env, WriteController};
use siltstone_table::log::{LogArchive, malformed};
use siltstone_table::{ReplayHandler, WalWriter};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::TrieConfig;
use crate::counters::Counters;
use crate::engine::{Jobs, Tree};
use crate::files::{Kind, StorageTiers};
use crate::hash::HashKind;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::record::Record;
use crate::tiering;
use crate::version::{Version, open_versions};

/// Opens the table. `true`: what was recovered must be flushed.
pub(crate) fn open(tiers: StorageTiers, env: Env, options: Options) -> Result<(Arc<Tree>, bool)> {
    let vfs = tiers.main.clone();
    // The tables of a store share an environment; their seeds differ.
    let seed = xxh3_64_with_seed(vfs.name().as_bytes(), env.seed);
    let hash = HashKind { seed, weak_bits: options.weak_hash_bits };
    let config = TrieConfig { hash, fanout_bits: options.fanout_bits };
    let (versions, recovered) = open_versions(&tiers, config)?;
    let (known, version) = (recovered.edit, recovered.version);
    let config = known.config.unwrap_or(config);
    let was_closed = known.header.sealed_log.is_some();
    tiering::claim(&tiers, options.fast_dir.as_deref(), config.hash.seed, was_closed)?;

    let mut writes = Writes::new(known.header.last_sequence.unwrap_or(0), config.hash.seed);
    let replayed = replay_logs(vfs.as_ref(), known.header, &mut writes)?;
    confirm_recovery(&versions, &replayed)?;
    remove_obsolete(&tiers, &version, &replayed.logs)?;

    let number = versions.new_number();
    let log = WalWriter::create(&vfs, number, replayed.end)?;
    // Without any log the table may be one whose creation failed at the end: its manifest was read
    // back and may not be durable.
    let was_created = recovered.is_new || !replayed.logs.is_empty() || was_closed;
    let must_flush = must_flush(&replayed) || !was_created;
    let memtable = writes.memtable.unwrap_or_else(|| Memtable::new(number, config.hash.seed));
    let last_level = version.deepest().max(options.levels - 1);
    let parts = CoreParts {
        archive: Arc::new(LogArchive::disabled(vfs.clone())),
        vfs,
        env,
        versions,
        log,
        logs: replayed.logs.into_iter().chain([number]).collect(),
        last_sequence: writes.last_sequence,
        last_batch: replayed.last_batch.max(known.header.durable_batch.unwrap_or(0)),
        active: Arc::new(memtable),
        flushing: Vec::new(),
        version: version.clone(),
        write_controller: WriteController::default(),
        jobs: Jobs::default(),
    };
    let tree = Arc::new_cyclic(|me| Tree {
        core: Core::new(me.clone(), parts),
        tiers,
        config,
        counters: Counters::default(),
        options,
        opening: number,
        last_level,
        lock: Mutex::new(None),
    });
    for (container_id, _) in version.containers() {
        tree.rescore(&mut tree.background.lock(), &version, container_id);
    }
    Ok((tree, must_flush))
}

/// The content of the logs.
struct Writes {
    memtable: Option<Memtable>,
    last_sequence: u64,
    /// The log that is being replayed, and the first one that was.
    log: u64,
    first_log: Option<u64>,
    seed: u64,
}

impl Writes {
    fn new(last_sequence: u64, seed: u64) -> Self {
        Writes { memtable: None, last_sequence, log: 0, first_log: None, seed }
    }
}

impl ReplayHandler for Writes {
    fn begin(&mut self, number: u64) -> Result<()> {
        self.log = number;
        self.first_log.get_or_insert(number);
        Ok(())
    }

    fn record(&mut self, position: u64, bytes: &[u8]) -> Result<()> {
        let damaged = |reason: &str| malformed(self.log, position, reason);
        let Record::Batch { first_sequence, batch } =
            Record::decode(bytes).map_err(|reason| damaged(&reason))?
        else {
            return Err(damaged("a record out of place"));
        };
        if first_sequence != self.last_sequence + 1 && self.memtable.is_some() {
            return Err(damaged("sequence numbers go astray"));
        }
        let first_log = self.first_log.unwrap_or(self.log);
        let memtable = self.memtable.get_or_insert_with(|| Memtable::new(first_log, self.seed));
        for (sequence, op) in (first_sequence..).zip(batch.iter()) {
            memtable.add(sequence, op);
            self.last_sequence = self.last_sequence.max(sequence);
        }
        Ok(())
    }
}

/// Removes files that neither the manifest nor the chain of logs names.
fn remove_obsolete(tiers: &StorageTiers, version: &Version, logs: &[u64]) -> Result<()> {
    let tables = version.tables().map(|table| (Kind::HTable, table.number()));
    let clusters = version.clusters().map(|cluster| (Kind::Cluster, cluster.number()));
    let logs = logs.iter().map(|&number| (Kind::Log, number));
    let named: HashSet<(Kind, u64)> = tables.chain(clusters).chain(logs).collect();
    let is_obsolete = |name: &str| Kind::parse(name).is_some_and(|file| !named.contains(&file));
    tiers.all().try_for_each(|vfs| remove_obsolete_files(vfs.as_ref(), is_obsolete).map(drop))
}

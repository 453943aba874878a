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
use std::sync::atomic::AtomicU64;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};
use siltstone_runtime::{Background, Env, GroupCommit, WriteController};
use siltstone_table::log::{malformed, replay};
use siltstone_table::{ReplayHandler, WalWriter};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::counters::Counters;
use crate::engine::{Inner, State};
use crate::files::{Kind, StorageTiers};
use crate::hash::HashKind;
use crate::memtable::Memtable;
use crate::options::Options;
use crate::read::View;
use crate::record::Record;
use crate::tiering;
use crate::version::{TrieConfig, Version, Versions};
use crate::write::Writer;

/// A group of writes takes at most this many bytes of other writers' batches.
const GROUP_BYTES: usize = 1 << 20;

/// Opening and closing this often without a flush leaves so many logs that they are left for a
/// table.
const MOST_OLD_LOGS: usize = 8;

/// Opens the table. `true`: the old logs are to be left for a table. They are in doubt, because the
/// table was not closed and no sync repairs a failed sync before it; or they are many.
pub(crate) fn open(tiers: StorageTiers, env: Env, options: Options) -> Result<(Arc<Inner>, bool)> {
    let vfs = tiers.main.clone();
    // The tables of a store have one environment; their seeds are to differ.
    let seed = xxh3_64_with_seed(vfs.name().as_bytes(), env.seed);
    let hash = HashKind { seed, weak_bits: options.weak_hash_bits };
    let config = TrieConfig { hash, fanout_bits: options.fanout_bits };
    let (versions, recovered) = Versions::open(&tiers, config)?;
    let was_closed = recovered.sealed_log.is_some();
    tiering::claim(&tiers, options.fast_dir.as_deref(), versions.config.hash.seed, was_closed)?;

    let sealed = recovered.sealed_log.map(|(number, _)| number);
    let mut writes = Writes::new(recovered.last_sequence, versions.config.hash.seed);
    let replayed = replay(vfs.as_ref(), recovered.first_log, sealed, &mut writes)?;
    for &number in &replayed.found {
        versions.skip_number(number);
    }
    // What the medium's manifest may name stays until it has this one.
    versions.settle()?;
    remove_garbage(&tiers, &recovered.version, &replayed.logs)?;

    let number = versions.new_number();
    let log = WalWriter::create(&vfs, number, replayed.end)?;
    let first_log = replayed.logs.first().copied().unwrap_or(number);
    // Without any log the table may be one whose making failed at the last: its manifest is read
    // back and in doubt.
    let is_unconfirmed = replayed.is_unconfirmed
        || !recovered.is_new && replayed.logs.is_empty() && sealed.is_none();
    let memtable = Arc::new(
        writes.memtable.unwrap_or_else(|| Memtable::new(number, versions.config.hash.seed)),
    );
    let mut logs = replayed.logs;
    let are_many = logs.len() >= MOST_OLD_LOGS;
    logs.push(number);
    let view = View {
        active: memtable.clone(),
        flushing: Vec::new(),
        version: recovered.version.clone(),
        generation: 0,
    };
    let state = State { first_log, logs, ..State::default() };
    let last_level = recovered.version.deepest().max(options.levels - 1);
    let inner = Arc::new_cyclic(|me| Inner {
        me: me.clone(),
        vfs,
        tiers,
        versions,
        group: GroupCommit::new(GROUP_BYTES),
        writer: Mutex::new(Some(Writer::new(log, memtable, writes.last_sequence))),
        visible: AtomicU64::new(writes.last_sequence),
        background: Background::new(env.scheduler.clone(), state),
        pressure: WriteController::default(),
        env,
        view: ArcSwap::from_pointee(view),
        counters: Counters::default(),
        options,
        opening: number,
        last_level,
    });
    for (container_id, _) in recovered.version.containers() {
        inner.rescore(&mut inner.background.lock(), &recovered.version, container_id);
    }
    Ok((inner, is_unconfirmed || are_many))
}

/// What the logs give.
struct Writes {
    memtable: Option<Memtable>,
    last_sequence: u64,
    /// The log that is being replayed, and the first one.
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

/// Removes what neither the manifest nor the chain of logs names.
fn remove_garbage(tiers: &StorageTiers, version: &Version, logs: &[u64]) -> Result<()> {
    let tables = version.tables().map(|table| (Kind::HTable, table.number()));
    let clusters = version.clusters().map(|cluster| (Kind::Cluster, cluster.number()));
    let logs = logs.iter().map(|&number| (Kind::Log, number));
    let named: HashSet<(Kind, u64)> = tables.chain(clusters).chain(logs).collect();
    let mut removed = false;
    for vfs in tiers.all() {
        for name in vfs.list()? {
            if Kind::parse(&name).is_some_and(|file| !named.contains(&file)) {
                vfs.remove(&name)?;
                removed = true;
            }
        }
    }
    if removed { tiers.sync_dirs(Purpose::Recovery) } else { Ok(()) }
}

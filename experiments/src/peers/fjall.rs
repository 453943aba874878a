//! fjall: an LSM tree in Rust.
//!
//! The size of its level 1 is the table size times the number of level-0 tables that triggers a
//! compaction; the table size is chosen so that level 1 is as large as ours.
//!
//! Source: fjall's documentation, version 3.1.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ::fjall::compaction::Leveled;
use ::fjall::config::{
    BlockSizePolicy, BloomConstructionPolicy, CompressionPolicy, FilterPolicy, FilterPolicyEntry,
};
use ::fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode, Readable, Snapshot};
use siltstone_engine::{Durability, Engine, Error, Op, Result, Stats, WriteBatch};

use super::peer_settings::PeerSettings;
use super::pull_cursor::{Entries, PullCursor, RangeView};
use super::store::{Peer, Store, StoreCursor, wait_until_idle};

/// Opens a database; returns its settings, too.
pub(super) fn open(settings: &PeerSettings) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let level0_tables = u8::try_from(settings.level0_files).unwrap_or(u8::MAX).max(1);
    let table = settings.level_1 / u64::from(level0_tables);
    let filter = BloomConstructionPolicy::BitsPerKey(settings.filter_bits as f32);
    let options = KeyspaceCreateOptions::default()
        .max_memtable_size(settings.memtable)
        .data_block_size_policy(BlockSizePolicy::all(settings.block as u32))
        .data_block_compression_policy(CompressionPolicy::disabled())
        .filter_policy(FilterPolicy::all(FilterPolicyEntry::Bloom(filter)))
        .compaction_strategy(Arc::new(
            Leveled::default().with_l0_threshold(level0_tables).with_table_target_size(table),
        ));
    let database = Database::builder(&settings.directory)
        .cache_size(settings.cache)
        .worker_threads(settings.jobs.max(1))
        .open()
        .map_err(failed)?;
    let keyspace = database.keyspace("keys", || options).map_err(failed)?;
    let listed = [
        ("max_memtable_size", settings.memtable.to_string()),
        ("table_target_size", table.to_string()),
        ("l0_threshold", level0_tables.to_string()),
        ("data_block_size", settings.block.to_string()),
        ("cache_size", settings.cache.to_string()),
        ("bits_per_key", settings.filter_bits.to_string()),
        ("compression", "none".to_owned()),
        ("worker_threads", settings.jobs.max(1).to_string()),
    ];
    let listed = listed.map(|(name, value)| (format!("fjall.{name}"), value));
    Ok((Arc::new(Peer::new(Fjall { database, keyspace })), listed.into()))
}

fn failed(error: ::fjall::Error) -> Error {
    Error::Invalid(format!("fjall: {error}"))
}

struct Fjall {
    database: Database,
    keyspace: Keyspace,
}

impl Store for Fjall {
    const NAME: &'static str = "fjall";

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.keyspace.get(key).map_err(failed)?.map(|value| value.to_vec()))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let mut writes = self.database.batch().durability(Some(match durability {
            Durability::Buffered => PersistMode::Buffer,
            Durability::Synced => PersistMode::SyncData,
        }));
        for op in batch.iter() {
            match op {
                Op::Put { key, value, .. } => writes.insert(&self.keyspace, key, value),
                Op::Delete { key } => writes.remove(&self.keyspace, key),
            }
        }
        writes.commit().map_err(failed)
    }

    fn sync(&self) -> Result<()> {
        self.database.persist(PersistMode::SyncData).map_err(failed)
    }

    fn cursor(self: &Arc<Self>) -> Result<Box<dyn StoreCursor>> {
        let (state, keyspace) = (self.database.snapshot(), self.keyspace.clone());
        Ok(Box::new(PullCursor::new(State { state, keyspace })))
    }

    fn flush(&self) -> Result<()> {
        self.keyspace.rotate_memtable_and_wait().map_err(failed)
    }

    fn wait_until_idle(&self) -> Result<()> {
        wait_until_idle();
        Ok(())
    }

    fn stats(&self) -> Stats {
        Stats { space_bytes: self.keyspace.disk_space(), ..Stats::default() }
    }
}

struct State {
    state: Snapshot,
    keyspace: Keyspace,
}

impl RangeView for State {
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Entries> {
        let entries = self.state.range::<&[u8], _>(&self.keyspace, (lower, upper));
        Ok(Box::new(entries.map(|entry| {
            let (key, value) = entry.into_inner().map_err(failed)?;
            Ok((key.to_vec(), value.to_vec()))
        })))
    }
}

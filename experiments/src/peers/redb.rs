//! redb: a copy-on-write B+ tree in Rust.
//!
//! Each write is one transaction, as it is one log record in other stores. Buffered writes are
//! commits without persistence (`Durability::None`), whose space is only reused after the next
//! persistent commit. It has no filters, background threads or compression.
//!
//! Source: redb's documentation, version 4.5.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ::redb::{
    Database, Durability as CommitDurability, ReadOnlyTable, ReadableDatabase, TableDefinition,
};
use siltstone_engine::{Durability, Engine, Error, Op, Result, WriteBatch};

use super::peer_settings::PeerSettings;
use super::pull_cursor::{Entries, PullCursor, RangeView};
use super::store::{Peer, Store, StoreCursor};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("keys");

/// Opens a database; returns its settings, too.
pub(super) fn open(settings: &PeerSettings) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let mut builder = Database::builder();
    builder.set_cache_size(settings.cache as usize);
    let database = builder.create(settings.directory.join("keys.redb")).map_err(failed)?;
    let redb = Redb { database };
    // The first write transaction creates the table.
    redb.write(&WriteBatch::new(), Durability::Synced)?;
    let listed = [
        ("cache_size", settings.cache.to_string()),
        ("durability", "None, Immediate when synced".to_owned()),
        ("commits", "one per write".to_owned()),
    ];
    let listed = listed.map(|(name, value)| (format!("redb.{name}"), value));
    Ok((Arc::new(Peer::new(redb)), listed.into()))
}

fn failed(error: impl Into<::redb::Error>) -> Error {
    Error::Invalid(format!("redb: {}", error.into()))
}

struct Redb {
    database: Database,
}

impl Redb {
    fn begin_read(&self) -> Result<State> {
        let transaction = self.database.begin_read().map_err(failed)?;
        Ok(State { table: transaction.open_table(TABLE).map_err(failed)? })
    }
}

impl Store for Redb {
    const NAME: &'static str = "redb";

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.begin_read()?.table.get(key).map_err(failed)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        let commit_durability = match durability {
            Durability::Buffered => CommitDurability::None,
            Durability::Synced => CommitDurability::Immediate,
        };
        transaction.set_durability(commit_durability).map_err(failed)?;
        {
            let mut table = transaction.open_table(TABLE).map_err(failed)?;
            for op in batch.iter() {
                match op {
                    Op::Put { key, value, .. } => table.insert(key, value).map_err(failed)?,
                    Op::Delete { key } => table.remove(key).map_err(failed)?,
                };
            }
        }
        transaction.commit().map_err(failed)
    }

    fn sync(&self) -> Result<()> {
        self.write(&WriteBatch::new(), Durability::Synced)
    }

    fn cursor(self: &Arc<Self>) -> Result<Box<dyn StoreCursor>> {
        Ok(Box::new(PullCursor::new(self.begin_read()?)))
    }
}

/// The table as of the start of the read transaction.
struct State {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl RangeView for State {
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Entries> {
        let entries = self.table.range::<&[u8]>((lower, upper)).map_err(failed)?;
        Ok(Box::new(entries.map(|entry| {
            let (key, value) = entry.map_err(failed)?;
            Ok((key.value().to_vec(), value.value().to_vec()))
        })))
    }
}

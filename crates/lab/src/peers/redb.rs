//! redb: a B+ tree, copied on write, in Rust.
//!
//! It has one transaction a write here, as the others have one log record. Buffered writes are commits
//! that are not persisted (`Durability::None`), which it keeps the space of until the next that is. It
//! has neither filters nor threads in the background, and compresses nothing.
//!
//! Source: redb's documentation, version 4.5.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ::redb::{Database, Durability as Kept, ReadOnlyTable, ReadableDatabase, TableDefinition};
use siltstone_engine::{Durability, Engine, Error, Op, Result, WriteBatch};

use super::asked::Asked;
use super::pulled::{Entries, Pulled, Ranges};
use super::store::{Peer, Store, Walk};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("keys");

/// Opens a database; answers what it was given, too.
pub(super) fn open(asked: &Asked) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    let mut builder = Database::builder();
    builder.set_cache_size(asked.cache as usize);
    let database = builder.create(asked.directory.join("keys.redb")).map_err(failed)?;
    let redb = Redb { database };
    // The table is made by the first transaction that opens it to write.
    redb.write(&WriteBatch::new(), Durability::Synced)?;
    let listed = [
        ("cache_size", asked.cache.to_string()),
        ("durability", "None, Immediate when synced".to_owned()),
        ("commits", "one a write".to_owned()),
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
    fn reading(&self) -> Result<State> {
        let transaction = self.database.begin_read().map_err(failed)?;
        Ok(State { table: transaction.open_table(TABLE).map_err(failed)? })
    }
}

impl Store for Redb {
    const NAME: &'static str = "redb";

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let value = self.reading()?.table.get(key).map_err(failed)?;
        Ok(value.map(|value| value.value().to_vec()))
    }

    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let mut transaction = self.database.begin_write().map_err(failed)?;
        let kept = match durability {
            Durability::Buffered => Kept::None,
            Durability::Synced => Kept::Immediate,
        };
        transaction.set_durability(kept).map_err(failed)?;
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

    fn walk(self: &Arc<Self>) -> Result<Box<dyn Walk>> {
        Ok(Box::new(Pulled::new(self.reading()?)))
    }
}

/// The table as it was when the transaction began, which it keeps.
struct State {
    table: ReadOnlyTable<&'static [u8], &'static [u8]>,
}

impl Ranges for State {
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Entries> {
        let entries = self.table.range::<&[u8]>((lower, upper)).map_err(failed)?;
        Ok(Box::new(entries.map(|entry| {
            let (key, value) = entry.map_err(failed)?;
            Ok((key.value().to_vec(), value.value().to_vec()))
        })))
    }
}

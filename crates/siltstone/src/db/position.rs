//! The position of a store: its tables, and the last sequence number of each, as of one moment.
//!
//! ```text
//!   catalogue locked ─ tables locked for writing ─ sequence numbers read ─ unlocked
//! ```
//!
//! So no table is created, renamed or dropped meanwhile, and a batch over several tables is before
//! the position in all of them or in none. A change feed of each table, read up to its sequence
//! number, gives what has changed between two positions (crate `siltstone-backup`).
//!
//! Invariant: an id names one history of sequence numbers. A table that is dropped and created
//! again, moved to another engine or repaired gets another id; a renamed one keeps its id.

use std::collections::BTreeMap;

use siltstone_engine::{Result, WriteBatch};

use super::Db;
use crate::batch::lock::{try_lock, wait_for_room};
use crate::catalogue::TableSpec;
use crate::encryption::Keys;
use crate::engines;

/// The tables of a store as of one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePosition {
    /// Tables by name.
    pub tables: BTreeMap<String, TablePosition>,
    /// See [`Catalogue::places`](crate::catalogue::Catalogue::places).
    pub places: BTreeMap<String, String>,
}

/// A table in a [`StorePosition`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TablePosition {
    /// Its engine and options.
    pub spec: TableSpec,
    /// The name of its merge operator, if it has one.
    pub merge_operator: Option<String>,
    /// The position in its change feed; `None` if its engine has none.
    pub feed: Option<FeedPosition>,
}

/// A position in the change feed of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedPosition {
    /// The identity of the table, which it keeps when it is renamed.
    pub id: u64,
    /// The sequence number of the last change.
    pub sequence: u64,
}

impl Db {
    /// The tables at this moment, and the sequence number of the last change of each. The changes
    /// need not be durable: [`sync`](Self::sync) afterwards makes them so.
    ///
    /// It opens all tables on `lsm`, gives those an identity that have none, and waits for the
    /// writes in progress on them.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let table = db.table_or_create("stock", "lsm", &Default::default())?;
    /// table.put(b"apples", b"3")?;
    /// let position = db.position()?.tables["stock"].feed.unwrap();
    /// assert_eq!(position.sequence, 1);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`](crate::Error::Refused) in a read-only store; errors of opening a table;
    /// I/O errors of the catalogue.
    pub fn position(&self) -> Result<StorePosition> {
        self.check_writable()?;
        let nothing = WriteBatch::new();
        loop {
            let mut open = self.state()?;
            let specs = open.catalogue.tables.clone();
            let with_feed = specs.iter().filter(|(_, spec)| engines::has_change_feed(&spec.engine));
            let tables = with_feed.map(|(name, _)| self.table_locked(&mut open, name));
            let tables = tables.collect::<Result<Vec<_>>>()?;
            let ids = self.assign_ids(&mut open, tables.iter())?;
            let targets: Vec<_> =
                tables.iter().map(|table| (table.storage().as_ref(), &nothing)).collect();
            // While background work is behind, others may use the catalogue.
            let Some(locked) = try_lock(&targets)? else {
                drop(open);
                wait_for_room(&targets)?;
                continue;
            };
            let mut feeds = BTreeMap::new();
            for table in &tables {
                let sequence = table.storage().snapshot()?.sequence();
                let operator = table.storage().merge_operator();
                let operator = operator.map(|operator| operator.name().to_owned());
                let feed = FeedPosition { id: ids[table.name()], sequence };
                feeds.insert(table.name(), (feed, operator));
            }
            drop(locked);
            let places = open.catalogue.places.clone();
            let tables = specs.into_iter().map(|(name, spec)| {
                let (feed, merge_operator) =
                    feeds.remove(name.as_str()).map_or((None, None), |(feed, it)| (Some(feed), it));
                (name, TablePosition { spec, merge_operator, feed })
            });
            return Ok(StorePosition { tables: tables.collect(), places });
        }
    }

    /// The keys with which the store is encrypted, or none.
    #[must_use]
    pub fn keys(&self) -> &Keys {
        &self.options().encryption
    }
}

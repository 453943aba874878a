//! Snapshots of several tables as of one moment.
//!
//! All tables are locked for writing while their snapshots are taken, which is short: so a batch
//! over several tables is in all of the snapshots or in none, and so is everything that was written
//! before it.

use siltstone_engine::{Error, Result, WriteBatch};

use crate::batch::lock::lock;
use crate::table::{check_distinct, sort_for_locks};
use crate::{Db, Snapshot, Table};

/// Several tables of a store as of one moment. Each of its snapshots expires as any other.
///
/// ```
/// # use siltstone::{Db, DbBatch, DbOptions, Durability};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// let stock = db.table_or_create("stock", "lsm", &Default::default())?;
/// let orders = db.table_or_create("orders", "lsm", &Default::default())?;
/// let snapshot = db.snapshot(&[&stock, &orders])?;
/// let mut batch = DbBatch::new();
/// batch.table(&stock).put(b"pears", b"4");
/// batch.table(&orders).put(b"1", b"pears");
/// db.write(&batch, Durability::Buffered)?;
/// assert_eq!(snapshot.table(&stock)?.get(b"pears")?, None);
/// assert_eq!(snapshot.table(&orders)?.get(b"1")?, None);
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct DbSnapshot {
    tables: Vec<(Table, Snapshot)>,
}

impl Db {
    /// A view of several tables at this moment. It waits for the writes in progress on these
    /// tables.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless all tables are on `lsm`; [`Error::Invalid`] for a table of
    /// another store, or one that is named twice.
    pub fn snapshot(&self, tables: &[&Table]) -> Result<DbSnapshot> {
        let mut tables = tables.to_vec();
        sort_for_locks(&mut tables);
        check_distinct(&tables)?;
        tables.iter().try_for_each(|table| self.check_member(table))?;
        let managers: Vec<_> =
            tables.iter().map(|table| table.transactions("snapshots")).collect::<Result<_>>()?;
        let nothing = WriteBatch::new();
        let engines = tables.iter().map(|table| (table.storage().as_ref(), &nothing));
        let locked = lock(&engines.collect::<Vec<_>>())?;
        let points = tables.iter().map(|table| table.storage().snapshot());
        let points = points.collect::<Result<Vec<_>>>()?;
        drop(locked);
        let snapshots = tables.into_iter().zip(managers).zip(points);
        let tables = snapshots.map(|((table, manager), point)| {
            manager.readers().expire_idle();
            (table.clone(), table.snapshot_at(manager, point))
        });
        Ok(DbSnapshot { tables: tables.collect() })
    }
}

impl DbSnapshot {
    /// The snapshot of one of the tables.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the snapshot is not one of `table`.
    pub fn table(&self, table: &Table) -> Result<&Snapshot> {
        let found = self.tables.iter().find(|(other, _)| other.is_same(table));
        found.map(|(_, snapshot)| snapshot).ok_or_else(|| {
            Error::Invalid(format!(
                "table '{}' is not in this snapshot; name it when the snapshot is taken",
                table.name()
            ))
        })
    }
}

//! Transactions over several tables.
//!
//! ```text
//!   begin    each table: counted as open ─ all tables locked for writing: a snapshot of each
//!   commit   each table: its order of writes is locked ─ its reads are validated
//!            one batch over the tables with writes
//! ```
//!
//! Each table has a [`Transaction`] of its own, with its read set and its commit history. They
//! begin at the same moment, and are committed at the same moment: no other write to these tables
//! is applied between the validation of all reads and the application of all writes. So committed
//! transactions over several tables, over one, and plain writes are strictly serializable with one
//! another. Plain reads of several tables are not one operation, and may see a commit in between.

use siltstone_engine::{Durability, Error, Result, WriteBatch};

use crate::batch::lock::lock;
use crate::batch::{Part, write_parts};
use crate::table::{check_distinct, sort_for_locks};
use crate::transaction::OpenTransaction;
use crate::{Db, Retry, Table, Transaction};

/// A transaction over several tables of a store. Dropping it without [`commit`](Self::commit)
/// discards its writes.
///
/// ```
/// # use siltstone::{Db, DbOptions, Durability, Error};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// let stock = db.table_or_create("stock", "lsm", &Default::default())?;
/// let orders = db.table_or_create("orders", "lsm", &Default::default())?;
/// stock.put(b"pears", b"5")?;
///
/// let mut order = db.transaction(&[&stock, &orders])?;
/// assert_eq!(order.table(&stock)?.get(b"pears")?.as_deref(), Some(&b"5"[..]));
/// order.table(&stock)?.put(b"pears", b"4")?;
/// order.table(&orders)?.put(b"1", b"pears")?;
/// order.commit(Durability::Synced)?;
/// assert!(orders.contains_key(b"1")?);
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug)]
pub struct DbTransaction {
    db: Db,
    /// By name.
    parts: Vec<Transaction>,
}

impl Db {
    /// Begins a transaction over several tables: reads see all of them at this moment.
    ///
    /// # Errors
    /// [`Error::Unsupported`] unless all tables are on `lsm`; [`Error::Invalid`] for a table of
    /// another store, or one that is named twice.
    pub fn transaction(&self, tables: &[&Table]) -> Result<DbTransaction> {
        self.check_writable()?;
        let mut tables = tables.to_vec();
        sort_for_locks(&mut tables);
        check_distinct(&tables)?;
        tables.iter().try_for_each(|table| self.check_member(table))?;
        let open: Vec<OpenTransaction> = tables
            .iter()
            .map(|table| Ok(OpenTransaction::begin(table.transactions("transactions")?)))
            .collect::<Result<_>>()?;
        let nothing = WriteBatch::new();
        let engines = tables.iter().map(|table| (table.storage().as_ref(), &nothing));
        let locked = lock(&engines.collect::<Vec<_>>())?;
        let points = tables.iter().map(|table| table.storage().snapshot());
        let points = points.collect::<Result<Vec<_>>>()?;
        drop(locked);
        let parts = tables.into_iter().zip(open).zip(points);
        let parts = parts.map(|((table, open), point)| Transaction::at(table.clone(), open, point));
        Ok(DbTransaction { db: self.clone(), parts: parts.collect() })
    }

    /// Runs `work` in a transaction over several tables and commits it, buffered, with retries
    /// after conflicts by [`Retry::default`].
    ///
    /// # Errors
    /// The error of the last try; any error but a conflict at once. After an error of `work`
    /// nothing was written.
    pub fn transact<T>(
        &self,
        tables: &[&Table],
        work: impl FnMut(&mut DbTransaction) -> Result<T>,
    ) -> Result<T> {
        self.transact_with(tables, Retry::default(), Durability::Buffered, work)
    }

    /// As [`transact`](Self::transact), with other retries and durability.
    ///
    /// # Errors
    /// As [`transact`](Self::transact).
    pub fn transact_with<T>(
        &self,
        tables: &[&Table],
        retry: Retry,
        durability: Durability,
        mut work: impl FnMut(&mut DbTransaction) -> Result<T>,
    ) -> Result<T> {
        retry.run(|| {
            let mut transaction = self.transaction(tables)?;
            let value = work(&mut transaction)?;
            transaction.commit(durability).map(|()| value)
        })
    }
}

impl DbTransaction {
    /// The transaction on one of the tables, to read and write there.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `table` was not named at the beginning.
    pub fn table(&mut self, table: &Table) -> Result<&mut Transaction> {
        let found = self.parts.iter_mut().find(|part| part.table().is_same(table));
        found.ok_or_else(|| {
            Error::Invalid(format!(
                "table '{}' is not in this transaction; name it at the beginning",
                table.name()
            ))
        })
    }

    /// Applies all writes to all tables, or none. A transaction without writes always succeeds.
    ///
    /// # Errors
    /// As [`Transaction::commit`]; those of [`Db::write`].
    pub fn commit(self, durability: Durability) -> Result<()> {
        let parts: Vec<(&Transaction, WriteBatch)> =
            self.parts.iter().map(|part| (part, part.batch())).collect();
        let written = || parts.iter().filter(|(_, batch)| !batch.is_empty());
        if written().next().is_none() {
            return Ok(());
        }
        let ids = self.db.member_ids(written().map(|(part, _)| part.table()))?;
        let _admitted = self.db.open_batches().admit();
        // Keeps the transactions from expiring meanwhile.
        let points = parts.iter().map(|(part, _)| part.hold_point()).collect::<Result<Vec<_>>>()?;
        // Old ones first read again what they have read, while others commit.
        let views = parts.iter().zip(&points);
        let views = views.map(|((part, _), point)| part.manager().extend(part.view(point)));
        let views = views.collect::<Result<Vec<_>>>()?;
        let orders: Vec<_> = parts.iter().map(|(part, _)| part.manager().lock_order()).collect();
        let valid = orders.into_iter().zip(&views).map(|(order, (view, _))| order.validate(view));
        let valid = valid.collect::<Result<Vec<_>>>()?;
        let recorded = valid.into_iter().zip(&parts).map(|(valid, (_, batch))| valid.record(batch));
        let mut recorded: Vec<_> = recorded.collect();
        let targets: Vec<Part<'_>> = written()
            .map(|(part, batch)| Part {
                id: ids[part.table().name()],
                engine: part.table().storage().as_ref(),
                batch,
            })
            .collect();
        let outcome = match &targets[..] {
            [one] => one.engine.write(one.batch, durability),
            _ => write_parts(self.db.open_batches(), &targets, durability),
        };
        recorded.iter_mut().for_each(|write| write.complete(outcome.is_ok()));
        outcome
    }

    /// The transactions on its tables, for callers that keep them apart until the commit.
    pub fn into_parts(self) -> Vec<Transaction> {
        self.parts
    }

    /// The transaction of these parts, to be committed: all those of one transaction of `db`, in
    /// any order.
    pub fn of_parts(db: &Db, mut parts: Vec<Transaction>) -> Self {
        parts.sort_by(|a, b| a.table().name().cmp(b.table().name()));
        DbTransaction { db: db.clone(), parts }
    }

    /// Discards all writes, as dropping does.
    pub fn rollback(self) {}
}

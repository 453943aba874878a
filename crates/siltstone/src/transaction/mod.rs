//! Transactions: reads at a point in time, and writes that are applied together if nothing that the
//! transaction read has changed.
//!
//! ```text
//!   begin ─ get, range: the snapshot merged with own writes ─ put, delete: into the write set
//!     └ commit ─ no writes: succeeds
//!              └ else: was the read set written to since? yes: Error::Conflict, no: one batch
//! ```
//!
//! Committed transactions and plain writes are **strictly serializable**: one order of all of them
//! explains every result and agrees with real time. A transaction with writes is ordered at its
//! commit; a read-only one and a [`Snapshot`](crate::Snapshot) at its beginning. The method is
//! multi-version optimistic concurrency control with backward validation of the keys and ranges
//! read, which excludes lost updates, write skew, long forks and phantoms. No lock is held between
//! begin and commit.
//!
//! Limits: the expiry of an entry (`put_until`) is not a write and conflicts with nothing. The
//! read set and the write set are in memory until the transaction ends; an iterator made from it
//! keeps it open. A [`DbTransaction`](crate::DbTransaction) covers several tables. While
//! transactions are open, all writes to the table must go through the same [`Db`](crate::Db)'s
//! [`Table`]s or their [`engine`](Table::engine), as the server's do.
//!
//! | module | contents |
//! | --- | --- |
//! | `options` | limits of transactions and snapshots |
//! | `manager` | the order of commits and writes, and validation |
//! | `ingestion` | the place of an ingestion in the order of writes |
//! | `order` | transactions and writes over several tables |
//! | `commit_history` | the keys of recent writes, bounded |
//! | `revalidation` | validation by reading again, beyond that bound |
//! | `live_bounds` | where the live keys begin and end, for removals there |
//! | `read_set` | what a transaction has read |
//! | [`overlay`] | what a transaction has written |
//! | `merged_cursor` | scans over both |
//! | [`retry`] | retries after conflicts |
//!
//! Source: the transactional layer of SEMEL and SkimpyFTL, as in "Multi-version Indexing in
//! Flash-based Key-Value Stores", sections 3.4 and 4.2; see `manager` for its own sources.

mod commit_history;
mod ingestion;
mod live_bounds;
mod manager;
mod merged_cursor;
mod options;
mod order;
pub mod overlay;
mod read_set;
pub mod retry;
mod revalidation;

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{
    BatchOp, Durability, Engine, Entry, Error, KeyRange, Op, ReadPoint, Result, Timestamp,
    WriteBatch, entry, merge_operator,
};

pub(crate) use live_bounds::End;
pub(crate) use manager::TransactionManager;
pub use options::TransactionOptions;
pub(crate) use order::{ExclusiveOrder, OpenTransaction, TrackedWrite};
pub use overlay::{DeletedRange, Overlay};
pub use retry::Retry;

use crate::read::{Reads, entry_at, read_methods};
use crate::reader::{PointGuard, Reader};
use crate::{Cursor, Iter, Keys, Table};
use commit_history::Group;
use manager::ReadView;
use merged_cursor::MergedCursor;
use overlay::merged;
use read_set::ReadSet;

/// A cursor over `range`: the rows of `stored` with `writes` over them. Writes that have expired at
/// `now` are hidden.
pub fn overlay_cursor(
    stored: Box<dyn siltstone_engine::Cursor>,
    writes: Arc<Overlay>,
    range: KeyRange,
    now: Timestamp,
) -> Box<dyn siltstone_engine::Cursor> {
    // Nobody validates what it reads, and only transactions have operands.
    let read = ReadSet::default().add_range(range.clone());
    Box::new(MergedCursor::new(stored, writes, range, read, now, None))
}

/// A transaction. Dropping it without [`commit`](Self::commit) discards its writes.
///
/// It has the reads of a [`Table`]: they show the table as of its beginning, with its own writes
/// over it, and an iterator shows the own writes as of its creation. What was read is checked at
/// commit; of a scan only the part that was scanned. Reads return
/// [`Error::Expired`] after [`TransactionOptions::idle`]. On `skimpy` it
/// reads single keys only.
///
/// ```
/// # use siltstone::{Db, DbOptions, Durability, Error};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// # let table = db.table_or_create("t", "lsm", &Default::default())?;
/// table.put(b"alice", b"100")?;
/// let mut transfer = table.transaction()?;
/// assert_eq!(transfer.get(b"alice")?.as_deref(), Some(&b"100"[..]));
/// transfer.put(b"alice", b"90")?;
/// transfer.put(b"bob", b"10")?;
///
/// table.put(b"alice", b"50")?; // a concurrent write
/// let failed = transfer.commit(Durability::Synced);
/// assert!(matches!(failed, Err(Error::Conflict { key }) if key == b"alice"));
/// assert_eq!(table.get(b"bob")?, None);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Transaction {
    table: Table,
    manager: Arc<TransactionManager>,
    reader: Arc<Reader>,
    /// The last commit group that was complete at the beginning.
    begun: Group,
    reads: Mutex<ReadSet>,
    // Shared with iterators; a write copies it while one lives.
    writes: Arc<Overlay>,
    popped: Option<(End, Vec<u8>)>,
}

impl Table {
    /// Begins a transaction: reads see the table at this moment, writes are applied together at
    /// commit. Versioned engines only. If no other transaction is open, it waits for writes in
    /// progress.
    ///
    /// # Errors
    /// `Unsupported` if the engine is not versioned.
    pub fn transaction(&self) -> Result<Transaction> {
        Transaction::begin(self.clone(), self.transactions("transactions")?.clone())
    }
}

impl Transaction {
    fn begin(table: Table, manager: Arc<TransactionManager>) -> Result<Self> {
        let open = OpenTransaction::begin(&manager);
        let point = manager.engine().snapshot()?;
        Ok(Self::at(table, open, point))
    }

    /// A transaction on `table` that reads at `point`, a snapshot that was taken after it began.
    pub(crate) fn at(table: Table, open: OpenTransaction, point: ReadPoint) -> Self {
        let (manager, begun, reader) = open.read_at(point);
        Transaction {
            table,
            manager,
            reader: Arc::new(reader),
            begun,
            reads: Mutex::default(),
            writes: Arc::default(),
            popped: None,
        }
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    pub(crate) fn manager(&self) -> &Arc<TransactionManager> {
        &self.manager
    }

    /// Its writes.
    pub(crate) fn batch(&self) -> WriteBatch {
        self.writes.to_batch()
    }

    /// Keeps the transaction from expiring.
    ///
    /// # Errors
    /// `Expired`.
    pub(crate) fn hold_point(&self) -> Result<PointGuard<'_>> {
        self.reader.point()
    }

    /// What it has read, for its validation. Its reads are over.
    pub(crate) fn view(&self, point: &ReadPoint) -> ReadView {
        ReadView {
            begun: self.begun,
            point: point.clone(),
            reads: Arc::new(std::mem::take(&mut *self.reads.lock())),
            popped: self.popped.clone(),
        }
    }

    /// Removes the entry at an end of the table, and returns it.
    pub(crate) fn pop(&mut self, end: End) -> Result<Option<(Vec<u8>, Entry)>> {
        // Read after the snapshot was taken: what was written outside of it later is a conflict.
        let live = self.manager.live_range();
        let mut cursor = self.scan_part(KeyRange::all(), live)?;
        let is_there = match end {
            End::First => cursor.first()?,
            End::Last => cursor.last()?,
        };
        if !is_there {
            return Ok(None);
        }
        let (key, entry) = (cursor.key().to_vec(), entry_at(cursor.as_ref()));
        drop(cursor);
        self.delete(&key)?;
        self.popped = Some((end, key.clone()));
        Ok(Some((key, entry)))
    }

    /// A cursor over the entries in `part`, which counts as a scan of `range`: the caller knows
    /// that nothing else of `range` exists.
    fn scan_part(
        &self,
        range: KeyRange,
        part: KeyRange,
    ) -> Result<Box<dyn siltstone_engine::Cursor>> {
        let point = self.reader.point()?;
        let stored = self.table.engine().range(part.clone(), Some(&point))?;
        let stored = self.reader.cursor(stored);
        let read = self.reads.lock().add_range(range);
        let now = self.reader.readers().now();
        let operator = self.table.engine().merge_operator();
        Ok(Box::new(MergedCursor::new(stored, self.writes.clone(), part, read, now, operator)))
    }

    read_methods!();

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// A key or a value over its limit; nothing has changed then.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(Op::Put { key, value, expires_at: None })
    }

    /// Sets `key` to `value` until `expires_at` (milliseconds since 1970).
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.push(Op::Put { key, value, expires_at: Some(expires_at) })
    }

    /// Removes `key`. Removing a missing key is not an error, and does not count as a read.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.push(Op::Delete { key })
    }

    /// Merges `operand` into the value of `key` by the table's merge operator, at commit. This
    /// reads nothing: transactions that merge into the same key do not conflict, but one that has
    /// read it does. Into a value that the transaction has written, the operand is merged at once.
    ///
    /// # Errors
    /// As [`put`](Self::put), and those of [`Table::merge`].
    pub fn merge(&mut self, key: &[u8], operand: &[u8]) -> Result<()> {
        let engine = self.table.engine();
        if !engine.capabilities().merge {
            return Err(engine.unsupported("merges"));
        }
        let operator = engine.merge_operator().ok_or_else(merge_operator::no_operator)?;
        merge_operator::check_operand(operator.as_ref(), key, operand)?;
        entry::check_key(key)?;
        entry::check_value(operand, engine.capabilities().max_value_bytes)?;
        let Some(written) = self.writes.get(key) else {
            Arc::make_mut(&mut self.writes).merge(key, operand);
            return Ok(());
        };
        let now = self.reader.readers().now();
        let before = written.filter(|entry| !entry.is_expired(now));
        let value = before.map(|entry| entry.value.as_slice());
        let value = merged(Some(operator.as_ref()), key, value, &[operand])?;
        let expires_at = before.and_then(|entry| entry.expires_at);
        self.push(Op::Put { key, value: &value, expires_at })
    }

    fn push(&mut self, op: Op<'_>) -> Result<()> {
        entry::check_key(op.key())?;
        if let Op::Put { value, .. } = op {
            entry::check_value(value, self.table.engine().capabilities().max_value_bytes)?;
        }
        Arc::make_mut(&mut self.writes).push(op);
        Ok(())
    }

    /// Adds all writes of a batch, which must not delete ranges.
    ///
    /// # Errors
    /// `Invalid` for a range deletion; a key or a value over its limit. Nothing has changed then.
    pub fn write(&mut self, batch: &WriteBatch) -> Result<()> {
        if batch.range_deletions() > 0 {
            let reason = "a transaction cannot delete ranges: write the batch to the table instead";
            return Err(Error::Invalid(reason.to_owned()));
        }
        batch.check(self.table.engine().capabilities().max_value_bytes)?;
        if batch.merges() == 0 {
            Arc::make_mut(&mut self.writes).apply(batch);
            return Ok(());
        }
        let before = self.writes.clone();
        let added = batch.iter_all().try_for_each(|op| match op {
            BatchOp::Point(op) => self.push(op),
            BatchOp::Merge { key, operand } => self.merge(key, operand),
            BatchOp::DeleteRange { .. } => Ok(()),
        });
        added.inspect_err(|_| self.writes = before)
    }

    /// Applies all writes, or none. A transaction without writes always succeeds.
    ///
    /// # Errors
    /// [`Error::Conflict`] with a key that was read and has changed since;
    /// [`Error::Expired`] after [`TransactionOptions::idle`]. Nothing was
    /// applied then, and the transaction may be retried. Other errors are those of
    /// [`Table::write`], with the same outcome; also errors of reading again, for a transaction
    /// that is older than [`TransactionOptions::remembered_bytes`] reach.
    pub fn commit(self, durability: Durability) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        // Keeps the transaction from expiring in the commit queue.
        let point = self.hold_point()?;
        self.manager.commit(&self.batch(), durability, self.view(&point))
    }

    /// Discards all writes, as dropping does.
    pub fn rollback(self) {}
}

impl Reads for Transaction {
    fn engine(&self) -> &dyn Engine {
        self.table.engine().as_ref()
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        let mut found = None;
        self.lend(key, &mut |value, expires_at| {
            found = Some(Entry { value: value.to_vec(), expires_at });
        })?;
        Ok(found)
    }

    fn lend(&self, key: &[u8], visit: &mut dyn FnMut(&[u8], Option<Timestamp>)) -> Result<bool> {
        let point = self.reader.point()?;
        if let Some(written) = self.writes.get(key) {
            let now = self.reader.readers().now();
            let entry = written.filter(|entry| !entry.is_expired(now));
            if let Some(entry) = entry {
                visit(&entry.value, entry.expires_at);
            }
            return Ok(entry.is_some());
        }
        // Even if the read fails: the caller has observed the failure.
        self.reads.lock().add_key(key);
        let operands = self.writes.operands(key);
        if !operands.is_empty() {
            let value = self.table.engine().get_at(key, &point)?.map(|entry| entry.value);
            let operator = self.table.engine().merge_operator();
            visit(&merged(operator.as_deref(), key, value.as_deref(), operands)?, None);
            return Ok(true);
        }
        let mut expires_at = None;
        let is_there = self.table.engine().lookup(key, Some(&point), &mut |value, expiry| {
            expires_at = expiry;
            visit(value, expiry);
        })?;
        if expires_at.is_some() {
            self.reads.lock().note_expiry(expires_at);
        }
        Ok(is_there)
    }

    fn entries(&self, keys: &[&[u8]]) -> Result<Vec<Option<Entry>>> {
        keys.iter().map(|key| self.entry(key)).collect()
    }

    fn scan(&self, range: KeyRange) -> Result<Box<dyn siltstone_engine::Cursor>> {
        self.scan_part(range.clone(), range)
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("table", &self.table.name())
            .field("sequence", &self.reader.sequence())
            .field("bytes_written", &self.writes.bytes())
            .finish_non_exhaustive()
    }
}

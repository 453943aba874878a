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
//! keeps it open. A transaction covers one table. While transactions are open, all writes to the
//! table must go through the same [`Db`](crate::Db)'s [`Table`]s or their
//! [`engine`](Table::engine), as the server's do.
//!
//! | module | contents |
//! | --- | --- |
//! | `manager` | the order of commits and writes, and validation |
//! | `commit_history` | the keys of recent writes, bounded |
//! | `read_set` | what a transaction has read |
//! | [`overlay`] | what a transaction has written |
//! | `merged_cursor` | scans over both |
//! | [`retry`] | retries after conflicts |
//!
//! Source: the transactional layer of SEMEL and SkimpyFTL, as in "Multi-version Indexing in
//! Flash-based Key-Value Stores", sections 3.4 and 4.2; see `manager` for its own sources.

mod commit_history;
mod manager;
mod merged_cursor;
pub mod overlay;
mod read_set;
pub mod retry;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Entry, KeyRange, Op, Result, Timestamp, WriteBatch, entry};

pub(crate) use manager::TransactionManager;
pub use overlay::Overlay;
pub use retry::Retry;

use crate::reader::Reader;
use crate::{Iter, Table};
use commit_history::Group;
use manager::ReadView;
use merged_cursor::MergedCursor;
use read_set::ReadSet;

/// Limits of transactions and snapshots, per table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOptions {
    /// A transaction or snapshot that is idle for this long expires, at the latest after twice this
    /// time, so that it does not hold old versions for ever. `None`: never. Default: 5 minutes.
    pub idle: Option<Duration>,
    /// Memory for the keys written while transactions were open, in bytes. Over it the oldest are
    /// dropped, and a transaction that began before them fails at commit, so this bounds the writes
    /// during a transaction. Default: 32 MiB, about 250,000 writes of 16-byte keys.
    pub remembered_bytes: usize,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions { idle: Some(Duration::from_secs(300)), remembered_bytes: 32 << 20 }
    }
}

/// A transaction. Dropping it without [`commit`](Self::commit) discards its writes.
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
    begun: Group,
    reads: Mutex<ReadSet>,
    // Shared with iterators; a write copies it while one lives.
    writes: Arc<Overlay>,
}

impl Transaction {
    pub(crate) fn begin(table: Table, manager: Arc<TransactionManager>) -> Result<Self> {
        let (begun, reader) = manager.begin()?;
        Ok(Transaction {
            table,
            manager,
            reader: Arc::new(reader),
            begun,
            reads: Mutex::default(),
            writes: Arc::default(),
        })
    }

    /// The value of `key`: this transaction's own write, or the value at its beginning.
    ///
    /// # Errors
    /// [`Error::Expired`](crate::Error::Expired), as for all reads; errors of the engine.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// The value of `key` and when it expires.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        let point = self.reader.point()?;
        if let Some(written) = self.writes.get(key) {
            let now = self.reader.readers().now();
            return Ok(written.filter(|entry| !entry.is_expired(now)).cloned());
        }
        // Even if the read fails: the caller has observed the failure.
        self.reads.lock().add_key(key);
        self.table.engine().get_at(key, &point)
    }

    /// The entries of a range of keys, in order, including own writes as of the call. Ordered
    /// engines only. Only the part that is scanned counts as read.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"a", b"")?;
    /// table.put(b"b", b"")?;
    /// let mut transaction = table.transaction()?;
    /// transaction.delete(b"a")?;
    /// transaction.put(b"c", b"")?;
    /// let keys: Result<Vec<_>, _> = transaction.range("a".."z")?.map(|e| e.map(|(k, _)| k)).collect();
    /// assert_eq!(keys?, [b"b", b"c"]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl std::ops::RangeBounds<K>) -> Result<Iter> {
        self.scan(KeyRange::new(range))
    }

    /// The entries whose keys start with `prefix`, in order.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.scan(KeyRange::prefix(prefix.as_ref()))
    }

    /// Every entry, in order.
    pub fn iter(&self) -> Result<Iter> {
        self.scan(KeyRange::all())
    }

    fn scan(&self, range: KeyRange) -> Result<Iter> {
        let point = self.reader.point()?;
        let stored = self.table.engine().range(range.clone(), Some(&point))?;
        let stored = self.reader.cursor(stored);
        let read = self.reads.lock().add_range(range.clone());
        let now = self.reader.readers().now();
        let merged = MergedCursor::new(stored, self.writes.clone(), range, read, now);
        Ok(Iter::new(Box::new(merged)))
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// A key or a value over its limit; nothing has changed then.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(Op::Put { key, value, expires_at: None })
    }

    /// Sets `key` to `value` until `expires_at` (milliseconds since 1970).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.push(Op::Put { key, value, expires_at: Some(expires_at) })
    }

    /// Removes `key`. Removing a missing key is no error, and does not count as a read.
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.push(Op::Delete { key })
    }

    fn push(&mut self, op: Op<'_>) -> Result<()> {
        entry::check_key(op.key())?;
        if let Op::Put { value, .. } = op {
            entry::check_value(value, self.table.engine().capabilities().max_value_bytes)?;
        }
        Arc::make_mut(&mut self.writes).push(op);
        Ok(())
    }

    /// Adds all writes of a batch.
    ///
    /// # Errors
    /// A key or a value over its limit; nothing has changed then.
    pub fn write(&mut self, batch: &WriteBatch) -> Result<()> {
        batch.check(self.table.engine().capabilities().max_value_bytes)?;
        Arc::make_mut(&mut self.writes).apply(batch);
        Ok(())
    }

    /// Applies all writes, or none. A transaction without writes always succeeds.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) with a key that was read and has changed since;
    /// [`Error::Expired`](crate::Error::Expired). Nothing was applied then, and the transaction may
    /// be retried. Other errors are those of [`Table::write`], with the same outcome.
    pub fn commit(self, durability: Durability) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        // Keeps the transaction from expiring in the commit queue.
        let _in_use = self.reader.point()?;
        let reads = Arc::new(std::mem::take(&mut *self.reads.lock()));
        let view = ReadView { begun: self.begun, reads };
        self.manager.commit(&self.writes.to_batch(), durability, view)
    }

    /// Discards all writes, as dropping does.
    pub fn rollback(self) {}
}

//! Transactions: reads as of a moment, writes that are applied together if nothing they rest on has
//! changed.
//!
//! ```text
//!   begin ─ get, range: the snapshot, with the own writes laid over it ─ put, delete: kept aside
//!     └ commit ─ nothing written: done, always
//!              └ else: has anyone since written what was read? yes: Error::Conflict, no: one batch
//! ```
//!
//! Committed transactions and plain writes are **serializable**, and strictly so: there is one order
//! of all of them that explains every answer and puts what had returned before what began later. A
//! transaction that writes stands in it where it commits; one that only reads, and a
//! [`Snapshot`](crate::Snapshot), where it began. That is multi-version concurrency control with
//! optimistic, backward validation of the keys and the ranges that were read; so lost updates, write
//! skew, long forks and phantoms cannot be. No lock is held between begin and commit.
//!
//! What it does not do: an entry that expires by its own time (`put_until`) is no write, and conflicts
//! with nothing. What a transaction has read and written is held in memory until it ends; an iterator
//! made from it keeps it from ending. Transactions are of one table. Everyone who writes to the table while transactions are open must do so through
//! the same [`Db`](crate::Db)'s [`Table`]s or their [`engine`](Table::engine); the server does.
//!
//! | module | one idea |
//! | --- | --- |
//! | `layer` | one order of commits and writes; what is serialised and why |
//! | `recent` | which keys were written of late, bounded |
//! | `reads` | what a transaction has read |
//! | [`overlay`] | what a transaction has written |
//! | `merged` | walking both |
//! | [`retry`] | running a transaction again |
//!
//! Source: the transactional layer of SEMEL and SkimpyFTL, as "Multi-version Indexing in Flash-based
//! Key-Value Stores", sections 3.4 and 4.2, describes it; the layer's own sources are in `layer`.

mod layer;
mod merged;
pub mod overlay;
mod reads;
mod recent;
pub mod retry;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Entry, KeyRange, Op, Result, Timestamp, WriteBatch, entry};

pub(crate) use layer::Layer;
pub use overlay::Overlay;
pub use retry::Retry;

use crate::reader::Reader;
use crate::{Iter, Table};
use layer::Shown;
use merged::Merged;
use reads::Reads;
use recent::Group;

/// Limits of transactions and snapshots, for each table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransactionOptions {
    /// A transaction or snapshot that is not used for so long expires, so that it does not keep old
    /// versions for ever; it lives at most twice as long. `None`: never. Default: 5 minutes.
    pub idle: Option<Duration>,
    /// Bytes for the keys that were written while transactions were open. A transaction that began
    /// before the oldest of them is refused at its commit, so this bounds how much may be written
    /// during one. Default: 32 MiB, about 250,000 writes of 16-byte keys.
    pub remembered_bytes: usize,
}

impl Default for TransactionOptions {
    fn default() -> Self {
        TransactionOptions { idle: Some(Duration::from_secs(300)), remembered_bytes: 32 << 20 }
    }
}

/// A transaction. Dropping it without [`commit`](Self::commit) leaves nothing of it.
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
/// table.put(b"alice", b"50")?; // someone is faster
/// let refused = transfer.commit(Durability::Synced);
/// assert!(matches!(refused, Err(Error::Conflict { key }) if key == b"alice"));
/// assert_eq!(table.get(b"bob")?, None);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Transaction {
    table: Table,
    layer: Arc<Layer>,
    reader: Arc<Reader>,
    begun: Group,
    reads: Mutex<Reads>,
    // Shared with the iterators over it; a write while one lives copies it.
    writes: Arc<Overlay>,
}

impl Transaction {
    pub(crate) fn begin(table: Table, layer: Arc<Layer>) -> Result<Self> {
        let (begun, reader) = layer.begin()?;
        Ok(Transaction {
            table,
            layer,
            reader: Arc::new(reader),
            begun,
            reads: Mutex::default(),
            writes: Arc::default(),
        })
    }

    /// The value of `key`: what this transaction wrote, or else what was there when it began.
    ///
    /// # Errors
    /// [`Error::Expired`](crate::Error::Expired), as all reads; the engine's.
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
        // Even if the read fails: whoever read it wants to know.
        self.reads.lock().add_key(key);
        self.table.engine().get_at(key, &point)
    }

    /// The entries of a range of keys, in order, the own writes among them. Ordered engines only. What
    /// is written after the call does not change what it shows. Only what is walked over counts as read.
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
        self.walk(KeyRange::new(range))
    }

    /// The entries whose keys start with `prefix`, in order.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        self.walk(KeyRange::prefix(prefix.as_ref()))
    }

    /// Every entry, in order.
    pub fn iter(&self) -> Result<Iter> {
        self.walk(KeyRange::all())
    }

    fn walk(&self, range: KeyRange) -> Result<Iter> {
        let point = self.reader.point()?;
        let stored = self.table.engine().range(range.clone(), Some(&point))?;
        let stored = self.reader.cursor(stored);
        let read = self.reads.lock().add_range(range.clone());
        let now = self.reader.readers().now();
        let merged = Merged::new(stored, self.writes.clone(), range, read, now);
        Ok(Iter::new(Box::new(merged)))
    }

    /// Sets `key` to `value`.
    ///
    /// # Errors
    /// A key or a value that is over its limit; nothing has changed then.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.push(Op::Put { key, value, expires_at: None })
    }

    /// Sets `key` to `value` until `expires_at` (milliseconds since 1970).
    pub fn put_until(&mut self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.push(Op::Put { key, value, expires_at: Some(expires_at) })
    }

    /// Removes `key`. Removing what is not there is no error, and no read.
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
    /// A key or a value that is over its limit; nothing has changed then.
    pub fn write(&mut self, batch: &WriteBatch) -> Result<()> {
        batch.check(self.table.engine().capabilities().max_value_bytes)?;
        Arc::make_mut(&mut self.writes).apply(batch);
        Ok(())
    }

    /// Applies all writes, or none. A transaction that wrote nothing always succeeds.
    ///
    /// # Errors
    /// [`Error::Conflict`](crate::Error::Conflict) with a key that was read and has been changed since;
    /// [`Error::Expired`](crate::Error::Expired). Nothing was applied then, and it may be run again.
    /// After any other error it is as after that error of [`Table::write`].
    pub fn commit(self, durability: Durability) -> Result<()> {
        if self.writes.is_empty() {
            return Ok(());
        }
        // Held to the end, so that this does not expire in the line.
        let _in_use = self.reader.point()?;
        let reads = Arc::new(std::mem::take(&mut *self.reads.lock()));
        let shown = Shown { begun: self.begun, reads };
        self.layer.commit(&self.writes.to_batch(), durability, shown)
    }

    /// Gives up: nothing of it is applied. Dropping it does the same.
    pub fn rollback(self) {}
}

//! One keyspace: reads, writes, batches.

use std::sync::Arc;

use siltstone_engine::{
    Clock, Durability, Engine, Entry, KeyRange, ReadPoint, Result, Stats, SystemClock, Timestamp,
    VerifyReport, WriteBatch,
};

use crate::reader::Readers;
use crate::transaction::TransactionManager;
use crate::{Iter, Snapshot, Transaction, TransactionOptions};

/// A named keyspace on one engine. Clones share it; every method may be called from any thread.
#[derive(Clone)]
pub struct Table {
    name: Arc<str>,
    /// The engine, or `transactions` over it.
    engine: Arc<dyn Engine>,
    /// Over versioned engines only.
    transactions: Option<Arc<TransactionManager>>,
}

impl Table {
    /// Wraps an engine as a table, with the system clock.
    pub fn new(name: &str, engine: Arc<dyn Engine>) -> Self {
        Self::with(name, engine, Arc::new(SystemClock), &TransactionOptions::default())
    }

    /// Wraps an engine as a table. Clones share their transactions; two tables made from one engine
    /// do not.
    pub fn with(
        name: &str,
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        options: &TransactionOptions,
    ) -> Self {
        if !engine.capabilities().versioned {
            return Table { name: name.into(), engine, transactions: None };
        }
        let readers = Readers::new(clock, options.idle);
        let transactions = TransactionManager::new(engine, readers, options.remembered_bytes);
        Table { name: name.into(), engine: transactions.clone(), transactions: Some(transactions) }
    }

    /// The same table with an interceptor: `wrap` returns an engine that receives the requests
    /// first, e.g. one that records them. Transactions and snapshots bypass it.
    #[must_use]
    pub fn with_interceptor(&self, wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Self {
        Table { engine: wrap(self.engine.clone()), ..self.clone() }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine, for operations that `Table` does not have. Writes through it conflict with open
    /// transactions like any other.
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The value of `key`.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.engine.get(key)?.map(|entry| entry.value))
    }

    /// The value of `key` and when it expires.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.engine.get(key)
    }

    /// Sets `key` to `value`, buffered.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(WriteBatch::new().put(key, value), Durability::Buffered)
    }

    /// Sets `key` to `value` until `expires_at` (milliseconds since 1970), buffered.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions, Clock, SystemClock};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// let now = SystemClock.now();
    /// table.put_until(b"session", b"open", now + 3_600_000)?;
    /// table.put_until(b"stale", b"gone", now - 1)?;
    /// assert!(table.get(b"session")?.is_some());
    /// assert!(table.get(b"stale")?.is_none());
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.write(WriteBatch::new().put_until(key, value, expires_at), Durability::Buffered)
    }

    /// Removes `key`, buffered. Removing a missing key is no error.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(WriteBatch::new().delete(key), Durability::Buffered)
    }

    /// Applies a batch atomically.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions, Durability, WriteBatch};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// let mut transfer = WriteBatch::new();
    /// transfer.put(b"alice", b"90").put(b"bob", b"110").delete(b"pending");
    /// table.write(&transfer, Durability::Synced)?; // survives a power cut from here on
    /// assert_eq!(table.get(b"bob")?.as_deref(), Some(&b"110"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        self.engine.write(batch, durability)
    }

    /// Removes every key, durably. Earlier snapshots still show the keys, and a transaction that
    /// began earlier and has read anything conflicts with it.
    ///
    /// `lsm`, `trie` and `mica` remove all keys atomically, at a cost nearly independent of their
    /// number. `silt` and `skimpy` remove them in batches.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"a", b"1")?;
    /// let before = table.snapshot()?;
    /// table.clear()?;
    /// assert_eq!(table.get(b"a")?, None);
    /// assert_eq!(before.get(b"a")?.as_deref(), Some(&b"1"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn clear(&self) -> Result<()> {
        self.engine.clear()
    }

    /// Makes every write that has returned durable against a power cut.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// Every entry, in engine order (by key, where the engine is ordered).
    pub fn iter(&self) -> Result<Iter> {
        Ok(Iter::new(self.engine.iter()?))
    }

    /// The entries of a range of keys, in order. Ordered engines only.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// for day in ["2026-01-30", "2026-01-31", "2026-02-01"] {
    ///     table.put(day.as_bytes(), b"")?;
    /// }
    /// let january = table.range("2026-01".."2026-02")?;
    /// assert_eq!(january.count(), 2);
    /// let newest_first = table.range("2026".."2027")?.rev();
    /// assert_eq!(newest_first.count(), 3);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    pub fn range<K: AsRef<[u8]>>(&self, range: impl std::ops::RangeBounds<K>) -> Result<Iter> {
        Ok(Iter::new(self.engine.range(KeyRange::new(range), None)?))
    }

    /// The entries whose keys start with `prefix`, in order. Ordered engines only.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
        Ok(Iter::new(self.engine.range(KeyRange::prefix(prefix.as_ref()), None)?))
    }

    /// A view of the table at this moment, unaffected by later writes. Versioned engines only.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let transactions = self.transactions("snapshots")?;
        transactions.readers().expire_idle();
        Ok(self.snapshot_at(transactions, self.engine.snapshot()?))
    }

    fn snapshot_at(&self, transactions: &TransactionManager, point: ReadPoint) -> Snapshot {
        let reader = transactions.readers().begin("snapshot", point, Box::new(|| ()));
        Snapshot::new(self.clone(), reader)
    }

    /// Begins a transaction: reads see the table at this moment, writes are applied together at
    /// commit. Versioned engines only. If no other transaction is open, it waits for writes in
    /// progress.
    ///
    /// # Errors
    /// `Unsupported` if the engine is not versioned.
    pub fn transaction(&self) -> Result<Transaction> {
        Transaction::begin(self.clone(), self.transactions("transactions")?.clone())
    }

    /// The sequence number of the oldest live snapshot or transaction, or `None` without one: the
    /// engine keeps every version visible at it or later.
    pub fn watermark(&self) -> Option<u64> {
        self.transactions.as_ref()?.readers().watermark()
    }

    fn transactions(&self, operation: &'static str) -> Result<&Arc<TransactionManager>> {
        self.transactions.as_ref().ok_or_else(|| self.engine.unsupported(operation))
    }

    /// A view of the table at `time`, in milliseconds since 1970, including the writes of that
    /// millisecond. Only `skimpy` keeps history, for the time given by its option `retention`.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions, Clock, SystemClock};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let options = [("retention", "1h"), ("capacity", "16MiB")].map(|(k, v)| (k.into(), v.into()));
    /// let table = db.table_or_create("t", "skimpy", &options.into())?;
    /// table.put(b"price", b"100")?;
    /// let then = SystemClock.now();
    /// std::thread::sleep(std::time::Duration::from_millis(2));
    /// table.put(b"price", b"120")?;
    /// assert_eq!(table.at(then)?.get(b"price")?.as_deref(), Some(&b"100"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `BelowWatermark` if history does not reach back so far, `Invalid` for a time in the future,
    /// `Unsupported` by engines without history.
    pub fn at(&self, time: Timestamp) -> Result<Snapshot> {
        let transactions = self.transactions("reads at a time in the past")?;
        transactions.readers().expire_idle();
        Ok(self.snapshot_at(transactions, self.engine.at(time)?))
    }

    /// Writes memtables and logs out as tables of the engine, durably.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Runs background work until none is due.
    pub fn maintain(&self) -> Result<()> {
        self.engine.maintain()
    }

    /// Reads and checks every byte; `progress` receives the bytes done and the total.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.engine.verify(progress)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

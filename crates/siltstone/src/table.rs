//! One keyspace: reads, writes, batches.

use std::sync::Arc;

use siltstone_engine::{
    Clock, Durability, Engine, Entry, KeyRange, ReadPoint, Result, Stats, SystemClock, Timestamp,
    VerifyReport, WriteBatch,
};

use crate::reader::Readers;
use crate::transaction::Layer;
use crate::{Iter, Snapshot, Transaction, TransactionOptions};

/// A named keyspace on one engine. Clones share it; every method may be called from any thread.
#[derive(Clone)]
pub struct Table {
    name: Arc<str>,
    /// The layer, where there is one.
    engine: Arc<dyn Engine>,
    /// Where transactions are: over versioned engines.
    layer: Option<Arc<Layer>>,
}

impl Table {
    /// Gives an engine a table's face, by the machine's clock.
    pub fn new(name: &str, engine: Arc<dyn Engine>) -> Self {
        Self::with(name, engine, Arc::new(SystemClock), &TransactionOptions::default())
    }

    /// Gives an engine a table's face. Clones share their transactions, two tables made from one engine
    /// don't.
    pub fn with(
        name: &str,
        engine: Arc<dyn Engine>,
        clock: Arc<dyn Clock>,
        options: &TransactionOptions,
    ) -> Self {
        if !engine.capabilities().versioned {
            return Table { name: name.into(), engine, layer: None };
        }
        let readers = Readers::new(clock, options.idle);
        let layer = Layer::new(engine, readers, options.remembered_bytes);
        Table { name: name.into(), engine: layer.clone(), layer: Some(layer) }
    }

    /// The same table, whose requests pass through another engine first, e.g. one that writes them down.
    /// Transactions and snapshots go past it.
    #[must_use]
    pub fn through(&self, wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Self {
        Table { engine: wrap(self.engine.clone()), ..self.clone() }
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine underneath, for what this face does not have. Writes through it conflict with open
    /// transactions like any.
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

    /// Removes `key`, buffered. Removing what is not there is no error.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(WriteBatch::new().delete(key), Durability::Buffered)
    }

    /// Applies a batch whole.
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

    /// Removes every key, durably. Snapshots that were taken before still show what was there, and
    /// a transaction that has read anything since conflicts with it.
    ///
    /// `lsm`, `trie` and `mica` remove all keys at one moment or none, at a cost that hardly grows
    /// with their number. `silt` and `skimpy` remove one after the other, in batches.
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

    /// Makes every write that has returned survive a power cut.
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

    /// A view of the table as it is now, which later writes don't change. Versioned engines only.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let layer = self.layer("snapshots")?;
        layer.readers().look();
        Ok(self.reading(layer, self.engine.snapshot()?))
    }

    fn reading(&self, layer: &Layer, point: ReadPoint) -> Snapshot {
        let reader = layer.readers().begin("snapshot", point, Box::new(|| ()));
        Snapshot::new(self.clone(), reader)
    }

    /// Begins a transaction: reads as of now, writes that are applied together at its commit. Versioned
    /// engines only. If no other is open it waits for writes that are under way.
    ///
    /// # Errors
    /// `Unsupported` if the engine is not versioned.
    pub fn transaction(&self) -> Result<Transaction> {
        Transaction::begin(self.clone(), self.layer("transactions")?.clone())
    }

    /// The sequence number of the oldest live snapshot or transaction: the engine keeps every version
    /// that it sees. `None` if there is none.
    pub fn watermark(&self) -> Option<u64> {
        self.layer.as_ref()?.readers().watermark()
    }

    fn layer(&self, operation: &'static str) -> Result<&Arc<Layer>> {
        self.layer.as_ref().ok_or_else(|| self.engine.unsupported(operation))
    }

    /// A view of the table as it was at `time`, in milliseconds since 1970: with the writes of that
    /// millisecond. Only engines that keep history have one (`skimpy`, as far back as its option
    /// `retention` says).
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
    /// `BelowWatermark` if history doesn't reach back so far, `Invalid` for a time in the future,
    /// `Unsupported` by engines without history.
    pub fn at(&self, time: Timestamp) -> Result<Snapshot> {
        let layer = self.layer("reads at a time in the past")?;
        layer.readers().look();
        Ok(self.reading(layer, self.engine.at(time)?))
    }

    /// Moves what is only in memory and log into tables on the medium, durably.
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Runs background work until none is due.
    pub fn maintain(&self) -> Result<()> {
        self.engine.maintain()
    }

    /// Reads and checks every byte; `progress` hears bytes done and in total.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.engine.verify(progress)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        self.engine.stats()
    }
}

//! One keyspace: reads, writes, batches.
//!
//! | module | contents |
//! | --- | --- |
//! | `update` | atomic updates of one key, and removals of the first and last entry |
//! | `options` | options in force, and their change |
//! | `order` | the place of a write that is a part of a batch over several tables |
//! | `try_write` | writes that do not wait |
//! | `key_locks` | locks that make updates atomic on engines without transactions |

use std::fmt;
use std::ops::RangeBounds;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{
    Clock, CompactionFilter, Durability, Engine, Entry, Error, IngestOptions, IngestReport,
    KeyRange, MergeOperator, Result, Stats, SystemClock, Timestamp, VerifyReport, WriteBatch,
};

use crate::batch::member::Member;
use crate::read::{Reads, read_methods};
use crate::reader::Readers;
use crate::transaction::TransactionManager;
use crate::{Cursor, Iter, Keys, TransactionOptions, names};
use key_locks::KeyLocks;

mod key_locks;
mod options;
mod order;
mod try_write;
mod update;

pub(crate) use options::{OptionStore, Options, TableOptions};
pub(crate) use order::OrderedWrite;
pub use update::CasMismatch;

/// A named keyspace on one engine. Clones share it; every method may be called from any thread.
///
/// Every method that returns a `Result` returns [`Error::Closed`] after
/// [`Db::close`](crate::Db::close).
#[derive(Clone)]
pub struct Table {
    name: Arc<str>,
    /// The engine, or `transactions` over it.
    engine: Arc<dyn Engine>,
    isolation: Isolation,
    /// `None` for a table outside of a store.
    member: Option<Arc<Member>>,
    /// `None` for a table outside of a store.
    options: Option<Arc<TableOptions>>,
}

/// Sorts tables in the order in which they are locked together.
pub(crate) fn sort_for_locks(tables: &mut [&Table]) {
    tables.sort_by_key(|table| table.name());
}

/// Refuses a table that is twice in a sorted list.
pub(crate) fn check_distinct(tables: &[&Table]) -> Result<()> {
    match tables.windows(2).find(|pair| pair[0].name() == pair[1].name()) {
        Some(pair) => Err(Error::Invalid(format!("table '{}' is named twice", pair[0].name()))),
        None => Ok(()),
    }
}

/// How a table makes reads followed by writes atomic.
#[derive(Clone)]
enum Isolation {
    /// Over versioned engines.
    Transactions {
        manager: Arc<TransactionManager>,
        /// Held by removals of the first or last entry, which would conflict with one another.
        pops: Arc<Mutex<()>>,
    },
    /// Over the other engines.
    KeyLocks(Arc<KeyLocks>),
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
            let isolation = Isolation::KeyLocks(Arc::default());
            return Table { name: name.into(), engine, isolation, member: None, options: None };
        }
        let readers = Readers::new(clock, options.idle);
        let manager = TransactionManager::new(engine, readers, options.remembered_bytes);
        let engine = manager.clone();
        let isolation = Isolation::Transactions { manager, pops: Arc::default() };
        Table { name: name.into(), engine, isolation, member: None, options: None }
    }

    /// The same table as one of a store.
    pub(crate) fn of_store(self, member: Member, options: TableOptions) -> Self {
        Table { member: Some(Arc::new(member)), options: Some(Arc::new(options)), ..self }
    }

    /// The options in force of a table of a store.
    pub(crate) fn in_force(&self) -> Option<&Mutex<Options>> {
        self.options.as_ref().map(|options| &options.in_force)
    }

    /// The table as one of a store, if it is.
    pub(crate) fn member(&self) -> Option<&Member> {
        self.member.as_deref()
    }

    /// Whether both are handles of one table.
    pub(crate) fn is_same(&self, other: &Table) -> bool {
        Arc::ptr_eq(&self.name, &other.name)
    }

    /// The engine below the transactions.
    pub(crate) fn storage(&self) -> &Arc<dyn Engine> {
        match &self.isolation {
            Isolation::Transactions { manager, .. } => manager.engine(),
            Isolation::KeyLocks(_) => &self.engine,
        }
    }

    read_methods!();

    /// The same table with an interceptor: `wrap` returns an engine that receives the requests
    /// first, e.g. one that records them. Transactions and snapshots bypass it.
    #[must_use]
    pub fn with_interceptor(&self, wrap: impl FnOnce(Arc<dyn Engine>) -> Arc<dyn Engine>) -> Self {
        Table { engine: wrap(self.engine.clone()), ..self.clone() }
    }

    /// Whether there are other handles of the table, or snapshots or transactions.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.name) > 1
    }

    /// The table's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The engine, for operations that `Table` does not have. Writes through it conflict with open
    /// transactions like any other. On engines without transactions they may come between the read
    /// and the write of [`compare_and_swap`](Self::compare_and_swap).
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Whether the table is open, for callers that hold handles of it, such as cursors. Cost: a
    /// load.
    ///
    /// # Errors
    /// [`Error::Closed`] after [`Db::close`](crate::Db::close), and for a dropped table.
    pub fn check_open(&self) -> Result<()> {
        self.engine.check_open()
    }

    /// Sets `key` to `value`, buffered.
    ///
    /// # Errors
    /// As [`write`](Self::write).
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
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn put_until(&self, key: &[u8], value: &[u8], expires_at: Timestamp) -> Result<()> {
        self.write(WriteBatch::new().put_until(key, value, expires_at), Durability::Buffered)
    }

    /// Merges `operand` into the value of `key` by the table's merge operator, buffered. Nothing is
    /// read: the operand is stored, and reads, flushes and compactions apply it. `lsm` only.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use siltstone::{Db, DbOptions, MergeCounter};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let clicks = db.table_or_create("clicks", "lsm", &Default::default())?;
    /// clicks.set_merge_operator(Some(Arc::new(MergeCounter)))?;
    /// clicks.merge(b"page", &3u64.to_le_bytes())?;
    /// clicks.merge(b"page", &4u64.to_le_bytes())?;
    /// assert_eq!(clicks.get(b"page")?.as_deref(), Some(&7u64.to_le_bytes()[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write); `Invalid` without a merge operator, or if it refuses the operand;
    /// `Unsupported` by other engines.
    pub fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        self.write(WriteBatch::new().merge(key, operand), Durability::Buffered)
    }

    /// Removes `key`, buffered. Removing a missing key is not an error.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.write(WriteBatch::new().delete(key), Durability::Buffered)
    }

    /// Removes every key in `range`, buffered, at a cost independent of their number. Earlier
    /// snapshots still show the keys, and a transaction that has read a key or a range in it
    /// conflicts with it. `lsm` only.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"user:7:name", b"Ann")?;
    /// table.put(b"user:8:name", b"Bob")?;
    /// table.delete_range("user:7:".."user:7;")?;
    /// assert_eq!(table.keys()?.count(), 1);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`write`](Self::write); `Unsupported` by other engines; `Invalid` for an inverted range.
    pub fn delete_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.write(WriteBatch::new().delete_range(range), Durability::Buffered)
    }

    /// Applies a batch atomically. Blocks while background work is behind (a write stall).
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
    ///
    /// # Errors
    /// `TooLarge`, or an `Io` error of a full disk: nothing was written. `ReadOnly` after
    /// an earlier failure. After any other `Io` error the outcome is unknown until the store is
    /// reopened.
    pub fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()> {
        let _shared = self.key_locks().map(|locks| locks.share(batch));
        self.engine.write(batch, durability)
    }

    /// Removes every key, durably. Earlier snapshots still show the keys, and a transaction that
    /// began earlier and has read anything conflicts with it.
    ///
    /// All keys are removed atomically, at a cost nearly independent of their number: one manifest
    /// edit, or on `skimpy` two checkpoints of the device. On a full disk it uses the space that
    /// the store reserves for that.
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
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn clear(&self) -> Result<()> {
        let _shared = self.key_locks().map(KeyLocks::share_all);
        match self.store() {
            Some(store) => store.clear(self, &|| self.engine.clear()),
            None => self.engine.clear(),
        }
    }

    /// Makes every write that has returned durable against a power cut.
    ///
    /// # Errors
    /// `Io`: it is unknown which of these writes are durable, and the table is read-only from then
    /// on. `ReadOnly` after an earlier failure.
    pub fn sync(&self) -> Result<()> {
        self.engine.sync()
    }

    /// The number of keys as the engine estimates it, without reading any; `None` if the engine
    /// cannot estimate it (`skimpy`). Exact on `mica`. On the others, entries that were overwritten
    /// or deleted count until compaction has removed them.
    pub fn approximate_len(&self) -> Option<u64> {
        self.engine.stats().keys_estimate
    }

    /// The sequence number of the oldest live snapshot or transaction, or `None` without one: the
    /// engine keeps every version visible at it or later.
    pub fn watermark(&self) -> Option<u64> {
        match &self.isolation {
            Isolation::Transactions { manager, .. } => manager.readers().watermark(),
            Isolation::KeyLocks(_) => None,
        }
    }

    /// The transactions of the table.
    ///
    /// # Errors
    /// `Unsupported` by engines without versions; the error names `operation`.
    pub(crate) fn transactions(&self, operation: &'static str) -> Result<&Arc<TransactionManager>> {
        match &self.isolation {
            Isolation::Transactions { manager, .. } => Ok(manager),
            Isolation::KeyLocks(_) => Err(self.engine.unsupported(operation)),
        }
    }

    fn key_locks(&self) -> Option<&KeyLocks> {
        match &self.isolation {
            Isolation::Transactions { .. } => None,
            Isolation::KeyLocks(locks) => Some(locks),
        }
    }

    /// Writes memtables to the engine's files, durably. Blocks until that is done.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn flush(&self) -> Result<()> {
        self.engine.flush()
    }

    /// Runs background work (flushes, compactions) until none is due.
    ///
    /// # Errors
    /// Those of the background work: `Io`, `Corruption`; `ReadOnly` after an earlier failure.
    pub fn maintain(&self) -> Result<()> {
        self.engine.maintain()
    }

    /// Compacts the keys in `range` down to the deepest level that has some, and drops deleted,
    /// expired and overwritten entries that no snapshot sees, tombstones, and rows that the
    /// compaction filter drops. Blocks until that is done; writers go on. `lsm` only.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// for day in 0..10u8 {
    ///     table.delete(&[b'd', day])?;
    /// }
    /// table.compact_range(&b"d"[..]..&b"e"[..])?;
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// Cost: the range is read and written about once per level, and level 0, as far as it overlaps
    /// the range, with what lies below it in level 1.
    ///
    /// # Errors
    /// [`Error::Invalid`] for an inverted range; `Unsupported` by other engines, whose files have
    /// no ranges of keys; those of [`maintain`](Self::maintain).
    pub fn compact_range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<()> {
        self.engine.compact_range(&KeyRange::new(range))
    }

    /// Makes sorted files, written by [`SortedFileWriter`](crate::SortedFileWriter), a part of the
    /// table, all at once and durably, without rewriting them. Their entries replace older ones of
    /// the same keys. The files must not overlap one another. Readers see all of them or none;
    /// earlier snapshots do not see them, and a transaction that has read anything between the
    /// first and the last key of a file conflicts. Writers wait while what is in memory is flushed;
    /// linking, copying and checking come before. With [`IngestOptions::prefix`] the keys get
    /// another prefix. `lsm` only.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions, IngestMode, IngestOptions, SortedFileWriter};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// let path = scratch.path().join("users.sorted");
    /// let mut file = SortedFileWriter::create(&path, &Default::default())?;
    /// file.put(b"ann", b"1")?;
    /// file.put(b"bob", b"2")?;
    /// file.finish()?;
    /// let options = IngestOptions { mode: IngestMode::Move, ..IngestOptions::default() };
    /// table.ingest(&[path], options)?;
    /// assert_eq!(table.get(b"bob")?.as_deref(), Some(&b"2"[..]));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` by other engines; `Invalid` for files that overlap, that are no complete
    /// sorted files, or with entries that expire if the table has a merge operator; `Corruption` in
    /// a file. Nothing has changed then. Otherwise as [`write`](Self::write).
    pub fn ingest<P: AsRef<Path>>(
        &self,
        paths: &[P],
        options: IngestOptions,
    ) -> Result<IngestReport> {
        let absolute = |path: &P| names::absolute(path.as_ref());
        let paths = paths.iter().map(absolute).collect::<Result<Vec<_>>>()?;
        let paths: Vec<&Path> = paths.iter().map(PathBuf::as_path).collect();
        self.engine.prepare_ingestion(&paths, options)?.commit()
    }

    /// Sets the filter that drops obsolete rows in later compactions, or none, until the table is
    /// closed. [`DbOptions::compaction_filters`](crate::DbOptions::compaction_filters) sets it at
    /// every open. See [`compaction_filter`](crate::compaction_filter) for what a filter may do.
    /// `lsm` only.
    ///
    /// # Errors
    /// `Unsupported` by other engines.
    pub fn set_compaction_filter(&self, filter: Option<Arc<dyn CompactionFilter>>) -> Result<()> {
        self.engine.set_compaction_filter(filter)
    }

    /// Sets the operator that merges operands into values, or none. The first one is recorded in
    /// the table by its name, for good: another name is refused. The built-in operators
    /// ([`MergeCounter`](crate::MergeCounter), [`MergeAppend`](crate::MergeAppend)) are set by
    /// their recorded name when the table is opened; others must be set after every open, best by
    /// [`DbOptions::merge_operators`](crate::DbOptions::merge_operators). Without its operator,
    /// keys with operands cannot be read. `lsm` only.
    ///
    /// A table with an operator takes no entries that expire (`put_until`): the first operator is
    /// refused by a table that has some. To find them, a table that is not empty is scanned once.
    /// Versions of Siltstone before merges refuse to open a table with an operator.
    ///
    /// # Errors
    /// `Unsupported` by other engines; `Invalid` for an operator of another name, and for a table
    /// with entries that expire.
    pub fn set_merge_operator(&self, operator: Option<Arc<dyn MergeOperator>>) -> Result<()> {
        self.engine.set_merge_operator(operator)
    }

    /// Reads and checks every byte; `progress` receives the bytes done and the total. Damage is in
    /// the report and is not an error.
    ///
    /// # Errors
    /// `Io`: a file could not be read.
    pub fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.engine.verify(progress)
    }

    /// Counters and sizes.
    pub fn stats(&self) -> Stats {
        Stats { options: self.options(), ..self.engine.stats() }
    }
}

impl Reads for Table {
    fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.engine.get(key)
    }

    fn lend(&self, key: &[u8], visit: &mut dyn FnMut(&[u8], Option<Timestamp>)) -> Result<bool> {
        self.engine.lookup(key, None, visit)
    }

    fn entries(&self, keys: &[&[u8]]) -> Result<Vec<Option<Entry>>> {
        self.engine.multi_get(keys, None)
    }

    fn scan(&self, range: KeyRange) -> Result<Box<dyn siltstone_engine::Cursor>> {
        if range == KeyRange::all() { self.engine.iter() } else { self.engine.range(range, None) }
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("name", &self.name)
            .field("engine", &self.engine.name())
            .finish_non_exhaustive()
    }
}

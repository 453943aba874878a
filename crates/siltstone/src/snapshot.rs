//! Reads at a point in time.

use std::fmt;
use std::sync::Arc;

use siltstone_engine::{Engine, Entry, KeyRange, ReadPoint, Result, Timestamp};

use crate::read::{Reads, read_methods};
use crate::reader::Reader;
use crate::transaction::TransactionManager;
use crate::{Cursor, Iter, Keys, Table};

/// A table as of the creation of the snapshot: a transaction that only reads and never conflicts.
/// Creating one is free; while it lives, the versions it sees stay on disk. One that is not
/// used for [`TransactionOptions::idle`](crate::TransactionOptions::idle) expires: its reads then
/// return [`Error::Expired`](crate::Error::Expired).
///
/// It has the reads of a [`Table`]. `skimpy` reads single keys only at a snapshot.
///
/// ```
/// # use siltstone::{Db, DbOptions};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// # let table = db.table_or_create("t", "lsm", &Default::default())?;
/// table.put(b"k", b"then")?;
/// let snapshot = table.snapshot()?;
/// table.put(b"k", b"now")?;
/// assert_eq!(snapshot.get(b"k")?.as_deref(), Some(&b"then"[..]));
/// assert_eq!(table.get(b"k")?.as_deref(), Some(&b"now"[..]));
/// assert!(table.snapshot()?.sequence() > snapshot.sequence());
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    table: Table,
    reader: Arc<Reader>,
}

impl Table {
    /// A view of the table at this moment, unaffected by later writes. Versioned engines only.
    ///
    /// # Errors
    /// `Unsupported` if the engine is not versioned.
    pub fn snapshot(&self) -> Result<Snapshot> {
        let transactions = self.transactions("snapshots")?;
        transactions.readers().expire_idle();
        Ok(self.snapshot_at(transactions, self.engine().snapshot()?))
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
        Ok(self.snapshot_at(transactions, self.engine().at(time)?))
    }

    /// A snapshot at a point that the engine has given.
    pub(crate) fn snapshot_at(
        &self,
        transactions: &TransactionManager,
        point: ReadPoint,
    ) -> Snapshot {
        let reader = transactions.readers().begin("snapshot", point, Box::new(|| ()));
        Snapshot::new(self.clone(), reader)
    }
}

impl Snapshot {
    fn new(table: Table, reader: Reader) -> Self {
        Snapshot { table, reader: Arc::new(reader) }
    }

    read_methods!();

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// The sequence number up to which it shows writes. Snapshots that are taken later have the
    /// same or a higher one.
    pub fn sequence(&self) -> u64 {
        self.reader.sequence()
    }
}

impl Reads for Snapshot {
    fn engine(&self) -> &dyn Engine {
        self.table.engine().as_ref()
    }

    fn entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        let point = self.reader.point()?;
        self.table.engine().get_at(key, &point)
    }

    fn lend(&self, key: &[u8], visit: &mut dyn FnMut(&[u8], Option<Timestamp>)) -> Result<bool> {
        let point = self.reader.point()?;
        self.table.engine().lookup(key, Some(&point), visit)
    }

    fn entries(&self, keys: &[&[u8]]) -> Result<Vec<Option<Entry>>> {
        let point = self.reader.point()?;
        self.table.engine().multi_get(keys, Some(&point))
    }

    fn scan(&self, range: KeyRange) -> Result<Box<dyn siltstone_engine::Cursor>> {
        let point = self.reader.point()?;
        let cursor = self.table.engine().range(range, Some(&point))?;
        Ok(self.reader.cursor(cursor))
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("table", &self.table.name())
            .field("sequence", &self.reader.sequence())
            .finish_non_exhaustive()
    }
}

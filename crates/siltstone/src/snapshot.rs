//! Reads at a point in time.

use std::sync::Arc;

use siltstone_engine::{Entry, KeyRange, Result};

use crate::reader::Reader;
use crate::{Iter, Table};

/// A table as of the creation of the snapshot: a transaction that only reads and never conflicts.
/// Creating one is free; while it lives, the versions it sees stay on the medium. One that is not
/// used for [`TransactionOptions::idle`](crate::TransactionOptions::idle) expires: its reads then
/// return [`Error::Expired`](crate::Error::Expired).
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
/// # Ok::<(), siltstone::Error>(())
/// ```
#[derive(Clone)]
pub struct Snapshot {
    table: Table,
    reader: Arc<Reader>,
}

impl Snapshot {
    pub(crate) fn new(table: Table, reader: Reader) -> Self {
        Snapshot { table, reader: Arc::new(reader) }
    }

    /// The value of `key` at the snapshot.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// The entry of `key` at the snapshot.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        let point = self.reader.point()?;
        self.table.engine().get_at(key, &point)
    }

    /// The entries of a range of keys at the snapshot, in order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl std::ops::RangeBounds<K>) -> Result<Iter> {
        self.scan(KeyRange::new(range))
    }

    /// Every entry at the snapshot, in order.
    pub fn iter(&self) -> Result<Iter> {
        self.scan(KeyRange::all())
    }

    fn scan(&self, range: KeyRange) -> Result<Iter> {
        let point = self.reader.point()?;
        let cursor = self.table.engine().range(range, Some(&point))?;
        Ok(Iter::new(self.reader.cursor(cursor)))
    }
}

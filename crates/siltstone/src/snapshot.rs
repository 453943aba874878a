//! Reading as of a moment.

use siltstone_engine::{Entry, KeyRange, ReadPoint, Result};

use crate::{Iter, Table};

/// A table as it was when the snapshot was taken. It costs nothing to take; while it is held, the
/// versions it sees stay on the medium.
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
    point: ReadPoint,
}

impl Snapshot {
    pub(crate) fn new(table: Table, point: ReadPoint) -> Self {
        Snapshot { table, point }
    }

    /// The value of `key` then.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.get_entry(key)?.map(|entry| entry.value))
    }

    /// The entry of `key` then.
    pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
        self.table.engine().get_at(key, &self.point)
    }

    /// The entries of a range of keys then, in order.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl std::ops::RangeBounds<K>) -> Result<Iter> {
        let cursor = self.table.engine().range(KeyRange::new(range), Some(&self.point))?;
        Ok(Iter::new(cursor))
    }

    /// Every entry then, in order.
    pub fn iter(&self) -> Result<Iter> {
        Ok(Iter::new(self.table.engine().range(KeyRange::all(), Some(&self.point))?))
    }
}

//! Collections of a table for Rust programs: locks, and one batch per operation.

use std::collections::BTreeSet;
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use siltstone::{Clock, Durability, Table};
use siltstone_engine::clock;

use crate::error::Result;
use crate::keyspace::Keyspace;
use crate::rows::EngineRows;
use crate::write_set::WriteSet;

/// Keys are hashed to this many locks.
const STRIPES: usize = 256;

/// Hashes, lists, sets, sorted sets and streams in one ordered table.
///
/// All programs that use a table's collections at the same time must share one value of this type:
/// its locks make operations atomic.
///
/// ```
/// use std::sync::Arc;
/// use siltstone::{Db, DbOptions, Durability, SystemClock};
/// use siltstone_collections::{Collections, End, Hash, List};
///
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// let table = db.table_or_create("t", "lsm", &Default::default())?;
/// let collections = Collections::open(table, Arc::new(SystemClock))?;
/// collections.with(&[b"cart"], Durability::Buffered, |writes| {
///     let mut cart = Hash::open(writes, b"cart")?;
///     cart.insert(b"apples", b"3")?;
///     cart.insert(b"pears", b"5")?;
///     Ok(())
/// })?;
/// // Both keys change in one batch.
/// let moved = collections.with(&[b"todo", b"done"], Durability::Synced, |writes| {
///     List::open(writes, b"todo")?.push(End::Back, b"write");
///     let item = List::open(writes, b"todo")?.pop(End::Front)?.unwrap_or_default();
///     List::open(writes, b"done")?.push(End::Back, &item);
///     Ok(item)
/// })?;
/// assert_eq!(moved, b"write");
/// # Ok::<(), siltstone_collections::Error>(())
/// ```
pub struct Collections {
    table: Table,
    keyspace: Keyspace,
    clock: Arc<dyn Clock>,
    locks: Vec<Mutex<()>>,
    hasher: RandomState,
}

impl Collections {
    /// Opens the collections of a table. `clock` is that of the table's store.
    ///
    /// # Errors
    /// Those of [`Keyspace::open`]; `Unsupported` by engines whose keys have no order.
    pub fn open(table: Table, clock: Arc<dyn Clock>) -> Result<Self> {
        let keyspace = Keyspace::open(table.engine().as_ref(), clock.now())?;
        let locks = (0..STRIPES).map(|_| Mutex::new(())).collect();
        Ok(Collections { table, keyspace, clock, locks, hasher: RandomState::new() })
    }

    /// With another number of adjacent rows from which on an operation deletes them as a range
    /// instead of one by one; 4,096 unless given. For tests on a table that has such deletions.
    #[must_use]
    pub fn with_min_range_rows(mut self, rows: u64) -> Self {
        self.keyspace = self.keyspace.with_min_range_rows(rows);
        self
    }

    /// The table.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// Runs an operation on `keys`, and writes its changes as one batch: all of them are applied or
    /// none. If it fails, nothing is written. Other operations on the same keys wait. The operation
    /// must use no other keys. Nothing expires during it: [`SystemClock`](siltstone::SystemClock)
    /// stands still on its thread.
    ///
    /// # Errors
    /// Those of the operation and of [`Table::write`].
    pub fn with<T>(
        &self,
        keys: &[&[u8]],
        durability: Durability,
        operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T>,
    ) -> Result<T> {
        // Sorted, so that there is no deadlock.
        let stripes: BTreeSet<usize> =
            keys.iter().map(|key| self.hasher.hash_one(key) as usize % STRIPES).collect();
        let _guards: Vec<MutexGuard<'_, ()>> =
            stripes.into_iter().map(|stripe| self.locks[stripe].lock()).collect();
        let stopped = clock::stop();
        let rows = EngineRows::newest(self.table.engine().as_ref());
        let mut writes = WriteSet::new(&rows, &self.keyspace, self.clock.now());
        let result = operation(&mut writes)?;
        let batch = writes.take_batch();
        stopped.resume();
        if !batch.is_empty() {
            self.table.write(&batch, durability)?;
            self.keyspace.record_write(&batch);
        }
        Ok(result)
    }
}

impl fmt::Debug for Collections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collections").field("table", &self.table).finish_non_exhaustive()
    }
}

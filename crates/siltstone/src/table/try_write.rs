//! Writes that do not wait, for threads that must not: event loops.

use siltstone_engine::{Durability, Result, WriteBatch};

use super::Table;

impl Table {
    /// Applies a batch atomically, buffered, unless it would have to wait: for background work (a
    /// delayed write, a write stall), for another writer, who may be syncing, or beside open
    /// transactions. `false`: nothing was written, and [`write`](Self::write) on another thread
    /// waits.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions, Durability, WriteBatch};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"alice", b"90");
    /// if !table.try_write(&batch)? {
    ///     let table = table.clone();
    ///     std::thread::spawn(move || table.write(&batch, Durability::Buffered));
    /// }
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// The answer is that of the moment: a writer who begins between it and the write is waited
    /// for. `lsm`, `trie` and `silt`; on the other engines always `false`. Cost: a few loads more
    /// than a write.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    pub fn try_write(&self, batch: &WriteBatch) -> Result<bool> {
        if self.engine.must_wait(batch) {
            return Ok(false);
        }
        self.write(batch, Durability::Buffered).map(|()| true)
    }
}

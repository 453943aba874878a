//! Atomic updates: of one key, and removals of the first and last entry.
//!
//! Every update is a loop over [`Table::compare_and_swap`] or a transaction. On versioned engines
//! both are optimistic: a try that conflicts with another write is repeated, and since that other
//! write has succeeded, the table makes progress. On the other engines
//! [`KeyLocks`](super::key_locks::KeyLocks) exclude writes between the read and the write of a
//! swap. No lock is held while a user's closure runs.

use std::fmt;

use siltstone_engine::{Durability, Entry, Result, WriteBatch};

use super::{Isolation, Table};
use crate::transaction::{End, Retry};

/// The value of a key was not the expected one, so [`Table::compare_and_swap`] wrote nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CasMismatch {
    /// The value that was found instead; `None` if the key is missing.
    pub current: Option<Vec<u8>>,
}

impl fmt::Display for CasMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.current {
            Some(value) => write!(f, "the key has another value, of {} bytes", value.len()),
            None => write!(f, "the key is missing"),
        }
    }
}

impl std::error::Error for CasMismatch {}

/// The values around an update.
struct Update {
    before: Option<Vec<u8>>,
    after: Option<Vec<u8>>,
}

impl Table {
    /// Sets `key` to `new`, or removes it if `new` is `None`, if its value is `expected` (`None`:
    /// if it is missing), atomically and buffered. The new entry does not expire. Works on every
    /// engine; see [`engine`](Self::engine) for the writes that it cannot exclude.
    ///
    /// The outer result is an error of the store; the inner one says whether the value was swapped.
    /// [`CasMismatch::current`] is the value for the next try.
    ///
    /// Cost: a read and a write. On versioned engines it is a small transaction, repeated after a
    /// conflict with another write of the key; it returns no [`Conflict`](crate::Error::Conflict).
    ///
    /// ```
    /// # use siltstone::{CasMismatch, Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// // Insert if absent.
    /// assert_eq!(table.compare_and_swap(b"lease", None, Some(b"node 1"))?, Ok(()));
    /// let refused = table.compare_and_swap(b"lease", None, Some(b"node 2"))?;
    /// assert_eq!(refused, Err(CasMismatch { current: Some(b"node 1".to_vec()) }));
    /// // Replace, and remove, only the known value.
    /// assert!(table.compare_and_swap(b"lease", Some(b"node 1"), Some(b"node 3"))?.is_ok());
    /// assert!(table.compare_and_swap(b"lease", Some(b"node 3"), None)?.is_ok());
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`get`](Self::get) and [`write`](Self::write).
    pub fn compare_and_swap(
        &self,
        key: &[u8],
        expected: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Result<(), CasMismatch>> {
        let is_expected = |current: Option<Vec<u8>>| match current.as_deref() == expected {
            true => Ok(()),
            false => Err(CasMismatch { current }),
        };
        match &self.isolation {
            Isolation::Transactions { .. } => {
                self.transact_with(Retry::UNLIMITED, Durability::Buffered, |transaction| {
                    let compared = is_expected(transaction.get(key)?);
                    match new {
                        _ if compared.is_err() => {}
                        Some(value) => transaction.put(key, value)?,
                        None if expected.is_some() => transaction.delete(key)?,
                        None => {}
                    }
                    Ok(compared)
                })
            }
            Isolation::KeyLocks(locks) => {
                let _lock = locks.lock(key);
                let compared = is_expected(self.get(key)?);
                let mut batch = WriteBatch::new();
                match new {
                    Some(value) => batch.put(key, value),
                    None => batch.delete(key),
                };
                if compared.is_ok() && (new.is_some() || expected.is_some()) {
                    self.engine.write(&batch, Durability::Buffered)?;
                }
                Ok(compared)
            }
        }
    }

    /// Replaces the value of `key` by what `update` makes of it, atomically and buffered, and
    /// returns the value before. `update` gets the value, or `None` for a missing key; it returns
    /// the new value, or `None` to remove the key. It runs again if another write came in between,
    /// so it must have no other effects. Works on every engine.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// let next = |id: Option<&[u8]>| {
    ///     let last = id.and_then(|id| id.try_into().ok()).map_or(0, u64::from_be_bytes);
    ///     Some((last + 1).to_be_bytes())
    /// };
    /// assert_eq!(table.fetch_and_update(b"id", next)?, None);
    /// assert_eq!(table.update_and_fetch(b"id", next)?, Some(2u64.to_be_bytes().to_vec()));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`compare_and_swap`](Self::compare_and_swap).
    pub fn fetch_and_update<V: Into<Vec<u8>>>(
        &self,
        key: &[u8],
        update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Vec<u8>>> {
        Ok(self.update(key, update)?.before)
    }

    /// [`fetch_and_update`](Self::fetch_and_update) that returns the new value.
    ///
    /// # Errors
    /// Those of [`compare_and_swap`](Self::compare_and_swap).
    pub fn update_and_fetch<V: Into<Vec<u8>>>(
        &self,
        key: &[u8],
        update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Option<Vec<u8>>> {
        Ok(self.update(key, update)?.after)
    }

    /// Swaps until no other write comes in between.
    fn update<V: Into<Vec<u8>>>(
        &self,
        key: &[u8],
        mut update: impl FnMut(Option<&[u8]>) -> Option<V>,
    ) -> Result<Update> {
        let mut before = self.get(key)?;
        loop {
            let after: Option<Vec<u8>> = update(before.as_deref()).map(Into::into);
            match self.compare_and_swap(key, before.as_deref(), after.as_deref())? {
                Ok(()) => return Ok(Update { before, after }),
                Err(CasMismatch { current }) => before = current,
            }
        }
    }

    /// Removes the entry with the least key and returns it, atomically and buffered: of several
    /// threads each gets another entry. `None` if the table is empty. Only `lsm` has it.
    ///
    /// Cost: a seek, a read and a write, by one thread at a time. The table remembers below which
    /// key nothing is left, so the entries removed before cost nothing; after a reopen the first
    /// call steps over those that compaction has not removed yet.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// table.put(b"2", b"second")?;
    /// table.put(b"1", b"first")?;
    /// let (key, entry) = table.pop_first()?.unwrap();
    /// assert_eq!((key, entry.value), (b"1".to_vec(), b"first".to_vec()));
    /// assert_eq!(table.pop_last()?.unwrap().0, b"2");
    /// assert_eq!(table.pop_first()?, None);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Unsupported` by other engines; those of [`get`](Self::get) and [`write`](Self::write).
    pub fn pop_first(&self) -> Result<Option<(Vec<u8>, Entry)>> {
        self.pop(End::First)
    }

    /// Removes the entry with the greatest key and returns it, as [`pop_first`](Self::pop_first).
    ///
    /// # Errors
    /// Those of [`pop_first`](Self::pop_first).
    pub fn pop_last(&self) -> Result<Option<(Vec<u8>, Entry)>> {
        self.pop(End::Last)
    }

    fn pop(&self, end: End) -> Result<Option<(Vec<u8>, Entry)>> {
        let Isolation::Transactions { pops, .. } = &self.isolation else {
            return Err(self.engine.unsupported("removing the first or last key"));
        };
        if !self.engine.capabilities().ordered {
            return Err(self.engine.unsupported("removing the first or last key"));
        }
        let _one_at_a_time = pops.lock();
        self.transact_with(Retry::UNLIMITED, Durability::Buffered, |transaction| {
            transaction.pop(end)
        })
    }
}

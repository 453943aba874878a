//! Transactions: with locks, or with a validation at commit.
//!
//! ```text
//!   reads      the present, or the snapshot of the read options, with the own writes over it
//!   put, ...   the key is tracked: locked, or its value remembered, as of now or of the snapshot
//!   commit     with locks: one batch
//!              optimistic: a transaction of the store reads every tracked key again. One has
//!              another value: Busy. Else it writes the batch, and the store checks these reads
//! ```
//!
//! A transaction with locks may be prepared before it is committed: see [`prepared`].
//!
//! The store's own transactions validate all that was read; RocksDB's only what was written, or
//! read for an update. So the store's transaction begins at the commit, with the tracked keys
//! alone, and no other write to them can come between the validation and the writes.

use std::collections::BTreeMap;
use std::ffi::c_char;
use std::time::{Duration, Instant};

use shim::boundary::{Pointer, copy};
use store::{BatchOp, Durability, Op, Snapshot};

use crate::batch::Batch;
use crate::data::{Pinned, Results, durability, give_value, keys_of};
use crate::database::Database;
use crate::exports::{exports, give, ignored};
use crate::failure::Failure;
use crate::families::Handle;
use crate::indexed::Indexed;
use crate::iterator::Iterator;
use crate::layout::{self, entry_key};
use crate::locks::{Locks, timeout};
use crate::read_options::ReadOptions;
use crate::scalars::{HasScalars, Plain};
use crate::shell::Shell;

#[cfg(test)]
mod power_cuts;
pub(crate) mod prepared;

/// A transaction.
#[derive(Debug)]
pub struct Transaction {
    database: Database,
    durability: Durability,
    /// Its owner in the locks of the database; `None`: it is optimistic.
    owner: Option<u64>,
    timeout: Option<Duration>,
    deadline: Option<Instant>,
    /// At a fixed place, because it is lent.
    writes: Box<Indexed>,
    /// At a fixed place, because it is lent.
    snapshot: Option<Box<Snapshot>>,
    /// The keys that are locked, or the values that an optimistic transaction depends on.
    tracked: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    save_points: Vec<BTreeMap<Vec<u8>, Option<Vec<u8>>>>,
    /// Empty without one.
    name: Vec<u8>,
    /// Whether the writes have a record, to be decided on. Later ones are not in it.
    is_prepared: bool,
}

impl Transaction {
    fn begin(database: &Database, writes: &Plain, options: &Plain) -> Self {
        let scalars = options.scalars();
        let locks = database.locks.as_ref();
        let own = scalars.get("lock_timeout").filter(|timeout: &i64| *timeout >= 0);
        let default = locks.and_then(|locks| locks.transaction_timeout);
        let expiration = scalars.get("expiration").and_then(timeout);
        let snapshot = scalars.is_set("set_snapshot").then(|| database.table().snapshot().ok());
        Transaction {
            database: database.clone(),
            durability: durability(writes),
            owner: locks.map(|locks| locks.new_owner()),
            timeout: own.map_or(default, timeout),
            deadline: expiration.and_then(|expiration| Instant::now().checked_add(expiration)),
            writes: Box::default(),
            snapshot: snapshot.flatten().map(Box::new),
            tracked: BTreeMap::new(),
            save_points: Vec::new(),
            name: Vec::new(),
            is_prepared: false,
        }
    }

    fn locks(&self) -> Option<(&Locks, u64)> {
        Some((self.database.locks.as_deref()?, self.owner?))
    }

    /// The value that an optimistic transaction depends on.
    fn seen(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok(match &self.snapshot {
            Some(snapshot) => snapshot.get(key)?,
            None => self.database.table().get(key)?,
        })
    }

    /// Locks a key, or remembers its value.
    fn track(&mut self, key: &[u8], is_exclusive: bool) -> Result<(), Failure> {
        let Some((locks, owner)) = self.locks() else {
            if !self.tracked.contains_key(key) {
                let value = self.seen(key)?;
                self.tracked.insert(key.to_vec(), value);
            }
            return Ok(());
        };
        if locks.lock(owner, key, is_exclusive, self.timeout)? {
            // What was written after the snapshot, before the lock, is a conflict.
            if self.snapshot.is_some() && self.seen(key)? != self.database.table().get(key)? {
                locks.release(owner, [key.to_vec()].iter());
                return Err(Failure::Busy("Write conflict".to_owned()));
            }
            self.tracked.insert(key.to_vec(), None);
        }
        Ok(())
    }

    fn put(&mut self, family: u32, key: &[u8], value: &[u8]) -> Result<(), Failure> {
        self.track(&entry_key(family, key), true)?;
        self.writes.put(family, key, value);
        Ok(())
    }

    fn delete(&mut self, family: u32, key: &[u8]) -> Result<(), Failure> {
        self.track(&entry_key(family, key), true)?;
        self.writes.delete(family, key);
        Ok(())
    }

    fn merge(&mut self, family: u32, key: &[u8], operand: &[u8]) -> Result<(), Failure> {
        self.track(&entry_key(family, key), true)?;
        self.writes.merge(family, key, operand);
        Ok(())
    }

    fn get(&self, options: &ReadOptions, key: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        self.writes.get(&self.database, options, key)
    }

    fn get_for_update(
        &mut self,
        options: &ReadOptions,
        key: &[u8],
        is_exclusive: bool,
    ) -> Result<Option<Vec<u8>>, Failure> {
        self.track(key, is_exclusive)?;
        self.get(options, key)
    }

    fn multi_get(&mut self, options: &ReadOptions, keys: Keys<'_>, results: Results) {
        for (at, key) in keys.list.iter().enumerate() {
            let value = match keys.is_for_update {
                true => self.get_for_update(options, key, true),
                false => self.get(options, key),
            };
            results.set(at, value);
        }
    }

    fn add(&mut self, batch: &Batch) -> Result<(), Failure> {
        batch.check()?;
        for op in batch.ops.iter_all() {
            let key = match &op {
                BatchOp::Point(op) => op.key(),
                BatchOp::Merge { key, .. } => key,
                BatchOp::DeleteRange { .. } => {
                    let text = "deletions of ranges in a transaction".to_owned();
                    return Err(Failure::NotImplemented(text));
                }
            };
            let Some((family, key)) = layout::split(key) else { continue };
            match op {
                BatchOp::Point(Op::Put { value, .. }) => self.put(family, key, value)?,
                BatchOp::Merge { operand, .. } => self.merge(family, key, operand)?,
                _ => self.delete(family, key)?,
            }
        }
        Ok(())
    }

    fn check_deadline(&self) -> Result<(), Failure> {
        match self.deadline.is_some_and(|deadline| deadline < Instant::now()) {
            true => Err(Failure::Expired("the transaction has expired".to_owned())),
            false => Ok(()),
        }
    }

    fn commit(&mut self) -> Result<(), Failure> {
        if self.is_prepared {
            return self.commit_prepared();
        }
        self.check_deadline()?;
        let batch = &self.writes.batch;
        batch.check()?;
        match self.owner {
            Some(_) if batch.ops.is_empty() => {}
            Some(_) => self.database.write(&batch.ops, batch.used(), self.durability)?,
            None => self.commit_validated()?,
        }
        self.clear();
        Ok(())
    }

    fn commit_validated(&self) -> Result<(), Failure> {
        let batch = &self.writes.batch;
        batch.used().iter().try_for_each(|family| self.database.families.check(*family))?;
        let mut transaction = self.database.table().transaction()?;
        for (key, value) in &self.tracked {
            if transaction.get(key)? != *value {
                return Err(Failure::Busy("Write conflict".to_owned()));
            }
        }
        transaction.write(&batch.ops)?;
        Ok(transaction.commit(self.durability)?)
    }

    /// Forgets all writes, and releases all locks and the name.
    fn clear(&mut self) {
        if let Some((locks, owner)) = self.locks() {
            locks.release(owner, self.tracked.keys());
            locks.names.lock().remove(&self.name);
        }
        self.name.clear();
        self.is_prepared = false;
        *self.writes = Indexed::default();
        self.tracked.clear();
        self.save_points.clear();
    }

    fn set_save_point(&mut self) {
        self.writes.set_save_point();
        self.save_points.push(self.tracked.clone());
    }

    fn rollback_to_save_point(&mut self) -> Result<(), Failure> {
        self.check_not_prepared()?;
        self.writes.rollback()?;
        let before = self.save_points.pop().unwrap_or_default();
        if let Some((locks, owner)) = self.locks() {
            locks.release(owner, self.tracked.keys().filter(|key| !before.contains_key(*key)));
        }
        self.tracked = before;
        Ok(())
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        match self.is_prepared {
            true => self.leave_undecided(),
            false => self.clear(),
        }
    }
}

/// Keys of the store that are read together.
struct Keys<'k> {
    list: &'k [Vec<u8>],
    is_for_update: bool,
}

fn pinned(value: Option<Vec<u8>>) -> Pointer<Pinned> {
    value.map_or(Pointer::null(), |value| Pointer::new(Pinned(value)))
}

/// A new transaction, at the place of an old one if there is one.
fn begin(
    database: &Database,
    writes: &Plain,
    options: &Plain,
    old: *mut Transaction,
) -> Pointer<Transaction> {
    let transaction = Transaction::begin(database, writes, options);
    if old.is_null() {
        return Pointer::new(transaction);
    }
    // SAFETY: the caller passes a transaction that it has, and gets it back.
    unsafe { *old = transaction };
    Pointer(old)
}

exports! {
    /// Begins a transaction with locks. It takes the place of `old` unless that is NULL.
    fn rocksdb_transaction_begin(
        db: &Database, writes: &Plain, options: &Plain, old: *mut Transaction
    ) -> Pointer<Transaction> {
        begin(db, writes, options, old)
    }

    /// Begins an optimistic transaction. It takes the place of `old` unless that is NULL.
    fn rocksdb_optimistictransaction_begin(
        db: &Database, writes: &Plain, options: &Plain, old: *mut Transaction
    ) -> Pointer<Transaction> {
        begin(db, writes, options, old)
    }

    /// Ends a transaction without its writes, unless it was committed. A prepared one keeps its
    /// locks, and is among the prepared ones again.
    fn rocksdb_transaction_destroy(transaction: Option<Box<Transaction>>) {
        drop(transaction)
    }

    /// Applies all writes, or none after an error.
    fn rocksdb_transaction_commit(transaction: &mut Transaction; err) {
        transaction.commit()
    }

    /// Forgets all writes; of a prepared transaction durably, if it syncs its writes.
    fn rocksdb_transaction_rollback(transaction: &mut Transaction; err) {
        transaction.rollback()
    }

    /// Makes the writes of a transaction with locks and a name survive a crash, without applying
    /// them: commit or roll back later, also after the database was opened again. As in RocksDB,
    /// later writes are applied by the commit, too, but do not survive a crash before it.
    fn rocksdb_transaction_prepare(transaction: &mut Transaction; err) {
        transaction.prepare()
    }

    /// Sets a point to go back to.
    fn rocksdb_transaction_set_savepoint(transaction: &mut Transaction) {
        transaction.set_save_point()
    }

    /// Goes back to the last save point. Locks that were taken since then are released.
    fn rocksdb_transaction_rollback_to_savepoint(transaction: &mut Transaction; err) {
        transaction.rollback_to_save_point()
    }

    /// A name of up to 512 bytes, that no other undecided transaction has. That of an optimistic
    /// transaction is only remembered.
    fn rocksdb_transaction_set_name(transaction: &mut Transaction, name: bytes; err) {
        transaction.set_name(name)
    }

    /// The name, to be freed.
    fn rocksdb_transaction_get_name(
        transaction: &Transaction, size: *mut usize
    ) -> Pointer<c_char> {
        unsafe { give(size, transaction.name.len()) };
        Pointer(copy(&transaction.name))
    }

    /// The snapshot, lent: free it by rocksdb_free(). NULL without one.
    fn rocksdb_transaction_get_snapshot(transaction: &mut Transaction) -> Pointer<Shell<Snapshot>> {
        let snapshot = transaction.snapshot.as_mut();
        snapshot.map_or(Pointer::null(), |snapshot| Shell::around(&mut **snapshot))
    }

    /// The writes, lent: free them by rocksdb_free().
    fn rocksdb_transaction_get_writebatch_wi(
        transaction: &mut Transaction
    ) -> Pointer<Shell<Indexed>> {
        Shell::around(&mut *transaction.writes)
    }

    /// Adds the writes of a batch.
    fn rocksdb_transaction_rebuild_from_writebatch(
        transaction: &mut Transaction, batch: &Batch; err
    ) {
        transaction.add(batch)
    }

    /// Adds the writes of a batch.
    fn rocksdb_transaction_rebuild_from_writebatch_wi(
        transaction: &mut Transaction, batch: &Shell<Indexed>; err
    ) {
        transaction.add(&batch.get().batch)
    }

    /// Sets the value of a key.
    fn rocksdb_transaction_put | rocksdb_transaction_put_cf(
        transaction: &mut Transaction, ?family, key: bytes, value: bytes; err
    ) {
        transaction.put(family.id, key, value)
    }

    /// Removes a key.
    fn rocksdb_transaction_delete | rocksdb_transaction_delete_cf(
        transaction: &mut Transaction, ?family, key: bytes; err
    ) {
        transaction.delete(family.id, key)
    }

    /// Merges an operand into the value of a key.
    fn rocksdb_transaction_merge | rocksdb_transaction_merge_cf(
        transaction: &mut Transaction, ?family, key: bytes, value: bytes; err
    ) {
        transaction.merge(family.id, key, value)
    }

    /// A copy of the value of a key, to be freed. NULL if there is none, and after an error.
    fn rocksdb_transaction_get | rocksdb_transaction_get_cf(
        transaction: &Transaction, options: &ReadOptions, ?family, key: bytes, len: *mut usize; err
    ) -> Pointer<c_char> {
        let value = transaction.get(options, &entry_key(family.id, key))?;
        Ok(unsafe { give_value(value, len) })
    }

    /// The same, to be freed by rocksdb_pinnableslice_destroy().
    fn rocksdb_transaction_get_pinned | rocksdb_transaction_get_pinned_cf(
        transaction: &Transaction, options: &ReadOptions, ?family, key: bytes; err
    ) -> Pointer<Pinned> {
        transaction.get(options, &entry_key(family.id, key)).map(pinned)
    }

    /// As rocksdb_transaction_get(). Other writes to the key conflict with this transaction.
    fn rocksdb_transaction_get_for_update | rocksdb_transaction_get_for_update_cf(
        transaction: &mut Transaction, options: &ReadOptions, ?family, key: bytes,
        len: *mut usize, exclusive: u8; err
    ) -> Pointer<c_char> {
        let key = entry_key(family.id, key);
        let value = transaction.get_for_update(options, &key, exclusive != 0)?;
        Ok(unsafe { give_value(value, len) })
    }

    /// The same, to be freed by rocksdb_pinnableslice_destroy().
    fn rocksdb_transaction_get_pinned_for_update | rocksdb_transaction_get_pinned_for_update_cf(
        transaction: &mut Transaction, options: &ReadOptions, ?family, key: bytes,
        exclusive: u8; err
    ) -> Pointer<Pinned> {
        let key = entry_key(family.id, key);
        transaction.get_for_update(options, &key, exclusive != 0).map(pinned)
    }

    /// Copies of the values of several keys, or their errors.
    fn rocksdb_transaction_multi_get(
        transaction: &mut Transaction, options: &ReadOptions, count: usize, keys: list,
        values: *mut *mut c_char, lens: *mut usize, errors: *mut *mut c_char
    ) {
        let list: Vec<_> = keys.iter(count).map(|key| entry_key(0, key)).collect();
        let keys = Keys { list: &list, is_for_update: false };
        transaction.multi_get(options, keys, unsafe { Results::new(values, lens, errors) })
    }

    /// The same with a column family per key.
    fn rocksdb_transaction_multi_get_cf(
        transaction: &mut Transaction, options: &ReadOptions, families: *const *const Handle,
        count: usize, keys: list, values: *mut *mut c_char, lens: *mut usize,
        errors: *mut *mut c_char
    ) {
        let list = unsafe { keys_of(families, keys, count) };
        let keys = Keys { list: &list, is_for_update: false };
        transaction.multi_get(options, keys, unsafe { Results::new(values, lens, errors) })
    }

    /// Copies of the values of several keys, or their errors. Other writes to them conflict.
    fn rocksdb_transaction_multi_get_for_update(
        transaction: &mut Transaction, options: &ReadOptions, count: usize, keys: list,
        values: *mut *mut c_char, lens: *mut usize, errors: *mut *mut c_char
    ) {
        let list: Vec<_> = keys.iter(count).map(|key| entry_key(0, key)).collect();
        let keys = Keys { list: &list, is_for_update: true };
        transaction.multi_get(options, keys, unsafe { Results::new(values, lens, errors) })
    }

    /// The same with a column family per key.
    fn rocksdb_transaction_multi_get_for_update_cf(
        transaction: &mut Transaction, options: &ReadOptions, families: *const *const Handle,
        count: usize, keys: list, values: *mut *mut c_char, lens: *mut usize,
        errors: *mut *mut c_char
    ) {
        let list = unsafe { keys_of(families, keys, count) };
        let keys = Keys { list: &list, is_for_update: true };
        transaction.multi_get(options, keys, unsafe { Results::new(values, lens, errors) })
    }

    /// An iterator over the database with the writes of the transaction as of now over it.
    fn rocksdb_transaction_create_iterator | rocksdb_transaction_create_iterator_cf(
        transaction: &Transaction, options: &ReadOptions, ?family,
    ) -> Pointer<Iterator> {
        let base = Iterator::new(&transaction.database, options, family.id);
        Pointer::new(base.with_overlay(transaction.writes.overlay()))
    }
}

ignored! {
    rocksdb_transaction_put_log_data rocksdb_transaction_set_commit_timestamp
    rocksdb_transaction_set_read_timestamp_for_validation
}

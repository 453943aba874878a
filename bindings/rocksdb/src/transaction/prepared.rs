//! Two-phase commit: transactions that are prepared, and found again when the database is opened.
//!
//! ```text
//!   prepare    one batch: the record of the name has the writes      its keys stay locked
//!   commit     one batch: the writes, and the removal of the record
//!   rollback   the removal of the record
//!   open       each record: its keys are locked, and it waits for a decision
//! ```
//!
//! A record is a row of the catalogue (`layout`), so it is as durable as any write: synced, it
//! survives a power cut. Keys that were only read for an update are not locked again.
//!
//! Invariant: a prepared transaction has its record, and the locks of its writes, until it is
//! decided. Either one handle has it, or it is among the undecided ones.

use std::collections::BTreeSet;

use store::{Error, WriteBatch};

use super::Transaction;
use crate::batch::{Batch, key_of};
use crate::database::Database;
use crate::failure::Failure;
use crate::layout::{self, VERSION_KEY, VERSION_WITH_PREPARED, prepared_key};
use crate::locks::{Locks, Undecided};
use crate::scalars::Plain;

/// As in RocksDB.
const MAX_NAME_BYTES: usize = 512;

impl Transaction {
    pub(super) fn set_name(&mut self, name: &[u8]) -> Result<(), Failure> {
        self.check_not_prepared()?;
        if !(1..=MAX_NAME_BYTES).contains(&name.len()) {
            let text = "Transaction name length must be between 1 and 512 chars.";
            return Err(Failure::invalid(text));
        }
        if let Some((locks, _)) = self.locks() {
            if !self.name.is_empty() {
                return Err(Failure::invalid("Transaction has already been named."));
            }
            if !locks.names.lock().insert(name.to_vec()) {
                return Err(Failure::invalid("Transaction name must be unique."));
            }
        }
        self.name = name.to_vec();
        Ok(())
    }

    pub(super) fn check_not_prepared(&self) -> Result<(), Failure> {
        match self.is_prepared {
            true => Err(Failure::invalid("Transaction has already been prepared.")),
            false => Ok(()),
        }
    }

    pub(super) fn prepare(&mut self) -> Result<(), Failure> {
        self.check_not_prepared()?;
        if self.owner.is_none() {
            let text = "Two phase commit not supported for optimistic transactions.";
            return Err(Failure::invalid(text));
        }
        if self.name.is_empty() {
            let text = "Cannot prepare a transaction that has not been named.";
            return Err(Failure::invalid(text));
        }
        self.check_deadline()?;
        let writes = &mut self.writes.batch;
        writes.check()?;
        let mut record = WriteBatch::new();
        record.put(VERSION_KEY, &VERSION_WITH_PREPARED.to_le_bytes());
        record.put(&prepared_key(&self.name), writes.data());
        self.database.write(&record, writes.used(), self.durability)?;
        self.is_prepared = true;
        Ok(())
    }

    pub(super) fn commit_prepared(&mut self) -> Result<(), Failure> {
        let writes = &self.writes.batch;
        let mut batch = writes.ops.clone();
        batch.delete(&prepared_key(&self.name));
        self.database.write(&batch, writes.used(), self.durability)?;
        self.clear();
        Ok(())
    }

    pub(super) fn rollback(&mut self) -> Result<(), Failure> {
        if self.is_prepared {
            let mut batch = WriteBatch::new();
            batch.delete(&prepared_key(&self.name));
            self.database.write(&batch, &[], self.durability)?;
        }
        self.clear();
        Ok(())
    }

    /// Keeps the locks and the name for a later decision.
    pub(super) fn leave_undecided(&mut self) {
        if let Some((locks, owner)) = self.locks() {
            let keys = self.tracked.keys().cloned().collect();
            locks.undecided.lock().insert(self.name.clone(), Undecided { owner, keys });
        }
    }

    /// The handle of an undecided transaction.
    fn of_undecided(
        database: &Database,
        name: &[u8],
        undecided: &Undecided,
    ) -> Result<Self, Failure> {
        let record = database.table().get(&prepared_key(name))?.unwrap_or_default();
        let mut transaction = Transaction::begin(database, &Plain::default(), &Plain::default());
        transaction.writes.rebuild(&batch_of(name, &record)?)?;
        transaction.owner = Some(undecided.owner);
        transaction.tracked = undecided.keys.iter().map(|key| (key.clone(), None)).collect();
        transaction.name = name.to_vec();
        transaction.is_prepared = true;
        Ok(transaction)
    }
}

/// The writes of a record.
fn batch_of(name: &[u8], record: &[u8]) -> Result<Batch, Failure> {
    let batch = Batch::from_data(record);
    if record.is_empty() || batch.failure.is_some() {
        let reason =
            format!("the prepared transaction '{}' is no batch of writes", name.escape_ascii());
        return Err(Failure::Store(Error::corruption(layout::TABLE, 0, reason)));
    }
    Ok(batch)
}

/// Locks the keys of the prepared transactions in a database that has just been opened.
pub(crate) fn recover(database: &Database, locks: &Locks) -> Result<(), Failure> {
    let range = layout::prepared();
    for row in database.table().range((range.start, range.end))? {
        let (key, record) = row?;
        let name = layout::prepared_name(&key).to_vec();
        let batch = batch_of(&name, &record.value)?;
        let keys: BTreeSet<_> = batch.ops.iter_all().map(|op| key_of(&op).to_vec()).collect();
        let owner = locks.new_owner();
        // Nobody else has any: two prepared transactions have no key in common.
        for key in &keys {
            locks.lock(owner, key, true, None)?;
        }
        locks.names.lock().insert(name.clone());
        locks.undecided.lock().insert(name, Undecided { owner, keys });
    }
    Ok(())
}

/// Handles of all undecided transactions that have none. One whose record cannot be read stays
/// undecided.
pub(crate) fn take_prepared(database: &Database) -> Vec<Transaction> {
    let Some(locks) = database.locks.as_deref() else { return Vec::new() };
    let undecided = std::mem::take(&mut *locks.undecided.lock());
    let mut taken = Vec::new();
    for (name, undecided) in undecided {
        match Transaction::of_undecided(database, &name, &undecided) {
            Ok(transaction) => taken.push(transaction),
            Err(_) => drop(locks.undecided.lock().insert(name, undecided)),
        }
    }
    taken
}

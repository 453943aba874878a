//! The place of a write among the other writes of a table, for a write that is not applied by the
//! table itself: its part of a batch over several tables.

use parking_lot::{RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::WriteBatch;

use super::key_locks::SharedGuard;
use super::{Isolation, Table};
use crate::transaction::{ExclusiveOrder, TrackedWrite};

/// A write that has its place in the order: no conflicting update comes in between until this is
/// dropped.
pub(crate) enum OrderedWrite<'t> {
    /// No transaction is open, and none begins.
    Untracked(#[expect(dead_code, reason = "held")] RwLockReadGuard<'t, usize>),
    /// In the commit history, as a group of its own.
    Tracked(TrackedWrite<'t>),
    /// No update of its keys is in progress.
    Locked(#[expect(dead_code, reason = "held")] SharedGuard<'t>),
}

/// No write of the table is in progress, and none begins until this is dropped.
pub(crate) enum WriteExclusion<'t> {
    Transactions(#[expect(dead_code, reason = "held")] ExclusiveOrder<'t>),
    Locked(#[expect(dead_code, reason = "held")] Vec<RwLockWriteGuard<'t, ()>>),
}

impl Table {
    /// Waits until no write is in progress, and blocks others. Writes that bypass the table's
    /// locks, through its [`engine`](Table::engine), are not excluded on engines without versions.
    pub(crate) fn exclude_writes(&self) -> WriteExclusion<'_> {
        match &self.isolation {
            Isolation::Transactions { manager, .. } => {
                WriteExclusion::Transactions(manager.exclude_writes())
            }
            Isolation::KeyLocks(locks) => WriteExclusion::Locked(locks.lock_all()),
        }
    }

    /// Waits until `batch` may be applied, and blocks conflicting writes.
    pub(crate) fn order_write<'t>(&'t self, batch: &WriteBatch) -> OrderedWrite<'t> {
        match &self.isolation {
            Isolation::Transactions { manager, .. } => match manager.admit_untracked(batch) {
                Some(active) => OrderedWrite::Untracked(active),
                None => OrderedWrite::Tracked(manager.track(batch)),
            },
            Isolation::KeyLocks(locks) => OrderedWrite::Locked(locks.share(batch)),
        }
    }
}

impl OrderedWrite<'_> {
    /// Called when the write is done, or has failed with an unknown outcome.
    pub(crate) fn complete(&mut self, is_written: bool) {
        if let OrderedWrite::Tracked(write) = self {
            write.complete(is_written);
        }
    }
}

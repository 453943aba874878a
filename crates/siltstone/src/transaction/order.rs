//! The part of one table's transaction manager in transactions and writes over several tables: it
//! orders their beginning and their commit among those of the table. The caller applies the writes.

use std::sync::Arc;

use parking_lot::{MutexGuard, RwLockWriteGuard};
use siltstone_engine::{ReadPoint, Result, WriteBatch};

use super::commit_history::Group;
use super::manager::{ReadView, TransactionManager};
use crate::reader::Reader;

/// A transaction that counts as open, and has no snapshot yet.
pub(crate) struct OpenTransaction {
    manager: Arc<TransactionManager>,
    begun: Group,
    has_reader: bool,
}

impl OpenTransaction {
    /// Waits for writes in progress if no other transaction is open.
    pub(crate) fn begin(manager: &Arc<TransactionManager>) -> Self {
        OpenTransaction { manager: manager.clone(), begun: manager.begin(), has_reader: false }
    }

    /// The transaction with a snapshot of the engine that was taken meanwhile.
    pub(super) fn read_at(mut self, point: ReadPoint) -> (Arc<TransactionManager>, Group, Reader) {
        self.has_reader = true;
        let (manager, begun) = (self.manager.clone(), self.begun);
        let on_end = Box::new(move || manager.end(begun));
        let reader = self.manager.readers().begin("transaction", point, on_end);
        (self.manager.clone(), begun, reader)
    }
}

impl Drop for OpenTransaction {
    fn drop(&mut self) {
        if !self.has_reader {
            self.manager.end(self.begun);
        }
    }
}

/// The order of commits of one table: no other group is validated or written meanwhile.
pub(crate) struct CommitOrder<'m> {
    manager: &'m TransactionManager,
    _lock: MutexGuard<'m, ()>,
}

/// No group is validated or written, and no write is in progress that is not recorded.
pub(crate) struct ExclusiveOrder<'m> {
    _unrecorded: RwLockWriteGuard<'m, usize>,
    _order: CommitOrder<'m>,
}

/// A commit whose reads are valid.
pub(crate) struct ValidatedCommit<'m> {
    order: CommitOrder<'m>,
    view: &'m ReadView,
}

/// A write that is recorded in the commit history as a group of its own. Until it is dropped, no
/// other group is validated or written.
pub(crate) struct TrackedWrite<'m> {
    order: CommitOrder<'m>,
    is_written: bool,
    is_commit: bool,
}

impl TransactionManager {
    /// Waits for the group in progress.
    pub(crate) fn lock_order(&self) -> CommitOrder<'_> {
        CommitOrder { manager: self, _lock: self.order.lock() }
    }

    /// Waits for all writes in progress, and blocks others.
    pub(crate) fn exclude_writes(&self) -> ExclusiveOrder<'_> {
        let order = self.lock_order();
        ExclusiveOrder { _unrecorded: self.active.write(), _order: order }
    }

    /// Waits for the group in progress, and records `batch` as the next one.
    pub(crate) fn track<'m>(&'m self, batch: &WriteBatch) -> TrackedWrite<'m> {
        self.check_expiry();
        self.count_tracked();
        self.lock_order().record(batch, None)
    }

    /// As [`track`](Self::track), for a write of all keys in the ranges that `written` deletes;
    /// `bounds` puts the first and the last key of each.
    pub(super) fn track_ranges(
        &self,
        written: &WriteBatch,
        bounds: &WriteBatch,
    ) -> TrackedWrite<'_> {
        let tracked = self.track(written);
        self.history.lock().live.note_writes(bounds);
        tracked
    }
}

impl<'m> CommitOrder<'m> {
    /// Validates what a transaction has read in this table.
    ///
    /// # Errors
    /// `Conflict`; errors of reading again.
    pub(crate) fn validate(self, view: &'m ReadView) -> Result<ValidatedCommit<'m>> {
        let manager = self.manager;
        let valid = manager.validate(&manager.history.lock(), view);
        valid.inspect_err(|error| manager.count_conflict(error))?;
        Ok(ValidatedCommit { order: self, view })
    }

    fn record(self, batch: &WriteBatch, view: Option<&ReadView>) -> TrackedWrite<'m> {
        let mut history = self.manager.history.lock();
        history.record_batch(batch);
        history.live.note_writes(batch);
        if let Some((end, key)) = view.and_then(|view| view.popped.as_ref()) {
            history.live.note_removal(*end, key);
        }
        drop(history);
        TrackedWrite { order: self, is_written: false, is_commit: view.is_some() }
    }
}

impl<'m> ValidatedCommit<'m> {
    /// Records its writes, in this table, as the next group.
    pub(crate) fn record(self, batch: &WriteBatch) -> TrackedWrite<'m> {
        self.order.record(batch, Some(self.view))
    }
}

impl TrackedWrite<'_> {
    /// The write has been applied, or its outcome is unknown.
    pub(crate) fn complete(&mut self, is_written: bool) {
        self.is_written = is_written;
    }
}

impl Drop for TrackedWrite<'_> {
    fn drop(&mut self) {
        let manager = self.order.manager;
        let mut history = manager.history.lock();
        if !self.is_written {
            history.live.reset();
        }
        // Also after a failure: the outcome is unknown then.
        history.complete();
        drop(history);
        if self.is_written && self.is_commit {
            manager.count_committed();
        }
    }
}

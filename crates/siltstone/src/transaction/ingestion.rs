//! The place of an ingestion in the order of writes.
//!
//! An ingestion is a write of every key in the ranges of its files. A transaction that is open and
//! has read anything in one of these ranges conflicts with it, whether the files have the key or
//! not.
//!
//! Invariant: no other group is validated or written between the record of the ranges and the
//! moment when the files are visible.

use siltstone_engine::{IngestReport, PreparedIngestion, Result, WriteBatch};

use super::manager::TransactionManager;

/// Prepared files of a table with transactions.
pub(super) struct OrderedIngestion<'m> {
    pub(super) manager: &'m TransactionManager,
    pub(super) prepared: Box<dyn PreparedIngestion + 'm>,
}

impl PreparedIngestion for OrderedIngestion<'_> {
    fn ranges(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        self.prepared.ranges()
    }

    fn commit(self: Box<Self>) -> Result<IngestReport> {
        let (mut written, mut bounds) = (WriteBatch::new(), WriteBatch::new());
        for (first, last) in self.prepared.ranges() {
            written.delete_range(first.as_slice()..=last.as_slice());
            // Moves the bounds of the live keys, as any put does.
            bounds.put(&first, b"").put(&last, b"");
        }
        if let Some(_untracked) = self.manager.admit_untracked(&bounds) {
            return self.prepared.commit();
        }
        let mut tracked = self.manager.track_ranges(&written, &bounds);
        let report = self.prepared.commit()?;
        tracked.complete(true);
        Ok(report)
    }
}

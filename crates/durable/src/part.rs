//! A table's side of batches over several tables: the records of its parts in the log, and the
//! order in which parts become durable.
//!
//! Recovery removes a part whose batch is incomplete in another table. So before anything makes
//! parts durable (a sync, a manifest edit, a close), [`Parts::make_durable`] syncs the other parts of
//! their batches in the other tables.
//!
//! Invariant: a part that recovery can find durable in this table belongs to a batch that is
//! durable in all of its tables, or to one that no call has reported as durable.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Arc, OnceLock};

use siltstone_engine::{PartDependencies, PartHeader, Result};
use siltstone_table::{PartRecord, RecordParts, WalWriter};

/// The batches over several tables that a table took part in.
pub(crate) struct Parts {
    /// The last one; 0 if there was none.
    last_batch: AtomicU64,
    /// Set by the first part since the table was opened.
    dependencies: OnceLock<Arc<dyn PartDependencies>>,
}

impl Parts {
    pub(crate) fn new(last_batch: u64) -> Self {
        Parts { last_batch: AtomicU64::new(last_batch), dependencies: OnceLock::new() }
    }

    pub(crate) fn last_batch(&self) -> u64 {
        self.last_batch.load(Acquire)
    }

    /// Records that a part of the batch is in the log.
    pub(crate) fn set_last_batch(&self, batch: u64) {
        self.last_batch.store(batch, Release);
    }

    pub(crate) fn depend_on(&self, dependencies: &Arc<dyn PartDependencies>) {
        self.dependencies.get_or_init(|| dependencies.clone());
    }

    /// Makes all parts so far durable, in this table and in the others. Returns the number of the
    /// last batch for which that holds. Cost without unsynced parts: two atomic loads.
    ///
    /// # Errors
    /// I/O errors.
    pub(crate) fn make_durable(&self) -> Result<Option<u64>> {
        let last = self.last_batch();
        match self.dependencies.get() {
            Some(dependencies) if !dependencies.are_durable() => dependencies.sync()?,
            _ => {}
        }
        Ok((last > 0).then_some(last))
    }
}

/// A batch over several tables, to which the next records in the log belong.
pub(crate) struct PartOf {
    batch: u64,
    tables: Vec<u64>,
}

impl PartOf {
    pub(crate) fn new(header: PartHeader<'_>) -> Self {
        PartOf { batch: header.batch, tables: header.tables.to_vec() }
    }

    /// Appends the records of the part after their part record, and adds their positions to
    /// `positions`.
    pub(crate) fn append<'r>(
        &self,
        log: &mut WalWriter,
        records: impl ExactSizeIterator<Item = RecordParts<'r>>,
        positions: &mut Vec<u64>,
    ) -> Result<()> {
        let head = PartRecord::encode(self.batch, records.len(), &self.tables);
        let part =
            std::iter::once([&head[..], &[]]).chain(records.map(|[head, body]| [head, body]));
        let first = positions.len();
        log.append(part, positions)?;
        positions.remove(first);
        Ok(())
    }
}

//! Parts of batches over several tables: the interface between an engine and the store that
//! coordinates the batch.
//!
//! ```text
//!   each table, in one order   prepare: the table is locked for writing, and has room
//!   each table                 append: the part is in its log          dropped: it is removed again
//!   [the logs are synced]
//!   each table                 commit: the part is visible, the table is unlocked
//! ```
//!
//! All tables are locked before the batch gets its number, so the numbers in one table's log
//! ascend.

use std::sync::Arc;

use crate::Result;

/// A batch over several tables.
#[derive(Debug, Clone, Copy)]
pub struct PartHeader<'a> {
    /// Its number: greater than those of all earlier batches of its tables.
    pub batch: u64,
    /// The identities of its tables, ascending.
    pub tables: &'a [u64],
}

/// A table that is locked for writing, and has room for its part of a batch. Dropping it unlocks
/// the table, and undoes an append without a commit.
pub trait PreparedPart {
    /// The last batch over several tables that the table took part in; 0 if there was none.
    fn last_batch(&self) -> u64;

    /// Appends the part to the table's log; returns where it ends there. From now on whatever makes
    /// a part of the table durable first syncs `dependencies`.
    ///
    /// # Errors
    /// I/O errors, as of [`Engine::write`](crate::Engine::write).
    fn append(
        &mut self,
        header: PartHeader<'_>,
        dependencies: &Arc<dyn PartDependencies>,
    ) -> Result<Box<dyn LogPosition>>;

    /// Makes the part visible, and unlocks the table. `is_durable`: all parts of the batch are
    /// durable, and everything before them.
    ///
    /// # Errors
    /// Only internal errors: no valid batch causes one. The table is read-only then.
    fn commit(self: Box<Self>, is_durable: bool) -> Result<()>;
}

/// A position in the log of a table.
pub trait LogPosition: Send + Sync {
    /// Whether everything before it is durable.
    fn is_durable(&self) -> bool;

    /// Makes everything before it durable. Takes no lock that is held while a table is locked for
    /// writing.
    ///
    /// # Errors
    /// I/O errors, after which the table rejects writes.
    fn sync(&self) -> Result<()>;
}

/// The dependencies of the parts of one table: the other parts of the same batches, and their
/// dependencies in turn. They must be durable first, otherwise recovery would remove the part
/// again.
pub trait PartDependencies: Send + Sync {
    /// Whether there is nothing to sync. Cost: one atomic load.
    fn are_durable(&self) -> bool;

    /// Makes all parts of the table and their dependencies durable. Takes no lock that is held
    /// while a table is locked for writing.
    ///
    /// # Errors
    /// I/O errors.
    fn sync(&self) -> Result<()>;
}

//! The change feed of a table: its committed batches, in the order of their sequence numbers.
//!
//! ```text
//!   sequence   1   2 3 4   5       6         7        8 9
//!   change     put batch   delete  ingested  cleared  batch
//!              └── a consumer that has seen everything up to 4 resumes after 4
//! ```
//!
//! A consumer stores the sequence number of the last change that it has applied, and resumes after
//! it. A feed reads the log, which the table keeps for it only as far as an option says; a consumer
//! that resumes from further back gets [`Error::ChangesUnavailable`](crate::Error).

use crate::{Result, WriteBatch};

/// Where a change feed begins, and what it shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChangeOptions {
    /// The changes after this sequence number are shown; 0: from the first one on.
    pub since: u64,
    /// Shows changes as soon as they are committed. A power cut may take those that are not
    /// durable, and the store then gives their sequence numbers to others: a copy that was fed with
    /// them differs from the store. Off by default: a change is shown once it is durable, after a
    /// sync or a flush.
    pub include_unsynced: bool,
}

impl ChangeOptions {
    /// The durable changes after `since`.
    pub fn since(since: u64) -> Self {
        ChangeOptions { since, include_unsynced: false }
    }
}

/// A committed change of one table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeBatch {
    /// The sequence number of its first operation: the one after the previous change.
    pub first_sequence: u64,
    /// That of its last operation. A consumer that has applied the change resumes after it.
    pub sequence: u64,
    /// The batch over several tables of which this is the table's part.
    pub part: Option<ChangePart>,
    /// The operations.
    pub change: Change,
}

/// The kind of a change, with its operations.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The operations of one batch. Values that expire have their expiry, and operands of merges
    /// are as they were written.
    Write(WriteBatch),
    /// Every key was removed.
    Cleared,
    /// Sorted files were ingested. The log does not have their content: read the table.
    Ingested,
}

/// A batch over several tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangePart {
    /// Its number, the same in the feeds of all of its tables, in which these numbers ascend.
    pub batch: u64,
    /// The identities of its tables, ascending.
    pub tables: Vec<u64>,
}

/// A position in the changes of a table.
pub trait ChangeCursor: Send {
    /// The next change; `None` if there is none yet. A later call may return one. Does not wait.
    ///
    /// # Errors
    /// `ChangesUnavailable` if the log of the next change was removed meanwhile; `Corruption` and
    /// `Io` from the log; `Closed`. The position is unchanged, and the call may be repeated.
    fn next(&mut self) -> Result<Option<ChangeBatch>>;
}

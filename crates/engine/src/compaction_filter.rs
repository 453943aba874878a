//! Compaction filters: the application drops obsolete rows, or changes values, while a compaction
//! rewrites them.
//!
//! A filter is for rows that the application regards as deleted without having deleted each, such
//! as the elements of a collection whose header is gone. It costs no writes of its own: a row that
//! is never compacted stays.
//!
//! ```text
//!   compaction begins: one moment, between two writes
//!       │ begin(content as of that moment) ─▶ a pass per key range, on any thread
//!       │ decide(row) for each live row, keys ascending ─▶ keep, drop, or change the value
//!       └─ a dropped row is replaced by a tombstone, or by nothing at the deepest level
//! ```
//!
//! # The contract
//! * **A decision is final.** `decide` sees the content as of the compaction's moment. A row that
//!   is obsolete then must be obsolete at every later moment, whatever is written meanwhile. So
//!   snapshots that are taken while the compaction runs miss nothing.
//! * **A changed value is as good as the old one.** It keeps the version's sequence number and
//!   expiry. Reads, also of one snapshot that is taken while the compaction runs, show the old
//!   value first and the new one later; copies of the table that are compacted at other times show
//!   either. Later compactions offer the row again, with the new value. A value above the maximum
//!   length leaves the row as it is.
//! * **Snapshots are respected.** Only rows that no snapshot from before that moment sees are
//!   offered, and of each key only its newest version in the compaction. The key may have been
//!   overwritten or deleted since.
//! * **Values, not operands.** A row with operands of merges is offered when they are folded into a
//!   value.
//! * **Any thread.** Passes run on background threads, several at a time, and in a thread that
//!   calls `maintain` or waits for background work.
//! * **Reads are allowed**, of the given content and of any table by its `get`s and iterators.
//!   Nothing else is: a write, `flush`, `maintain`, `clear`, `close`, a transaction, or dropping
//!   the last handle of a table may wait for the compaction that waits for the filter.
//! * **Speed.** A filter delays each compaction by its own time per row, and so, at full speed, the
//!   writers. Keys ascend within a pass, so that a pass can remember its last lookup.
//! * A filter that cannot decide, e.g. because a read fails, keeps the row.
//! * **A panic ends the use of the filter.** What the compaction has written is removed, so that no
//!   decision of it counts. This compaction is repeated without the filter, and later ones do not
//!   call it, until it is set again or the table is opened again. The error is a
//!   [`BackgroundError`](crate::EventKind::BackgroundError) for listeners, and is counted.

use crate::{Entry, Result, Timestamp};

/// Decides which rows compactions drop or change. See the [module](self) for what it may do.
pub trait CompactionFilter: Send + Sync {
    /// Begins a pass over the rows of one key range; `content` is the table as of the moment of
    /// the compaction.
    fn begin<'a>(&'a self, content: &'a dyn FilterContent) -> Box<dyn FilterPass + 'a>;
}

/// One pass of a [`CompactionFilter`]. Closures are passes.
pub trait FilterPass {
    /// The fate of the row. Keys ascend from call to call.
    fn decide(&mut self, row: FilterRow<'_>) -> FilterDecision;
}

impl<F: FnMut(FilterRow<'_>) -> FilterDecision> FilterPass for F {
    fn decide(&mut self, row: FilterRow<'_>) -> FilterDecision {
        self(row)
    }
}

/// The content of a table as of the moment of a compaction.
pub trait FilterContent {
    /// The entry of `key` as of that moment; `None` if it was missing, deleted or expired. Costs a
    /// point lookup, and is counted as one.
    ///
    /// # Errors
    /// Those of [`Engine::get`](crate::Engine::get).
    fn get(&self, key: &[u8]) -> Result<Option<Entry>>;
}

/// A live row that a compaction rewrites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FilterRow<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// When the row expires. Expired rows are not offered.
    pub expires_at: Option<Timestamp>,
}

/// The fate of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FilterDecision {
    /// The row stays.
    Keep,
    /// The row is deleted. Older versions of its key do not reappear.
    Drop,
    /// The row stays, with this value.
    Change(Vec<u8>),
}

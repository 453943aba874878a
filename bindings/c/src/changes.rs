//! The change feed of a table.
//!
//! A feed is on one change at a time. Its operations are lent as pointers into the batch, which the
//! feed keeps until the next move.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::time::Duration;

use store::{BatchOp, Change, ChangeBatch, ChangeOptions, Changes, Op};

use crate::batch::SiltstoneBatch;
use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{address, handle_output, set_handle};
use crate::table::{self, SiltstoneTable};

/// The committed changes of a table, from one sequence number on. One thread at a time may use it.
/// A feed keeps no log: see siltstone_table_changes().
#[derive(Debug)]
pub struct SiltstoneChanges {
    feed: Changes,
    change: Option<ChangeBatch>,
    /// Those of `change`.
    ops: Vec<SiltstoneChangeOp>,
}

/// What a change does. Later versions may add numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiltstoneChangeKind {
    /// The feed is not on a change.
    None = 0,
    /// The operations of one batch, which siltstone_changes_op() lends.
    Write = 1,
    /// Every key was removed.
    Cleared = 2,
    /// Sorted files were ingested. Their content is not in the feed: read the table.
    Ingested = 3,
}

/// The kind of an operation. Later versions may add numbers.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SiltstoneOpKind {
    /// Sets `key` to `value`.
    Put = 1,
    /// Removes `key`.
    Delete = 2,
    /// Removes every key from `key` to before `value`; to the end if `value` is NULL.
    DeleteRange = 3,
    /// Merges the operand `value` into the value of `key`.
    Merge = 4,
}

/// An operation of a change. Its bytes belong to the feed.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct SiltstoneChangeOp {
    /// A siltstone_op_kind.
    pub kind: i32,
    /// The key, or the start of a range.
    pub key: *const c_char,
    /// Its length.
    pub key_len: usize,
    /// The value, the operand of a merge, or the end of a range; NULL of a deletion.
    pub value: *const c_char,
    /// Its length.
    pub value_len: usize,
    /// When a value expires, in milliseconds since 1970; 0: never.
    pub expires_at: u64,
}

impl SiltstoneChangeOp {
    fn new(op: BatchOp<'_>) -> Self {
        let (kind, key, value, expires_at) = match op {
            BatchOp::Point(Op::Put { key, value, expires_at }) => {
                (SiltstoneOpKind::Put, key, Some(value), expires_at)
            }
            BatchOp::Point(Op::Delete { key }) => (SiltstoneOpKind::Delete, key, None, None),
            BatchOp::DeleteRange { start, end } => (SiltstoneOpKind::DeleteRange, start, end, None),
            BatchOp::Merge { key, operand } => (SiltstoneOpKind::Merge, key, Some(operand), None),
        };
        SiltstoneChangeOp {
            kind: kind as i32,
            key: address(key),
            key_len: key.len(),
            value: value.map_or(std::ptr::null(), address),
            value_len: value.map_or(0, <[u8]>::len),
            expires_at: expires_at.unwrap_or(0),
        }
    }
}

/// Follows the changes of a table after the sequence number `since`; 0: from the first one on. A
/// consumer stores the sequence number of the last change that it has applied, with what it has
/// made of it, and resumes there, also after a restart. The feed is on no change until
/// siltstone_changes_next(). Free it with siltstone_changes_free().
///
/// A change is shown once it is durable: after a write with `synced`, siltstone_sync() or a flush.
/// With `include_unsynced` it is shown at once; a power cut may then take changes that were shown.
/// The options log_retention and log_retention_time of the table say how much of the log is kept.
/// lsm only.
///
/// Errors: CHANGES_UNAVAILABLE if the log does not reach back so far: copy the table from a
/// snapshot, and resume after siltstone_snapshot_sequence(). UNSUPPORTED; CORRUPTION; IO; CLOSED.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_table_changes(
    table: Option<&SiltstoneTable>,
    since: u64,
    include_unsynced: bool,
    changes: Option<&mut MaybeUninit<*mut SiltstoneChanges>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let changes = handle_output(changes, "changes")?;
        let options = ChangeOptions { since, include_unsynced };
        let feed = table::inner(table)?.changes_with(options)?;
        set_handle(changes, SiltstoneChanges { feed, change: None, ops: Vec::new() });
        Ok(())
    })
}

/// Frees a feed. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_free(changes: Option<Box<SiltstoneChanges>>) {
    release(changes);
}

/// Moves to the next change, and waits up to `timeout_ms` for one. *is_found is false if none came;
/// the feed is on no change then, and a later call may find one.
///
/// Errors: as of siltstone_table_changes(). The feed is on no change then, and its position is the
/// same.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_next(
    changes: Option<&mut SiltstoneChanges>,
    timeout_ms: u64,
    is_found: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_found = required(is_found, "is_found")?;
        is_found.write(false);
        let SiltstoneChanges { feed, change, ops } = required(changes, "changes")?;
        ops.clear();
        *change = None;
        *change = feed.next_timeout(Duration::from_millis(timeout_ms))?;
        if let Some(Change::Write(batch)) = change.as_ref().map(|change| &change.change) {
            ops.extend(batch.iter_all().map(SiltstoneChangeOp::new));
        }
        is_found.write(change.is_some());
        Ok(())
    })
}

/// What the change does: a siltstone_change_kind. 0 if the feed is on no change, or NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_kind(changes: Option<&SiltstoneChanges>) -> i32 {
    let change = changes.and_then(|changes| changes.change.as_ref());
    let kind = match change.map(|change| &change.change) {
        None => SiltstoneChangeKind::None,
        Some(Change::Write(_)) => SiltstoneChangeKind::Write,
        Some(Change::Cleared) => SiltstoneChangeKind::Cleared,
        Some(Change::Ingested) => SiltstoneChangeKind::Ingested,
        // A kind that this version of the interface does not know.
        Some(_) => return i32::MAX,
    };
    kind as i32
}

/// The sequence number of the last operation of the change: a consumer that has applied it resumes
/// after it. If the feed is on no change, that of the last one. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_sequence(changes: Option<&SiltstoneChanges>) -> u64 {
    changes.map_or(0, |changes| changes.feed.position())
}

/// The number of the batch over several tables of which the change is a part: the same in the feeds
/// of all of its tables. 0 if it is none.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_part(changes: Option<&SiltstoneChanges>) -> u64 {
    let part = changes.and_then(|changes| changes.change.as_ref()?.part.as_ref());
    part.map_or(0, |part| part.batch)
}

/// The number of operations of the change; 0 if it is no write.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_count(changes: Option<&SiltstoneChanges>) -> usize {
    changes.map_or(0, |changes| changes.ops.len())
}

/// Lends the operation number `index` of the change, from 0 on: *op has its kind and pointers to
/// its bytes, which are valid until the next move of the feed. False, and *op is unchanged, if
/// there is none.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_op(
    changes: Option<&SiltstoneChanges>,
    index: usize,
    op: Option<&mut MaybeUninit<SiltstoneChangeOp>>,
) -> bool {
    let found = changes.and_then(|changes| changes.ops.get(index));
    match (found, op) {
        (Some(found), Some(op)) => {
            op.write(*found);
            true
        }
        _ => false,
    }
}

/// Adds copies of the operations of the change to a batch, e.g. to apply them to another table,
/// which must have the same merge operator if there are merges.
///
/// Errors: INVALID if the feed is not on a change with operations.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_changes_append_to(
    changes: Option<&SiltstoneChanges>,
    batch: Option<&mut SiltstoneBatch>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let (changes, batch) = (required(changes, "changes")?, required(batch, "batch")?);
        match changes.change.as_ref().map(|change| &change.change) {
            Some(Change::Write(ops)) => {
                batch.0.append(ops);
                Ok(())
            }
            _ => Err(invalid("the feed is not on a change with operations".to_owned())),
        }
    })
}

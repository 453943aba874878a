//! Moving a table to another engine, or to other creation options, while it is in use.
//!
//! A move has no callbacks: its progress is in atomic counters, which any thread may read while
//! another one copies, and so is the wish to cancel it. Copying and finishing take a lock.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use store::{Error, MoveProgress, Table, TableMove};

use crate::db::SiltstoneDb;
use crate::error::{SiltstoneError, guard, invalid, release, required};
use crate::memory::{handle_output, set_handle, text};
use crate::options::table_options;
use crate::table::SiltstoneTable;

/// A table on its way to another engine. Any thread may use it, several at the same time: one
/// copies, and others read the progress or cancel the move.
#[derive(Debug)]
pub struct SiltstoneMove {
    /// `None` once it is finished.
    open: Mutex<Option<TableMove>>,
    rows: AtomicU64,
    changes: AtomicU64,
    restarts: AtomicU64,
    is_cancelled: AtomicBool,
}

impl SiltstoneMove {
    fn lock(&self) -> MutexGuard<'_, Option<TableMove>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies, and publishes the progress. Returns false if the move was cancelled.
    fn copy(&self, moving: &mut TableMove) -> Result<bool, Error> {
        let mut publish = |progress: &MoveProgress| {
            self.rows.store(progress.rows, Relaxed);
            self.changes.store(progress.changes, Relaxed);
            self.restarts.store(progress.restarts, Relaxed);
            match self.is_cancelled.load(Relaxed) {
                true => ControlFlow::Break(()),
                false => ControlFlow::Continue(()),
            }
        };
        if publish(&moving.progress()).is_break() {
            return Ok(false);
        }
        let is_copied = moving.copy(&mut publish)?;
        Ok(is_copied && publish(&moving.progress()).is_continue())
    }

    fn finish(&self, mut moving: TableMove) -> Result<Table, Error> {
        while self.copy(&mut moving)? {
            if let Some(table) = moving.try_switch(&mut |_| Ok(()))? {
                moving.retire()?;
                return Ok(table);
            }
        }
        Err(invalid("the move is cancelled; the table is as it was".to_owned()))
    }
}

fn finished() -> Error {
    invalid("the move is finished".to_owned())
}

/// Begins to move the table `name` to the engine `engine`, with `option_count` options of the form
/// "key=value", while it is in use. It may be its own engine, with other options. Nothing is copied
/// yet. Copy with siltstone_move_copy(), finish with siltstone_move_finish(), and free it with
/// siltstone_move_free().
///
/// What does not move: snapshots, the history of skimpy, and change feeds with their positions.
///
/// Errors: INVALID if there is no such table, or if it is moving already; INVALID_OPTIONS with
/// every mistake; UNSUPPORTED for a table with a merge operator and an engine without merges;
/// REFUSED in a read-only store; IO. Nothing has changed then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn siltstone_move_begin(
    db: Option<&SiltstoneDb>,
    name: *const c_char,
    engine: *const c_char,
    options: *const *const c_char,
    option_count: usize,
    moving: Option<&mut MaybeUninit<*mut SiltstoneMove>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let moving = handle_output(moving, "moving")?;
        // SAFETY: the caller passes NUL-terminated strings, and an array of `option_count` of them.
        let (name, engine, options) = unsafe {
            (text(name, "name")?, text(engine, "engine")?, table_options(options, option_count)?)
        };
        let begun = required(db, "db")?.0.begin_move(name, engine, &options)?;
        set_handle(
            moving,
            SiltstoneMove {
                open: Mutex::new(Some(begun)),
                rows: AtomicU64::new(0),
                changes: AtomicU64::new(0),
                restarts: AtomicU64::new(0),
                is_cancelled: AtomicBool::new(false),
            },
        );
        Ok(())
    })
}

/// Copies all rows, then those that were written meanwhile, until few are left. Readers and writers
/// go on. *is_copied is false if the move was cancelled. Cost: the table is read once and written
/// once, with the write amplification of the new engine.
///
/// Errors: REFUSED for a value that the new engine does not take, or if it has no room; those of
/// reads and writes. The table is as before, and siltstone_move_free() removes the copy.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_copy(
    moving: Option<&SiltstoneMove>,
    is_copied: Option<&mut MaybeUninit<bool>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let is_copied = required(is_copied, "is_copied")?;
        is_copied.write(false);
        let moving = required(moving, "moving")?;
        is_copied.write(moving.copy(moving.lock().as_mut().ok_or_else(finished)?)?);
        Ok(())
    })
}

/// The rows that were copied since the copy last began. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_rows(moving: Option<&SiltstoneMove>) -> u64 {
    moving.map_or(0, |moving| moving.rows.load(Relaxed))
}

/// The rows that were copied again because they were written meanwhile. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_changes(moving: Option<&SiltstoneMove>) -> u64 {
    moving.map_or(0, |moving| moving.changes.load(Relaxed))
}

/// How often the copy began again, after a removal of ranges or of all keys. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_restarts(moving: Option<&SiltstoneMove>) -> u64 {
    moving.map_or(0, |moving| moving.restarts.load(Relaxed))
}

/// Cancels a move that is not finished: the calls that copy end after at most one more batch of
/// rows. The table stays as it is. Free the move afterwards. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_cancel(moving: Option<&SiltstoneMove>) {
    moving.into_iter().for_each(|moving| moving.is_cancelled.store(true, Relaxed));
}

/// Copies what is left as siltstone_move_copy() does, puts the copy in the place of the table,
/// durably, and removes the old one. Writers wait for the last few rows and the switch. *table is
/// the table on its new engine; free it with siltstone_table_free(). Calls with other handles of
/// the table fail with CLOSED. A crash leaves the old table or the new one. The move is over in any
/// case; after an error from before the switch the table is as it was.
///
/// Errors: those of siltstone_move_copy(); INVALID if the move was cancelled, or is finished; IO of
/// the switch, or from removing the old table: the next open has the old or the new table.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_finish(
    moving: Option<&SiltstoneMove>,
    table: Option<&mut MaybeUninit<*mut SiltstoneTable>>,
) -> Option<Box<SiltstoneError>> {
    guard(|| {
        let table = handle_output(table, "table")?;
        let moving = required(moving, "moving")?;
        let mut open = moving.lock();
        let begun = open.take().ok_or_else(finished)?;
        set_handle(table, SiltstoneTable(moving.finish(begun)?));
        Ok(())
    })
}

/// Frees a move. One that is not finished is cancelled: the table stays as it is, and the copy is
/// removed. NULL is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn siltstone_move_free(moving: Option<Box<SiltstoneMove>>) {
    release(moving);
}

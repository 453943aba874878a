//! A table's part of a batch over several tables: prepare, append, undo, commit.
//!
//! ```text
//!   prepare  writer locked, room made      append  part record and the batch's own, one request
//!   commit   memtable, visible             drop    the log is truncated to where it was
//! ```
//!
//! Invariant: the writer stays locked from the preparation to the end, so nothing follows the part
//! in the log while it can be undone.

use std::sync::Arc;

use parking_lot::MutexGuard;
use siltstone_engine::{
    Error, LogPosition, MAX_VALUE_BYTES, PartDependencies, PartHeader, PreparedPart, Result,
    WriteBatch,
};
use siltstone_table::WalMark;

use crate::commit;
use crate::core::{LogStructured, Writer};
use crate::group::Group;
use crate::part::PartOf;
use crate::stall::{make_room, try_make_room};

/// A table whose writer is locked, with room for a part.
pub(crate) struct LockedPart<'a, T: LogStructured> {
    table: &'a T,
    writer: MutexGuard<'a, Option<Writer<T>>>,
    batch: &'a WriteBatch,
    appended: Option<AppendedPart<'a, T>>,
}

struct AppendedPart<'a, T: LogStructured> {
    batch: u64,
    /// The end of the log before.
    before: WalMark,
    logged: T::LoggedGroup<'a>,
}

/// Locks the writer of a table and makes room for `batch`. Returns `None` if there is no room and
/// `may_wait` is false.
///
/// # Errors
/// Those of [`commit::write`] before the append. Nothing has changed.
pub(crate) fn prepare<'a, T: LogStructured>(
    table: &'a T,
    batch: &'a WriteBatch,
    may_wait: bool,
) -> Result<Option<LockedPart<'a, T>>> {
    let core = table.core();
    core.background.check_open()?;
    batch.check(MAX_VALUE_BYTES)?;
    table.check_batch(batch)?;
    let mut writer = core.writer.lock();
    if !batch.is_empty() {
        core.background.check_writable()?;
        let group = Group::of_one(batch);
        let has_room = match may_wait {
            true => make_room(table, &mut writer, &group).map(|()| true)?,
            false => try_make_room(table, writer.as_mut().ok_or(Error::Closed)?, &group)?,
        };
        if !has_room {
            return Ok(None);
        }
    }
    if writer.is_none() {
        return Err(Error::Closed);
    }
    Ok(Some(LockedPart { table, writer, batch, appended: None }))
}

impl<T: LogStructured> PreparedPart for LockedPart<'_, T> {
    fn last_batch(&self) -> u64 {
        self.table.core().parts.last_batch()
    }

    fn append(
        &mut self,
        header: PartHeader<'_>,
        dependencies: &Arc<dyn PartDependencies>,
    ) -> Result<Box<dyn LogPosition>> {
        let writer = self.writer.as_mut().ok_or(Error::Closed)?;
        let _guard = self.table.core().background.poison_on_panic();
        self.table.core().parts.depend_on(dependencies);
        let before = writer.log.mark();
        writer.part = Some(PartOf::new(header));
        let logged = self.table.log_group(writer, &Group::of_one(self.batch));
        // Still there if the append was not reached.
        writer.part = None;
        self.appended = Some(AppendedPart { batch: header.batch, before, logged: logged? });
        Ok(Box::new(writer.log.position()))
    }

    fn commit(mut self: Box<Self>, is_durable: bool) -> Result<()> {
        let Some(AppendedPart { batch, logged, .. }) = self.appended.take() else { return Ok(()) };
        let LockedPart { table, batch: writes, .. } = *self;
        let writer = self.writer.as_mut().ok_or(Error::Closed)?;
        let _guard = table.core().background.poison_on_panic();
        // Before the writer is unlocked, and so before anyone can report a later write as durable.
        table.core().parts.set_last_batch(batch);
        commit::insert(table, writer, &Group::of_one(writes), logged)?;
        if is_durable {
            table.core().note_durable(writer.last_sequence);
        }
        Ok(())
    }
}

impl<T: LogStructured> Drop for LockedPart<'_, T> {
    fn drop(&mut self) {
        if let (Some(appended), Some(writer)) = (self.appended.take(), self.writer.as_mut())
            && let Err(error) = writer.log.undo_to(appended.before)
        {
            self.table.core().background.poison("undoing a part of a batch", error);
        }
    }
}

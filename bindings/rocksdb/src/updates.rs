//! The log as a stream of updates: the batches of a database from a sequence number on.
//!
//! It is the change feed of the store, without the catalogue of column families. How far back the
//! log reaches is said by the options `WAL_size_limit_MB` and `WAL_ttl_seconds`; see
//! [`Options`](crate::options::Options). As in RocksDB, files that were ingested are not in the
//! log: the iterator ends there with an error, which says where to resume.

use shim::boundary::Pointer;
use store::changes::Changes;
use store::{BatchOp, Change, ChangeOptions, WriteBatch};

use crate::batch::{Batch, key_of};
use crate::database::Database;
use crate::exports::{exports, give};
use crate::failure::Failure;
use crate::layout::{self, FIRST_WRITES};
use crate::scalars::Plain;

/// A position in the updates of a database.
#[derive(Debug)]
pub struct Updates {
    changes: Changes,
    /// The update under the iterator, and the number of its first operation.
    current: Option<(u64, Batch)>,
    failure: Option<Failure>,
}

impl Updates {
    /// The updates from the one with the number `from` on.
    fn new(database: &Database, from: u64) -> Result<Self, Failure> {
        let last = database.sequence()?;
        if from > last {
            let text =
                format!("Requested sequence not yet written in the db: {from}, last is {last}");
            return Err(Failure::NotFound(text));
        }
        let since = from.max(1) - 1 + FIRST_WRITES;
        // RocksDB shows what is not durable, too.
        let options = ChangeOptions { since, include_unsynced: true };
        let changes = database.table().changes_with(options).map_err(not_in_log)?;
        let mut updates = Updates { changes, current: None, failure: None };
        updates.advance();
        Ok(updates)
    }

    /// Moves to the next update, if there is one now.
    fn advance(&mut self) {
        self.current = None;
        if self.failure.is_none() {
            match self.next() {
                Ok(next) => self.current = next,
                Err(failure) => self.failure = Some(failure),
            }
        }
    }

    fn next(&mut self) -> Result<Option<(u64, Batch)>, Failure> {
        while let Some(change) = self.changes.try_next().map_err(not_in_log)? {
            let first = change.first_sequence.saturating_sub(FIRST_WRITES);
            match change.change {
                Change::Write(ops) => {
                    let ops = of_families(ops);
                    if !ops.is_empty() {
                        let mut batch = Batch::default();
                        batch.replace(ops);
                        return Ok(Some((first, batch)));
                    }
                }
                _ => {
                    let next = first + 1;
                    let text =
                        format!("files were ingested at {first}: read them, go on at {next}");
                    return Err(Failure::NotFound(text));
                }
            }
        }
        Ok(None)
    }
}

fn not_in_log(error: store::Error) -> Failure {
    match error {
        store::Error::ChangesUnavailable { .. } => Failure::NotFound(error.to_string()),
        error => error.into(),
    }
}

/// The operations of the program, without those on the catalogue.
fn of_families(ops: WriteBatch) -> WriteBatch {
    if ops.iter_all().all(|op| is_of_program(&op)) {
        return ops;
    }
    let mut own = WriteBatch::new();
    ops.iter_all().filter(is_of_program).for_each(|op| _ = own.push_any(op));
    own
}

fn is_of_program(op: &BatchOp<'_>) -> bool {
    let family = |key| layout::split(key).map(|(family, _)| family);
    let start = family(key_of(op));
    match op {
        // A family that was dropped: the range ends with the last of its keys.
        BatchOp::DeleteRange { end, .. } => {
            start.is_some() && end.is_some_and(|end| family(end) == start)
        }
        _ => start.is_some(),
    }
}

exports! {
    /// The updates from the one that has this sequence number. NULL after an error, also if the
    /// log does not reach back so far.
    fn rocksdb_get_updates_since(
        db: &Database, sequence: u64, _options: Option<&Plain>; err
    ) -> Pointer<Updates> {
        Ok(Pointer::new(Updates::new(db, sequence)?))
    }

    /// Frees an iterator.
    fn rocksdb_wal_iter_destroy(updates: Option<Box<Updates>>) {
        drop(updates)
    }

    /// Whether the iterator is on an update.
    fn rocksdb_wal_iter_valid(updates: &Updates) -> u8 {
        updates.current.is_some().into()
    }

    /// Moves to the next update. At the end it looks for new ones.
    fn rocksdb_wal_iter_next(updates: &mut Updates) {
        updates.advance()
    }

    /// Why the iterator is on no update, if that is an error.
    fn rocksdb_wal_iter_status(updates: &Updates; err) {
        updates.failure.clone().map_or(Ok(()), Err)
    }

    /// A copy of the update, to be freed, and the sequence number of its first operation. NULL at
    /// the end.
    fn rocksdb_wal_iter_get_batch(updates: &Updates, sequence: *mut u64) -> Pointer<Batch> {
        let Some((first, batch)) = &updates.current else { return Pointer::null() };
        unsafe { give(sequence, *first) };
        Pointer::new(batch.clone())
    }
}

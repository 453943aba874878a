//! What a worker gathers in a turn of its loop, before it syncs and answers.
//!
//! A SET without options reads nothing, and is not acknowledged before the end of its worker's
//! turn. So a worker gathers the SETs of a turn, of all its clients, into one batch: one append to
//! the engine's log in place of hundreds. A batch is a *generation*; a client remembers how many
//! SETs it has in which one, and is told how it went before its next other command runs or at the
//! end of the turn, whichever comes first.
//!
//! Invariant: a client's replies keep the order of its commands, and it reads its own writes: its
//! SETs are applied before any later command of its own. Each table that was written is named in
//! [`Turn::written`] until the worker has synced it.

use std::sync::Arc;
use std::time::Instant;

use siltstone_engine::{Error, Result, WriteBatch};

use super::Database;
use crate::metrics::Samples;

/// A batch larger than this is applied at once, so that a turn's memory stays small.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// What a worker gathers in a turn.
pub(crate) struct Turn {
    batch: WriteBatch,
    table: usize,
    /// How each generation of this turn went; the open one has no entry yet.
    outcomes: Vec<Result<(), Arc<Error>>>,
    written: Vec<bool>,
    /// The moment up to which time has been accounted for.
    pub(crate) clock: Instant,
    pub(crate) samples: Samples,
    /// A batch to build a command's writes in, so that none is allocated for each.
    pub(crate) scratch: WriteBatch,
}

/// SETs of one client that are not answered yet.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unanswered {
    pub(crate) count: usize,
    pub(crate) generation: usize,
    /// When the first of them came.
    pub(crate) since: Instant,
}

impl Turn {
    pub(crate) fn new(tables: usize) -> Self {
        Turn {
            batch: WriteBatch::new(),
            table: 0,
            outcomes: Vec::new(),
            written: vec![false; tables],
            clock: Instant::now(),
            samples: Samples::default(),
            scratch: WriteBatch::new(),
        }
    }

    /// Gathers a SET; the generation that it belongs to. A batch of another table is applied first.
    #[inline]
    pub(crate) fn gather(
        &mut self,
        databases: &[Database],
        table: usize,
        key: &[u8],
        value: &[u8],
    ) -> usize {
        if table != self.table || self.batch.as_bytes().len() > MAX_BATCH_BYTES {
            self.apply(databases);
            self.table = table;
        }
        self.batch.put(key, value);
        self.outcomes.len()
    }

    /// Applies what was gathered, which ends the generation.
    pub(crate) fn apply(&mut self, databases: &[Database]) {
        if self.batch.is_empty() {
            return;
        }
        let database = &databases[self.table];
        let locks = database.locks.many(self.batch.iter().map(|op| op.key()));
        let outcome = database.write(&self.batch).map_err(Arc::new);
        drop(locks);
        self.written[self.table] |= outcome.is_ok();
        self.outcomes.push(outcome);
        shrink(&mut self.batch);
        self.batch.clear();
    }

    /// How a generation went; it is applied if it is still open.
    pub(crate) fn outcome(
        &mut self,
        databases: &[Database],
        generation: usize,
    ) -> Result<(), Arc<Error>> {
        if generation == self.outcomes.len() {
            self.apply(databases);
        }
        self.outcomes.get(generation).cloned().unwrap_or(Ok(()))
    }

    /// Applies a batch to a table at once. The caller holds the locks of its keys.
    #[inline]
    pub(crate) fn write(
        &mut self,
        databases: &[Database],
        table: usize,
        batch: &WriteBatch,
    ) -> Result<()> {
        // A write that failed is acknowledged to no one, so there is nothing to sync.
        databases[table].write(batch).inspect(|()| self.written[table] = true)
    }

    /// Removes every key of a table, durably.
    pub(crate) fn clear(&self, databases: &[Database], table: usize) -> Result<()> {
        let database = &databases[table];
        let _guard = database.locks.all();
        database.clear()
    }

    /// Notes that a table was written by another way than [`write`](Self::write).
    pub(crate) fn note_written(&mut self, table: usize) {
        self.written[table] = true;
    }

    /// Syncs every table that was written in this turn.
    ///
    /// Not [`Database::sync_if_written`]: another worker may have begun a sync for our write and
    /// not be done, and who acknowledges must have waited.
    pub(crate) fn sync(&mut self, databases: &[Database]) -> Result<()> {
        let mut outcome = Ok(());
        for (written, database) in self.written.iter_mut().zip(databases) {
            if std::mem::take(written) {
                outcome = outcome.and(database.engine.sync());
            }
        }
        outcome
    }

    /// Forgets the outcomes of a turn in which everyone has been answered.
    pub(crate) fn end(&mut self) {
        self.outcomes.clear();
        self.written.fill(false);
        shrink(&mut self.scratch);
        self.scratch.clear();
    }
}

/// Gives the memory of a large batch back: one huge value must not be held for ever.
fn shrink(batch: &mut WriteBatch) {
    if batch.as_bytes().len() > 2 * MAX_BATCH_BYTES {
        *batch = WriteBatch::new();
    }
}

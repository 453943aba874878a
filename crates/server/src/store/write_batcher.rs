//! Batches plain SETs of one event-loop iteration into a single engine write.
//!
//! SETs without options read nothing and need no reply until the end of the iteration, so a worker
//! collects those of all its clients into one `WriteBatch`: one log append instead of hundreds. A
//! client records how many of its SETs are in which batch. Its pending replies are written before
//! its next command of another kind runs, or at the end of the iteration.
//!
//! Invariant: replies keep command order; a client reads its own writes, since its SETs are applied
//! before any later command of its own. Every table written stays marked in `written` until the
//! worker has synced it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_engine::{DEVICE_READ, Error, Result, WriteBatch};

use super::Database;
use super::command_groups::CommandGroups;
use super::group_writes::GroupWrites;
use crate::clients::Client;
use crate::keyspace_events::EventClass;
use crate::mailbox::Completion;
use crate::metrics::Samples;

/// Batch size at which it is applied at once, in bytes; bounds memory.
const MAX_BATCH_BYTES: usize = 1 << 20;

/// Batched SETs and other state of one event-loop iteration.
pub(crate) struct WriteBatcher {
    batch: WriteBatch,
    table: usize,
    /// Outcome per batch of this iteration; the open batch has none yet.
    outcomes: Vec<Result<(), Arc<Error>>>,
    written: Vec<bool>,
    /// Reads have waited for a device in the last iteration.
    pub(crate) waits_for_device: bool,
    /// In this one.
    has_waited: bool,
    /// Time up to which command latencies have been recorded.
    pub(crate) clock: Instant,
    pub(crate) samples: Samples,
    /// Reusable batch for the writes of a single command.
    pub(crate) scratch: WriteBatch,
    /// Commands that will run together, and reusable memory for the writes of a group.
    pub(crate) groups: CommandGroups,
    pub(crate) group_writes: GroupWrites,
    /// Replies to commands of other connections that this worker has run, to be delivered once
    /// their writes are synced.
    deliveries: Vec<Delivery>,
    /// Keys written by the running command, while keyspace events are published.
    pub(crate) key_writes: Vec<KeyWrite>,
    /// Keyspace events to publish once their writes are applied.
    pub(crate) events: Vec<KeyEvent>,
    /// A script is busy in this iteration, so that commands must not touch keys.
    pub(crate) is_busy: bool,
}

/// A reply to a command of another connection.
pub(crate) struct Delivery {
    /// The table of the command.
    pub(crate) table: usize,
    pub(crate) client: Arc<Client>,
    pub(crate) reply: Vec<u8>,
}

/// A key that a command has written.
pub(crate) struct KeyWrite {
    pub(crate) table: usize,
    pub(crate) key: Vec<u8>,
    /// It did not exist, if that matters.
    pub(crate) is_new: bool,
    pub(crate) is_removed: bool,
    pub(crate) has_expiry: bool,
    /// Events that the command has named itself.
    pub(crate) named: Vec<(EventClass, &'static str)>,
}

/// A keyspace event.
pub(crate) struct KeyEvent {
    pub(crate) table: usize,
    pub(crate) class: EventClass,
    pub(crate) event: &'static str,
    pub(crate) key: Vec<u8>,
}

/// SETs of one client without replies so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PendingReplies {
    pub(crate) count: usize,
    pub(crate) batch_id: usize,
    /// Arrival of the first one.
    pub(crate) since: Instant,
}

impl WriteBatcher {
    pub(crate) fn new(tables: usize) -> Self {
        WriteBatcher {
            batch: WriteBatch::new(),
            table: 0,
            outcomes: Vec::new(),
            written: vec![false; tables],
            waits_for_device: false,
            has_waited: false,
            clock: Instant::now(),
            samples: Samples::default(),
            scratch: WriteBatch::new(),
            groups: CommandGroups::default(),
            group_writes: GroupWrites::default(),
            deliveries: Vec::new(),
            key_writes: Vec::new(),
            events: Vec::new(),
            is_busy: false,
        }
    }

    /// Keeps the reply to another client's command until the iteration's sync.
    pub(crate) fn deliver_after_sync(&mut self, delivery: Delivery) {
        self.deliveries.push(delivery);
    }

    /// Delivers the replies kept for other clients, or an error in their place.
    pub(crate) fn deliver(&mut self, sync_error: Option<&str>) {
        for Delivery { client, reply, .. } in self.deliveries.drain(..) {
            let reply = match sync_error {
                None => reply,
                Some(text) => format!("-{}\r\n", text.replace(['\r', '\n'], " ")).into_bytes(),
            };
            client.complete(Completion::Reply(reply));
        }
    }

    /// Takes the replies kept for other clients.
    pub(crate) fn take_deliveries(&mut self) -> Vec<Delivery> {
        std::mem::take(&mut self.deliveries)
    }

    /// Adds a SET and returns its batch id. An open batch of another table is applied first.
    #[inline]
    pub(crate) fn add_set(
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

    /// Applies and closes the open batch.
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

    /// Outcome of a batch; applies it if it is still open.
    pub(crate) fn outcome(
        &mut self,
        databases: &[Database],
        batch_id: usize,
    ) -> Result<(), Arc<Error>> {
        if batch_id == self.outcomes.len() {
            self.apply(databases);
        }
        self.outcomes.get(batch_id).cloned().unwrap_or(Ok(()))
    }

    /// Applies a batch to a table at once. The caller holds the locks of its keys.
    #[inline]
    pub(crate) fn write(
        &mut self,
        databases: &[Database],
        table: usize,
        batch: &WriteBatch,
    ) -> Result<()> {
        // A failed write is not acknowledged, so it needs no sync.
        databases[table].write(batch).inspect(|()| self.written[table] = true)
    }

    /// Removes every key of a table, durably.
    pub(crate) fn clear(&self, databases: &[Database], table: usize) -> Result<()> {
        let database = &databases[table];
        let _guard = database.locks.all();
        database.clear()
    }

    /// Marks a table as written by means other than [`write`](Self::write).
    pub(crate) fn mark_written(&mut self, table: usize) {
        self.written[table] = true;
    }

    /// Syncs every table written in this iteration.
    ///
    /// Not [`Database::sync_if_written`]: another worker's sync may already cover our write but
    /// still be in progress, and the acknowledgement must wait for it.
    pub(crate) fn sync(&mut self, databases: &[Database]) -> Result<()> {
        let mut outcome = Ok(());
        for (written, database) in self.written.iter_mut().zip(databases) {
            if std::mem::take(written) {
                outcome = outcome.and(database.engine.sync());
            }
        }
        outcome
    }

    /// Notes how long a command that reads has taken.
    #[inline]
    pub(crate) fn note_read(&mut self, duration: Duration) {
        self.has_waited |= duration >= DEVICE_READ;
    }

    /// Ends the iteration, once all replies are written.
    pub(crate) fn finish_iteration(&mut self) {
        self.waits_for_device = std::mem::take(&mut self.has_waited);
        self.outcomes.clear();
        self.written.fill(false);
        shrink(&mut self.scratch);
        self.scratch.clear();
    }
}

/// Releases the memory of a large batch.
fn shrink(batch: &mut WriteBatch) {
    if batch.as_bytes().len() > 2 * MAX_BATCH_BYTES {
        *batch = WriteBatch::new();
    }
}

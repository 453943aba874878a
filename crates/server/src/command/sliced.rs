//! Commands that visit every key of a table, in time slices.
//!
//! The time of KEYS and DBSIZE grows with the table. Run in one piece they would delay the worker's
//! other clients, so such a command runs for [`MAX_SLICE`] per event-loop iteration, and its state
//! stays in the client's [`Session`](super::Session):
//!
//! ```text
//! iteration n      KEYS * (client 1, first slice)   GET a (client 2)   PING (client 3)
//! iteration n+1    KEYS *          (second slice)   GET b (client 2)
//! iteration n+2    KEYS *            (last slice) ──▶ reply
//! ```
//!
//! All slices use one cursor, which shows the table as of the start of the command; `mica` has no
//! such cursor and continues from bucket to bucket. When the table moves to another engine between
//! two slices, the command begins again. In a transaction a command runs in one piece.
//!
//! In a replicated table of several groups a command visits the tables of those that this node
//! leads, one after the other.
//!
//! Invariant: while a command is unfinished, no other command of its client runs, so replies keep
//! the order of commands.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use siltstone_engine::{Result, Timestamp};

use super::failure::Failure;
use crate::glob::{self, Pattern};
use crate::resp::Replies;
use crate::shared::Shared;
use crate::store::key_iter::{KeyIter, PausedIter, Start};
use crate::store::{Database, Overlay};

/// Maximum running time per slice.
const MAX_SLICE: Duration = Duration::from_millis(2);
/// Keys per read of the clock.
const KEYS_PER_CLOCK_READ: usize = 16;
/// Key length above which the clock is read after every key.
const LONG_KEY_BYTES: usize = 1 << 10;

/// An unfinished command.
pub(crate) struct SlicedCommand {
    paused: Option<PausedIter>,
    /// The content that `paused` is of.
    content: usize,
    /// The tables that are not complete; `paused` is of the first.
    tables: VecDeque<usize>,
    start: Start,
    job: Job,
    /// Limit of the reply, in bytes.
    max_reply_bytes: usize,
}

/// Action per key.
enum Job {
    /// Collects the matching keys as the reply.
    Collect { pattern: Pattern, prefix: Vec<u8>, found: Vec<Vec<u8>>, bytes: usize },
    /// Counts the keys; above `limit` the engine's estimate is used, if available.
    Count { count: usize, limit: usize },
}

/// The end of a slice that begins now.
fn slice_end() -> Instant {
    Instant::now() + MAX_SLICE
}

impl SlicedCommand {
    /// Creates KEYS.
    pub(super) fn collect(tables: VecDeque<usize>, pattern: &[u8], max_reply_bytes: usize) -> Self {
        let prefix = glob::literal_prefix(pattern).to_vec();
        let start = Start::Key(prefix.clone());
        let pattern = Pattern::new(pattern);
        let job = Job::Collect { pattern, prefix, found: Vec::new(), bytes: 0 };
        SlicedCommand { paused: None, content: 0, tables, start, job, max_reply_bytes }
    }

    /// Creates DBSIZE.
    pub(super) fn count(tables: VecDeque<usize>, limit: usize, max_reply_bytes: usize) -> Self {
        let job = Job::Count { count: 0, limit };
        let start = Start::Key(Vec::new());
        SlicedCommand { paused: None, content: 0, tables, start, job, max_reply_bytes }
    }

    /// Runs all of it in a transaction, whose writes are in `overlays`.
    pub(super) fn run_in(
        &mut self,
        shared: &Shared,
        overlays: &[Overlay],
        now: Timestamp,
    ) -> Result<(), Failure> {
        while let Some(table) = self.tables.pop_front() {
            let database = &shared.databases[table];
            let iter = KeyIter::new(database, overlays.get(table), &self.start, now)?;
            self.run(iter, None, database)?;
        }
        Ok(())
    }

    /// Runs the next slice.
    pub(super) fn resume(&mut self, shared: &Shared) -> Result<(), Failure> {
        let deadline = slice_end();
        while let Some(&table) = self.tables.front() {
            let (database, now) = (&shared.databases[table], shared.now(table));
            if self.paused.is_some() && database.has_moved(self.content) {
                self.restart();
            }
            self.content = database.content_number();
            let iter = match self.paused.take() {
                Some(paused) => KeyIter::resume(database, paused, now)?,
                None => KeyIter::new(database, None, &self.start, now)?,
            };
            self.paused = self.run(iter, Some(deadline), database)?;
            if self.paused.is_some() {
                break;
            }
            self.tables.pop_front();
        }
        Ok(())
    }

    /// Begins again, because the table has moved to another engine.
    fn restart(&mut self) {
        self.paused = None;
        match &mut self.job {
            Job::Collect { found, bytes, .. } => {
                found.clear();
                *bytes = 0;
            }
            Job::Count { count, .. } => *count = 0,
        }
    }

    /// Whether there is more to do.
    pub(super) fn is_paused(&self) -> bool {
        !self.tables.is_empty()
    }

    /// The tables that are not complete.
    pub(super) fn tables(&self) -> impl Iterator<Item = usize> {
        self.tables.iter().copied()
    }

    /// Writes the reply, after the last slice.
    pub(super) fn reply(self, replies: &mut Replies) {
        match self.job {
            Job::Count { count, .. } => replies.count(count),
            Job::Collect { found, .. } => {
                replies.array(found.len());
                for key in &found {
                    replies.bulk(key);
                }
            }
        }
    }

    /// Runs until the deadline. Returns the parked iterator, or `None` at the end.
    fn run(
        &mut self,
        mut iter: KeyIter<'_>,
        deadline: Option<Instant>,
        database: &Database,
    ) -> Result<Option<PausedIter>, Failure> {
        let is_ordered = iter.is_ordered();
        let mut keys_until_clock_read = KEYS_PER_CLOCK_READ;
        while let Some(key) = iter.next()? {
            let is_long = key.len() >= LONG_KEY_BYTES;
            if !self.process(key, is_ordered, database)? {
                return Ok(None);
            }
            keys_until_clock_read = if is_long { 0 } else { keys_until_clock_read - 1 };
            if keys_until_clock_read > 0 {
                continue;
            }
            keys_until_clock_read = KEYS_PER_CLOCK_READ;
            // Inside a bucket the iterator cannot be parked.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) && iter.can_pause() {
                return Ok(iter.pause());
            }
        }
        Ok(None)
    }

    /// Processes a key. Returns whether to continue.
    fn process(
        &mut self,
        key: &[u8],
        is_ordered: bool,
        database: &Database,
    ) -> Result<bool, Failure> {
        let limit_bytes = self.max_reply_bytes;
        match &mut self.job {
            Job::Collect { prefix, .. } if is_ordered && !key.starts_with(prefix) => Ok(false),
            Job::Collect { pattern, found, bytes, .. } => {
                if pattern.matches(key) {
                    *bytes += key.len() + size_of::<Vec<u8>>();
                    if *bytes > limit_bytes {
                        return Err(format!(
                            "ERR the keys exceed the reply limit of {limit_bytes} bytes; \
                             use SCAN"
                        )
                        .into());
                    }
                    found.push(key.to_vec());
                }
                Ok(true)
            }
            Job::Count { count, limit } => {
                *count += 1;
                if count == limit
                    && let Some(estimate) = database.keys_estimate()
                {
                    *count = usize::try_from(estimate).unwrap_or(usize::MAX).max(*limit);
                    return Ok(false);
                }
                Ok(true)
            }
        }
    }
}

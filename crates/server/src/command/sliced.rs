//! Commands that visit every key of a table, in time slices.
//!
//! The time of KEYS and DBSIZE grows with the table. Run in one piece they would delay the worker's
//! other clients, so such a command runs for [`MAX_SLICE`] per event-loop iteration, and its state
//! stays in the client's [`Session`]:
//!
//! ```text
//! iteration n      KEYS * (client 1, first slice)   GET a (client 2)   PING (client 3)
//! iteration n+1    KEYS *          (second slice)   GET b (client 2)
//! iteration n+2    KEYS *            (last slice) ──▶ reply
//! ```
//!
//! All slices use one cursor, which shows the table as of the start of the command; `mica` has no
//! such cursor and continues from bucket to bucket. In a transaction a command runs in one piece.
//!
//! Invariant: while a command is unfinished, no other command of its client runs, so replies keep
//! the order of commands.

use std::time::{Duration, Instant};

use siltstone_engine::Result;

use super::session::ReplyMode;
use super::{Context, Failure, Outcome};
use crate::glob::{self, Pattern};
use crate::store::key_iter::{KeyIter, PausedIter, Start};

/// Maximum running time per slice.
const MAX_SLICE: Duration = Duration::from_millis(2);
/// Keys per read of the clock.
const KEYS_PER_CLOCK_READ: usize = 16;
/// Key length above which the clock is read after every key.
const LONG_KEY_BYTES: usize = 1 << 10;

/// An unfinished command.
pub(crate) struct SlicedCommand {
    paused: Option<PausedIter>,
    job: Job,
    /// How it was called, for its reply and counters.
    pub(super) call: Option<Call>,
}

/// Parameters of a call.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) index: usize,
    pub(super) mode: ReplyMode,
    pub(super) began: Instant,
}

/// Action per key.
enum Job {
    /// Collects the matching keys as the reply.
    Collect { pattern: Pattern, prefix: Vec<u8>, found: Vec<Vec<u8>>, bytes: usize },
    /// Counts the keys; above `limit` the engine's estimate is used, if available.
    Count { count: usize, limit: usize },
}

impl SlicedCommand {
    /// Creates KEYS.
    pub(super) fn collect(pattern: &[u8]) -> (Self, Start) {
        let prefix = glob::literal_prefix(pattern).to_vec();
        let start = Start::Key(prefix.clone());
        let pattern = Pattern::new(pattern);
        let job = Job::Collect { pattern, prefix, found: Vec::new(), bytes: 0 };
        (SlicedCommand { paused: None, job, call: None }, start)
    }

    /// Creates DBSIZE.
    pub(super) fn count(limit: usize) -> (Self, Start) {
        let job = Job::Count { count: 0, limit };
        (SlicedCommand { paused: None, job, call: None }, Start::Key(Vec::new()))
    }

    /// Runs the first slice; the rest is stored in the session.
    pub(super) fn begin(mut self, context: &mut Context<'_>, start: &Start) -> Outcome {
        let iter = context.iter_keys(start)?;
        let deadline = (!context.is_in_transaction()).then(|| Instant::now() + MAX_SLICE);
        self.paused = self.job.run(iter, deadline, context)?;
        self.end(context);
        Ok(())
    }

    /// Runs the next slice.
    pub(super) fn resume(mut self, context: &mut Context<'_>) -> Outcome {
        let Some(paused) = self.paused.take() else { return Ok(()) };
        let iter = KeyIter::resume(context.database(), paused, context.now())?;
        self.paused = self.job.run(iter, Some(Instant::now() + MAX_SLICE), context)?;
        self.end(context);
        Ok(())
    }

    /// Replies if finished, otherwise stores the state in the session.
    fn end(self, context: &mut Context<'_>) {
        if self.paused.is_some() {
            context.session.sliced = Some(Box::new(self));
            return;
        }
        match self.job {
            Job::Count { count, .. } => context.replies.count(count),
            Job::Collect { found, .. } => {
                context.replies.array(found.len());
                for key in &found {
                    context.replies.bulk(key);
                }
            }
        }
    }
}

impl Job {
    /// Runs until the deadline. Returns the parked iterator, or `None` at the end.
    fn run(
        &mut self,
        mut iter: KeyIter<'_>,
        deadline: Option<Instant>,
        context: &Context<'_>,
    ) -> Result<Option<PausedIter>, Failure> {
        let is_ordered = iter.is_ordered();
        let mut keys_until_clock_read = KEYS_PER_CLOCK_READ;
        while let Some(key) = iter.next()? {
            let is_long = key.len() >= LONG_KEY_BYTES;
            if !self.process(key, is_ordered, context)? {
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
        context: &Context<'_>,
    ) -> Result<bool, Failure> {
        match self {
            Job::Collect { prefix, .. } if is_ordered && !key.starts_with(prefix) => Ok(false),
            Job::Collect { pattern, found, bytes, .. } => {
                if pattern.matches(key) {
                    *bytes += key.len() + size_of::<Vec<u8>>();
                    let limit = context.shared.options.max_output_bytes;
                    if *bytes > limit {
                        return Err(format!(
                            "ERR the keys exceed the reply limit of {limit} bytes; \
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
                    && let Some(estimate) = context.database().engine.stats().keys_estimate
                {
                    *count = usize::try_from(estimate).unwrap_or(usize::MAX).max(*limit);
                    return Ok(false);
                }
                Ok(true)
            }
        }
    }
}

//! Commands that look at every key of a table, in slices of time.
//!
//! KEYS and DBSIZE take as long as the table is large. A worker that ran them at a stretch would
//! keep its other clients waiting, so such a command is run for [`SLICE`], and what is left of it
//! waits in its client's [`Session`] until the client's next turn:
//!
//! ```text
//! turn n      KEYS * (client 1, first slice)   GET a (client 2)   PING (client 3)
//! turn n+1    KEYS *          (second slice)   GET b (client 2)
//! turn n+2    KEYS *            (last slice) ──▶ the reply
//! ```
//!
//! All slices walk with one cursor, which shows the table as of the moment when the command began;
//! on `mica`, which has no such cursor, from bucket to bucket. In a transaction, which nobody may
//! come between, a command runs at a stretch.
//!
//! Invariant: while something is left of a command, no other command of its client runs, so replies
//! keep the order of commands.

use std::time::{Duration, Instant};

use siltstone_engine::Result;

use super::session::ReplyMode;
use super::{Context, Failure, Outcome};
use crate::glob::{self, Pattern};
use crate::store::walk::{Parked, Start, Walk};

/// How long a command may run before other clients are served.
const SLICE: Duration = Duration::from_millis(2);
/// A look at the clock costs as much as some keys.
const KEYS_BETWEEN_LOOKS: usize = 16;
/// A key of so many bytes takes as long to match as a look at the clock.
const LONG_KEY: usize = 1 << 10;

/// A command that is not done.
pub(crate) struct Sliced {
    parked: Option<Parked>,
    job: Job,
    /// The call that it is, for the reply and the counters at its end.
    pub(super) call: Option<Call>,
}

/// How a command was called.
#[derive(Clone, Copy)]
pub(super) struct Call {
    pub(super) index: usize,
    pub(super) mode: ReplyMode,
    pub(super) began: Instant,
}

/// What is done with each key.
enum Job {
    /// Those that match are the reply.
    Collect { pattern: Pattern, prefix: Vec<u8>, found: Vec<Vec<u8>>, bytes: usize },
    /// Their number is the reply; beyond `limit` the engine's estimate is, if it has one.
    Count { count: usize, limit: usize },
}

impl Sliced {
    /// KEYS.
    pub(super) fn collect(pattern: &[u8]) -> (Self, Start) {
        let prefix = glob::literal_prefix(pattern).to_vec();
        let start = Start::Key(prefix.clone());
        let pattern = Pattern::new(pattern);
        let job = Job::Collect { pattern, prefix, found: Vec::new(), bytes: 0 };
        (Sliced { parked: None, job, call: None }, start)
    }

    /// DBSIZE.
    pub(super) fn count(limit: usize) -> (Self, Start) {
        let job = Job::Count { count: 0, limit };
        (Sliced { parked: None, job, call: None }, Start::Key(Vec::new()))
    }

    /// Runs the first slice; what is left is left to the session.
    pub(super) fn begin(mut self, context: &mut Context<'_>, start: &Start) -> Outcome {
        let walk = context.walk(start)?;
        let deadline = (!context.is_in_transaction()).then(|| Instant::now() + SLICE);
        self.parked = self.job.run(walk, deadline, context)?;
        self.end(context);
        Ok(())
    }

    /// Runs the next slice.
    pub(super) fn resume(mut self, context: &mut Context<'_>) -> Outcome {
        let Some(parked) = self.parked.take() else { return Ok(()) };
        let walk = Walk::resume(context.database(), parked, context.now())?;
        self.parked = self.job.run(walk, Some(Instant::now() + SLICE), context)?;
        self.end(context);
        Ok(())
    }

    /// Replies, or leaves the rest to the session.
    fn end(self, context: &mut Context<'_>) {
        if self.parked.is_some() {
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
    /// Goes on until the deadline; where the walk then stands, or `None` at its end.
    fn run(
        &mut self,
        mut walk: Walk<'_>,
        deadline: Option<Instant>,
        context: &Context<'_>,
    ) -> Result<Option<Parked>, Failure> {
        let is_ordered = walk.is_ordered();
        let mut keys_until_look = KEYS_BETWEEN_LOOKS;
        while let Some(key) = walk.next()? {
            let is_long = key.len() >= LONG_KEY;
            if !self.take(key, is_ordered, context)? {
                return Ok(None);
            }
            keys_until_look = if is_long { 0 } else { keys_until_look - 1 };
            if keys_until_look > 0 {
                continue;
            }
            keys_until_look = KEYS_BETWEEN_LOOKS;
            // In the middle of a bucket it goes on.
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) && walk.can_park() {
                return Ok(walk.park());
            }
        }
        Ok(None)
    }

    /// Takes a key; whether the job wants more.
    fn take(
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
                            "ERR the keys take more than the {limit} bytes that a reply may have; \
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

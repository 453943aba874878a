//! The injected environment: what an engine needs besides its file system.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siltstone_engine::{Clock, SystemClock};

use crate::{Events, RateLimiter, Scheduler};

/// Clock, seed, scheduler, rate limiter and events. Cheap to clone; the engines of a store share
/// it.
#[derive(Clone)]
pub struct Env {
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// The seed of every random choice.
    pub seed: u64,
    /// Runs background jobs.
    pub scheduler: Scheduler,
    /// Limits the bytes per second of background writes.
    pub rate: Arc<RateLimiter>,
    /// Where the table's events go; the store sets it when it opens a table.
    pub events: Events,
}

impl Env {
    /// The system clock, an unpredictable seed, one flush thread, `compaction_threads` other
    /// threads, no rate limit and no listeners.
    pub fn system(compaction_threads: usize) -> Self {
        Env {
            clock: Arc::new(SystemClock),
            // Keys may come from attackers, who must not be able to predict their hashes.
            seed: RandomState::new().hash_one("siltstone"),
            scheduler: Scheduler::threads(compaction_threads),
            rate: Arc::new(RateLimiter::unlimited()),
            events: Events::default(),
        }
    }

    /// A deterministic environment: background jobs run inside the calls that wait for them, in an
    /// order that depends only on the calls.
    pub fn replayable(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Env {
            clock,
            seed,
            scheduler: Scheduler::manual(),
            rate: Arc::new(RateLimiter::unlimited()),
            events: Events::default(),
        }
    }
}

//! The injected world: all that an engine needs from outside besides its medium.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use siltstone_engine::{Clock, SystemClock};

use crate::{RateLimiter, Scheduler};

/// Clock, seed, scheduler and rate limit. Cheap to clone; engines of one store share it.
#[derive(Clone)]
pub struct Env {
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// Seeds every random choice.
    pub seed: u64,
    /// Runs background work.
    pub scheduler: Scheduler,
    /// Bounds background bytes a second.
    pub rate: Arc<RateLimiter>,
}

impl Env {
    /// The machine's clock, a seed that nobody can foresee, one flush thread and `compaction_threads`
    /// others, no rate limit.
    pub fn system(compaction_threads: usize) -> Self {
        Env {
            clock: Arc::new(SystemClock),
            // Keys come from strangers, who must not know what they hash to.
            seed: RandomState::new().hash_one("siltstone"),
            scheduler: Scheduler::threads(compaction_threads),
            rate: Arc::new(RateLimiter::unlimited()),
        }
    }

    /// A world that moves only when it is told to: background jobs run inside the calls that wait
    /// for them, in an order that depends on nothing but the calls.
    pub fn replayable(clock: Arc<dyn Clock>, seed: u64) -> Self {
        Env {
            clock,
            seed,
            scheduler: Scheduler::manual(),
            rate: Arc::new(RateLimiter::unlimited()),
        }
    }
}

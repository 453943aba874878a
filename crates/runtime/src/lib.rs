//! The runtime of engines: background jobs, group commit, write throttling and the injected
//! environment.
//!
//! The crate directly above `siltstone-engine`. It knows no file formats and does no I/O.
//!
//! | module | content |
//! | --- | --- |
//! | [`env`](mod@env) | [`Env`]: clock, seed, scheduler, rate limiter and events of a store |
//! | [`scheduler`] | a job queue by priority, run by threads or replayed deterministically |
//! | [`background`] | the background jobs of one open table, with retries and fail-stop |
//! | [`group_commit`] | one writer appends and syncs for all waiting writers |
//! | [`events`] | the queue of events for listeners |
//! | [`write_controller`] | write throttling, and counters of write stalls |
//! | [`rate_limiter`] | a limit on bytes per second of background writes |
//! | [`thread_priority`] | priority and scheduling policy of background threads |

pub mod background;
pub mod env;
pub mod events;
pub mod group_commit;
pub mod rate_limiter;
pub mod scheduler;
mod sync;
pub mod thread_priority;
pub mod write_controller;

pub use background::{Background, BackgroundWork, is_retriable};
pub use env::Env;
pub use events::Events;
pub use group_commit::GroupCommit;
pub use rate_limiter::RateLimiter;
pub use scheduler::{Priority, Scheduler};
pub use siltstone_engine::WriteStall;
pub use write_controller::{StallCounters, WriteController};

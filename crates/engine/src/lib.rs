//! The contract that every storage engine keeps, and the words they share.
//!
//! Everything else in the house stands on this crate; it depends on nothing of ours.
//!
//! | module | one idea |
//! | --- | --- |
//! | [`contract`] | the [`Engine`] trait: what an engine promises |
//! | [`cursor`] | walking a table in engine order |
//! | `forward` | engines around engines: [`forward_engine`] |
//! | [`batch`] | [`WriteBatch`]: writes that happen together or not at all |
//! | [`entry`] | what a key maps to; the limits on keys and values |
//! | [`error`] | the one error type, which names the file, the key or the option |
//! | [`inspection`] | what is in a file, told for people |
//! | [`io`] | [`Purpose`]: why bytes move, and counters of how many did |
//! | [`stats`] | what every engine reports, in the field's words |
//! | [`options`] | options as `key=value`, refused whole with every mistake named |
//! | [`clear`] | removing every key, for engines that have no quicker way |
//! | [`clock`] | time, injected |
//! | [`sample`] | a key drawn by chance, for engines that have no quicker way |
//! | [`scheduler`] | background work by priority, on threads or replayed by hand |
//! | [`patience`] | what a background thread does so that nobody waits for it |
//! | [`background`] | the background work of one open table, and waiting for it |
//! | [`pressure`] | writers slow down in proportion to debt |
//! | [`group`] | group commit: whoever comes first writes for all who wait |
//! | [`headway`] | jobs let the write pass that is under way |
//! | [`duty`] | where they do: between two steps, however deep in the code |
//! | [`repair`] | what a repair did, and what it could not save |
//! | [`rate`] | a limit on background bytes a second |
//! | [`env`](mod@env) | the injected world: clock, seed, scheduler, rate limit |

pub mod background;
pub mod batch;
pub mod clear;
pub mod clock;
pub mod contract;
pub mod cursor;
pub mod duty;
pub mod entry;
pub mod env;
pub mod error;
mod forward;
pub mod group;
pub mod headway;
pub mod inspection;
pub mod io;
mod late;
pub mod names;
pub mod options;
pub mod patience;
pub mod pressure;
pub mod rate;
pub mod repair;
pub mod sample;
pub mod scheduler;
pub mod stats;

pub use background::{Background, BackgroundWork};
pub use batch::{Op, WriteBatch};
pub use clock::{Clock, ManualClock, SystemClock};
pub use contract::{
    Capabilities, CheckpointSink, Damage, Durability, Engine, KeyRange, ReadPoint, VerifyReport,
};
pub use cursor::{Cursor, Forward, ForwardCursor};
pub use entry::{Entry, MAX_KEY_BYTES, MAX_VALUE_BYTES, Timestamp};
pub use env::Env;
pub use error::{Error, InvalidOption, Result};
pub use group::GroupCommit;
pub use inspection::Inspection;
pub use io::{IoCounters, IoCounts, NvmCounts, Purpose};
pub use options::OptionReader;
pub use pressure::{Stall, StallCounters, WriteController};
pub use rate::RateLimiter;
pub use repair::{KeyBounds, Loss, LossEffect, RepairReport};
pub use scheduler::{Priority, Scheduler};
pub use stats::Stats;

//! The contract of a storage engine, and the types in it.
//!
//! The lowest crate: every other crate may depend on it, and it depends on no other crate of the
//! workspace. What engines need to run (threads, throttling, group commit) is in
//! `siltstone-runtime`.
//!
//! | module | content |
//! | --- | --- |
//! | [`contract`] | the [`Engine`] trait: what an engine guarantees |
//! | [`cursor`] | iteration over a table in engine order |
//! | `forward` | [`forward_engine`]: engines that wrap another engine |
//! | [`batch`] | [`WriteBatch`]: writes that are applied atomically |
//! | [`entry`] | the value of a key; limits on keys and values |
//! | [`error`] | the error type, which names the file, key or option |
//! | [`ingestion`] | ingestion of sorted files: options, prepared files, report |
//! | [`inspection`] | the content of a file, in text form |
//! | [`io`] | [`Purpose`] of an I/O request, and counters by purpose |
//! | [`stats`] | the statistics that every engine reports |
//! | [`names`] | suggestions for mistyped names |
//! | [`options`] | `key=value` options, rejected together with every mistake named |
//! | [`compaction_filter`] | hooks that drop obsolete rows in compactions |
//! | [`key_range`] | ranges of keys |
//! | [`merge_operator`] | how operands of merges become values: counters, lists, user-defined ones |
//! | [`changes`] | the change feed of a table |
//! | [`events`] | events of a store, and their listeners |
//! | [`clear`] | deletion of every key, for engines without a faster way |
//! | [`clock`] | the injected clock |
//! | [`part`] | parts of batches over several tables |
//! | [`sample`] | a random key, for engines without a faster way |
//! | [`verification`] | the result of a verification, with the damage |
//! | [`repair`] | the result of a repair, with what was lost |
//! | [`varint`] | variable-length integers |

pub mod batch;
pub mod changes;
pub mod clear;
pub mod clock;
pub mod compaction_filter;
pub mod contract;
pub mod cursor;
pub mod entry;
pub mod error;
pub mod events;
mod forward;
pub mod ingestion;
pub mod inspection;
pub mod io;
pub mod key_range;
pub mod merge_operator;
pub mod names;
pub mod options;
pub mod part;
pub mod repair;
pub mod sample;
pub mod stats;
pub mod varint;
pub mod verification;

pub use batch::{BatchOp, Op, WriteBatch};
pub use changes::{Change, ChangeBatch, ChangeCursor, ChangeOptions, ChangePart};
pub use clock::{Clock, ManualClock, SystemClock};
pub use compaction_filter::{
    CompactionFilter, FilterContent, FilterDecision, FilterPass, FilterRow,
};
pub use contract::{
    Capabilities, CheckpointSink, DEVICE_READ, Durability, Engine, ReadPoint, VisitKeys,
    lookup_each,
};
pub use cursor::{Cursor, Forward, ForwardCursor};
pub use entry::{Entry, MAX_KEY_BYTES, MAX_VALUE_BYTES, Timestamp};
pub use error::{Error, InvalidOption, Result};
pub use events::{Event, EventKind, EventListener, FileInfo, Job, WriteStall};
pub use ingestion::{IngestMode, IngestOptions, IngestReport, PrefixChange, PreparedIngestion};
pub use inspection::Inspection;
pub use io::{IoCounters, IoCounts, NvmCounts, Purpose};
pub use key_range::KeyRange;
pub use merge_operator::{MergeAppend, MergeCounter, MergeOperator};
pub use options::{OptionChange, OptionReader};
pub use part::{LogPosition, PartDependencies, PartHeader, PreparedPart};
pub use repair::{KeyBounds, Loss, LossEffect, RepairReport};
pub use stats::Stats;
pub use verification::{Damage, VerifyReport};

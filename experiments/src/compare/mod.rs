//! One table of our engines beside other stores: speed and cost under the same workloads.
//!
//! ```text
//! for each run, group and store:
//!   a process of its own ─▶ a fresh store ─▶ the group's workloads ─▶ Report
//! Reports of all runs ─▶ median, smallest and largest of each figure ─▶ table, chart
//! ```
//!
//! Runs of different stores alternate, so that a slow minute of the machine meets all of them.
//! Each store is measured in a process of its own: resident memory and CPU time are its own.
//!
//! | module | contents |
//! | --- | --- |
//! | [`chart`] | medians of the throughput as bars |
//! | [`groups`] | the workloads |
//! | [`libraries`] | one program on our library and on others |
//! | [`servers`] | our server beside Redis |
//! | [`record`] | the results in a file, so that a stopped comparison can be resumed |
//! | [`table`] | medians and spreads as a table |
//!
//! Invariants: no figure comes from one run while others of the same cell exist. A run that failed
//! leaves a cell without a number, and its error is printed.

pub mod chart;
pub mod groups;
pub mod libraries;
pub mod record;
pub mod servers;
pub mod table;

/// Our engines, by their names.
pub const OURS: &[&str] = &["lsm", "trie", "silt"];

/// The stores that are compared unless others are named.
pub const DEFAULT_STORES: &[&str] = &["lsm", "librocksdb", "fjall", "redb", "lmdb"];

/// Number of runs unless another is given.
pub const RUNS: usize = 5;

//! Other stores under the same load in the same sitting.
//!
//! A peer runs as a program of its own, as its makers ship it, with settings made equal to ours
//! where it has them. Its figures fill the same [`Report`], so they stand
//! beside ours.
//!
//! Invariant: what a peer does not tell is missing in its report; nothing is estimated. What it ran
//! with is listed in the report's settings.
//!
//! Source: ours.

use siltstone_engine::{Error, OptionMistake, Result};

use crate::engines::Target;
use crate::report::Report;
use crate::run::Settings;
use crate::workload::Workload;

mod db_bench_output;
pub mod rocksdb;

/// The names of all peers.
pub const NAMES: &[&str] = &["rocksdb"];

/// What both stores are asked to do.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// How our store is made.
    pub target: &'a Target,
    /// How workloads are run.
    pub settings: &'a Settings,
    /// The workloads, in order.
    pub workloads: &'a [Workload],
    /// Moves after a seek.
    pub seek_nexts: u64,
}

/// Checks that the peer `name` is there and can do the task.
///
/// # Errors
/// [`Error::BadOptions`] for what it cannot do; [`Error::Refused`] if its program is missing.
pub fn check(name: &str, task: &Task<'_>) -> Result<()> {
    match name {
        "rocksdb" => rocksdb::check(task),
        _ => Err(unknown(name)),
    }
}

/// Runs the task on the peer `name`; `on_phase` hears which workload begins.
///
/// # Errors
/// As [`check`]; [`Error::Io`] and [`Error::Invalid`] if its program fails or says what we cannot
/// read.
pub fn run(name: &str, task: &Task<'_>, on_phase: &mut dyn FnMut(&str)) -> Result<Report> {
    match name {
        "rocksdb" => rocksdb::run(task, on_phase),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    bad("peer", format!("'{name}' is unknown; there are {}", NAMES.join(", ")))
}

fn bad(option: &str, reason: String) -> Error {
    Error::BadOptions(vec![OptionMistake { option: option.to_owned(), reason }])
}

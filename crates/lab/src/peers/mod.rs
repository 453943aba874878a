//! Other stores under the same load in the same sitting.
//!
//! | peer | what runs |
//! | --- | --- |
//! | `rocksdb` | its own `db_bench`, as its makers ship it |
//! | `librocksdb` | its shared library under our runner (Cargo feature `peers`) |
//!
//! Settings are made equal to ours where a peer has them. Its figures fill the same [`Report`], so they
//! stand beside ours.
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
#[cfg(feature = "peers")]
pub mod librocksdb;
pub mod rocksdb;

/// The names of all peers.
pub const NAMES: &[&str] =
    if cfg!(feature = "peers") { &["rocksdb", "librocksdb"] } else { &["rocksdb"] };

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
        #[cfg(feature = "peers")]
        "librocksdb" => librocksdb::check(task),
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
        #[cfg(feature = "peers")]
        "librocksdb" => {
            let mut current = String::new();
            librocksdb::run(task, &mut |progress| {
                if current != progress.workload {
                    progress.workload.clone_into(&mut current);
                    on_phase(&current);
                }
            })
        }
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let more = match name {
        "librocksdb" => "; build with --features peers",
        _ => "",
    };
    bad("peer", format!("'{name}' is unknown; there are {}{more}", NAMES.join(", ")))
}

fn bad(option: &str, reason: String) -> Error {
    Error::BadOptions(vec![OptionMistake { option: option.to_owned(), reason }])
}

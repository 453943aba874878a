//! Other stores under the same load in the same sitting.
//!
//! | peer | what runs |
//! | --- | --- |
//! | `rocksdb` | its own `db_bench`, as its makers ship it |
//! | `librocksdb`, `leveldb`, `lmdb` | the distribution's shared libraries, in our process |
//! | `fjall`, `redb` | the crates, in our process |
//!
//! Those in our process come with the Cargo feature `peers`; each is an [`Engine`](siltstone_engine::Engine)
//! under our runner, so keys, values, clock and counting are the same. Settings are made equal to ours
//! where a peer has them. Its figures fill the same [`Report`], so they stand beside ours.
//!
//! memcached and Redis, over their protocols, are peers of the servers: see [`net`](crate::net).
//!
//! Invariant: what a peer does not tell is missing in its report; nothing is estimated. What it ran
//! with is listed in the report's settings.
//!
//! Source: ours.

use siltstone_engine::names::unknown;
use siltstone_engine::{Error, InvalidOption, Result};

use crate::engines::Target;
use crate::report::Report;
use crate::run::Settings;
use crate::workload::Workload;

mod db_bench_output;
#[cfg(feature = "peers")]
pub mod in_process;
pub mod rocksdb;

#[cfg(feature = "peers")]
mod asked;
#[cfg(feature = "peers")]
mod descent;
#[cfg(feature = "peers")]
mod fjall;
#[cfg(feature = "peers")]
mod leveldb;
#[cfg(feature = "peers")]
mod library;
#[cfg(feature = "peers")]
mod librocksdb;
#[cfg(feature = "peers")]
mod lmdb;
#[cfg(feature = "peers")]
mod pulled;
#[cfg(feature = "peers")]
mod redb;
#[cfg(feature = "peers")]
mod store;

/// The names of all peers.
pub const NAMES: &[&str] = if cfg!(feature = "peers") {
    &["rocksdb", "librocksdb", "leveldb", "lmdb", "fjall", "redb"]
} else {
    &["rocksdb"]
};

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
/// [`Error::InvalidOptions`] for what it cannot do; [`Error::Refused`] if its program or library is missing.
pub fn check(name: &str, task: &Task<'_>) -> Result<()> {
    if !NAMES.contains(&name) {
        return Err(no_such(name));
    }
    match name {
        "rocksdb" => rocksdb::check(task),
        #[cfg(feature = "peers")]
        _ => in_process::check(name, task),
        #[cfg(not(feature = "peers"))]
        _ => Err(no_such(name)),
    }
}

/// Runs the task on the peer `name`; `on_phase` hears which workload begins.
///
/// # Errors
/// As [`check`]; [`Error::Io`] and [`Error::Invalid`] if it fails or says what we cannot read.
pub fn run(name: &str, task: &Task<'_>, on_phase: &mut dyn FnMut(&str)) -> Result<Report> {
    check(name, task)?;
    match name {
        "rocksdb" => rocksdb::run(task, on_phase),
        #[cfg(feature = "peers")]
        _ => in_process::run(name, task, on_phase),
        #[cfg(not(feature = "peers"))]
        _ => Err(no_such(name)),
    }
}

fn no_such(name: &str) -> Error {
    let more = if cfg!(feature = "peers") { "" } else { "; more with --features peers" };
    bad("peer", unknown(name, NAMES) + more)
}

fn bad(option: &str, reason: String) -> Error {
    Error::InvalidOptions(vec![InvalidOption { option: option.to_owned(), reason }])
}

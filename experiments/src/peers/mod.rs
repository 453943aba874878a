//! Other stores under the same workloads in the same session.
//!
//! | peer | what runs |
//! | --- | --- |
//! | `rocksdb` | its own `db_bench` |
//! | `librocksdb`, `leveldb`, `lmdb` | the distribution's shared libraries, in this process |
//! | `fjall`, `redb` | the crates, in this process |
//!
//! A peer in this process is an [`Engine`](siltstone_engine::Engine) under our runner, so keys,
//! values, clock and counting are the same. Settings are made equal to ours where a peer has them.
//! Its figures fill the same [`Report`].
//!
//! memcached and Redis, over their protocols, are peers of the servers: see [`net`](crate::net).
//!
//! Invariant: a figure that a peer does not report is missing; nothing is estimated. The settings
//! of a peer are listed in the report.

use siltstone_bench::engines::Target;
use siltstone_bench::report::Report;
use siltstone_bench::run::Settings;
use siltstone_bench::workload::Workload;
use siltstone_engine::names::unknown;
use siltstone_engine::{Error, Result};

mod db_bench_output;
mod fjall;
pub mod in_process;
mod leveldb;
mod leveldb_c_api;
mod library;
mod librocksdb;
mod lmdb;
mod peer_settings;
mod pull_cursor;
mod redb;
pub mod rocksdb;
mod store;

/// Names of all peers.
pub const NAMES: &[&str] = &["rocksdb", "librocksdb", "leveldb", "lmdb", "fjall", "redb"];

/// A benchmark of both stores.
#[derive(Debug, Clone, Copy)]
pub struct Task<'a> {
    /// Our store.
    pub target: &'a Target,
    /// Settings of the run.
    pub settings: &'a Settings,
    /// The workloads, in order.
    pub workloads: &'a [Workload],
    /// Cursor moves after each seek.
    pub seek_nexts: u64,
}

/// Checks that the peer `name` is installed and can run the task.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unsupported task; [`Error::Refused`] if its program or library
/// is missing.
pub fn check(name: &str, task: &Task<'_>) -> Result<()> {
    if !NAMES.contains(&name) {
        return Err(unknown_peer(name));
    }
    match name {
        "rocksdb" => rocksdb::check(task),
        _ => in_process::check(name, task),
    }
}

/// Runs the task on the peer `name`; `on_phase` is called with the name of each starting workload.
///
/// # Errors
/// As [`check`]; [`Error::Io`] and [`Error::Invalid`] if it fails or its output is malformed.
pub fn run(name: &str, task: &Task<'_>, on_phase: &mut dyn FnMut(&str)) -> Result<Report> {
    check(name, task)?;
    match name {
        "rocksdb" => rocksdb::run(task, on_phase),
        _ => in_process::run(name, task, on_phase),
    }
}

fn unknown_peer(name: &str) -> Error {
    Error::invalid_option("peer", unknown(name, NAMES))
}

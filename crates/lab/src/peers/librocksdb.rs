//! RocksDB as the distribution's shared library, in our process, under our own runner.
//!
//! What `db_bench` cannot do (keys drawn by Zipf, values of many sizes, open loops) runs here, and
//! latencies and throughput are taken in one way for both stores. The library is found when it is
//! asked for; nothing of it is compiled or linked. Options are made equal to ours where it has them.
//!
//! | module | one idea |
//! | --- | --- |
//! | `ffi` | the C functions that are used, and finding them |
//! | `engine` | a database behind our [`Engine`](siltstone_engine::Engine) trait |
//! | `cursor` | its iterators behind our cursors |
//!
//! Invariant: whatever differs from RocksDB's defaults is listed in the report's settings.
//!
//! Source: RocksDB's `c.h`, version 7.8.

mod cursor;
mod engine;
mod ffi;

use std::sync::Arc;

use siltstone_engine::Result;
use siltstone_lsm::Options as LsmOptions;

use super::{Task, bad};
use crate::engines::{Opened, fresh_directory};
use crate::report::Report;
use crate::run::{OnProgress, Session};
use engine::{RocksDb, Settings};

/// Checks that the library is there and can do the task.
///
/// # Errors
/// [`Error::BadOptions`](siltstone_engine::Error::BadOptions) for what it cannot do;
/// [`Error::Refused`](siltstone_engine::Error::Refused) if it is missing.
pub fn check(task: &Task<'_>) -> Result<()> {
    if task.target.medium.directory().is_none() {
        return Err(bad("media", "with --peer, both stores must be on disk".to_owned()));
    }
    ffi::Library::open().map(drop)
}

/// Runs the task.
///
/// # Errors
/// As [`check`]; faults of the library.
pub fn run(task: &Task<'_>, on_progress: OnProgress<'_>) -> Result<Report> {
    let settings = settings(task)?;
    let mut report = measure(task, &settings, on_progress)?.report();
    report.settings.extend(settings.listed());
    Ok(report)
}

fn settings(task: &Task<'_>) -> Result<Settings> {
    let options = match task.target.engine.as_str() {
        "lsm" => LsmOptions::from_map(&task.target.options)?,
        _ => LsmOptions::default(),
    };
    Ok(Settings::equal_to(&options, task.target.background_threads))
}

/// Runs the task, and answers what was measured.
pub(crate) fn session(task: &Task<'_>, on_progress: OnProgress<'_>) -> Result<Session> {
    measure(task, &settings(task)?, on_progress)
}

fn measure(task: &Task<'_>, settings: &Settings, on_progress: OnProgress<'_>) -> Result<Session> {
    check(task)?;
    let Some(base) = task.target.medium.directory() else { unreachable!("checked above") };
    let (guard, directory) = fresh_directory(base, "librocksdb-bench-", task.target.keep)?;
    let rocksdb = RocksDb::open(&directory, settings)?;
    let opened = Opened::new(Arc::new(rocksdb), Some(directory), guard);
    let mut session = Session::new(opened, task.settings.clone())?;
    for workload in task.workloads {
        session.check(workload)?;
    }
    for workload in task.workloads {
        session.run(workload, on_progress)?;
    }
    Ok(session)
}

//! Peers that run in our process, behind our contract, under our runner.
//!
//! Source: ours.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Engine, Result};

use super::asked::Asked;
use super::{Task, bad, fjall, leveldb, librocksdb, lmdb, no_such, redb};
use crate::engines::{Opened, fresh_directory};
use crate::report::Report;
use crate::run::{OnProgress, Session};

/// Checks that the peer `name` is there and can do the task.
///
/// # Errors
/// [`Error::InvalidOptions`](siltstone_engine::Error::InvalidOptions) for what it cannot do;
/// [`Error::Refused`](siltstone_engine::Error::Refused) if its library is missing.
pub fn check(name: &str, task: &Task<'_>) -> Result<()> {
    if task.target.medium.directory().is_none() {
        return Err(bad("media", "with --peer, both stores must be on disk".to_owned()));
    }
    match name {
        "librocksdb" => librocksdb::check(),
        "leveldb" => leveldb::check(),
        "lmdb" => lmdb::check(),
        _ => Ok(()),
    }
}

/// Runs the task; `on_phase` hears which workload begins.
///
/// # Errors
/// As [`check`]; faults of the library.
pub(super) fn run(name: &str, task: &Task<'_>, on_phase: &mut dyn FnMut(&str)) -> Result<Report> {
    let mut current = String::new();
    let (session, settings) = measure(name, task, &mut |progress| {
        if current != progress.workload {
            progress.workload.clone_into(&mut current);
            on_phase(&current);
        }
    })?;
    let mut report = session.report();
    report.settings.extend(settings);
    Ok(report)
}

/// Runs the task, and answers what was measured and what the peer was given.
///
/// # Errors
/// As [`check`]; faults of the library.
pub(crate) fn measure(
    name: &str,
    task: &Task<'_>,
    on_progress: OnProgress<'_>,
) -> Result<(Session, BTreeMap<String, String>)> {
    check(name, task)?;
    let Some(base) = task.target.medium.directory() else { unreachable!("checked above") };
    let (guard, directory) = fresh_directory(base, &format!("{name}-bench-"), task.target.keep)?;
    let (engine, settings) = open(name, &Asked::of(task, directory.clone())?)?;
    let mut session =
        Session::new(Opened::new(engine, Some(directory), guard), task.settings.clone())?;
    for workload in task.workloads {
        session.check(workload)?;
    }
    for workload in task.workloads {
        session.run(workload, on_progress)?;
    }
    Ok((session, settings))
}

/// Opens the peer `name`; answers what it was given, too, by its own names.
fn open(name: &str, asked: &Asked) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    match name {
        "librocksdb" => librocksdb::open(asked),
        "leveldb" => leveldb::open(asked),
        "lmdb" => lmdb::open(asked),
        "fjall" => fjall::open(asked),
        "redb" => redb::open(asked),
        _ => Err(no_such(name)),
    }
}

#[cfg(test)]
mod tests {
    use siltstone_engine::Error;
    use siltstone_lsm::Options as LsmOptions;

    use super::*;
    use crate::peers::{NAMES, store};

    /// Where a library is not installed, that it is said what to install is all that can be tested.
    #[test]
    fn does_every_peer_keep_what_it_is_given_and_count_it() {
        for name in NAMES.iter().filter(|name| **name != "rocksdb") {
            let directory = tempfile::tempdir().unwrap();
            let asked = Asked::equal_to(&LsmOptions::default(), directory.path().to_owned());
            match open(name, &asked) {
                Ok((engine, settings)) => {
                    assert!(settings.len() > 2, "{name}: {settings:?}");
                    store::does_it_keep_what_it_is_given(&*engine)
                        .unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                Err(Error::Refused { reason, .. }) => {
                    assert!(reason.contains("install"), "{reason}");
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

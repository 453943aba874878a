//! Peers that run in this process, as engines under our runner.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_bench::engines::{OpenEngine, fresh_directory};
use siltstone_bench::report::Report;
use siltstone_bench::run::{OnProgress, Session};
use siltstone_engine::{Engine, Error, Result};

use super::peer_settings::PeerSettings;
use super::{Task, fjall, leveldb, librocksdb, lmdb, redb, unknown_peer};

/// Checks that the peer `name` is installed and can run the task.
///
/// # Errors
/// [`Error::InvalidOptions`](siltstone_engine::Error::InvalidOptions) for an unsupported task;
/// [`Error::Refused`](siltstone_engine::Error::Refused) if its library is missing.
pub fn check(name: &str, task: &Task<'_>) -> Result<()> {
    if task.target.storage.directory().is_none() {
        return Err(Error::invalid_option("storage", "with --peer, both stores must be on disk"));
    }
    match name {
        "librocksdb" => librocksdb::check(),
        "leveldb" => leveldb::check(),
        "lmdb" => lmdb::check(),
        _ => Ok(()),
    }
}

/// Runs the task; `on_phase` is called with the name of each starting workload.
///
/// # Errors
/// As [`check`]; errors of the library.
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

/// Runs the task; returns the measurements and the settings of the peer.
///
/// # Errors
/// As [`check`]; errors of the library.
pub(crate) fn measure(
    name: &str,
    task: &Task<'_>,
    on_progress: OnProgress<'_>,
) -> Result<(Session, BTreeMap<String, String>)> {
    check(name, task)?;
    let Some(base) = task.target.storage.directory() else { unreachable!("checked above") };
    let (guard, directory) = fresh_directory(base, &format!("{name}-bench-"), task.target.keep)?;
    let (engine, settings) = open(name, &PeerSettings::of(task, directory.clone())?)?;
    let mut session =
        Session::new(OpenEngine::new(engine, Some(directory), guard), task.settings.clone())?;
    for workload in task.workloads {
        session.check(workload)?;
    }
    for workload in task.workloads {
        session.run(workload, on_progress)?;
    }
    Ok((session, settings))
}

/// Opens the peer `name`; returns its settings, too, by its own names.
fn open(
    name: &str,
    settings: &PeerSettings,
) -> Result<(Arc<dyn Engine>, BTreeMap<String, String>)> {
    match name {
        "librocksdb" => librocksdb::open(settings),
        "leveldb" => leveldb::open(settings),
        "lmdb" => lmdb::open(settings),
        "fjall" => fjall::open(settings),
        "redb" => redb::open(settings),
        _ => Err(unknown_peer(name)),
    }
}

#[cfg(test)]
mod tests {
    use siltstone_engine::Error;
    use siltstone_lsm::Options as LsmOptions;

    use super::*;
    use crate::peers::{NAMES, store};

    /// If a library is not installed, only its error message is tested.
    #[test]
    fn every_peer_stores_and_counts_data() {
        for name in NAMES.iter().filter(|name| **name != "rocksdb") {
            let directory = tempfile::tempdir().unwrap();
            let settings =
                PeerSettings::equal_to(&LsmOptions::default(), directory.path().to_owned());
            match open(name, &settings) {
                Ok((engine, listed)) => {
                    assert!(listed.len() > 2, "{name}: {listed:?}");
                    store::check_peer(&*engine).unwrap_or_else(|error| panic!("{name}: {error}"));
                }
                Err(Error::Refused { reason, .. }) => {
                    assert!(reason.contains("install"), "{reason}");
                }
                Err(error) => panic!("{name}: {error}"),
            }
        }
    }
}

//! `damage`: damages one file of a store, then runs all commands that read and repair it.
//!
//! ```text
//!   load, SIGTERM, copy ("older") ── load, SIGTERM or SIGKILL ── damage one file
//!        │
//!        ├─ verify   status 0 or 1              ├─ repair   0: no loss; 1: reported losses
//!        ├─ serve    an error at the start, or  ├─ verify   status 0
//!        │           each GET correct or error  ├─ serve    every row outside of the losses
//!        └─ export   all rows, or an error      └─ repair   status 0, no file changes
//! ```
//!
//! After SIGKILL a damaged end of a log cannot be distinguished from an incomplete write. Then each
//! lane may have lost its newest writes since the last start.

use std::path::Path;
use std::thread;

use super::fault::Fault;
use super::steps::random_delay;
use crate::corruption::{self, Corruption, Kind};
use crate::finding::{Result, Stop};
use crate::history::{History, REPLY_TIMEOUT};
use crate::lane::{Lane, Tolerance, Workload};
use crate::losses::Losses;
use crate::oracle::{Observation, ReadOutcome, State};
use crate::process::{self, Answer, Server};
use crate::tree;
use crate::values;

pub(super) struct Damage;

impl Fault for Damage {
    fn name(&self) -> &'static str {
        "damage"
    }

    fn about(&self) -> &'static str {
        "one damaged file: no wrong reply, repair reports every loss and keeps the damaged file"
    }

    fn rounds_per_history(&self) -> u64 {
        1
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        history.set_workload(Workload { expiring: 0, ..Workload::default() });
        while history.next_round()? {
            let is_killed = history.random.percent(40);
            let older = history.root.join("older");
            write(history, false)?;
            tree::copy(&history.store, &older)?;
            if is_killed {
                history.lanes.iter_mut().for_each(|lane| lane.oracle.keep_log());
            }
            write(history, is_killed)?;
            if is_killed {
                history.lanes.iter_mut().for_each(|lane| lane.oracle.make_log_uncertain());
            }
            let done = corruption::damage(&history.store, &older, &mut history.random)?;
            history.note(&done.description);
            check(history, &done, is_killed).map_err(|stop| match stop {
                Stop::Finding(what) => Stop::Finding(format!("{}: {what}", done.description)),
                other => other,
            })?;
        }
        Ok(())
    }
}

/// Runs a server under load, and ends it after the reply to every write.
fn write(history: &mut History<'_>, is_killed: bool) -> Result<()> {
    let fsync = history.any_fsync();
    let mut server = history.start(fsync)?;
    let delay = random_delay(&mut history.random);
    history.load(&mut server, Tolerance::default(), |_, _| {
        thread::sleep(delay);
        Ok(())
    })?;
    if is_killed {
        history.note(format!("SIGKILL after {delay:?} of load"));
        server.kill();
        return Ok(());
    }
    server.stop().map_err(Stop::Finding)
}

fn check(history: &mut History<'_>, done: &Corruption, is_killed: bool) -> Result<()> {
    // The server opens a copy, because opening changes files.
    let copy = history.root.join("damaged");
    tree::copy(&history.store, &copy)?;
    let store = history.store.clone();
    let verified = run(history, "verify", &store, &["--json"], &[0, 1])?;
    let is_intact = verified.status == Some(0);
    serve_damaged(history, &copy, is_intact)?;
    export_damaged(history)?;

    let repaired = run(history, "repair", &store, &["--json"], &[0, 1])?;
    let losses = Losses::read(&repaired.out).ok_or_else(|| {
        Stop::Finding(format!("repair --json does not print JSON: {}", repaired.summary()))
    })?;
    if repaired.status == Some(0) && !losses.is_empty() {
        return Err(wrong("repair reports losses and exits with status 0", &repaired));
    }
    // After a kill the end of a log may be missing as after a power cut, which is not damage;
    // repair still reports what later logs record about it.
    if is_intact && !is_killed && repaired.status == Some(1) {
        return Err(wrong("verify finds no damage, and repair reports losses", &repaired));
    }
    let hashes = tree::hashes(&store)?;
    if !is_intact && done.kind != Kind::Delete {
        let is_kept = |hash: &u64| hashes.values().any(|found| found == hash);
        if !done.hashes.iter().all(is_kept) {
            return Err(wrong("repair keeps no file with the bytes of the damaged one", &repaired));
        }
    }
    let verified = run(history, "verify", &store, &["--json"], &[0, 1])?;
    if verified.status != Some(0) {
        return Err(wrong("verify finds damage after repair", &verified));
    }
    let again = run(history, "repair", &store, &["--json"], &[0, 1])?;
    let changed = changed(&hashes, &tree::hashes(&store)?);
    if let (Some(0), None) = (again.status, &changed) {
        // A rebuilt catalogue may lack options that never change: the table's files have them.
        history.table = "default".to_owned();
        return serve_repaired(history, &repaired, &losses);
    }
    Err(wrong(&format!("a second repair reports losses or changes a file ({changed:?})"), &again))
}

/// Runs a command on a store; an unexpected status is a finding.
fn run(
    history: &History<'_>,
    name: &str,
    store: &Path,
    more: &[&str],
    expected: &[i32],
) -> Result<Answer> {
    let store = store.display().to_string();
    let words: Vec<&str> = [name, &store].into_iter().chain(more.iter().copied()).collect();
    let answer = process::command(&history.settings.program, &words)?;
    match answer.status {
        Some(status) if expected.contains(&status) => Ok(answer),
        _ => Err(wrong(&format!("{name} exits with an unexpected status"), &answer)),
    }
}

fn wrong(what: &str, answer: &Answer) -> Stop {
    Stop::Finding(format!("{what}: {}", answer.summary()))
}

/// The first file that has changed, except the lock and the reserve.
fn changed(
    before: &std::collections::BTreeMap<std::path::PathBuf, u64>,
    after: &std::collections::BTreeMap<std::path::PathBuf, u64>,
) -> Option<std::path::PathBuf> {
    let files = before.keys().chain(after.keys());
    let mut files = files.filter(|file| !file.ends_with("LOCK") && !file.ends_with("RESERVE"));
    files.find(|file| before.get(*file) != after.get(*file)).cloned()
}

/// Starts a server on the damaged store; it must fail, or give no wrong reply.
fn serve_damaged(history: &mut History<'_>, copy: &Path, is_intact: bool) -> Result<()> {
    let mut launch = history.launch("no");
    launch.store = copy.to_owned();
    let mut server = match Server::start(&launch) {
        Ok(server) => server,
        Err(what) if is_intact => {
            return Err(Stop::Finding(format!("verify finds no damage, and {what}")));
        }
        Err(_) => return Ok(()),
    };
    for lane in &mut history.lanes {
        let observations = read_all(lane, &server)?;
        let failed = observations
            .iter()
            .filter(|observation| observation.seen == ReadOutcome::Failed)
            .count();
        if is_intact && failed > 0 {
            return Err(Stop::Finding(format!(
                "verify finds no damage, and {failed} reads of a lane fail"
            )));
        }
        lane.oracle
            .clone()
            .check(&observations)
            .map_err(|what| Stop::Finding(format!("wrong reply from a damaged store: {what}")))?;
    }
    server.kill();
    Ok(())
}

/// Reads all keys; a failed read is not a finding.
fn read_all(lane: &mut Lane, server: &Server) -> Result<Vec<Observation>> {
    lane.counts.read += u64::from(lane.oracle.keys());
    lane.read_all_with(server.address(), REPLY_TIMEOUT, &|_, _| Ok(ReadOutcome::Failed))
}

/// Exports the damaged store; the export must be complete or fail.
fn export_damaged(history: &mut History<'_>) -> Result<()> {
    let file = history.root.join("rows.jsonl");
    let (store, out) = (history.store.display().to_string(), file.display().to_string());
    let answer = process::command(&history.settings.program, &["export", &store, &out])?;
    let keys: Vec<_> = history
        .lanes
        .iter()
        .flat_map(|lane| (0..lane.oracle.keys()).map(|key| lane.oracle.expected(key)))
        .collect();
    let is_certain = keys.iter().all(Option::is_some);
    if answer.status == Some(0) && is_certain {
        let exists = |state: &&Option<State>| {
            !matches!(state, Some(State::Absent | State::Number(0)) | None)
        };
        let expected = keys.iter().filter(exists).count();
        let rows = std::fs::read(&file)?.iter().filter(|&&byte| byte == b'\n').count();
        if rows != expected {
            return Err(Stop::Finding(format!(
                "export exits with status 0 and has {rows} of {expected} rows: {}",
                answer.summary()
            )));
        }
    }
    Ok(())
}

/// Checks the repaired store: the reported losses must account for every lost write.
fn serve_repaired(history: &mut History<'_>, repaired: &Answer, losses: &Losses) -> Result<()> {
    let fsync = history.any_fsync();
    let mut server = history.start(fsync)?;
    let mut differing = Vec::new();
    for lane in &mut history.lanes {
        lane.counts.read += u64::from(lane.oracle.keys());
        let observations = lane.read_all(server.address(), REPLY_TIMEOUT)?;
        if repaired.status == Some(0) {
            lane.oracle.clone().check(&observations).map_err(|what| {
                let summary = repaired.summary();
                Stop::Finding(format!("repair reports no loss: {what}\nrepair: {summary}"))
            })?;
        }
        for (key, observation) in (0..).zip(&observations) {
            let name = String::from_utf8_lossy(&values::key(lane.oracle.lane(), key)).into_owned();
            let is_own = match &observation.seen {
                ReadOutcome::Value(write) => lane.oracle.has_sent(*write),
                ReadOutcome::Absent | ReadOutcome::Number(_) => true,
                ReadOutcome::Foreign(_) | ReadOutcome::Failed => false,
            };
            if !is_own {
                return Err(Stop::Finding(format!(
                    "after repair {name} has a value that no client wrote: {:?}",
                    observation.seen
                )));
            }
            if lane.oracle.check_one(key, observation).is_err() {
                differing.push(name);
            }
        }
    }
    if repaired.status == Some(1) {
        losses
            .cover(&differing)
            .map_err(|what| Stop::Finding(format!("{what}\nrepair: {}", repaired.summary())))?;
    }
    server.stop().map_err(Stop::Finding)
}

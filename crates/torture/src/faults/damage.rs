//! `damage`: one file of a closed store is damaged; then everything that reads and repairs it.
//!
//! ```text
//!   load, SIGTERM, copy ("older") ── load, SIGTERM or SIGKILL ── one file damaged
//!        │
//!        ├─ verify   status 0 or 1                   ├─ repair   0: everything is there; 1: something was lost
//!        ├─ serve    refuses by name, or each GET    ├─ verify   sound
//!        │           is right or fails               ├─ serve    every row that no told loss covers
//!        └─ export   all rows, or fails              └─ repair   status 0, and not one byte changes
//! ```
//!
//! After SIGKILL the end of a log that was damaged cannot be told from one that was never written whole: of what
//! was written since the last start the newest may be missing, of each lane by itself.

use std::path::Path;
use std::thread;

use super::{Fault, kill::moment};
use crate::corruption::{self, Corruption, Kind};
use crate::finding::{Result, Stop};
use crate::history::{History, PATIENCE};
use crate::lane::{Lane, Manners, Mix};
use crate::losses::Losses;
use crate::oracle::{Seen, Sight, State};
use crate::process::{self, Answer, Server};
use crate::tree;
use crate::values;

pub(super) struct Damage;

impl Fault for Damage {
    fn name(&self) -> &'static str {
        "damage"
    }

    fn about(&self) -> &'static str {
        "one file damaged: no wrong answer, repair saves what it can, tells every loss, deletes nothing"
    }

    fn rounds_per_history(&self) -> u64 {
        1
    }

    fn run(&self, history: &mut History<'_>) -> Result<()> {
        history.set_mix(Mix { expiring: 0, ..Mix::default() });
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
                history.lanes.iter_mut().for_each(|lane| lane.oracle.doubt_log());
            }
            let done = corruption::damage(&history.store, &older, &mut history.random)?;
            history.tell(&done.words);
            check(history, &done).map_err(|stop| match stop {
                Stop::Wrong(what) => Stop::Wrong(format!("{}: {what}", done.words)),
                other => other,
            })?;
        }
        Ok(())
    }
}

/// Writes for a while to a server, and ends it when every write has its reply.
fn write(history: &mut History<'_>, is_killed: bool) -> Result<()> {
    let fsync = history.any_fsync();
    let mut server = history.start(fsync)?;
    let moment = moment(&mut history.random);
    history.load(&mut server, Manners::default(), |_, _| {
        thread::sleep(moment);
        Ok(())
    })?;
    if is_killed {
        history.tell(format!("SIGKILL behind {moment:?} of load"));
        server.kill();
        return Ok(());
    }
    server.stop().map_err(Stop::Wrong)
}

fn check(history: &mut History<'_>, done: &Corruption) -> Result<()> {
    // What a server does to a damaged store it does to a copy.
    let copy = history.root.join("damaged");
    tree::copy(&history.store, &copy)?;
    let store = history.store.clone();
    let verified = run(history, "verify", &store, &["--json"], &[0, 1])?;
    let is_sound = verified.status == Some(0);
    serve_damaged(history, &copy, is_sound)?;
    export_damaged(history)?;

    let repaired = run(history, "repair", &store, &["--json"], &[0, 1])?;
    let losses = Losses::read(&repaired.out)
        .ok_or_else(|| Stop::Wrong(format!("repair --json prints no JSON: {}", repaired.told())))?;
    if repaired.status == Some(0) && !losses.is_empty() {
        return Err(wrong("repair tells losses and ends with status 0", &repaired));
    }
    if is_sound && repaired.status == Some(1) {
        return Err(wrong(
            "verify finds the store sound, and repair says that something was lost",
            &repaired,
        ));
    }
    let hashes = tree::hashes(&store)?;
    if !is_sound && done.kind != Kind::Delete {
        let is_kept = |hash: &u64| hashes.values().any(|found| found == hash);
        if !done.hashes.iter().all(is_kept) {
            return Err(wrong("repair keeps no file with the bytes of the damaged one", &repaired));
        }
    }
    let verified = run(history, "verify", &store, &["--json"], &[0, 1])?;
    if verified.status != Some(0) {
        return Err(wrong("verify finds damage behind repair", &verified));
    }
    let again = run(history, "repair", &store, &["--json"], &[0, 1])?;
    let changed = changed(&hashes, &tree::hashes(&store)?);
    if let (Some(0), None) = (again.status, &changed) {
        return serve_repaired(history, &repaired, &losses);
    }
    Err(wrong(&format!("a second repair finds or changes something ({changed:?})"), &again))
}

/// Runs a command on a store; only these statuses are right.
fn run(
    history: &History<'_>,
    name: &str,
    store: &Path,
    more: &[&str],
    right: &[i32],
) -> Result<Answer> {
    let store = store.display().to_string();
    let words: Vec<&str> = [name, &store].into_iter().chain(more.iter().copied()).collect();
    let answer = process::command(&history.settings.program, &words)?;
    match answer.status {
        Some(status) if right.contains(&status) => Ok(answer),
        _ => Err(wrong(&format!("{name} ends unexpectedly"), &answer)),
    }
}

fn wrong(what: &str, answer: &Answer) -> Stop {
    Stop::Wrong(format!("{what}: {}", answer.told()))
}

/// The first file that is not as it was; the lock is no file of the store.
fn changed(
    before: &std::collections::BTreeMap<std::path::PathBuf, u64>,
    after: &std::collections::BTreeMap<std::path::PathBuf, u64>,
) -> Option<std::path::PathBuf> {
    let files = before.keys().chain(after.keys());
    let mut files = files.filter(|file| !file.ends_with("LOCK"));
    files.find(|file| before.get(*file) != after.get(*file)).cloned()
}

/// A damaged store is refused, or served without one wrong answer.
fn serve_damaged(history: &mut History<'_>, copy: &Path, is_sound: bool) -> Result<()> {
    let mut launch = history.launch("no");
    launch.store = copy.to_owned();
    let mut server = match Server::start(&launch) {
        Ok(server) => server,
        Err(what) if is_sound => {
            return Err(Stop::Wrong(format!("verify finds the store sound, and {what}")));
        }
        Err(_) => return Ok(()),
    };
    for lane in &mut history.lanes {
        let sights = look(lane, &server)?;
        let failed = sights.iter().filter(|sight| sight.seen == Seen::Failed).count();
        if is_sound && failed > 0 {
            return Err(Stop::Wrong(format!(
                "verify finds the store sound, and {failed} reads of a lane fail"
            )));
        }
        lane.oracle
            .clone()
            .check(&sights)
            .map_err(|what| Stop::Wrong(format!("a wrong answer from a damaged store: {what}")))?;
    }
    server.kill();
    Ok(())
}

/// All keys, where a read that fails is no finding.
fn look(lane: &mut Lane, server: &Server) -> Result<Vec<Sight>> {
    lane.counts.read += u64::from(lane.oracle.keys());
    lane.look_with(server.address(), PATIENCE, &|_, _| Ok(Seen::Failed))
}

/// An export of a damaged store fails, or has all rows.
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
        let is_there = |state: &&Option<State>| {
            !matches!(state, Some(State::Absent | State::Number(0)) | None)
        };
        let there = keys.iter().filter(is_there).count();
        let rows = std::fs::read(&file)?.iter().filter(|&&byte| byte == b'\n').count();
        if rows != there {
            return Err(Stop::Wrong(format!(
                "export ends with status 0 and has {rows} rows of {there}: {}",
                answer.told()
            )));
        }
    }
    Ok(())
}

/// Behind a repair everything is there, but for what is told lost.
fn serve_repaired(history: &mut History<'_>, repaired: &Answer, losses: &Losses) -> Result<()> {
    let fsync = history.any_fsync();
    let mut server = history.start(fsync)?;
    let mut differing = Vec::new();
    for lane in &mut history.lanes {
        lane.counts.read += u64::from(lane.oracle.keys());
        let sights = lane.look(server.address(), PATIENCE)?;
        if repaired.status == Some(0) {
            lane.oracle.clone().check(&sights).map_err(|what| {
                let told = repaired.told();
                Stop::Wrong(format!("repair says that nothing was lost: {what}\nrepair: {told}"))
            })?;
        }
        for (key, sight) in (0..).zip(&sights) {
            let name = String::from_utf8_lossy(&values::key(lane.oracle.lane(), key)).into_owned();
            let is_of_it = match &sight.seen {
                Seen::Value(write) => lane.oracle.has_sent(*write),
                Seen::Absent | Seen::Number(_) => true,
                Seen::Foreign(_) | Seen::Failed => false,
            };
            if !is_of_it {
                return Err(Stop::Wrong(format!(
                    "behind repair {name} has what nobody wrote: {:?}",
                    sight.seen
                )));
            }
            if lane.oracle.check_one(key, sight).is_err() {
                differing.push(name);
            }
        }
    }
    if repaired.status == Some(1) {
        losses
            .cover(&differing)
            .map_err(|what| Stop::Wrong(format!("{what}\nrepair: {}", repaired.told())))?;
    }
    server.stop().map_err(Stop::Wrong)
}

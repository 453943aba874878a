//! Kills a writing process with SIGKILL, again and again: every acknowledged write must survive.
//!
//! ```text
//!   child    open, find the next number, write batch after batch: key i, its pair, a counter
//!            print the number after each: the acknowledgement
//!   parent   read some lines, SIGKILL, read the rest, open: everything printed is there, whole,
//!            and at most one batch more
//! ```
//!
//! Checked: what returned under `Durability::Synced` (even numbers) and `Buffered` (odd
//! numbers) survives a process crash, on the machine's file system. Each child has the next option
//! set.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Durability, Engine, Error, Result, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::Disk;

use crate::{CheckResult, EngineUnderTest, Scale, TestRng};

const DIRECTORY: &str = "SILTSTONE_KILL_DIRECTORY";
const VARIANT: &str = "SILTSTONE_KILL_VARIANT";
/// The engine's name: one program may run the kit for several.
const ENGINE: &str = "SILTSTONE_KILL_ENGINE";
/// The test that runs as the child, from [`conformance!`](crate::conformance).
const CHILD: &str = "kill9_child";

/// Kills a writing process `scale.kills` times.
///
/// # Errors
/// A lost or partial batch.
pub fn kill9(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    if !tested.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let scratch =
        Scratch::new(&format!("kill-{}", tested.name())).map_err(|error| error.to_string())?;
    let directory = scratch.0.join("store");
    let mut rng = TestRng::new(scale.seed.unwrap_or(1));
    let mut before = 0;
    for kill in 0..scale.kills {
        let option_set = scale.option_set.unwrap_or(kill as u32 % tested.option_set_count());
        let wrong = |reason: String| {
            format!(
                "kill {kill}, option set {option_set} ({}): {reason}",
                tested.describe(option_set)
            )
        };
        let acknowledged = run_and_kill(tested.name(), &directory, option_set, &mut rng)
            .map_err(|error| wrong(error.to_string()))?
            .unwrap_or(before);
        let newest = check(tested, &directory, option_set, kill % 2 == 0).map_err(wrong)?;
        if newest < acknowledged || newest <= before {
            return Err(wrong(format!(
                "{before} batches were there, {acknowledged} acknowledged, {newest} are there now"
            )));
        }
        before = newest;
    }
    Ok(format!("{} kills, {before} batches written", scale.kills))
}

/// The child process. Without a parent it does nothing.
///
/// # Panics
/// If a write fails.
pub fn child(tested: &dyn EngineUnderTest) {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    if std::env::var(ENGINE).is_ok_and(|name| name != tested.name()) {
        return;
    }
    let option_set = std::env::var(VARIANT).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if let Err(reason) = write_for_ever(tested, Path::new(&directory), option_set) {
        panic!("{reason}");
    }
}

fn write_for_ever(
    tested: &dyn EngineUnderTest,
    directory: &Path,
    option_set: u32,
) -> std::result::Result<(), String> {
    let engine = open(tested, directory, option_set).map_err(|error| error.to_string())?;
    let mut number = count(engine.as_ref())?;
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        let mut batch = WriteBatch::new();
        batch.put(format!("left-{number:08}").as_bytes(), &value(number));
        batch.put(b"newest", &number.to_le_bytes());
        batch.put(format!("right-{number:08}").as_bytes(), &value(number));
        let synced =
            if number.is_multiple_of(2) { Durability::Synced } else { Durability::Buffered };
        engine.write(&batch, synced).map_err(|error| error.to_string())?;
        writeln!(out, "\nwritten {number}").map_err(|error| error.to_string())?;
        out.flush().map_err(|error| error.to_string())?;
    }
}

/// Starts a child and kills it; returns the last batch that it acknowledged, if any.
fn run_and_kill(
    engine: &str,
    directory: &Path,
    option_set: u32,
    rng: &mut TestRng,
) -> std::io::Result<Option<u64>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([CHILD, "--nocapture"])
        .env(DIRECTORY, directory)
        .env(ENGINE, engine)
        .env(VARIANT, option_set.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = lines(&mut child)?;
    let number = |line: &str| line.strip_prefix("written ")?.parse::<u64>().ok();
    // Some acknowledgements, then a short delay: the kill hits any part of a write.
    let wanted = 1 + rng.index(120);
    let some = lines.by_ref().map_while(|line| line.ok()).filter_map(|line| number(&line));
    let read = some.take(wanted).last();
    std::thread::sleep(Duration::from_micros(rng.below(4000)));
    child.kill()?;
    child.wait()?;
    // The rest in the pipe may end in half a line, which acknowledges nothing.
    let rest: Vec<u64> =
        lines.map_while(|line| line.ok()).filter_map(|line| number(&line)).collect();
    let whole = &rest[..rest.len().saturating_sub(1)];
    Ok(whole.last().copied().or(read))
}

fn lines(child: &mut Child) -> std::io::Result<Lines<BufReader<ChildStdout>>> {
    let out = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe to the child"))?;
    Ok(BufReader::new(out).lines())
}

/// Opens what the child has left, and counts its batches.
fn check(
    tested: &dyn EngineUnderTest,
    directory: &Path,
    option_set: u32,
    closes: bool,
) -> std::result::Result<u64, String> {
    let text = |error: Error| error.to_string();
    let engine = open(tested, directory, option_set).map_err(text)?;
    let newest = count(engine.as_ref())?;
    if !engine.verify(&mut |_, _| ()).map_err(text)?.is_intact() {
        return Err("verify found damage".to_owned());
    }
    // Half of the time the engine is dropped without a close.
    if closes {
        engine.close().map_err(text)?;
    }
    Ok(newest)
}

fn open(
    tested: &dyn EngineUnderTest,
    directory: &Path,
    option_set: u32,
) -> Result<Box<dyn Engine>> {
    let disk = if directory.exists() { Disk::open(directory) } else { Disk::create(directory) };
    tested.open(Arc::new(disk?), Env::system(1), option_set)
}

fn value(number: u64) -> Vec<u8> {
    let len = (number * 37 % 600) as usize;
    [number.to_le_bytes().to_vec(), vec![number as u8; len]].concat()
}

/// The number of batches; each must be whole and none missing.
fn count(engine: &dyn Engine) -> std::result::Result<u64, String> {
    let get = |key: &str| {
        let entry = engine.get(key.as_bytes()).map_err(|error| error.to_string())?;
        Ok::<_, String>(entry.map(|entry| entry.value))
    };
    let newest = match get("newest")? {
        Some(value) => u64::from_le_bytes(value.try_into().map_err(|_| "no number".to_owned())?),
        None => 0,
    };
    for number in 1..=newest + 1 {
        let expected = (number <= newest).then(|| value(number));
        for side in ["left", "right"] {
            if get(&format!("{side}-{number:08}"))? != expected {
                return Err(format!("batch {number} of {newest} is wrong at {side:?}"));
            }
        }
    }
    Ok(newest)
}

/// A directory that is removed when it is dropped.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("siltstone-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

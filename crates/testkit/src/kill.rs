//! Does every acknowledged write outlive the process? A child of the test program writes batches to
//! a directory of the machine's file system and is killed at a random moment, again and again.
//!
//! ```text
//!   child    open, find the next number, write batch after batch: key i, its pair, a counter
//!            after each, print the number: that is the acknowledgement
//!   parent   read some lines, SIGKILL, read the rest, open: all that was printed is there, whole,
//!            and at most one batch more
//! ```
//!
//! Promise checked: what returned under `Durability::Synced` (even numbers) and `Buffered` (odd
//! ones) survives the death of the process. Each life of the child has the next option set.
//!
//! Source: ours.

use std::io::{BufRead, BufReader, Lines, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Durability, Engine, Error, Result, WriteBatch};
use siltstone_runtime::Env;
use siltstone_vfs::Disk;

use crate::{Dice, Scale, Subject, Verdict};

const DIRECTORY: &str = "SILTSTONE_KILL_DIRECTORY";
const VARIANT: &str = "SILTSTONE_KILL_VARIANT";
/// The name of the test that is the child's life, which [`conformance!`](crate::conformance) makes.
const CHILD: &str = "lives_until_it_is_killed";

/// Kills a writing process `scale.kills` times.
///
/// # Errors
/// What was lost, or is there by half.
pub fn killed(subject: &dyn Subject, scale: &Scale) -> Verdict {
    if !subject.capabilities().durable {
        return Ok("not durable: nothing to check".to_owned());
    }
    let scratch = Scratch::new(subject.name()).map_err(|error| error.to_string())?;
    let directory = scratch.0.join("store");
    let mut dice = Dice::new(scale.seed.unwrap_or(1));
    let mut before = 0;
    for kill in 0..scale.kills {
        let variant = scale.variant.unwrap_or(kill as u32 % subject.variants());
        let wrong = |reason: String| {
            format!("kill {kill}, option set {variant} ({}): {reason}", subject.describe(variant))
        };
        let acknowledged = live_and_die(&directory, variant, &mut dice)
            .map_err(|error| wrong(error.to_string()))?
            .unwrap_or(before);
        let newest = look(subject, &directory, variant, kill % 2 == 0).map_err(wrong)?;
        if newest < acknowledged || newest <= before {
            return Err(wrong(format!(
                "{before} batches were there, {acknowledged} acknowledged, {newest} are there now"
            )));
        }
        before = newest;
    }
    Ok(format!("{} deaths, {before} batches written", scale.kills))
}

/// The child's life. In a run without a parent it does nothing.
///
/// # Panics
/// If a write fails.
pub fn child(subject: &dyn Subject) {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let variant = std::env::var(VARIANT).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    if let Err(reason) = write_for_ever(subject, Path::new(&directory), variant) {
        panic!("{reason}");
    }
}

fn write_for_ever(
    subject: &dyn Subject,
    directory: &Path,
    variant: u32,
) -> std::result::Result<(), String> {
    let engine = open(subject, directory, variant).map_err(|error| error.to_string())?;
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

/// Starts a child, kills it, and answers the last batch that it had acknowledged, if any.
fn live_and_die(directory: &Path, variant: u32, dice: &mut Dice) -> std::io::Result<Option<u64>> {
    let mut child = Command::new(std::env::current_exe()?)
        .args([CHILD, "--nocapture"])
        .env(DIRECTORY, directory)
        .env(VARIANT, variant.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut lines = lines(&mut child)?;
    let number = |line: &str| line.strip_prefix("written ")?.parse::<u64>().ok();
    // Some acknowledgements, then a moment more: the blow falls anywhere in a write.
    let wanted = 1 + dice.index(120);
    let some = lines.by_ref().map_while(|line| line.ok()).filter_map(|line| number(&line));
    let heard = some.take(wanted).last();
    std::thread::sleep(Duration::from_micros(dice.below(4000)));
    child.kill()?;
    child.wait()?;
    // What is left in the pipe may end in half a line, which acknowledges nothing.
    let rest: Vec<u64> =
        lines.map_while(|line| line.ok()).filter_map(|line| number(&line)).collect();
    let whole = &rest[..rest.len().saturating_sub(1)];
    Ok(whole.last().copied().or(heard))
}

fn lines(child: &mut Child) -> std::io::Result<Lines<BufReader<ChildStdout>>> {
    let out = child.stdout.take().ok_or_else(|| std::io::Error::other("no pipe to the child"))?;
    Ok(BufReader::new(out).lines())
}

/// Opens what the child has left, and counts.
fn look(
    subject: &dyn Subject,
    directory: &Path,
    variant: u32,
    closes: bool,
) -> std::result::Result<u64, String> {
    let told = |error: Error| error.to_string();
    let engine = open(subject, directory, variant).map_err(told)?;
    let newest = count(engine.as_ref())?;
    if !engine.verify(&mut |_, _| ()).map_err(told)?.is_sound() {
        return Err("verify found damage".to_owned());
    }
    // Half of the time the parent dies without closing as well, so to speak.
    if closes {
        engine.close().map_err(told)?;
    }
    Ok(newest)
}

fn open(subject: &dyn Subject, directory: &Path, variant: u32) -> Result<Box<dyn Engine>> {
    let disk = if directory.exists() { Disk::open(directory) } else { Disk::create(directory) };
    subject.open(Arc::new(disk?), Env::system(1), variant)
}

fn value(number: u64) -> Vec<u8> {
    let len = (number * 37 % 600) as usize;
    [number.to_le_bytes().to_vec(), vec![number as u8; len]].concat()
}

/// How many batches there are; each must be whole and none missing.
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

/// A directory that goes when it is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> std::io::Result<Self> {
        let path =
            std::env::temp_dir().join(format!("siltstone-kill-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Scratch(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

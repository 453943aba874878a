//! Does every acknowledged write outlive the process? A child of this very program writes batches
//! to a directory of the machine's file system and is killed at a random moment, again and again.
//!
//! ```text
//!   child    open, find the next number, write batch after batch: key i, its pair, a counter
//!            after each, print the number: that is the acknowledgement
//!   parent   read some lines, SIGKILL, read the rest, open: all that was printed is there, whole,
//!            and at most one batch more
//! ```
//!
//! Promise checked: what returned under `Durability::Synced` (even numbers) and `Buffered` (odd
//! ones) survives the death of the process.
//!
//! `SILTSTONE_KILLS` sets how often (default 12).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use siltstone_engine::{Durability, Engine, Env, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_media::Disk;
use siltstone_testkit::Dice;

const DIRECTORY: &str = "SILTSTONE_SIGKILL_DIRECTORY";

#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn open(directory: &Path) -> Lsm {
    let pairs = [
        ("memtable", "8KiB"),
        ("table", "8KiB"),
        ("levels", "32KiB:128KiB"),
        ("container", "64KiB"),
    ];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options::from_map(&pairs.into()).unwrap();
    let disk = if directory.exists() { Disk::open(directory) } else { Disk::create(directory) };
    Lsm::open(Arc::new(disk.unwrap()), Env::system(1), options).unwrap()
}

fn value(number: u64) -> Vec<u8> {
    let len = (number * 37 % 600) as usize;
    [number.to_le_bytes().to_vec(), vec![number as u8; len]].concat()
}

/// How many batches there are; each must be whole and none missing.
#[allow(clippy::unwrap_used, reason = "a helper of tests")]
fn count(lsm: &Lsm) -> u64 {
    let newest = lsm
        .get(b"newest")
        .unwrap()
        .map_or(0, |entry| u64::from_le_bytes(entry.value.try_into().unwrap()));
    for number in 1..=newest {
        for side in ["left", "right"] {
            let found = lsm.get(format!("{side}-{number:08}").as_bytes()).unwrap();
            assert_eq!(found.map(|entry| entry.value), Some(value(number)), "{side} {number}");
        }
    }
    for side in ["left", "right"] {
        let beyond = format!("{side}-{:08}", newest + 1);
        assert_eq!(lsm.get(beyond.as_bytes()).unwrap(), None, "half a batch: {beyond}");
    }
    newest
}

/// The child's life. Run as a test by the parent only; a run without a parent does nothing.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let lsm = open(Path::new(&directory));
    let mut number = count(&lsm);
    let mut out = std::io::stdout().lock();
    loop {
        number += 1;
        let mut batch = WriteBatch::new();
        batch.put(format!("left-{number:08}").as_bytes(), &value(number));
        batch.put(b"newest", &number.to_le_bytes());
        batch.put(format!("right-{number:08}").as_bytes(), &value(number));
        let synced =
            if number.is_multiple_of(2) { Durability::Synced } else { Durability::Buffered };
        lsm.write(&batch, synced).unwrap();
        writeln!(out, "\nwritten {number}").unwrap();
        out.flush().unwrap();
    }
}

#[test]
fn acknowledged_writes_survive_sigkill() {
    let kills = std::env::var("SILTSTONE_KILLS").map_or(12, |text| text.parse().unwrap());
    let scratch = tempfile::tempdir().unwrap();
    let directory = scratch.path().join("store");
    let mut dice = Dice::new(kills);
    let mut before = 0;
    for kill in 0..kills {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "child_writes_until_it_is_killed", "--nocapture"])
            .env(DIRECTORY, &directory)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let number = |line: &str| line.strip_prefix("written ")?.parse::<u64>().ok();
        // Some acknowledgements, then a moment more: the blow falls anywhere in a write.
        let wanted = 1 + dice.index(120);
        let some = lines.by_ref().map_while(Result::ok).filter_map(|line| number(&line));
        let mut acknowledged = some.take(wanted).last().unwrap_or(before);
        std::thread::sleep(Duration::from_micros(dice.below(4000)));
        child.kill().unwrap();
        child.wait().unwrap();
        // What is left in the pipe may end in half a line, which acknowledges nothing.
        let rest = lines.map_while(Result::ok).filter_map(|line| number(&line)).collect::<Vec<_>>();
        let whole = rest.len().saturating_sub(1);
        acknowledged = rest[..whole].last().copied().unwrap_or(acknowledged);

        let lsm = open(&directory);
        let newest = count(&lsm);
        assert!(newest >= acknowledged, "kill {kill}: {acknowledged} acknowledged, {newest} there");
        assert!(newest > before, "kill {kill}: the child has written nothing");
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_sound());
        // Half of the time the parent dies without closing as well, so to speak.
        if kill % 2 == 0 {
            lsm.close().unwrap();
        }
        before = newest;
    }
}

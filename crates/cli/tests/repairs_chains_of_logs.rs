//! A log that a memtable has filled is damaged, with another log behind it: `verify` names it,
//! `repair` saves every record that can be read, reports the rest with status 1, and every row is
//! accounted for.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// With the default options a memtable is full before the last of them, and its log is left behind.
const ROWS: u64 = 33_400;
const VALUE_BYTES: usize = 1024;

/// What a command prints, on both streams, and its status.
fn siltstone(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(all).unwrap())
}

/// The logs of the table, in order.
fn logs(dir: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(dir.join("table-default")).unwrap();
    let paths = files.map(|file| file.unwrap().path());
    let mut logs: Vec<PathBuf> =
        paths.filter(|path| path.extension().is_some_and(|it| it == "log")).collect();
    logs.sort();
    logs
}

/// A store of rows in two logs at least, of which the first is full.
fn imported(scratch: &Path) -> PathBuf {
    let rows = scratch.join("rows.tsv");
    let mut text = String::new();
    for row in 0..ROWS {
        writeln!(text, "row:{row:06}\t{row:0>width$}", width = VALUE_BYTES).unwrap();
    }
    std::fs::write(&rows, text).unwrap();
    // How far the flush of the first memtable has come by the end is a matter of time.
    for attempt in 0..20 {
        let dir = scratch.join(format!("store-{attempt}"));
        let paths = [dir.display().to_string(), rows.display().to_string()];
        let (status, said) = siltstone(&["import", &paths[0], &paths[1]]);
        assert_eq!(status, 0, "{said}");
        if logs(&dir).len() > 1 {
            return dir;
        }
    }
    panic!("the first log is always flushed by the end of an import");
}

/// A copy of the store, for a damage of its own.
fn copied(dir: &Path, name: &str) -> PathBuf {
    let copy = dir.with_extension(name);
    for part in ["", "table-default"] {
        std::fs::create_dir_all(copy.join(part)).unwrap();
        for file in std::fs::read_dir(dir.join(part)).unwrap() {
            let file = file.unwrap();
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), copy.join(part).join(file.file_name())).unwrap();
            }
        }
    }
    copy
}

/// How many rows the store has, each with its value.
fn exported(dir: &Path) -> u64 {
    let file = dir.with_extension("exported.tsv");
    let _ = std::fs::remove_file(&file);
    let paths = [dir, &file].map(|path| path.display().to_string());
    let (status, said) = siltstone(&["export", &paths[0], &paths[1]]);
    assert_eq!(status, 0, "{said}");
    let rows = std::fs::read_to_string(&file).unwrap();
    let mut count = 0;
    for line in rows.lines().filter(|line| line.starts_with("row:")) {
        let (key, value) = line.split_once('\t').unwrap();
        assert_eq!(value.len(), VALUE_BYTES);
        assert_eq!(key[4..].parse::<u64>().unwrap(), value.parse::<u64>().unwrap());
        count += 1;
    }
    count
}

/// How many operations a repair reported lost.
fn reported(json: &str) -> u64 {
    let json: serde_json::Value = serde_json::from_str(json).unwrap();
    let losses = json["lost"]["default"].as_array().cloned().unwrap_or_default();
    let mut operations = BTreeSet::new();
    for loss in losses {
        let [first, last] = [0, 1].map(|end| loss["sequences"][end].as_u64());
        operations.extend(first.unwrap()..=last.unwrap());
    }
    operations.len() as u64
}

/// Damages a copy of the store, and goes through what a user does then.
fn goes_through(dir: &Path, name: &str, is_lossless: bool, damage: impl Fn(&[PathBuf])) {
    let dir = copied(dir, name);
    let path = dir.display().to_string();
    let logs = logs(&dir);
    let names = |log: &Path| log.file_name().unwrap().to_string_lossy().into_owned();
    let (first, last) = (names(&logs[0]), names(&logs[logs.len() - 1]));
    damage(&logs);
    let damaged: Vec<Vec<u8>> =
        logs[..1].iter().filter_map(|log| std::fs::read(log).ok()).collect();

    let (status, said) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{name}: {said}");
    // Of two logs that have changed places either is named.
    let is_named = |log: &str| said.contains(&format!("  {log} at byte "));
    assert!(is_named(&first) || is_lossless && is_named(&last), "{name}: {said}");
    if !is_lossless {
        assert!(!said.contains(&format!("  {last} at byte ")), "{name}: {last} is sound: {said}");
        let (status, said) = siltstone(&["inspect", &logs[logs.len() - 1].display().to_string()]);
        assert_eq!(status, 0, "{name}: {said}");
    }

    let (status, said) = siltstone(&["repair", &path, "--json"]);
    assert_eq!(status, i32::from(!is_lossless), "{name}: {said}");
    assert!(said.contains(&format!("{first}.damaged")) || damaged.is_empty(), "{name}: {said}");
    let lost = reported(&said);
    assert_eq!(lost == 0, is_lossless, "{name}: {said}");
    for bytes in damaged {
        let kept = dir.join("table-default").join(format!("{first}.damaged"));
        assert!(std::fs::read(kept).unwrap() == bytes, "{name}: it is not kept as it was");
    }

    assert_eq!(siltstone(&["verify", &path]).0, 0, "{name}");
    let (status, said) = siltstone(&["repair", &path]);
    assert_eq!(status, 0, "{name}: {said}");
    assert!(said.contains("nothing to repair"), "{name}: {said}");
    assert_eq!(exported(&dir) + lost, ROWS, "{name}: rows kept and rows reported lost");
}

#[test]
fn repair_after_an_import_with_a_damaged_full_log_accounts_for_every_row() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = imported(scratch.path());
    assert_eq!(exported(&dir), ROWS);
    goes_through(&dir, "flipped", false, |logs| {
        let mut bytes = std::fs::read(&logs[0]).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 0x10;
        std::fs::write(&logs[0], bytes).unwrap();
    });
    goes_through(&dir, "missing", false, |logs| std::fs::remove_file(&logs[0]).unwrap());
    goes_through(&dir, "truncated", false, |logs| {
        let file = std::fs::File::options().write(true).open(&logs[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    });
    goes_through(&dir, "exchanged", true, |logs| {
        let aside = logs[0].with_extension("aside");
        std::fs::rename(&logs[0], &aside).unwrap();
        std::fs::rename(&logs[1], &logs[0]).unwrap();
        std::fs::rename(&aside, &logs[1]).unwrap();
    });
}

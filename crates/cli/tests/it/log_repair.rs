//! Damage in a full log that is followed by another one: `verify` names it, `repair` keeps every
//! readable record and reports the rest with status 1, and every row is accounted for.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use siltstone::{Db, DbOptions, Env, ManualClock};

/// More than a memtable of the default size, so that there is a full log.
const ROWS: u64 = 33_400;
const VALUE_BYTES: usize = 1024;

/// The output of a command, both streams, and its status.
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

/// A store of rows in two logs, of which the first is full. No background job runs, so that the
/// first memtable is not flushed.
fn filled(dir: &Path) {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let db = Db::open_or_create(dir, DbOptions { env, ..DbOptions::default() }).unwrap();
    let table = db.table_or_create("default", "lsm", &BTreeMap::new()).unwrap();
    for row in 0..ROWS {
        let value = format!("{row:0>width$}", width = VALUE_BYTES);
        table.put(format!("row:{row:06}").as_bytes(), value.as_bytes()).unwrap();
    }
    db.close().unwrap();
    assert_eq!(logs(dir).len(), 2);
}

/// A copy of the store, to be damaged.
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

/// The number of rows in the store, each with its value.
fn exported(dir: &Path) -> u64 {
    let file = dir.with_extension("exported.tsv");
    let _ = std::fs::remove_file(&file);
    let paths = [dir, &file].map(|path| path.display().to_string());
    let (status, text) = siltstone(&["export", &paths[0], &paths[1]]);
    assert_eq!(status, 0, "{text}");
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

/// The number of operations that a repair reported lost.
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

/// Damages a copy of the store, and verifies, repairs and exports it.
fn check_repair(dir: &Path, name: &str, is_lossless: bool, damage: impl Fn(&[PathBuf])) {
    let dir = copied(dir, name);
    let path = dir.display().to_string();
    let logs = logs(&dir);
    let names = |log: &Path| log.file_name().unwrap().to_string_lossy().into_owned();
    let (first, last) = (names(&logs[0]), names(&logs[logs.len() - 1]));
    damage(&logs);
    let damaged: Vec<Vec<u8>> =
        logs[..1].iter().filter_map(|log| std::fs::read(log).ok()).collect();

    let (status, text) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{name}: {text}");
    // Of two exchanged logs either may be named.
    let is_named = |log: &str| text.contains(&format!("  {log} at byte "));
    assert!(is_named(&first) || is_lossless && is_named(&last), "{name}: {text}");
    if !is_lossless {
        assert!(!text.contains(&format!("  {last} at byte ")), "{name}: {last} is intact: {text}");
        let (status, text) = siltstone(&["inspect", &logs[logs.len() - 1].display().to_string()]);
        assert_eq!(status, 0, "{name}: {text}");
    }

    let (status, text) = siltstone(&["repair", &path, "--json"]);
    assert_eq!(status, i32::from(!is_lossless), "{name}: {text}");
    assert!(text.contains(&format!("{first}.damaged")) || damaged.is_empty(), "{name}: {text}");
    let lost = reported(&text);
    assert_eq!(lost == 0, is_lossless, "{name}: {text}");
    for bytes in damaged {
        let kept = dir.join("table-default").join(format!("{first}.damaged"));
        assert!(std::fs::read(kept).unwrap() == bytes, "{name}: it is not kept unchanged");
    }

    assert_eq!(siltstone(&["verify", &path]).0, 0, "{name}");
    let (status, text) = siltstone(&["repair", &path]);
    assert_eq!(status, 0, "{name}: {text}");
    assert!(text.contains("nothing to repair"), "{name}: {text}");
    assert_eq!(exported(&dir) + lost, ROWS, "{name}: rows kept and rows reported lost");
}

#[test]
fn repair_with_a_damaged_full_log_accounts_for_every_row() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("store");
    filled(&dir);
    assert_eq!(exported(&dir), ROWS);
    check_repair(&dir, "flipped", false, |logs| {
        let mut bytes = std::fs::read(&logs[0]).unwrap();
        let at = bytes.len() / 3;
        bytes[at] ^= 0x10;
        std::fs::write(&logs[0], bytes).unwrap();
    });
    check_repair(&dir, "missing", false, |logs| std::fs::remove_file(&logs[0]).unwrap());
    check_repair(&dir, "truncated", false, |logs| {
        let file = std::fs::File::options().write(true).open(&logs[0]).unwrap();
        file.set_len(file.metadata().unwrap().len() / 2).unwrap();
    });
    check_repair(&dir, "exchanged", true, |logs| {
        let aside = logs[0].with_extension("aside");
        std::fs::rename(&logs[0], &aside).unwrap();
        std::fs::rename(&logs[1], &logs[0]).unwrap();
        std::fs::rename(&aside, &logs[1]).unwrap();
    });
}

//! A damaged table of `silt` is reported with the reason and repaired without loss where possible;
//! items that cannot be stored are refused before anything changes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use siltstone::{Db, DbOptions};

use crate::support::contents;

fn siltstone(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap()
}

/// Asserts the status and that the output has these words; returns both streams.
fn assert_output(output: &Output, status: i32, words: &[&str]) -> String {
    let [out, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let all = format!("{out}{error}");
    assert_eq!(output.status.code(), Some(status), "{all}");
    words.iter().for_each(|word| assert!(all.contains(word), "'{word}' is not in: {all}"));
    assert!(!all.contains("panicked"), "{all}");
    all
}

/// A closed store with a table `t` of rows in stores of all three kinds.
struct Store {
    _scratch: tempfile::TempDir,
    dir: String,
    rows: BTreeMap<String, String>,
}

impl Store {
    /// `uneven`: rows of many lengths, whose blocks cannot be found without the index.
    fn filled(uneven: bool) -> Self {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("store").display().to_string();
        let mut rows = BTreeMap::new();
        let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
        let options = [
            ("partitions", "1"),
            ("log_store_slots", "64"),
            ("merge_trigger", "3"),
            ("stop_trigger", "8"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        let table = db.table_or_create("t", "silt", &options).unwrap();
        let mut put = |i: usize| {
            let value = "v".repeat(if uneven { i * 7 % 90 } else { 40 });
            let key = format!("key{i:04}");
            table.put(key.as_bytes(), value.as_bytes()).unwrap();
            rows.insert(key, value);
        };
        (0..500).for_each(&mut put);
        let mut next = 500;
        loop {
            table.flush().unwrap();
            table.maintain().unwrap();
            if (1..3).contains(&table.stats().levels[1].files) {
                break;
            }
            (next..next + 20).for_each(&mut put);
            next += 20;
        }
        // These stay in the log.
        (next..next + 10).for_each(&mut put);
        db.close().unwrap();
        Store { _scratch: scratch, dir, rows }
    }

    /// The file of the table with this ending.
    fn file(&self, ending: &str) -> PathBuf {
        let files = contents(&self.dir).into_keys();
        files.map(PathBuf::from).find(|path| path.to_string_lossy().ends_with(ending)).unwrap()
    }

    fn run(&self, command: &str, more: &[&str]) -> Output {
        siltstone(&[&[command, &self.dir, "--table", "t"], more].concat())
    }

    fn exported(&self) -> BTreeMap<String, String> {
        let file = format!("{}.tsv", self.dir);
        let _ = std::fs::remove_file(&file);
        assert_output(&siltstone(&["export", &self.dir, &file, "--table", "t"]), 0, &[]);
        let text = std::fs::read_to_string(&file).unwrap();
        let rows = text.lines().filter_map(|line| line.split_once('\t'));
        rows.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
    }
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn damaged_index_and_missing_filter_are_rebuilt_with_a_warning() {
    for uneven in [false, true] {
        let store = Store::filled(uneven);
        let (index, filter) = (store.file(".index"), store.file(".filter"));
        flip(&index, 9);
        std::fs::remove_file(&filter).unwrap();
        let before = contents(&store.dir);
        // Reading commands report the damage and change nothing.
        let sorted = index.with_extension("sorted");
        let output = siltstone(&["inspect", &sorted.display().to_string()]);
        assert_output(&output, 1, &["SortedStore", "DAMAGED", &name(&index)]);
        let output = siltstone(&["inspect", &filter.with_extension("hash").display().to_string()]);
        assert_output(&output, 1, &["HashStore", "DAMAGED", &name(&filter), "missing"]);
        assert!(contents(&store.dir) == before, "inspect has changed something");

        let words = ["warning", &name(&index), &name(&filter), "rebuilt from", &name(&sorted)];
        assert_output(&store.run("get", &["key0007"]), 0, &words);
        assert_output(
            &store.run("get", &["key0007"]),
            0,
            &[&words[..], &["siltstone repair"]].concat(),
        );
        assert_output(
            &store.run("verify", &[]),
            0,
            &[&words[..], &["intact", "siltstone repair"]].concat(),
        );
        assert!(contents(&store.dir) == before, "a reading command has changed something");
        // A writing command stores the rebuilt files.
        assert_output(&store.run("put", &["key0007", &store.rows["key0007"]]), 0, &words);
        let quiet = store.run("get", &["key0007"]);
        assert!(quiet.stderr.is_empty(), "{}", assert_output(&quiet, 0, &[]));
        assert_output(&store.run("verify", &[]), 0, &["intact"]);
        assert_eq!(store.exported(), store.rows);
    }
}

#[test]
fn repair_rebuilds_an_index_and_leaves_the_data() {
    for uneven in [false, true] {
        let store = Store::filled(uneven);
        let index = store.file(".index");
        flip(&index, 9);
        assert_output(&store.run("repair", &[]), 0, &[&name(&index), "is intact"]);
        assert_eq!(store.exported(), store.rows);
        assert_output(&store.run("verify", &[]), 0, &["intact"]);
    }
}

#[test]
fn missing_data_file_is_reported_by_name_until_it_is_repaired() {
    for ending in [".hash", ".sorted"] {
        let store = Store::filled(true);
        let file = store.file(ending);
        std::fs::remove_file(&file).unwrap();
        let before = contents(&store.dir);
        for command in ["get", "put"] {
            let more: &[&str] = if command == "get" { &["key0007"] } else { &["new", "1"] };
            assert_output(&store.run(command, more), 3, &[&name(&file), "missing"]);
        }
        assert!(contents(&store.dir) == before, "a refused table was changed");
        let log =
            assert_output(&store.run("repair", &[]), 1, &[&name(&file), "is missing", "are lost"]);
        let rows = store.exported();
        let lost = store.rows.len() - rows.len();
        assert!(log.contains(&format!("its {lost} entries are lost")), "{lost} lost; {log}");
        assert!(rows.iter().all(|(key, value)| store.rows.get(key) == Some(value)));
        assert_output(&store.run("verify", &[]), 0, &["intact"]);
    }
}

#[test]
fn flipped_byte_of_data_is_found_and_loses_little() {
    for ending in [".hash", ".sorted"] {
        let store = Store::filled(true);
        let file = store.file(ending);
        let len = std::fs::metadata(&file).unwrap().len() as usize;
        flip(&file, len / 4);
        assert_output(&store.run("verify", &[]), 1, &["DAMAGED", &name(&file)]);
        assert_output(&siltstone(&["inspect", &file.display().to_string()]), 1, &["DAMAGED"]);
        let repaired = store.run("repair", &[]);
        // A slot that is free has nothing to lose.
        let has_loss = store.exported().len() < store.rows.len();
        let status = i32::from(has_loss);
        assert_output(&repaired, status, &[&name(&file), "is damaged at byte"]);
        assert_output(&store.run("verify", &[]), 0, &["intact"]);
        let kept = store.file(&format!("{ending}.damaged"));
        assert_eq!(std::fs::metadata(kept).unwrap().len() as usize, len);
        let rows = store.exported();
        // At most a slot, or a block of 4 KiB.
        assert!(rows.len() + 100 > store.rows.len(), "{} of {}", rows.len(), store.rows.len());
        assert!(rows.iter().all(|(key, value)| store.rows.get(key) == Some(value)));
    }
}

#[test]
fn files_of_an_intact_table_are_dumped_unchanged() {
    let store = Store::filled(true);
    let before = contents(&store.dir);
    let kinds =
        ["HashStore", "SortedStore", "manifest", "log", "partition", "index bits per entry"];
    assert_output(&siltstone(&["inspect", &store.dir]), 0, &kinds);
    assert!(contents(&store.dir) == before);
}

#[test]
fn items_over_the_limit_are_refused_without_loss() {
    let store = Store::filled(true);
    let long = "k".repeat((64 << 10) + 1);
    assert_output(&store.run("put", &[&long, "v"]), 2, &["key", "65537", "65536"]);
    let file = PathBuf::from(format!("{}-rows.tsv", store.dir));
    std::fs::write(&file, format!("new1\t1\n{long}\t2\nnew2\t3\n")).unwrap();
    let file = file.display().to_string();
    assert_output(
        &siltstone(&["import", &store.dir, &file, "--table", "t"]),
        2,
        &["line 2", "65536"],
    );
    assert_eq!(store.exported(), store.rows);
    assert_output(&store.run("verify", &[]), 0, &["intact"]);
}

//! `verify` reports every damage, also in a table that does not open; `repair` leaves intact tables
//! unchanged, and reports what is lost of damaged ones.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use siltstone::{Db, DbOptions};

use crate::support::contents;

/// The output of a command, both streams, and its status.
fn siltstone(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(all).unwrap())
}

/// A closed store with the tables `words` and `other`, both with table files and a log.
fn filled(dir: &Path, engine: &str) {
    let db = Db::open_or_create(dir, DbOptions::default()).unwrap();
    let small = [("capacity".to_owned(), "16MiB".to_owned())];
    let options = if engine == "skimpy" { small.into() } else { BTreeMap::new() };
    for name in ["other", "words"] {
        let table = db.table_or_create(name, engine, &options).unwrap();
        for i in 0..3000 {
            table.put(format!("key{i:05}").as_bytes(), &[b'v'; 40]).unwrap();
            if i == 2000 {
                table.flush().unwrap();
            }
        }
    }
    db.close().unwrap();
}

/// The last file of `words` with this ending.
fn file(dir: &Path, ending: &str) -> PathBuf {
    let mut files = contents(dir.join("table-words")).into_keys().map(PathBuf::from).rev();
    files.find(|path| path.to_string_lossy().ends_with(ending)).unwrap()
}

fn damage(path: &Path, at: usize) -> String {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at..at + 4].iter_mut().for_each(|byte| *byte ^= 0xff);
    std::fs::write(path, bytes).unwrap();
    path.file_name().unwrap().to_string_lossy().into_owned()
}

fn assert_contains(text: &str, words: &[&str]) {
    words.iter().for_each(|word| assert!(text.contains(word), "'{word}' is not in: {text}"));
}

#[test]
fn verify_reports_a_damaged_log_and_checks_the_other_files() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    filled(&dir, "lsm");
    let log = damage(&file(&dir, ".log"), 26);
    let before = contents(dir.join("table-words"));
    let (status, text) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{text}");
    let place = format!("  {log} at byte ");
    assert_contains(&text, &["table words:", "DAMAGED", &place, "siltstone repair"]);
    assert_eq!(text.matches(&place).count(), 1, "reported once: {text}");
    assert!(text.contains("entries: intact\n"), "the other table is checked too: {text}");
    assert!(!text.contains("siltstone verify"), "no circular advice: {text}");

    // A second damage, in another file of the same table.
    let table = damage(&file(&dir, ".sst"), 100);
    let (status, text) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{text}");
    assert_contains(&text, &[&place, &format!("  {table} at byte ")]);
    let (_, json) = siltstone(&["verify", &path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["intact"], &json["tables"]["other"]["damage"]),
        (&false.into(), &serde_json::json!([]))
    );
    assert_eq!(json["tables"]["words"]["damage"].as_array().unwrap().len(), 2);
    damage(&file(&dir, ".sst"), 100);
    assert!(contents(dir.join("table-words")) == before, "verify has changed something");

    let (status, text) = siltstone(&["repair", &path]);
    assert_eq!(status, 1, "{text}");
    let lost = format!("lost what was in {log}, bytes ");
    assert_contains(&text, &[&lost, "the new manifest names 2 table files"]);
    assert_eq!(siltstone(&["verify", &path]).0, 0);
}

#[test]
fn verify_reports_a_damaged_manifest_and_a_missing_table_file() {
    for is_missing in [false, true] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let path = dir.display().to_string();
        filled(&dir, "lsm");
        let name = if is_missing {
            let table = file(&dir, ".sst");
            std::fs::remove_file(&table).unwrap();
            table.file_name().unwrap().to_string_lossy().into_owned()
        } else {
            damage(&file(&dir, "MANIFEST-000001"), 40)
        };
        let (status, text) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{text}");
        let place = format!("{name} at byte ");
        assert_contains(&text, &["DAMAGED", &place, "entries: intact\n"]);
        assert_eq!(text.matches(&place).count(), 1, "reported once: {text}");
    }
}

#[test]
fn verify_reports_damage_that_prevents_opening_for_other_engines() {
    for engine in ["trie", "silt"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let path = dir.display().to_string();
        filled(&dir, engine);
        let name = damage(&file(&dir, ".log"), 26);
        let (status, text) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{engine}: {text}");
        assert_contains(&text, &["DAMAGED", &name, "entries: intact\n", "siltstone repair"]);
    }
}

#[test]
fn repair_leaves_an_intact_table_unchanged() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    filled(&dir, "lsm");
    let before = contents(&dir);
    let (status, text) = siltstone(&["repair", &dir.display().to_string()]);
    assert_eq!(status, 0, "{text}");
    assert_eq!(text.matches("nothing to repair").count(), 2, "{text}");
    assert!(contents(&dir) == before, "repair has changed something: {text}");
}

#[test]
fn repair_reports_the_lost_bytes_of_a_table() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    filled(&dir, "lsm");
    let path = file(&dir, ".sst");
    let len = std::fs::metadata(&path).unwrap().len();
    let name = damage(&path, 100);
    let (_, text) = siltstone(&["repair", &dir.display().to_string()]);
    let lost = format!("lost what was in {name}, bytes 0 to ");
    assert_contains(&text, &["entries saved", &lost]);
    assert!(!text.contains(&format!("to {len}")), "not the whole file: {text}");
}

#[test]
fn empty_stores_and_tables_are_reported_as_empty() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    db.close().unwrap();
    for command in ["stats", "verify"] {
        let (status, text) = siltstone(&[command, &path]);
        assert_eq!(status, 0, "{text}");
        assert_contains(&text, &["no tables yet", "siltstone put"]);
    }
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let memory = [("memory".to_owned(), "16MiB".to_owned())].into();
    db.table_or_create("cache", "mica", &memory).unwrap();
    db.close().unwrap();
    assert_eq!(siltstone(&["verify", &path]).1, "table cache: in memory, 0 entries: intact\n");
    assert_contains(&siltstone(&["stats", &path]).1, &["in memory: empty until it is served"]);

    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let words = db.table_or_create("words", "lsm", &BTreeMap::new()).unwrap();
    words.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let text = siltstone(&["stats", &path, "--table", "words"]).1;
    assert!(text.contains("in memory and in the log") && !text.contains("target"), "{text}");
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    db.table("words").unwrap().flush().unwrap();
    db.close().unwrap();
    let text = siltstone(&["stats", &path, "--table", "words"]).1;
    assert!(!text.contains("in memory and in the log") && text.contains("target"), "{text}");

    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let prices = db.table_or_create("prices", "skimpy", &BTreeMap::new()).unwrap();
    prices.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let json = |table: &str| siltstone(&["stats", &path, "--json", "--table", table]).1;
    assert_contains(&json("words"), &["\"keys_estimate\":1"]);
    assert!(!json("prices").contains("keys_estimate"), "an unknown number of keys is omitted");
}

#[test]
fn missing_current_file_is_reported_and_repaired() {
    for engine in ["lsm", "trie", "silt"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let path = dir.display().to_string();
        filled(&dir, engine);
        std::fs::remove_file(dir.join("table-words/CURRENT")).unwrap();
        let (status, text) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{engine}: {text}");
        assert_contains(&text, &["CURRENT at byte 0: it is missing", "siltstone repair", "other"]);
        let (status, text) = siltstone(&["get", &path, "key00001", "--table", "words"]);
        assert_eq!(status, 3, "{text}");
        assert_contains(&text, &["CURRENT", "missing", "siltstone repair DIR"]);
        let (status, text) = siltstone(&["inspect", &path]);
        assert_eq!(status, 1, "{text}");
        assert_contains(&text, &["CURRENT"]);
        assert!(!text.contains(".log at byte"), "{engine}: the logs are intact: {text}");
        assert_eq!(siltstone(&["repair", &path]).0, 0);
        assert_eq!(siltstone(&["verify", &path]).0, 0);
        let (status, text) = siltstone(&["get", &path, "key02999", "--table", "words"]);
        assert_eq!((status, text.len()), (0, 41), "{engine}: {text}");
    }
}

#[test]
fn damaged_or_missing_catalogue_is_reported_and_rebuilt() {
    for (engine, is_missing) in [
        ("lsm", false),
        ("lsm", true),
        ("trie", true),
        ("silt", true),
        ("skimpy", false),
        ("skimpy", true),
    ] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let path = dir.display().to_string();
        filled(&dir, engine);
        let file = dir.join("CATALOG");
        if is_missing {
            std::fs::remove_file(&file).unwrap();
        } else {
            let text = std::fs::read_to_string(&file).unwrap();
            std::fs::write(&file, text.replace("crc32c=", "crc32c=0")).unwrap();
        }
        let before = contents(&dir);
        let (status, text) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{text}");
        assert_contains(&text, &["CATALOG at byte ", "siltstone repair"]);
        let (status, text) = siltstone(&["verify", &path, "--json"]);
        assert_eq!(status, 1, "{text}");
        assert_contains(&text, &["\"intact\":false", "CATALOG"]);
        let (status, text) = siltstone(&["inspect", &path]);
        assert_eq!(status, 1, "{text}");
        assert_contains(&text, &["CATALOG", "DAMAGED"]);
        let (status, text) = siltstone(&["get", &path, "key00001", "--table", "words"]);
        assert_eq!(status, 3, "{text}");
        assert_contains(&text, &["CATALOG", "siltstone repair DIR"]);
        // No new store is created over it.
        assert_eq!(siltstone(&["put", &path, "k", "v"]).0, 3);
        assert!(contents(&dir) == before, "it was changed");

        let (status, text) = siltstone(&["repair", &path]);
        assert_eq!(status, 0, "{text}");
        assert_contains(&text, &["CATALOG", "table words is on ", engine]);
        assert_eq!(dir.join("CATALOG.damaged").exists(), !is_missing);
        assert_eq!(siltstone(&["verify", &path]).0, 0);
        let (status, text) = siltstone(&["get", &path, "key02999", "--table", "words"]);
        assert_eq!((status, text.len()), (0, 41), "{engine}: {text}");
    }
}

/// Options that a table cannot open without come from its own files, whatever the catalogue has.
#[test]
fn rebuilt_catalogue_has_the_required_options_of_a_table() {
    let scratch = tempfile::tempdir().unwrap();
    let upper = scratch.path().join("upper").display().to_string();
    let cases = [
        ("skimpy,capacity=48MiB,page=8KiB,block=16,buckets=70", "48MiB", "40MiB"),
        ("skimpy,capacity=40000000", "40000000", "70000000"),
        (&*format!("trie,htable_size=64KiB,fast_dir={upper}"), "/upper\"", "/lower\""),
    ];
    for (number, (table, now, wrong)) in cases.into_iter().enumerate() {
        let dir = scratch.path().join(format!("s{number}"));
        let path = dir.display().to_string();
        let rows: String =
            (0..3000).map(|n| format!("key{n:05}\tvalue {n} {}\n", "x".repeat(60))).collect();
        let file = scratch.path().join("rows.tsv");
        std::fs::write(&file, rows).unwrap();
        let table = format!("words={table}");
        let text = siltstone(&["import", &path, file.to_str().unwrap(), "--table", &table]);
        assert_eq!(text.0, 0, "{}", text.1);
        let catalogue = dir.join("CATALOG");
        let text = std::fs::read_to_string(&catalogue).unwrap();
        for is_missing in [true, false] {
            if is_missing {
                std::fs::remove_file(&catalogue).unwrap();
            } else {
                assert!(text.contains(now), "{text}");
                std::fs::write(&catalogue, text.replace(now, wrong)).unwrap();
            }
            let (status, text) = siltstone(&["repair", &path]);
            assert_eq!(status, 0, "{text}");
            assert_contains(&text, &["table words is on ", "its files"]);
            assert!(!text.contains("lost"), "{text}");
            let (status, text) = siltstone(&["export", &path, "-", "--table", "words"]);
            assert_eq!(
                (status, text.matches("\tvalue").count()),
                (0, 3000),
                "{table}: {text:.300}"
            );
            assert_eq!(siltstone(&["verify", &path]).0, 0);
        }
    }
}

/// An incomplete catalogue would hide a table, so all are listed or none.
#[test]
fn no_catalogue_is_created_if_a_table_cannot_be_identified() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    filled(&dir, "lsm");
    std::fs::remove_file(dir.join("CATALOG")).unwrap();
    for (name, _) in contents(dir.join("table-words")) {
        if !name.ends_with(".log") {
            std::fs::remove_file(name).unwrap();
        }
    }
    let before = contents(&dir);
    let (status, text) = siltstone(&["repair", &path]);
    assert_eq!(status, 3, "{text}");
    assert_contains(&text, &["table-words", "restore CATALOG from a copy"]);
    assert!(contents(&dir) == before, "it was changed");
}

#[test]
fn restored_older_catalogue_loses_no_table() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    assert_eq!(siltstone(&["put", &path, "k", "v", "--table", "old=lsm"]).0, 0);
    let older = std::fs::read(dir.join("CATALOG")).unwrap();
    assert_eq!(siltstone(&["put", &path, "k", "v", "--table", "young=silt"]).0, 0);
    std::fs::write(dir.join("CATALOG"), older).unwrap();

    let (status, text) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{text}");
    assert_contains(&text, &["table young:", "does not list", "siltstone repair"]);
    let (status, text) = siltstone(&["verify", &path, "--json"]);
    assert_eq!(status, 1, "{text}");
    assert_contains(&text, &[r#""unnamed":["young"]"#, r#""intact":false"#]);
    let (status, text) = siltstone(&["put", &path, "k", "w", "--table", "young=silt"]);
    assert_eq!(status, 3, "{text}");
    let (status, text) = siltstone(&["repair", &path]);
    assert_eq!(status, 0, "{text}");
    assert_contains(&text, &["table young is on silt"]);
    assert_eq!(siltstone(&["verify", &path]).0, 0);
    assert_eq!(siltstone(&["get", &path, "k", "--table", "young"]), (0, "v\n".to_owned()));
}

/// A damaged label must not be taken for a missing device or another version, which `repair`
/// refuses.
#[test]
fn damaged_label_of_a_flash_device_is_reported_and_repaired() {
    let scratch = tempfile::tempdir().unwrap();
    for at in [0, 8, 28] {
        let dir = scratch.path().join(at.to_string());
        let path = dir.display().to_string();
        filled(&dir, "skimpy");
        damage(&dir.join("table-words/flash"), at);
        let (status, text) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{at}: {text}");
        assert_contains(&text, &["DAMAGED", "flash at byte 0", "siltstone repair"]);
        let (status, text) = siltstone(&["repair", &path]);
        assert_eq!(status, 0, "{at}: {text}");
        let (status, text) = siltstone(&["verify", &path, "--table", "words"]);
        assert_eq!(status, 0, "{at}: {text}");
        assert_contains(&text, &["3000 entries: intact"]);
    }
}

/// An engine would create an empty table in a directory without files.
#[test]
fn table_without_its_files_is_reported_as_damaged() {
    let scratch = tempfile::tempdir().unwrap();
    for engine in ["lsm", "silt", "trie", "skimpy"] {
        let dir = scratch.path().join(engine);
        let path = dir.display().to_string();
        filled(&dir, engine);
        std::fs::remove_dir_all(dir.join("table-words")).unwrap();
        for _ in 0..2 {
            let (status, text) = siltstone(&["verify", &path]);
            assert_eq!(status, 1, "{engine}: {text}");
            assert_contains(&text, &["table-words at byte 0", "missing", "entries: intact\n"]);
            let (status, text) = siltstone(&["get", &path, "key00001", "--table", "words"]);
            assert_eq!(status, 3, "{engine}: {text}");
            let (status, text) = siltstone(&["put", &path, "k", "v", "--table", "words"]);
            assert_eq!(status, 3, "{engine}: {text}");
            // An empty directory counts as a missing one.
            std::fs::create_dir_all(dir.join("table-words")).unwrap();
        }
        let (status, text) = siltstone(&["repair", &path]);
        assert_eq!(status, 1, "{engine}: {text}");
        assert_contains(&text, &["all of its files are missing", "empty table", "lost"]);
        assert_eq!(siltstone(&["verify", &path]).0, 0);
        assert_eq!(siltstone(&["put", &path, "k", "v", "--table", "words"]).0, 0);
    }
}

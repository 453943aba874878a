//! Does `verify` tell every damaged place, also of a table that does not open; does `repair` leave what is sound
//! as it is, and tell what is lost of what is not?

#![allow(clippy::unwrap_used)]

mod support;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use siltstone::{Db, DbOptions};

use support::contents;

/// What a command says, on both streams, and its status.
fn siltstone(arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_siltstone")).args(arguments).output().unwrap();
    let all = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(all).unwrap())
}

/// A closed store of `words` and `other`, both on this engine: files of tables, and a log.
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

/// The last file of `words` that ends so.
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

fn assert_holds(text: &str, words: &[&str]) {
    words.iter().for_each(|word| assert!(text.contains(word), "'{word}' is not in: {text}"));
}

#[test]
fn verify_tells_a_damaged_log_as_damage_and_goes_on() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    filled(&dir, "lsm");
    let log = damage(&file(&dir, ".log"), 26);
    let before = contents(dir.join("table-words"));
    let (status, told) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{told}");
    let place = format!("  {log} at byte ");
    assert_holds(&told, &["table words:", "DAMAGED", &place, "siltstone repair"]);
    assert_eq!(told.matches(&place).count(), 1, "told once: {told}");
    assert!(told.contains("entries: sound\n"), "the other table is checked too: {told}");
    assert!(!told.contains("siltstone verify"), "no circle: {told}");

    // A second damage, in another file of the same table.
    let table = damage(&file(&dir, ".sst"), 100);
    let (status, told) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{told}");
    assert_holds(&told, &[&place, &format!("  {table} at byte ")]);
    let (_, json) = siltstone(&["verify", &path, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["sound"], &json["tables"]["other"]["damage"]),
        (&false.into(), &serde_json::json!([]))
    );
    assert_eq!(json["tables"]["words"]["damage"].as_array().unwrap().len(), 2);
    damage(&file(&dir, ".sst"), 100);
    assert!(contents(dir.join("table-words")) == before, "verify has changed something");

    let (status, told) = siltstone(&["repair", &path]);
    assert_eq!(status, 1, "{told}");
    let lost = format!("lost what was in {log}, bytes ");
    assert_holds(&told, &[&lost, "the new manifest names 2 table files"]);
    assert_eq!(siltstone(&["verify", &path]).0, 0);
}

#[test]
fn verify_tells_a_damaged_manifest_and_a_missing_table() {
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
        let (status, told) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{told}");
        let place = format!("{name} at byte ");
        assert_holds(&told, &["DAMAGED", &place, "entries: sound\n"]);
        assert_eq!(told.matches(&place).count(), 1, "told once: {told}");
    }
}

#[test]
fn verify_tells_damage_of_the_other_engines_that_keeps_them_from_opening() {
    for engine in ["trie", "silt"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let path = dir.display().to_string();
        filled(&dir, engine);
        let name = damage(&file(&dir, ".log"), 26);
        let (status, told) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{engine}: {told}");
        assert_holds(&told, &["DAMAGED", &name, "entries: sound\n", "siltstone repair"]);
    }
}

#[test]
fn repair_leaves_a_sound_table_as_it_is() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    filled(&dir, "lsm");
    let before = contents(&dir);
    let (status, told) = siltstone(&["repair", &dir.display().to_string()]);
    assert_eq!(status, 0, "{told}");
    assert_eq!(told.matches("nothing to repair").count(), 2, "{told}");
    assert!(contents(&dir) == before, "repair has changed something: {told}");
}

#[test]
fn repair_tells_which_bytes_of_a_table_are_lost() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    filled(&dir, "lsm");
    let path = file(&dir, ".sst");
    let len = std::fs::metadata(&path).unwrap().len();
    let name = damage(&path, 100);
    let (_, told) = siltstone(&["repair", &dir.display().to_string()]);
    let lost = format!("lost what was in {name}, bytes 0 to ");
    assert_holds(&told, &["entries saved", &lost]);
    assert!(!told.contains(&format!("to {len}")), "not the whole file: {told}");
}

#[test]
fn what_is_empty_says_so() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    let db = Db::open_or_create(&dir, DbOptions::default()).unwrap();
    db.close().unwrap();
    for command in ["stats", "verify"] {
        let (status, told) = siltstone(&[command, &path]);
        assert_eq!(status, 0, "{told}");
        assert_holds(&told, &["no tables yet", "siltstone put"]);
    }
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let memory = [("memory".to_owned(), "16MiB".to_owned())].into();
    db.table_or_create("cache", "mica", &memory).unwrap();
    db.close().unwrap();
    assert_eq!(siltstone(&["verify", &path]).1, "table cache: in memory alone, 0 entries: sound\n");
    assert_holds(&siltstone(&["stats", &path]).1, &["in memory alone: empty until it is served"]);

    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let words = db.table_or_create("words", "lsm", &BTreeMap::new()).unwrap();
    words.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let told = siltstone(&["stats", &path, "--table", "words"]).1;
    assert!(told.contains("in memory and in the log") && !told.contains("target"), "{told}");
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    db.table("words").unwrap().flush().unwrap();
    db.close().unwrap();
    let told = siltstone(&["stats", &path, "--table", "words"]).1;
    assert!(!told.contains("in memory and in the log") && told.contains("target"), "{told}");

    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let prices = db.table_or_create("prices", "skimpy", &BTreeMap::new()).unwrap();
    prices.put(b"a", b"1").unwrap();
    db.close().unwrap();
    let json = |table: &str| siltstone(&["stats", &path, "--json", "--table", table]).1;
    assert_holds(&json("words"), &["\"keys_estimate\":1"]);
    assert!(!json("prices").contains("keys_estimate"), "who cannot tell says nothing");
}

#[test]
fn a_missing_current_is_damage_by_name_and_repaired() {
    for engine in ["lsm", "trie", "silt"] {
        let scratch = tempfile::tempdir().unwrap();
        let dir = scratch.path().join("s");
        let path = dir.display().to_string();
        filled(&dir, engine);
        std::fs::remove_file(dir.join("table-words/CURRENT")).unwrap();
        let (status, told) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{engine}: {told}");
        assert_holds(&told, &["CURRENT at byte 0: it is missing", "siltstone repair", "other"]);
        let (status, told) = siltstone(&["get", &path, "key00001", "--table", "words"]);
        assert_eq!(status, 3, "{told}");
        assert_holds(&told, &["CURRENT", "missing", "siltstone repair DIR"]);
        let (status, told) = siltstone(&["inspect", &path]);
        assert_eq!(status, 1, "{told}");
        assert_holds(&told, &["CURRENT"]);
        assert!(!told.contains(".log at byte"), "{engine}: the logs are sound: {told}");
        assert_eq!(siltstone(&["repair", &path]).0, 0);
        assert_eq!(siltstone(&["verify", &path]).0, 0);
        let (status, told) = siltstone(&["get", &path, "key02999", "--table", "words"]);
        assert_eq!((status, told.len()), (0, 41), "{engine}: {told}");
    }
}

#[test]
fn a_damaged_or_missing_catalogue_is_told_and_made_anew() {
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
        let (status, told) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{told}");
        assert_holds(&told, &["CATALOG at byte ", "siltstone repair"]);
        let (status, told) = siltstone(&["verify", &path, "--json"]);
        assert_eq!(status, 1, "{told}");
        assert_holds(&told, &["\"sound\":false", "CATALOG"]);
        let (status, told) = siltstone(&["inspect", &path]);
        assert_eq!(status, 1, "{told}");
        assert_holds(&told, &["CATALOG", "DAMAGED"]);
        let (status, told) = siltstone(&["get", &path, "key00001", "--table", "words"]);
        assert_eq!(status, 3, "{told}");
        assert_holds(&told, &["CATALOG", "siltstone repair DIR"]);
        // A new store is not made over it.
        assert_eq!(siltstone(&["put", &path, "k", "v"]).0, 3);
        assert!(contents(&dir) == before, "it was changed");

        let (status, told) = siltstone(&["repair", &path]);
        assert_eq!(status, 0, "{told}");
        assert_holds(&told, &["CATALOG", "table words is on ", engine]);
        assert_eq!(dir.join("CATALOG.damaged").exists(), !is_missing);
        assert_eq!(siltstone(&["verify", &path]).0, 0);
        let (status, told) = siltstone(&["get", &path, "key02999", "--table", "words"]);
        assert_eq!((status, told.len()), (0, 41), "{engine}: {told}");
    }
}

/// A table that opens only with the options that it was made with is kept with them, whatever the catalogue says.
#[test]
fn a_catalogue_that_is_made_anew_has_the_options_that_a_table_needs() {
    let scratch = tempfile::tempdir().unwrap();
    let upper = scratch.path().join("upper").display().to_string();
    let cases = [
        ("skimpy,capacity=48MiB,page=8KiB,block=16,buckets=70", "48MiB", "40MiB"),
        ("skimpy,capacity=40000000", "40000000", "70000000"),
        (&*format!("trie,table=64KiB,upper={upper}"), "/upper\"", "/lower\""),
    ];
    for (number, (table, now, wrong)) in cases.into_iter().enumerate() {
        let dir = scratch.path().join(format!("s{number}"));
        let path = dir.display().to_string();
        let rows: String =
            (0..3000).map(|n| format!("key{n:05}\tvalue {n} {}\n", "x".repeat(60))).collect();
        let file = scratch.path().join("rows.tsv");
        std::fs::write(&file, rows).unwrap();
        let table = format!("words={table}");
        let told = siltstone(&["import", &path, file.to_str().unwrap(), "--table", &table]);
        assert_eq!(told.0, 0, "{}", told.1);
        let catalogue = dir.join("CATALOG");
        let text = std::fs::read_to_string(&catalogue).unwrap();
        for is_missing in [true, false] {
            if is_missing {
                std::fs::remove_file(&catalogue).unwrap();
            } else {
                assert!(text.contains(now), "{text}");
                std::fs::write(&catalogue, text.replace(now, wrong)).unwrap();
            }
            let (status, told) = siltstone(&["repair", &path]);
            assert_eq!(status, 0, "{told}");
            assert_holds(&told, &["table words is on ", "by its files"]);
            assert!(!told.contains("lost"), "{told}");
            let (status, told) = siltstone(&["export", &path, "-", "--table", "words"]);
            assert_eq!(
                (status, told.matches("\tvalue").count()),
                (0, 3000),
                "{table}: {told:.300}"
            );
            assert_eq!(siltstone(&["verify", &path]).0, 0);
        }
    }
}

/// What is not named is removed at the next opening: so nothing is named unless all is known.
#[test]
fn no_catalogue_is_made_beside_a_table_of_which_nothing_is_known() {
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
    let (status, told) = siltstone(&["repair", &path]);
    assert_eq!(status, 3, "{told}");
    assert_holds(&told, &["table-words", "restore CATALOG from a copy"]);
    assert!(contents(&dir) == before, "it was changed");
}

#[test]
fn an_older_catalogue_that_is_put_back_loses_no_table() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let path = dir.display().to_string();
    assert_eq!(siltstone(&["put", &path, "k", "v", "--table", "old=lsm"]).0, 0);
    let older = std::fs::read(dir.join("CATALOG")).unwrap();
    assert_eq!(siltstone(&["put", &path, "k", "v", "--table", "young=silt"]).0, 0);
    std::fs::write(dir.join("CATALOG"), older).unwrap();

    let (status, told) = siltstone(&["verify", &path]);
    assert_eq!(status, 1, "{told}");
    assert_holds(&told, &["table young:", "does not name", "siltstone repair"]);
    let (status, told) = siltstone(&["verify", &path, "--json"]);
    assert_eq!(status, 1, "{told}");
    assert_holds(&told, &[r#""unnamed":["young"]"#, r#""sound":false"#]);
    let (status, told) = siltstone(&["put", &path, "k", "w", "--table", "young=silt"]);
    assert_eq!(status, 3, "{told}");
    let (status, told) = siltstone(&["repair", &path]);
    assert_eq!(status, 0, "{told}");
    assert_holds(&told, &["table young is on silt"]);
    assert_eq!(siltstone(&["verify", &path]).0, 0);
    assert_eq!(siltstone(&["get", &path, "k", "--table", "young"]), (0, "v\n".to_owned()));
}

/// A flash device whose label does not hold was taken for none, or for one of another version, which nobody repairs.
#[test]
fn a_damaged_label_of_a_flash_device_is_damage_and_is_repaired() {
    let scratch = tempfile::tempdir().unwrap();
    for at in [0, 8, 28] {
        let dir = scratch.path().join(at.to_string());
        let path = dir.display().to_string();
        filled(&dir, "skimpy");
        damage(&dir.join("table-words/flash"), at);
        let (status, told) = siltstone(&["verify", &path]);
        assert_eq!(status, 1, "{at}: {told}");
        assert_holds(&told, &["DAMAGED", "flash at byte 0", "siltstone repair"]);
        let (status, told) = siltstone(&["repair", &path]);
        assert_eq!(status, 0, "{at}: {told}");
        let (status, told) = siltstone(&["verify", &path, "--table", "words"]);
        assert_eq!(status, 0, "{at}: {told}");
        assert_holds(&told, &["3000 entries: sound"]);
    }
}

/// An engine takes a directory without files for that of a new table: what was restored without it was empty, and sound.
#[test]
fn a_table_without_its_files_is_damage_and_not_empty() {
    let scratch = tempfile::tempdir().unwrap();
    for engine in ["lsm", "silt", "trie", "skimpy"] {
        let dir = scratch.path().join(engine);
        let path = dir.display().to_string();
        filled(&dir, engine);
        std::fs::remove_dir_all(dir.join("table-words")).unwrap();
        for _ in 0..2 {
            let (status, told) = siltstone(&["verify", &path]);
            assert_eq!(status, 1, "{engine}: {told}");
            assert_holds(&told, &["table-words at byte 0", "missing", "entries: sound\n"]);
            let (status, told) = siltstone(&["get", &path, "key00001", "--table", "words"]);
            assert_eq!(status, 3, "{engine}: {told}");
            let (status, told) = siltstone(&["put", &path, "k", "v", "--table", "words"]);
            assert_eq!(status, 3, "{engine}: {told}");
            // Empty is as good as missing.
            std::fs::create_dir_all(dir.join("table-words")).unwrap();
        }
        let (status, told) = siltstone(&["repair", &path]);
        assert_eq!(status, 1, "{engine}: {told}");
        assert_holds(&told, &["its files are missing, all of them", "begun anew", "lost"]);
        assert_eq!(siltstone(&["verify", &path]).0, 0);
        assert_eq!(siltstone(&["put", &path, "k", "v", "--table", "words"]).0, 0);
    }
}

//! Encrypted stores: nothing readable on disk, wrong and missing keys, other keys, backups of the
//! ciphertext, and damage.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use siltstone::encryption::{KeyRing, Keys, MasterKey};
use siltstone::{Db, DbBatch, DbOptions, Durability, Error, maintenance};

const MARKER: &str = "plaintext-marker";

fn ring(keys: &[u8]) -> Keys {
    let mut keys = keys.iter().map(|&byte| MasterKey::new(&[byte; 32]));
    Keys::new(Arc::new(KeyRing::new(keys.next().unwrap(), keys.collect())))
}

fn options(encryption: &Keys) -> DbOptions {
    DbOptions { encryption: encryption.clone(), ..DbOptions::default() }
}

fn small() -> BTreeMap<String, String> {
    let pairs = [("memtable", "16KiB"), ("target_file_size", "16KiB")];
    pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).into()
}

/// A store with two tables, with logs, SSTables of several levels, and batches over both tables.
fn fill(dir: &Path, keys: &Keys) {
    let db = Db::open_or_create(dir, options(keys)).unwrap();
    let one = db.table_or_create("one", "lsm", &small()).unwrap();
    let two = db.table_or_create("two", "lsm", &small()).unwrap();
    for i in 0..2000 {
        one.put(format!("{MARKER}-key-{i:06}").as_bytes(), value(i).as_bytes()).unwrap();
    }
    one.compact_range::<&[u8]>(..).unwrap();
    for i in 2000..2300 {
        let (key, value) = (format!("{MARKER}-key-{i:06}"), value(i));
        let mut batch = DbBatch::new();
        batch.table(&one).put(key.as_bytes(), value.as_bytes());
        batch.table(&two).put(key.as_bytes(), value.as_bytes());
        db.write(&batch, Durability::Buffered).unwrap();
    }
    db.sync().unwrap();
    db.close().unwrap();
}

fn value(i: u32) -> String {
    format!("{MARKER}-value-{i}-{}", "x".repeat(i as usize % 100))
}

fn check(dir: &Path, keys: &Keys) {
    let db = Db::open(dir, options(keys)).unwrap();
    let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
    for i in (0..2300).step_by(7) {
        let key = format!("{MARKER}-key-{i:06}");
        let found = one.get(key.as_bytes()).unwrap();
        assert_eq!(found.as_deref(), Some(value(i).as_bytes()), "{key}");
        assert_eq!(two.contains_key(key.as_bytes()).unwrap(), i >= 2000);
    }
    assert_eq!(one.iter().unwrap().count(), 2300);
    db.close().unwrap();
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in dir.read_dir().unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => found.extend(files(&path)),
            false => found.push(path),
        }
    }
    found.sort();
    found
}

fn holds(path: &Path, text: &str) -> bool {
    let bytes = std::fs::read(path).unwrap();
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn no_file_of_an_encrypted_store_holds_plaintext() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, plain) = (scratch.path().join("s"), scratch.path().join("plain"));
    fill(&plain, &Keys::default());
    assert!(files(&plain).iter().any(|path| holds(path, MARKER)));
    fill(&dir, &ring(&[1]));
    check(&dir, &ring(&[1]));
    let db = Db::open(&dir, options(&ring(&[1]))).unwrap();
    let copy = scratch.path().join("copy");
    db.checkpoint(&copy).unwrap();
    db.rename_table("two", "three").unwrap();
    drop(db);
    for path in files(&dir).iter().chain(&files(&copy)) {
        for text in [MARKER, "memtable", "tables", "MANIFEST-"] {
            assert!(!holds(path, text), "{}: {text}", path.display());
        }
    }
    check(&copy, &ring(&[1]));
}

#[test]
fn missing_wrong_or_superfluous_key_is_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, plain) = (scratch.path().join("s"), scratch.path().join("plain"));
    fill(&dir, &ring(&[1]));
    fill(&plain, &Keys::default());
    let refusal = |dir: &Path, keys: &Keys| match Db::open(dir, options(keys)) {
        Err(Error::Refused { reason, .. }) => reason,
        other => panic!("{other:?}"),
    };
    assert!(refusal(&dir, &Keys::default()).contains("is encrypted: give its key"));
    let id = MasterKey::new(&[1; 32]).id().to_string();
    assert!(refusal(&dir, &ring(&[2])).contains(&id));
    assert!(refusal(&plain, &ring(&[1])).contains("not encrypted"));
    check(&plain, &Keys::default());
    // A new store inside one would be removed by it, also by an encrypted one.
    let inside = Db::open_or_create(dir.join("inside"), DbOptions::default());
    assert!(matches!(inside, Err(Error::Refused { .. })));
    check(&dir, &ring(&[1]));
}

#[test]
fn encrypted_catalogue_is_one_of_a_newer_version_to_an_earlier_program() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, plain) = (scratch.path().join("s"), scratch.path().join("plain"));
    fill(&dir, &ring(&[1]));
    // Programs without encryption read up to version 3, and refuse newer ones by this line.
    let mut bytes = std::fs::read(dir.join("CATALOG")).unwrap();
    assert!(bytes.starts_with(b"siltstone-catalogue 4 "));
    // A later program that takes the bytes for a text does not take it for an empty catalogue.
    fill(&plain, &Keys::default());
    for magic in siltstone_vfs::ENCRYPTED_MAGIC_OFFSETS {
        bytes[magic as usize] ^= 1;
    }
    std::fs::write(plain.join("CATALOG"), bytes).unwrap();
    match Db::open(&plain, DbOptions::default()) {
        Err(Error::Corruption { reason, .. }) => assert!(reason.contains("encrypted"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn engines_that_overwrite_or_map_files_are_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = Db::open_or_create(&dir, options(&ring(&[1]))).unwrap();
    for (engine, option) in
        [("skimpy", None), ("lsm", Some(("pmem.size", "1MiB"))), ("trie", Some(("fast_dir", "f")))]
    {
        let pair = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        let given = option.map(pair).into_iter().collect();
        let error = db.table_or_create("t", engine, &given).unwrap_err().to_string();
        assert!(error.contains(engine) && error.contains("encrypted"), "{error}");
        assert!(error.contains(option.map_or("", |it| it.0)), "{error}");
    }
    db.table_or_create("cache", "mica", &BTreeMap::new()).unwrap().put(b"k", b"v").unwrap();
    assert_eq!(db.table_names().unwrap(), ["cache"]);
}

/// Values of several lengths: HashStores of silt have tails then.
#[test]
fn tables_of_other_engines_with_files_are_encrypted() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, copied) = (scratch.path().join("s"), scratch.path().join("copy"));
    let options_of = [
        ("trie", vec![("htable_size", "16KiB")]),
        ("silt", vec![("log_store_slots", "64"), ("partitions", "2"), ("merge_trigger", "2")]),
    ];
    let key = |i: u32| format!("{MARKER}-key-{i:06}");
    let db = Db::open_or_create(&dir, options(&ring(&[1]))).unwrap();
    for (engine, given) in &options_of {
        let given = given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let table = db.table_or_create(engine, engine, &given.collect()).unwrap();
        for i in 0..2000 {
            table.put(key(i).as_bytes(), value(i).as_bytes()).unwrap();
        }
    }
    db.checkpoint_with_keys(&copied, &ring(&[3])).unwrap();
    db.close().unwrap();
    let names = files(&dir);
    // The HashStores have been merged.
    for extension in ["htable", "sorted"] {
        let has = |path: &PathBuf| path.extension().is_some_and(|it| it == extension);
        assert!(names.iter().any(has), "no file .{extension}");
    }
    assert!(!names.iter().chain(&files(&copied)).any(|path| holds(path, MARKER)));
    let report = maintenance::rewrap(&dir, &ring(&[2, 1])).unwrap();
    assert!(report.rewrapped > 6 && report.damaged.is_empty(), "{report:?}");
    for (dir, keys) in [(&dir, ring(&[2])), (&copied, ring(&[3]))] {
        assert!(maintenance::verify_with(dir, &options(&keys)).unwrap().is_intact());
        let db = Db::open(dir, options(&keys)).unwrap();
        for (engine, _) in &options_of {
            let table = db.table(engine).unwrap();
            for i in 0..2000 {
                let found = table.get(key(i).as_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(value(i).as_bytes()), "{engine} {i}");
            }
        }
        db.close().unwrap();
    }
}

#[test]
fn rewrapped_store_opens_with_the_new_key_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    fill(&dir, &ring(&[1]));
    // New files have the new key, old ones are read with the old one.
    let db = Db::open(&dir, options(&ring(&[2, 1]))).unwrap();
    db.table("one").unwrap().put(b"new", b"v").unwrap();
    db.table("one").unwrap().delete(b"new").unwrap();
    assert!(matches!(maintenance::rewrap(&dir, &ring(&[2, 1])), Err(Error::Locked { .. })));
    db.close().unwrap();
    let report = maintenance::rewrap(&dir, &ring(&[2, 1])).unwrap();
    assert!(report.rewrapped > 3 && report.damaged.is_empty(), "{report:?}");
    assert_eq!(maintenance::rewrap(&dir, &ring(&[2, 1])).unwrap().rewrapped, 0);
    check(&dir, &ring(&[2]));
    assert!(matches!(Db::open(&dir, options(&ring(&[1]))), Err(Error::Refused { .. })));
    assert!(maintenance::verify_with(&dir, &options(&ring(&[2]))).unwrap().is_intact());
}

#[test]
fn checkpoint_with_keys_encrypts_and_decrypts() {
    let scratch = tempfile::tempdir().unwrap();
    let at = |name: &str| scratch.path().join(name);
    let (none, one, two) = (Keys::default(), ring(&[1]), ring(&[2]));
    fill(&at("plain"), &none);
    let steps =
        [("plain", &none, "one", &one), ("one", &one, "two", &two), ("two", &two, "again", &none)];
    for (from, keys, to, other) in steps {
        let db = Db::open(at(from), options(keys)).unwrap();
        db.checkpoint_with_keys(at(to), other).unwrap();
        db.close().unwrap();
        check(&at(to), other);
    }
    assert!(!files(&at("one")).iter().any(|path| holds(path, MARKER)));
    assert!(files(&at("again")).iter().any(|path| holds(path, MARKER)));
}

#[test]
fn tables_exchanged_on_disk_are_detected() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    fill(&dir, &ring(&[1]));
    let (one, two, aside) = (dir.join("table-one"), dir.join("table-two"), dir.join("aside"));
    std::fs::rename(&one, &aside).unwrap();
    std::fs::rename(&two, &one).unwrap();
    std::fs::rename(&aside, &two).unwrap();
    let opened = Db::open(&dir, options(&ring(&[1]))).and_then(|db| db.table("one").map(drop));
    assert!(opened.unwrap_err().is_corruption());
}

#[test]
fn damage_is_verified_and_repaired() {
    let scratch = tempfile::tempdir().unwrap();
    let keys = ring(&[1]);
    let pristine = scratch.path().join("s");
    fill(&pristine, &keys);
    let names = files(&pristine);
    let intact = maintenance::verify_with(&pristine, &options(&keys)).unwrap();
    assert!(intact.is_intact(), "{intact:?}");
    for (round, path) in names
        .iter()
        .filter(|path| !path.ends_with("LOCK") && !path.ends_with("RESERVE"))
        .enumerate()
    {
        let path = path.strip_prefix(&pristine).unwrap();
        for at in [[3, 70, 2120][round % 3], 4100 + round * 37].into_iter().skip(round % 2) {
            let dir = scratch.path().join(format!("d{round}-{at}"));
            copy(&pristine, &dir);
            let mut bytes = std::fs::read(dir.join(path)).unwrap();
            let Some(byte) = bytes.get_mut(at) else { continue };
            *byte ^= 0x40;
            std::fs::write(dir.join(path), bytes).unwrap();
            let report = maintenance::verify_with(&dir, &options(&keys)).unwrap();
            assert!(!report.is_intact(), "{} at {at}", path.display());
            let mut repaired = Default::default();
            maintenance::repair_with(&dir, None, &options(&keys), &mut repaired).unwrap();
            let db = Db::open(&dir, options(&keys)).unwrap();
            let rows: usize = ["one", "two"]
                .map(|name| db.table(name).unwrap().iter().unwrap().count())
                .iter()
                .sum();
            assert!(rows == 2600 || !repaired.is_lossless(), "{} at {at}: {rows}", path.display());
            db.close().unwrap();
            std::fs::remove_dir_all(&dir).unwrap();
        }
    }
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in from.read_dir().unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}

#[test]
fn change_feed_reads_the_log_that_a_crash_has_torn() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, crashed) = (scratch.path().join("s"), scratch.path().join("crashed"));
    let db = Db::open_or_create(&dir, options(&ring(&[1]))).unwrap();
    let given = [("log_retention".to_owned(), "1MiB".to_owned())].into();
    let table = db.table_or_create("t", "lsm", &given).unwrap();
    table.put(b"a", b"1").unwrap();
    table.sync().unwrap();
    copy(&dir, &crashed);
    drop((table, db));
    let mut torn = 0;
    for path in files(&crashed).iter().filter(|path| path.to_string_lossy().ends_with(".log")) {
        let mut bytes = std::fs::read(path).unwrap();
        bytes.extend_from_slice(&[7; 100]);
        std::fs::write(path, bytes).unwrap();
        torn += 1;
    }
    assert!(torn > 0);
    let db = Db::open(&crashed, options(&ring(&[1]))).unwrap();
    let table = db.table("t").unwrap();
    table.put(b"b", b"2").unwrap();
    table.sync().unwrap();
    let changes = table.changes(0).unwrap().map(|change| change.unwrap().sequence);
    assert_eq!(changes.collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn read_only_store_writes_no_byte() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, keys) = (scratch.path().join("s"), ring(&[1]));
    fill(&dir, &keys);
    let contents =
        || -> Vec<_> { files(&dir).iter().map(|path| std::fs::read(path).unwrap()).collect() };
    let before = contents();
    let db = Db::open(&dir, DbOptions { read_only: true, ..options(&keys) }).unwrap();
    assert_eq!(db.table("two").unwrap().iter().unwrap().count(), 300);
    db.close().unwrap();
    assert!(contents() == before);
}

#[test]
fn reader_beside_the_writer_of_an_encrypted_store_shows_its_writes() {
    let scratch = tempfile::tempdir().unwrap();
    let (dir, keys) = (scratch.path().join("s"), ring(&[1]));
    let db = Db::open_or_create(&dir, options(&keys)).unwrap();
    let names = ["lsm", "trie", "silt"];
    let tables =
        names.map(|engine| db.table_or_create(engine, engine, &Default::default()).unwrap());
    assert!(matches!(Db::open_reader(&dir, DbOptions::default()), Err(Error::Refused { .. })));
    assert!(matches!(Db::open_reader(&dir, options(&ring(&[2]))), Err(Error::Refused { .. })));
    let reader = Db::open_reader(&dir, options(&keys)).unwrap();
    for round in 0..4 {
        for i in 0..500 {
            for table in &tables {
                table.put(&u32::to_be_bytes(i), value(round * 500 + i).as_bytes()).unwrap();
            }
        }
        if round % 2 == 1 {
            tables.iter().for_each(|table| table.flush().unwrap());
        }
        assert!(reader.catch_up().unwrap());
        assert!(!reader.catch_up().unwrap());
        for name in names {
            let table = reader.table(name).unwrap();
            for i in 0..500 {
                let found = table.get(&u32::to_be_bytes(i)).unwrap();
                let expected = value(round * 500 + i);
                assert_eq!(found.as_deref(), Some(expected.as_bytes()), "{name} {round} {i}");
            }
        }
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/encrypted_fixtures")
}

/// Writes a closed store and one whose process was killed, with the key of 32 bytes 7.
#[test]
#[ignore = "makes a fixture: SILTSTONE_NEW_FIXTURE=DIR"]
fn write_fixture() {
    let dir = PathBuf::from(std::env::var_os("SILTSTONE_NEW_FIXTURE").unwrap());
    std::fs::create_dir_all(&dir).unwrap();
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), options(&ring(&[7]))).unwrap();
    let table = db.table_or_create("t", "lsm", &small()).unwrap();
    for i in 0..600 {
        if i == 300 {
            table.compact_range::<&[u8]>(..).unwrap();
        }
        table.put(format!("{i:04}").as_bytes(), value(i).as_bytes()).unwrap();
    }
    db.sync().unwrap();
    copy(&scratch.path().join("s"), &dir.join("killed"));
    drop(table);
    db.close().unwrap();
    copy(&scratch.path().join("s"), &dir.join("closed"));
}

#[test]
fn encrypted_stores_of_earlier_versions_open() {
    let mut opened = 0;
    for version in fixtures().read_dir().unwrap().map(|entry| entry.unwrap().path()) {
        for store in ["closed", "killed"] {
            let scratch = tempfile::tempdir().unwrap();
            let dir = scratch.path().join("s");
            copy(&version.join(store), &dir);
            let db = Db::open(&dir, options(&ring(&[7]))).unwrap();
            let table = db.table("t").unwrap();
            for i in 0..600 {
                let found = table.get(format!("{i:04}").as_bytes()).unwrap();
                assert_eq!(found.as_deref(), Some(value(i).as_bytes()), "{store} {i}");
            }
            table.put(b"new", b"v").unwrap();
            drop(table);
            db.close().unwrap();
            let db = Db::open(&dir, options(&ring(&[7]))).unwrap();
            assert_eq!(db.table("t").unwrap().iter().unwrap().count(), 601);
            opened += 1;
        }
    }
    assert!(opened >= 2, "fixtures are missing");
}

#[test]
fn debug_of_options_shows_no_key() {
    let shown = format!("{:?}", options(&ring(&[0xab])));
    assert!(shown.contains("Keys(…)") && !shown.contains("171"), "{shown}");
}

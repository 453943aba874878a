//! `repair` saves all that is readable, and reports every loss.

#![allow(clippy::unwrap_used)]

#[path = "repair/partial.rs"]
mod partial;

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, Purpose, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt, repair};
use siltstone_vfs::{Mode, Ram, Vfs};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(vfs: &Arc<dyn Vfs>) -> siltstone_engine::Result<Silt> {
    let options = [
        ("partitions", "2"),
        ("log_store_slots", "64"),
        ("merge_trigger", "3"),
        ("stop_trigger", "8"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 7);
    Silt::open(vfs.clone(), env, Options::from_map(&options)?)
}

/// A closed table with several stores of each kind; `uneven`: entries of several lengths.
fn filled(uneven: bool) -> (Arc<dyn Vfs>, Rows) {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let silt = open(&vfs).unwrap();
    let mut rows = Rows::new();
    let mut batch = WriteBatch::new();
    for i in 0..3000u32 {
        let key = (i * 7 % 2500).to_le_bytes();
        batch.clear();
        if i % 11 == 3 {
            batch.delete(&key);
            rows.remove(&key[..]);
        } else {
            let len = if uneven { (i * i % 977) as usize } else { 100 };
            let value = vec![i as u8; len];
            batch.put(&key, &value);
            rows.insert(key.to_vec(), value);
        }
        silt.write(&batch, Durability::Buffered).unwrap();
    }
    silt.close().unwrap();
    (vfs, rows)
}

fn read(silt: &Silt) -> Rows {
    let mut rows = Rows::new();
    let mut cursor = silt.iter().unwrap();
    let mut is_there = cursor.first().unwrap();
    while is_there {
        rows.insert(cursor.key().to_vec(), cursor.value().to_vec());
        is_there = cursor.next().unwrap();
    }
    rows
}

fn flip(vfs: &Arc<dyn Vfs>, name: &str, at: u64) {
    let file = vfs.open(name, Mode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(at, &mut byte, Purpose::Maintenance).unwrap();
    file.write_at(at, &[byte[0] ^ 0x10], Purpose::Maintenance).unwrap();
}

fn names(vfs: &Arc<dyn Vfs>, ending: &str) -> Vec<String> {
    let names = vfs.list().unwrap().into_iter();
    names.filter(|name| name.ends_with(ending)).collect()
}

fn len(vfs: &Arc<dyn Vfs>, name: &str) -> u64 {
    vfs.open(name, Mode::Read).unwrap().len().unwrap()
}

fn bytes(vfs: &Arc<dyn Vfs>, name: &str) -> Vec<u8> {
    let mut bytes = vec![0; len(vfs, name) as usize];
    let file = vfs.open(name, Mode::Read).unwrap();
    file.read_at(0, &mut bytes, Purpose::Maintenance).unwrap();
    bytes
}

/// Repairs the table, checks that it opens and verifies, and writes to it. Returns the number of
/// rows that are lost or older than before, and the report.
fn repaired(vfs: &Arc<dyn Vfs>, rows: &Rows) -> (usize, String) {
    let story = repair(vfs).unwrap().lines.join("\n");
    let silt = open(vfs).unwrap();
    assert!(silt.verify(&mut |_, _| ()).unwrap().is_intact(), "{story}");
    let found = read(&silt);
    let differ = rows.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
    // New writes pass through all kinds of stores.
    let mut batch = WriteBatch::new();
    (0..500u32).for_each(|key| {
        batch.put(format!("new{key}").as_bytes(), b"value");
    });
    silt.write(&batch, Durability::Synced).unwrap();
    silt.flush().unwrap();
    silt.maintain().unwrap();
    silt.close().unwrap();
    drop(silt);
    assert_eq!(read(&open(vfs).unwrap()).len(), found.len() + 500, "{story}");
    let again = repair(vfs).unwrap();
    assert_eq!(again.lines, ["everything that the manifest names is intact"]);
    (differ, story)
}

#[test]
fn undamaged_table_is_left_unchanged() {
    let (vfs, rows) = filled(true);
    let before = vfs.list().unwrap();
    assert_eq!(repair(&vfs).unwrap().lines.len(), 1);
    assert_eq!(vfs.list().unwrap(), before);
    assert_eq!(read(&open(&vfs).unwrap()), rows);
}

#[test]
fn flipped_byte_costs_only_its_slot_or_block() {
    for uneven in [false, true] {
        for ending in [".hash", ".sorted"] {
            let mut lost = 0;
            for share in [0, 3, 7] {
                let (vfs, rows) = filled(uneven);
                let name = &names(&vfs, ending)[0];
                flip(&vfs, name, 10 + share * len(&vfs, name) / 10);
                let (differ, story) = repaired(&vfs, &rows);
                // A block of 4 KiB, or a slot, which may be empty.
                assert!(differ <= 100, "{ending} {differ}\n{story}");
                lost += differ;
                assert!(story.contains(&format!("{name} is damaged at byte")), "{story}");
                let is_reported = story.contains(&format!("lost what was in {name}, bytes"));
                assert_eq!(is_reported, differ > 0, "{story}");
                assert!(vfs.exists(&format!("{name}.damaged")).unwrap());
            }
            assert!(lost > 0);
        }
    }
}

#[test]
fn store_without_its_footer_loses_nothing() {
    for uneven in [false, true] {
        for ending in [".hash", ".sorted"] {
            let (vfs, rows) = filled(uneven);
            for name in names(&vfs, ending) {
                flip(&vfs, &name, len(&vfs, &name) - 6);
            }
            let (differ, story) = repaired(&vfs, &rows);
            assert_eq!(differ, 0, "{ending} {uneven}\n{story}");
        }
    }
}

#[test]
fn missing_files_are_reported_and_the_rest_is_kept() {
    let (vfs, rows) = filled(true);
    let name = names(&vfs, ".sorted")[0].clone();
    vfs.remove(&name).unwrap();
    assert!(matches!(open(&vfs), Err(Error::Corruption { file, .. }) if file.contains(&name)));
    let (differ, story) = repaired(&vfs, &rows);
    assert!(story.contains(&format!("{name} is missing: its ")), "{story}");
    assert!((100..rows.len() - 100).contains(&differ), "{differ}");
}

#[test]
fn damaged_filters_and_indexes_are_rebuilt() {
    let (vfs, rows) = filled(true);
    for name in names(&vfs, ".index").iter().chain(&names(&vfs, ".filter")) {
        flip(&vfs, name, 20);
    }
    let story = repair(&vfs).unwrap().lines.join("\n");
    assert!(story.contains("it is rebuilt from"), "{story}");
    assert_eq!(read(&open(&vfs).unwrap()), rows);
}

#[test]
fn damaged_log_is_kept_up_to_the_damage() {
    let (vfs, rows) = filled(true);
    let name = names(&vfs, ".log").pop().unwrap();
    let total = len(&vfs, &name);
    flip(&vfs, &name, total / 2);
    assert!(open(&vfs).is_err());
    let (differ, story) = repaired(&vfs, &rows);
    assert!(story.contains(&format!("{name} is damaged at byte")), "{story}");
    assert!(story.contains(&format!("lost what was in {name}, bytes")), "{story}");
    assert!((1..200).contains(&differ), "{differ}");
}

#[test]
fn stores_and_logs_without_a_manifest_rebuild_the_table() {
    for uneven in [false, true] {
        let (vfs, rows) = filled(uneven);
        lose_the_manifest(&vfs);
        assert!(matches!(open(&vfs), Err(Error::Corruption { file, .. }) if file == "CURRENT"));
        let (differ, story) = repaired(&vfs, &rows);
        assert_eq!(differ, 0, "{story}");
        assert!(story.contains("the manifest is unusable"), "{story}");
        // No deleted key reappears: all stores were named by the manifest.
        let mut found = read(&open(&vfs).unwrap());
        found.retain(|key, _| !key.starts_with(b"new"));
        assert!(found == rows, "{story}");
    }
}

fn lose_the_manifest(vfs: &Arc<dyn Vfs>) {
    let manifests = vfs.list().unwrap().into_iter();
    let manifests = manifests.filter(|name| name == "CURRENT" || name.starts_with("MANIFEST"));
    manifests.for_each(|name| vfs.remove(&name).unwrap());
}

#[test]
fn newest_of_several_stores_wins_without_a_manifest() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let silt = open(&vfs).unwrap();
    // Two HashStores per partition, with the same keys.
    for version in [1, 2] {
        for key in 0..30u32 {
            let mut batch = WriteBatch::new();
            match (version, key % 3) {
                (2, 0) => batch.delete(&key.to_le_bytes()),
                _ => batch.put(&key.to_le_bytes(), &[version]),
            };
            silt.write(&batch, Durability::Buffered).unwrap();
        }
        silt.flush().unwrap();
    }
    silt.close().unwrap();
    assert_eq!(names(&vfs, ".hash").len(), 4);
    lose_the_manifest(&vfs);
    repair(&vfs).unwrap();
    let rows = read(&open(&vfs).unwrap());
    assert_eq!(rows.len(), 20);
    assert!(rows.values().all(|value| value == &[2]), "{rows:?}");
}

#[test]
fn sorted_store_from_before_the_last_merge_is_skipped_without_a_manifest() {
    let (vfs, mut rows) = filled(false);
    let old: Vec<(String, Vec<u8>)> = [names(&vfs, ".sorted"), names(&vfs, ".index")]
        .concat()
        .into_iter()
        .map(|name| (name.clone(), bytes(&vfs, &name)))
        .collect();
    let silt = open(&vfs).unwrap();
    let mut batch = WriteBatch::new();
    for (at, value) in rows.values_mut().enumerate() {
        *value = vec![at as u8; 50];
    }
    rows.iter().for_each(|(key, value)| {
        batch.put(key, value);
    });
    silt.write(&batch, Durability::Buffered).unwrap();
    silt.flush().unwrap();
    silt.maintain().unwrap();
    silt.close().unwrap();
    drop(silt);
    for (name, bytes) in old {
        assert!(!vfs.exists(&name).unwrap(), "{name} was merged");
        let file = vfs.create(&name).unwrap();
        file.write_at(0, &bytes, Purpose::Maintenance).unwrap();
    }
    lose_the_manifest(&vfs);
    let story = repair(&vfs).unwrap().lines.join("\n");
    assert!(story.contains("is older than"), "{story}");
    assert!(read(&open(&vfs).unwrap()) == rows, "{story}");
}

#[test]
fn damaged_log_does_not_cost_the_other_logs_of_the_chain() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    for part in 0..3u32 {
        let silt = open(&vfs).unwrap();
        for key in part * 10..part * 10 + 10 {
            let mut batch = WriteBatch::new();
            batch.put(&key.to_le_bytes(), b"value");
            silt.write(&batch, Durability::Buffered).unwrap();
        }
        silt.close().unwrap();
    }
    let logs = names(&vfs, ".log");
    assert_eq!(logs.len(), 3);
    let values = |bytes: &[u8]| bytes.windows(5).filter(|window| window == b"value").count();
    let log = bytes(&vfs, &logs[1]);
    let fifth = (0..log.len()).find(|&at| values(&log[..at]) == 5).unwrap();
    flip(&vfs, &logs[1], fifth as u64 - 1);
    repair(&vfs).unwrap();
    let rows = read(&open(&vfs).unwrap());
    let is_there = |key: u32| rows.contains_key(&key.to_le_bytes()[..]);
    let gone: Vec<u32> = (0..30).filter(|&key| !is_there(key)).collect();
    assert!(!gone.is_empty() && gone.iter().all(|key| (10..20).contains(key)), "{gone:?}");
}

/// A copy of all files on a file system with fault injection.
fn copied(from: &Arc<dyn Vfs>) -> FaultyVfs {
    let to = FaultyVfs::new(7);
    for name in from.list().unwrap() {
        let bytes = bytes(from, &name);
        let file = to.create(&name).unwrap();
        file.write_at(0, &bytes, Purpose::Maintenance).unwrap();
        file.sync(Purpose::Maintenance).unwrap();
    }
    to.sync_dir(Purpose::Maintenance).unwrap();
    to
}

/// A table with several versions of each key in each of three logs, the last of which is damaged.
fn rewritten() -> Arc<dyn Vfs> {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    for log in 0..3u8 {
        let silt = open(&vfs).unwrap();
        for round in 0..8u8 {
            for key in 0..4u32 {
                let mut batch = WriteBatch::new();
                batch.put(&key.to_le_bytes(), &[log, round, b'v', b'a', b'l']);
                silt.write(&batch, Durability::Buffered).unwrap();
            }
        }
        silt.close().unwrap();
    }
    let name = names(&vfs, ".log").pop().unwrap();
    let log = bytes(&vfs, &name);
    let last = (0..log.len() - 3).rev().find(|&at| log[at..].starts_with(b"val")).unwrap();
    flip(&vfs, &name, last as u64);
    vfs
}

/// A table with one damaged file of a kind, optionally without a manifest.
fn damaged(ending: &str, has_manifest: bool) -> Arc<dyn Vfs> {
    let (vfs, _) = filled(true);
    let name = names(&vfs, ending).pop().unwrap();
    flip(&vfs, &name, len(&vfs, &name) / 2);
    if !has_manifest {
        lose_the_manifest(&vfs);
    }
    vfs
}

#[test]
fn repair_repeated_after_a_power_cut_saves_as_much() {
    // Every fifth operation, or every one in the long test of power cuts.
    let step = if std::env::var_os("SILTSTONE_POWER_CUTS").is_some() { 1 } else { 5 };
    for (what, vfs, step) in [
        ("log", damaged(".log", true), step),
        ("HashStore", damaged(".hash", true), step),
        ("SortedStore", damaged(".sorted", true), step),
        ("HashStore and manifest", damaged(".hash", false), step),
        ("logs of the same keys", rewritten(), 1),
    ] {
        let whole = copied(&vfs);
        let (saved, kept) = {
            let vfs: Arc<dyn Vfs> = Arc::new(whole.clone());
            repair(&vfs).unwrap();
            let stores = ["hash", "sorted"].map(|kind| names(&vfs, &format!(".{kind}.damaged")));
            (read(&open(&vfs).unwrap()), stores.concat())
        };
        let begun = copied(&vfs).operations();
        for at in (begun..).step_by(step) {
            let cut = copied(&vfs);
            cut.cut_power_at(at);
            let during: Arc<dyn Vfs> = Arc::new(cut.clone());
            if repair(&during).is_ok() {
                break;
            }
            for seed in 0..6 {
                let vfs: Arc<dyn Vfs> = Arc::new(cut.survivors(seed));
                let story = repair(&vfs).unwrap().lines.join("\n");
                let rows = read(&open(&vfs).unwrap());
                let lost =
                    saved.iter().filter(|(key, value)| rows.get(*key) != Some(value)).count();
                assert_eq!(lost, 0, "{what}, cut at {at}, seed {seed}:\n{story}");
                for name in &kept {
                    let is_kept = vfs.exists(name).unwrap();
                    assert!(is_kept, "{name}: {what}, cut at {at}, seed {seed}:\n{story}");
                }
            }
        }
    }
}

#[test]
fn repair_of_a_batch_with_a_damaged_operation_saves_the_others() {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let silt = open(&vfs).unwrap();
    for first in [0u32, 10, 20] {
        let mut batch = WriteBatch::new();
        // Longer than a log block, so that the damage leaves a part of the batch readable.
        (first..first + 10).for_each(|key| {
            batch.put(&key.to_le_bytes(), &[7; 20_000]);
        });
        silt.write(&batch, Durability::Buffered).unwrap();
    }
    silt.close().unwrap();
    let name = names(&vfs, ".log").pop().unwrap();
    let total = len(&vfs, &name);
    flip(&vfs, &name, total * 5 / 6);
    let story = repair(&vfs).unwrap().lines.join("\n");
    let keys: Vec<_> = read(&open(&vfs).unwrap()).into_keys().collect();
    let lost: Vec<u32> =
        (0..30).filter(|key: &u32| !keys.contains(&key.to_le_bytes().to_vec())).collect();
    assert!(lost.len() == 1 && lost[0] >= 20, "{lost:?} {story}");
    assert!(story.contains(&format!("lost what was in {name}, bytes")), "{story}");
}

#[test]
fn stores_without_manifest_and_with_one_footer_are_recovered() {
    let (vfs, rows) = filled(true);
    lose_the_manifest(&vfs);
    // All footers but one, which has the hash seed and the partitions.
    let stores = [names(&vfs, ".hash"), names(&vfs, ".sorted")].concat();
    for name in &stores[1..] {
        flip(&vfs, name, len(&vfs, name) - 6);
    }
    let (differ, story) = repaired(&vfs, &rows);
    assert_eq!(differ, 0, "{story}");
}

//! Whether `repair` saves what can be saved, tells what cannot, and lies about neither.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Env, Error, ManualClock, Purpose, WriteBatch};
use siltstone_media::{Media, Mode, Ram};
use siltstone_silt::{Options, Silt, repair};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(media: &Arc<dyn Media>) -> siltstone_engine::Result<Silt> {
    let options = [("partitions", "2"), ("slots", "64"), ("hash_stores", "3"), ("stop", "8")];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 7);
    Silt::open(media.clone(), env, Options::from_map(&options)?)
}

/// A closed table with several stores of each kind; `uneven`: entries of many lengths.
fn filled(uneven: bool) -> (Arc<dyn Media>, Rows) {
    let media: Arc<dyn Media> = Arc::new(Ram::new());
    let silt = open(&media).unwrap();
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
    (media, rows)
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

fn flip(media: &Arc<dyn Media>, name: &str, at: u64) {
    let file = media.open(name, Mode::ReadWrite).unwrap();
    let mut byte = [0];
    file.read_at(at, &mut byte, Purpose::Maintenance).unwrap();
    file.write_at(at, &[byte[0] ^ 0x10], Purpose::Maintenance).unwrap();
}

fn names(media: &Arc<dyn Media>, ending: &str) -> Vec<String> {
    let names = media.list().unwrap().into_iter();
    names.filter(|name| name.ends_with(ending)).collect()
}

fn len(media: &Arc<dyn Media>, name: &str) -> u64 {
    media.open(name, Mode::Read).unwrap().len().unwrap()
}

/// Repairs, and checks that the table then opens and is sound; how many rows are gone or older than
/// they were, and the story.
fn repaired(media: &Arc<dyn Media>, rows: &Rows) -> (usize, String) {
    let story = repair(media).unwrap().join("\n");
    let silt = open(media).unwrap();
    assert!(silt.verify(&mut |_, _| ()).unwrap().is_sound(), "{story}");
    let found = read(&silt);
    let differ = rows.iter().filter(|(key, value)| found.get(*key) != Some(value)).count();
    silt.close().unwrap();
    drop(silt);
    let again = repair(media).unwrap();
    assert_eq!(again, ["everything that the manifest names is sound"]);
    (differ, story)
}

#[test]
fn is_a_sound_table_left_as_it_is() {
    let (media, rows) = filled(true);
    let before = media.list().unwrap();
    assert_eq!(repair(&media).unwrap().len(), 1);
    assert_eq!(media.list().unwrap(), before);
    assert_eq!(read(&open(&media).unwrap()), rows);
}

#[test]
fn does_a_flipped_byte_cost_its_slot_or_block_and_no_more() {
    for uneven in [false, true] {
        for ending in [".hash", ".sorted"] {
            let mut lost = 0;
            for share in [0, 3, 7] {
                let (media, rows) = filled(uneven);
                let name = &names(&media, ending)[0];
                flip(&media, name, 10 + share * len(&media, name) / 10);
                let (differ, story) = repaired(&media, &rows);
                // A block of 4 KiB, or a slot, which may be empty.
                assert!(differ <= 100, "{ending} {differ}\n{story}");
                lost += differ;
                assert!(story.contains(&format!("{name} is damaged at byte")), "{story}");
                assert!(story.contains("cannot be read: lost"), "{story}");
                assert!(media.exists(&format!("{name}.damaged")).unwrap());
            }
            assert!(lost > 0);
        }
    }
}

#[test]
fn does_a_store_without_its_footer_lose_nothing() {
    for uneven in [false, true] {
        for ending in [".hash", ".sorted"] {
            let (media, rows) = filled(uneven);
            for name in names(&media, ending) {
                flip(&media, &name, len(&media, &name) - 6);
            }
            let (differ, story) = repaired(&media, &rows);
            assert_eq!(differ, 0, "{ending} {uneven}\n{story}");
        }
    }
}

#[test]
fn are_missing_files_told_and_the_rest_kept() {
    let (media, rows) = filled(true);
    let name = names(&media, ".sorted")[0].clone();
    media.remove(&name).unwrap();
    assert!(matches!(open(&media), Err(Error::Corruption { file, .. }) if file.contains(&name)));
    let (differ, story) = repaired(&media, &rows);
    assert!(story.contains(&format!("{name} is missing: its ")), "{story}");
    assert!((100..rows.len() - 100).contains(&differ), "{differ}");
}

#[test]
fn are_filters_and_indexes_left_to_the_opening() {
    let (media, rows) = filled(true);
    for name in names(&media, ".index").iter().chain(&names(&media, ".filter")) {
        flip(&media, name, 20);
    }
    let story = repair(&media).unwrap().join("\n");
    assert!(story.contains("the next opening makes it again"), "{story}");
    assert_eq!(read(&open(&media).unwrap()), rows);
}

#[test]
fn is_a_log_kept_up_to_its_damage() {
    let (media, rows) = filled(true);
    let name = names(&media, ".log").pop().unwrap();
    let total = len(&media, &name);
    flip(&media, &name, total / 2);
    assert!(open(&media).is_err());
    let (differ, story) = repaired(&media, &rows);
    assert!(story.contains(&format!("{name} is damaged (")), "{story}");
    assert!(story.contains(&format!("to {total} are lost")), "{story}");
    assert!((1..200).contains(&differ), "{differ}");
}

#[test]
fn do_stores_and_logs_without_a_manifest_make_the_table_again() {
    for uneven in [false, true] {
        let (media, rows) = filled(uneven);
        for name in media.list().unwrap() {
            if name == "CURRENT" || name.starts_with("MANIFEST") {
                media.remove(&name).unwrap();
            }
        }
        assert!(matches!(open(&media), Err(Error::Refused { .. })));
        let (differ, story) = repaired(&media, &rows);
        assert_eq!(differ, 0, "{story}");
        assert!(story.contains("there is no manifest"), "{story}");
        // Nothing was in the table that had been deleted: all stores were the manifest's.
        assert_eq!(read(&open(&media).unwrap()), rows);
    }
}

#[test]
fn do_stores_alone_without_manifest_and_footers_come_back() {
    let (media, rows) = filled(true);
    let manifests = media.list().unwrap().into_iter();
    let manifests = manifests.filter(|name| name == "CURRENT" || name.starts_with("MANIFEST"));
    manifests.for_each(|name| media.remove(&name).unwrap());
    // All footers but one: it tells how keys are divided.
    let stores = [names(&media, ".hash"), names(&media, ".sorted")].concat();
    for name in &stores[1..] {
        flip(&media, name, len(&media, name) - 6);
    }
    let (differ, story) = repaired(&media, &rows);
    assert_eq!(differ, 0, "{story}");
}

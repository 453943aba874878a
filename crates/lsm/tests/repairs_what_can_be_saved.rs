//! Does repair make a damaged table open again, with everything that the damage did not touch?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Env, Error, KeyRange, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options, inspect, repair};
use siltstone_media::{Faulty, Media};

const KEYS: usize = 3000;

fn open(media: &Arc<dyn Media>) -> Result<Lsm, Error> {
    let pairs = [("memtable", "32KiB"), ("table", "16KiB"), ("levels", "64KiB:256KiB")];
    let options = Options::from_map(&pairs.map(|(k, v)| (k.into(), v.into())).into()).unwrap();
    Lsm::open(media.clone(), Env::replayable(Arc::new(ManualClock::at(1)), 1), options)
}

fn key(i: usize) -> Vec<u8> {
    format!("key{i:05}").into_bytes()
}

/// A store with tables on several levels and some writes only in its log, closed cleanly.
fn filled() -> (Faulty, Arc<dyn Media>) {
    let faulty = Faulty::new(1);
    let media: Arc<dyn Media> = Arc::new(faulty.clone());
    let lsm = open(&media).unwrap();
    for i in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put(&key(i * 7 % KEYS), format!("value {}", i * 7 % KEYS).as_bytes());
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.maintain().unwrap();
    lsm.close().unwrap();
    (faulty, media)
}

/// How many keys have their right value; no key may have a wrong one.
fn right(media: &Arc<dyn Media>) -> usize {
    let lsm = open(media).unwrap();
    assert!(lsm.verify(&mut |_, _| ()).unwrap().is_sound());
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let (mut count, mut there) = (0, cursor.first().unwrap());
    while there {
        let i: usize = std::str::from_utf8(&cursor.key()[3..]).unwrap().parse().unwrap();
        assert_eq!(cursor.value(), format!("value {i}").as_bytes());
        count += 1;
        there = cursor.next().unwrap();
    }
    lsm.close().unwrap();
    count
}

fn files(faulty: &Faulty, ending: &str) -> Vec<(String, u64)> {
    let all = faulty.files().into_iter().map(|file| (file.path, file.len));
    all.filter(|(path, len)| path.contains(ending) && *len > 0).collect()
}

#[test]
fn a_sound_store_stays_as_it_is() {
    let (_, media) = filled();
    repair(&media).unwrap();
    assert_eq!(right(&media), KEYS);
}

#[test]
fn a_lost_manifest_costs_nothing() {
    for name in ["CURRENT", "MANIFEST"] {
        let (faulty, media) = filled();
        for (path, _) in files(&faulty, name) {
            media.remove(&path).unwrap();
        }
        let story = repair(&media).unwrap();
        assert!(story[0].contains("manifest"), "{story:?}");
        assert_eq!(right(&media), KEYS);
    }
}

#[test]
fn a_damaged_block_costs_its_own_entries() {
    let (faulty, media) = filled();
    let (path, _) = files(&faulty, ".sst").pop().unwrap();
    faulty.flip_bit(&path, 100, 3).unwrap();
    let inspection = inspect(&media, &path, 3).unwrap().unwrap();
    assert!(inspection.damage.is_some());
    let damage = open(&media).unwrap().verify(&mut |_, _| ()).unwrap().damage;
    assert_eq!((damage.len(), &damage[0].file), (1, &path));

    let story = repair(&media).unwrap();
    assert!(story.iter().any(|line| line.contains(&path)), "{story:?}");
    let saved = right(&media);
    assert!((KEYS - 400..KEYS).contains(&saved), "{saved} of {KEYS}");
    assert!(media.exists(&format!("{path}.damaged")).unwrap());
}

#[test]
fn a_damaged_log_costs_what_stood_behind_the_damage() {
    let (faulty, media) = filled();
    let (path, _) = files(&faulty, ".log").pop().unwrap();
    faulty.flip_bit(&path, 300, 3).unwrap();
    assert!(open(&media).err().unwrap().is_corruption());
    repair(&media).unwrap();
    let saved = right(&media);
    assert!((KEYS - 1000..KEYS).contains(&saved), "{saved} of {KEYS}");
}

#[test]
fn a_missing_table_is_refused_by_name_and_then_done_without() {
    let (faulty, media) = filled();
    let (path, _) = files(&faulty, ".sst").pop().unwrap();
    media.remove(&path).unwrap();
    let before = files(&faulty, "");
    let error = open(&media).err().unwrap();
    assert!(error.is_corruption() && error.to_string().contains(&path), "{error}");
    assert_eq!(files(&faulty, ""), before, "nothing was touched");
    repair(&media).unwrap();
    assert!(right(&media) > KEYS / 2);
}

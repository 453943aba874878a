//! A scan in pages returns every key that exists throughout, whatever is written in between.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_testkit::TestRng;
use siltstone_vfs::{Ram, Vfs};

fn open() -> Silt {
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let options = [
        ("partitions", "3"),
        ("log_store_slots", "64"),
        ("merge_trigger", "3"),
        ("stop_trigger", "8"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 7);
    Silt::open(vfs, env, Options::from_map(&options).unwrap()).unwrap()
}

fn put(silt: &Silt, key: u32) {
    let mut batch = WriteBatch::new();
    batch.put(&key.to_le_bytes(), &[key as u8; 30]);
    silt.write(&batch, Durability::Buffered).unwrap();
}

fn delete(silt: &Silt, key: u32) {
    let mut batch = WriteBatch::new();
    batch.delete(&key.to_le_bytes());
    silt.write(&batch, Durability::Buffered).unwrap();
}

/// A page of up to `max` keys from a position on, and the position of the next page.
fn page(silt: &Silt, from: Option<&[u8]>, max: u64) -> (Vec<u32>, Option<Vec<u8>>) {
    let mut cursor = silt.iter().unwrap();
    let mut is_there = match from {
        None => cursor.first().unwrap(),
        Some(position) => cursor.resume(position).unwrap(),
    };
    let mut keys = Vec::new();
    while is_there {
        keys.push(u32::from_le_bytes(cursor.key().try_into().unwrap()));
        if keys.len() as u64 == max {
            return (keys, Some(cursor.position()));
        }
        is_there = cursor.next().unwrap();
    }
    (keys, None)
}

#[test]
fn scan_of_an_unchanged_table_returns_every_key_once() {
    let silt = open();
    let mut keys = BTreeSet::new();
    for i in 0..3000u32 {
        put(&silt, i * 7 % 2000);
        keys.insert(i * 7 % 2000);
        if i % 13 == 5 {
            delete(&silt, i % 500);
            keys.remove(&(i % 500));
        }
    }
    for page_keys in [1, 7, 100, 5000] {
        let (mut returned, mut from) = (Vec::new(), None);
        loop {
            let (more, next) = page(&silt, from.as_deref(), page_keys);
            returned.extend(more);
            from = next;
            if from.is_none() {
                break;
            }
        }
        assert_eq!(returned.len(), keys.len(), "pages of {page_keys}");
        assert_eq!(returned.into_iter().collect::<BTreeSet<_>>(), keys);
    }
}

#[test]
fn scan_during_writes_conversions_and_merges_misses_no_key() {
    for seed in 0..60 {
        let mut rng = TestRng::new(seed);
        let silt = open();
        let mut live = BTreeSet::new();
        for _ in 0..rng.below(4000) {
            let key = rng.below(1500) as u32;
            if rng.below(6) == 0 {
                delete(&silt, key);
                live.remove(&key);
            } else {
                put(&silt, key);
                live.insert(key);
            }
        }
        // Keys that existed throughout, and keys that ever existed.
        let (mut always, mut ever) = (live.clone(), live.clone());
        let mut returned: BTreeMap<u32, u32> = BTreeMap::new();
        let mut from: Option<Vec<u8>> = None;
        loop {
            let (more, next) = page(&silt, from.as_deref(), 1 + rng.below(60));
            more.into_iter().for_each(|key| *returned.entry(key).or_default() += 1);
            from = next;
            if from.is_none() {
                break;
            }
            for _ in 0..rng.below(150) {
                let key = rng.below(2000) as u32;
                if rng.below(6) == 0 {
                    delete(&silt, key);
                    always.remove(&key);
                    live.remove(&key);
                } else {
                    put(&silt, key);
                    live.insert(key);
                    ever.insert(key);
                }
            }
            match rng.below(8) {
                0 => silt.flush().unwrap(),
                1 => silt.maintain().unwrap(),
                _ => {}
            }
        }
        let missed: Vec<_> = always.iter().filter(|key| !returned.contains_key(key)).collect();
        assert!(missed.is_empty(), "seed {seed}: {missed:?} of {}", always.len());
        let strange: Vec<_> = returned.keys().filter(|key| !ever.contains(key)).collect();
        assert!(strange.is_empty(), "seed {seed}: {strange:?} never existed");
    }
}

#[test]
fn malformed_positions_are_rejected() {
    let silt = open();
    (0..500).for_each(|key| put(&silt, key));
    let position = page(&silt, None, 10).1.unwrap();
    for at in 0..position.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = position.clone();
            bad[at] = value;
            let mut cursor = silt.iter().unwrap();
            match cursor.resume(&bad) {
                Ok(_) | Err(Error::Invalid(_)) => {}
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(matches!(silt.iter().unwrap().resume(b""), Err(Error::Invalid(_))));
}

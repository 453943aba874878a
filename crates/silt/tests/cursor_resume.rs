//! A scan in pages returns every key that exists throughout, whatever is written in between.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, ManualClock, WriteBatch};
use siltstone_faults::{FaultyVfs, Survival};
use siltstone_runtime::Env;
use siltstone_silt::{Options, Silt};
use siltstone_testkit::TestRng;
use siltstone_vfs::{Ram, Vfs};

fn open() -> Silt {
    open_on(Arc::new(Ram::new()), 7)
}

/// Opens a table in a process with this seed.
fn open_on(vfs: Arc<dyn Vfs>, seed: u64) -> Silt {
    let options = [
        ("partitions", "3"),
        ("log_store_slots", "64"),
        ("merge_trigger", "3"),
        ("stop_trigger", "8"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), seed);
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
fn scan_continued_after_a_power_cut_that_lost_the_log_misses_no_key() {
    let faulty = FaultyVfs::new(1);
    let silt = open_on(Arc::new(faulty.clone()), 7);
    (0..20).for_each(|key| put(&silt, key));
    silt.flush().unwrap();
    silt.close().unwrap();
    drop(silt);
    // The scan begins with the entries of the log of this opening, which is never synced.
    let silt = open_on(Arc::new(faulty.clone()), 7);
    (100..140).for_each(|key| put(&silt, key));
    let in_log = page(&silt, None, 1000).0.into_iter().take_while(|key| *key >= 100).count();
    let position = page(&silt, None, in_log as u64).1.unwrap();
    faulty.cut_power();
    drop(silt);
    // The next opening begins a log with the same number.
    let survivors = faulty.survivors_as(Survival::LoseAll, 1);
    let silt = open_on(Arc::new(survivors), 8);
    (0..20).for_each(|key| put(&silt, key));
    let rest: BTreeSet<u32> = page(&silt, Some(&position), 1000).0.into_iter().collect();
    assert!((0..20).all(|key| rest.contains(&key)), "{rest:?}");
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

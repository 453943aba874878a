//! Random keys: every live key is equally likely, whatever its level and its neighbours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;
use siltstone_vfs::Ram;

fn open(extra: &str) -> Lsm {
    let text = format!("memtable=32KiB target_file_size=16KiB levels=64KiB:256KiB:1MiB {extra}");
    let pairs = text.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    let map: BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    let env = Env::replayable(Arc::new(ManualClock::at(100)), 1);
    Lsm::open(Arc::new(Ram::new()), env, Options::from_map(&map).unwrap()).unwrap()
}

fn write(lsm: &Lsm, fill: impl FnOnce(&mut WriteBatch)) {
    let mut batch = WriteBatch::new();
    fill(&mut batch);
    lsm.write(&batch, Durability::Buffered).unwrap();
}

/// The expected number of draws of each key.
const EXPECTED: f64 = 40.0;

/// Draws keys, and checks how often each was drawn.
fn check(lsm: &Lsm, live: &BTreeSet<Vec<u8>>, context: &str) {
    let mut rng = TestRng::new(7);
    let mut counts: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
    let draws = EXPECTED as usize * live.len();
    for _ in 0..draws {
        let key = lsm.random_key(&mut |n| rng.below(n)).unwrap().expect("there are keys");
        assert!(live.contains(&key), "{context}: {} is not live", key.escape_ascii());
        *counts.entry(key).or_default() += 1.0;
    }
    // Chi-square: about the number of keys, with a standard deviation of √(2 · keys).
    let sum: f64 = live
        .iter()
        .map(|key| {
            let count = counts.get(key).copied().unwrap_or(0.0);
            (count - EXPECTED).powi(2) / EXPECTED
        })
        .sum();
    let degrees = live.len() as f64;
    assert!(
        sum < degrees + 8.0 * (2.0 * degrees).sqrt(),
        "{context}: {} of {} keys came, chi-square {sum:.0}",
        counts.len(),
        live.len()
    );
}

#[test]
fn every_key_is_equally_likely_in_uneven_key_spaces() {
    for extra in [
        "triad.log=on triad.mem=on",
        "l0_capacity=0 triad.log=off",
        "l0_policy=sliced pmem.size=1MiB",
    ] {
        let lsm = open(extra);
        let mut live = BTreeSet::new();
        let mut rng = TestRng::new(1);
        // A thousand keys close together, a few far away, and some of random length.
        for i in 0..1000 {
            let key = match i % 50 {
                0 => format!("zz:{}", rng.draw()).into_bytes(),
                1 => vec![b'k'; 1 + rng.index(300)],
                _ => format!("key:{i:04}").into_bytes(),
            };
            let bytes = if i % 7 == 0 { 2000 } else { 20 };
            write(&lsm, |batch| _ = batch.put(&key, &vec![b'v'; bytes]));
            live.insert(key);
        }
        check(&lsm, &live, &format!("{extra}: as written"));
        // A hot key has thousands of versions.
        for i in 0..3000u32 {
            write(&lsm, |batch| _ = batch.put(b"key:0002", &i.to_le_bytes()));
        }
        // A quarter of the keys is deleted, another has expired.
        for (i, key) in live.clone().into_iter().enumerate() {
            match i % 4 {
                0 => write(&lsm, |batch| _ = batch.delete(&key)),
                1 => write(&lsm, |batch| _ = batch.put_until(&key, b"v", 50)),
                _ => continue,
            }
            live.remove(&key);
        }
        live.insert(b"key:0002".to_vec());
        write(&lsm, |batch| _ = batch.put(b"key:0002", b"v"));
        check(&lsm, &live, &format!("{extra}: with dead versions"));
        lsm.flush().unwrap();
        check(&lsm, &live, &format!("{extra}: flushed"));
        lsm.maintain().unwrap();
        check(&lsm, &live, &format!("{extra}: compacted"));
    }
}

#[test]
fn live_key_is_found_among_many_deleted_ones() {
    let lsm = open("");
    assert_eq!(lsm.random_key(&mut |n| n - 1).unwrap(), None);
    for i in 0..5000 {
        write(&lsm, |batch| _ = batch.put(format!("key:{i:06}").as_bytes(), b"v"));
    }
    for i in 0..5000 {
        if i != 1234 && i != 4321 {
            write(&lsm, |batch| _ = batch.delete(format!("key:{i:06}").as_bytes()));
        }
    }
    let mut rng = TestRng::new(3);
    let drawn: BTreeSet<_> =
        (0..50).map(|_| lsm.random_key(&mut |n| rng.below(n)).unwrap().unwrap()).collect();
    assert_eq!(drawn.len(), 2, "{drawn:?}");
}

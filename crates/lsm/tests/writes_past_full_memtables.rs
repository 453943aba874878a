//! `level0=novelsm`: does the large memtable take writes while the others wait for their flush, and is
//! the newest version of a key found and kept wherever its versions went?

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, ReadPoint, WriteBatch};
use siltstone_faults::{Faulty, Survival};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn open(vfs: &Arc<dyn Vfs>) -> (Lsm, Env) {
    open_in(vfs, Env::replayable(Arc::new(ManualClock::at(0)), 1), "64KiB", "3")
}

fn open_in(vfs: &Arc<dyn Vfs>, env: Env, nvm: &str, l0_compact: &str) -> (Lsm, Env) {
    let options = [
        ("level0", "novelsm"),
        ("nvm", nvm),
        ("memtable", "4KiB"),
        ("table", "8KiB"),
        ("levels", "32KiB:128KiB:1MiB"),
        ("l0_compact", l0_compact),
        ("l0_slow", "400"),
        ("l0_stop", "500"),
    ];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let options = Options::from_map(&options.into()).unwrap();
    (Lsm::open(vfs.clone(), env.clone(), options).unwrap(), env)
}

fn check(lsm: &Lsm, model: &Model, at: Option<&ReadPoint>) {
    let mut cursor = lsm.range(KeyRange::all(), at).unwrap();
    let mut seen = Model::new();
    cursor.first().unwrap();
    while cursor.valid() {
        seen.insert(cursor.key().to_vec(), cursor.value().to_vec());
        cursor.next().unwrap();
    }
    assert!(seen == *model, "a walk shows something else");
    for number in 0..KEYS {
        let key = key(number);
        let found = match at {
            Some(at) => lsm.get_at(&key, at),
            None => lsm.get(&key),
        };
        assert_eq!(found.unwrap().map(|entry| entry.value), model.get(&key).cloned(), "{key:?}");
    }
}

const KEYS: u32 = 700;

fn key(number: u32) -> Vec<u8> {
    format!("key{number:05}").into_bytes()
}

fn counter(lsm: &Lsm, name: &str) -> u64 {
    lsm.stats().counters[name]
}

#[test]
fn is_the_newest_version_found_wherever_versions_went() {
    for seed in 0..6 {
        let mut dice = StdRng::seed_from_u64(seed);
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let (mut lsm, mut env) = open(&vfs);
        let (mut model, mut then) = (Model::new(), None);
        let (mut large_writes, mut writes) = (0, 0);
        for step in 1..=6000u32 {
            let mut batch = WriteBatch::new();
            for _ in 0..dice.random_range(1..4) {
                // Half of the writes go to a tenth of the keys.
                let among = if dice.random_bool(0.5) { KEYS / 10 } else { KEYS };
                let key = key(dice.random_range(0..among));
                if dice.random_bool(0.1) {
                    batch.delete(&key);
                    model.remove(&key);
                } else {
                    let value = [&step.to_le_bytes()[..], &[7; 60]].concat();
                    batch.put(&key, &value);
                    model.insert(key, value);
                }
            }
            lsm.write(&batch, Durability::Buffered).unwrap();
            // The background is as fast as chance has it.
            if dice.random_bool([0.0, 0.01, 0.03, 0.1, 0.3, 1.0][seed as usize]) {
                env.scheduler.help();
            }
            match step % 1500 {
                500 => then = Some((lsm.snapshot().unwrap(), model.clone())),
                1100 => {
                    let (point, model) = then.take().unwrap();
                    check(&lsm, &model, Some(&point));
                }
                700 => lsm.flush().unwrap(),
                1300 => {
                    large_writes += counter(&lsm, "large_memtable_writes");
                    writes += lsm.stats().writes;
                    lsm.sync().unwrap();
                    // Every second time without closing.
                    if step > 3000 {
                        lsm.close().unwrap();
                    }
                    drop(lsm);
                    (lsm, env) = open(&vfs);
                }
                _ => {}
            }
            if step % 300 == 0 {
                check(&lsm, &model, None);
            }
        }
        let is_slow = seed < 2;
        assert!(large_writes < writes, "{large_writes} of {writes}");
        assert!(large_writes > 0 || !is_slow, "none of {writes}");
        lsm.maintain().unwrap();
        lsm.flush().unwrap();
        check(&lsm, &model, None);
        lsm.verify(&mut |_, _| ()).unwrap();
    }
}

/// What flushes could not keep up with is the portion that the large memtable takes.
#[test]
fn does_the_large_memtable_take_more_the_slower_flushes_are() {
    let portion = |jobs_every: u32| {
        let (lsm, env) = open(&(Arc::new(Ram::new()) as Arc<dyn Vfs>));
        for step in 0..4000 {
            let mut batch = WriteBatch::new();
            batch.put(&format!("{:08}", step * 7919 % 100_000).into_bytes(), &[1; 60]);
            lsm.write(&batch, Durability::Buffered).unwrap();
            if step % jobs_every == 0 {
                while env.scheduler.help() {}
            }
        }
        counter(&lsm, "large_memtable_writes") as f64 / 4000.0
    };
    let portions = [1, 100, 400, 5000].map(portion);
    assert_eq!(portions[0], 0.0);
    assert!(portions.is_sorted_by(|a, b| a < b) && portions[3] > 0.8, "{portions:?}");
}

/// A row of DRAM's memtable may hold later writes than the large memtable, whose only lasting place is
/// the log: what a power cut leaves is a prefix of the writes all the same.
#[test]
fn is_what_a_power_cut_leaves_a_prefix_though_rows_overtake_the_large_memtable() {
    let faulty = Faulty::new(1);
    let (lsm, env) = open(&(Arc::new(faulty.clone()) as Arc<dyn Vfs>));
    let key = |step: u64| format!("{:08}", step * 7919 % 100_003).into_bytes();
    let mut rows_after_it = 0;
    for step in 0..1500u64 {
        let mut batch = WriteBatch::new();
        batch.put(&key(step), &[1; 60]);
        lsm.write(&batch, Durability::Buffered).unwrap();
        if step % 70 != 0 || !env.scheduler.help() {
            continue;
        }
        rows_after_it += u64::from(counter(&lsm, "large_memtable_writes") > 0);
        let left: Arc<dyn Vfs> = Arc::new(faulty.survivors_as(Survival::LoseAll, step));
        let (left, _) = open(&left);
        let is_there = |step: &u64| left.get(&key(*step)).unwrap().is_some();
        let there = (0..=step).take_while(is_there).count() as u64;
        let strays = (there..=step).filter(is_there).count();
        assert_eq!(strays, 0, "{there} writes are there at step {step}, and {strays} behind them");
    }
    assert!(rows_after_it > 5, "only {rows_after_it} jobs ran beside the large memtable");
}

/// Of two keys that are always written together the one may be in the large memtable and the other not, so a
/// walk that had the memtables of before and the writes of now would show half of a batch. A second finds it where
/// readers are set aside between the two; it always does with a `yield_now` there.
#[test]
fn is_a_batch_shown_whole_by_walks_that_begin_while_memtables_change() {
    const PAIRS: usize = 4000;
    let pair = |number: usize| ["a", "b"].map(|side| format!("{number:04}{side}").into_bytes());
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let (lsm, _) = open_in(&vfs, Env::system(2), "1MiB", "100");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (lsm, over) = (&lsm, &over);
            scope.spawn(move || {
                let mut dice = StdRng::seed_from_u64(reader);
                while !over.load(Relaxed) {
                    let [from, to] = pair(dice.random_range(0..PAIRS));
                    let mut cursor = lsm.range(KeyRange::new(from..=to), None).unwrap();
                    let mut values = Vec::new();
                    cursor.first().unwrap();
                    while cursor.valid() {
                        values.push(cursor.value().to_vec());
                        cursor.next().unwrap();
                    }
                    assert!(
                        values.is_empty() || values.len() == 2 && values[0] == values[1],
                        "{values:?}"
                    );
                }
            });
        }
        let mut dice = StdRng::seed_from_u64(1);
        let mut values = [0u32; PAIRS];
        let began = Instant::now();
        for round in 1.. {
            let number = dice.random_range(0..PAIRS);
            let [a, b] = pair(number);
            let mut batch = WriteBatch::new();
            if values[number] == 0 || dice.random_bool(0.5) {
                values[number] = round;
                batch.put(&b, &round.to_le_bytes());
            }
            batch.put(&a, &values[number].to_le_bytes());
            batch.put(&key(dice.random_range(0..KEYS)), &[7; 60]);
            lsm.write(&batch, Durability::Buffered).unwrap();
            if began.elapsed() > Duration::from_secs(1) {
                break;
            }
        }
        over.store(true, Relaxed);
    });
    assert!(counter(&lsm, "large_memtable_writes") > 0);
}

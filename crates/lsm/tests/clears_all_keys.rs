//! Removing all keys: at one moment, beside everything else that goes on, and at once.
//!
//! The conformance kit has the removal among the steps of its histories, power cuts and faults.
//! Here are the promises that take threads, or numbers.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

const SMALL: &str = "memtable=8KiB table=4KiB levels=12KiB:48KiB:256KiB l0_compact=2 container=0";

fn options(text: &str) -> Options {
    let pairs = text.split(' ').map(|pair| pair.split_once('=').unwrap());
    let map: BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).collect();
    Options::from_map(&map).unwrap()
}

fn put(engine: &dyn Engine, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    engine.write(&batch, Durability::Buffered).unwrap();
}

fn keys(engine: &dyn Engine) -> Vec<String> {
    let mut cursor = engine.iter().unwrap();
    let mut keys = Vec::new();
    let mut is_there = cursor.first().unwrap();
    while is_there {
        keys.push(String::from_utf8(cursor.key().to_vec()).unwrap());
        is_there = cursor.next().unwrap();
    }
    keys
}

fn replayable() -> Env {
    Env::replayable(Arc::new(ManualClock::at(1)), 1)
}

#[test]
fn snapshots_and_cursors_of_before_show_what_was_there_and_let_go_of_it_afterwards() {
    for level0 in ["rows", "triangle", "matrix", "novelsm"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let pool = if level0 == "rows" { "triad_log=on" } else { "nvm=256KiB" };
        let options = options(&format!("{SMALL} level0={level0} {pool}"));
        let lsm = Lsm::open(vfs.clone(), replayable(), options).unwrap();
        for i in 0..500 {
            put(&lsm, &format!("key:{i:04}"), &"v".repeat(60));
        }
        lsm.flush().unwrap();
        put(&lsm, "key:0000", "newest");
        let before = lsm.snapshot().unwrap();
        let mut cursor = lsm.iter().unwrap();
        assert!(cursor.first().unwrap());

        lsm.clear().unwrap();
        let between = lsm.snapshot().unwrap();
        assert_eq!(keys(&lsm), Vec::<String>::new());
        assert_eq!(lsm.stats().keys_estimate, Some(0));
        for i in 0..300 {
            put(&lsm, &format!("key:{i:04}"), "after");
        }
        lsm.flush().unwrap();
        lsm.maintain().unwrap();

        let seen = lsm.get_at(b"key:0000", &before).unwrap().unwrap();
        assert_eq!(seen.value, b"newest");
        let mut walk = lsm.range(KeyRange::all(), Some(&before)).unwrap();
        let mut count = u32::from(walk.first().unwrap());
        while walk.next().unwrap() {
            count += 1;
        }
        assert_eq!(count, 500);
        let mut count = 1;
        while cursor.next().unwrap() {
            count += 1;
        }
        assert_eq!(count, 500);
        assert!(lsm.get_at(b"key:0000", &between).unwrap().is_none());
        assert!(lsm.get_at(b"key:0400", &between).unwrap().is_none());
        assert_eq!(lsm.get(b"key:0000").unwrap().unwrap().value, b"after");

        // A second removal, with snapshots of both sides of the first still there.
        lsm.clear().unwrap();
        assert_eq!(lsm.get_at(b"key:0000", &before).unwrap().unwrap().value, b"newest");
        assert!(lsm.get_at(b"key:0000", &between).unwrap().is_none());
        drop((before, between, cursor, walk));
        let tables = || vfs.list().unwrap().iter().filter(|name| name.ends_with(".sst")).count();
        assert_eq!(tables(), 0, "{level0}: {:?}", vfs.list().unwrap());
        lsm.close().unwrap();
        drop(lsm);
    }
}

#[test]
fn the_cost_of_a_removal_does_not_grow_with_the_number_of_keys() {
    let vfs: Arc<dyn Vfs> = Arc::new(siltstone_vfs::Metered::new(Arc::new(Ram::new())));
    let options = options("memtable=64KiB table=64KiB levels=256KiB:1MiB:8MiB");
    let lsm = Lsm::open(vfs, replayable(), options).unwrap();
    for i in 0..20_000 {
        put(&lsm, &format!("key:{i:06}"), &"v".repeat(100));
    }
    lsm.flush().unwrap();
    lsm.maintain().unwrap();
    let written = || lsm.stats().media_bytes_written();
    let before = written();
    lsm.clear().unwrap();
    let cost = written() - before;
    assert!(cost < 64 << 10, "{cost} bytes were written to remove 2 MiB");
    let mut cursor = lsm.iter().unwrap();
    assert!(!cursor.first().unwrap());
    assert!(lsm.stats().space_bytes < 64 << 10, "{}", lsm.stats().space_bytes);
}

/// Writers, flushes, compactions and copies go on while all keys are removed again and again.
#[test]
fn what_was_written_before_is_gone_and_what_is_written_after_stays_whatever_goes_on() {
    const ROUNDS: u64 = 30;
    for extra in ["triad_log=on triad_mem=on", "level0=triangle nvm=256KiB triad_mem=on"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let open = || {
            let options = options(&format!("{SMALL} {extra}"));
            Lsm::open(vfs.clone(), Env::system(2), options).unwrap()
        };
        let lsm = open();
        let round = AtomicU64::new(0);
        let (engine, round) = (&lsm, &round);
        std::thread::scope(|scope| {
            for thread in 0..3 {
                scope.spawn(move || {
                    for i in 0.. {
                        // The round is read before the write: it may be older than the write is.
                        let at = round.load(SeqCst);
                        if at == ROUNDS {
                            break;
                        }
                        let hot = i % 3 == 0;
                        let key = if hot { i % 20 } else { i };
                        put(
                            engine,
                            &format!("{thread}:{key:06}"),
                            &format!("{at} {}", "v".repeat(80)),
                        );
                    }
                });
            }
            scope.spawn(move || {
                while round.load(SeqCst) < ROUNDS {
                    let copy: Arc<dyn Vfs> = Arc::new(Ram::new());
                    let mut sink = siltstone_testkit::sink::MediaSink::new(copy.clone());
                    engine.checkpoint(&mut sink).unwrap();
                    let copied = Lsm::open(copy, replayable(), options(SMALL)).unwrap();
                    copied.verify(&mut |_, _| ()).unwrap();
                }
            });
            for next in 1..=ROUNDS {
                std::thread::sleep(std::time::Duration::from_millis(15));
                engine.clear().unwrap();
                // Whoever reads this begins a write that the removal does not touch.
                round.store(next, SeqCst);
                let mut cursor = engine.iter().unwrap();
                let mut is_there = cursor.first().unwrap();
                while is_there {
                    let value = String::from_utf8_lossy(cursor.value()).into_owned();
                    let at: u64 = value.split(' ').next().unwrap().parse().unwrap();
                    // A writer may have read the round just before it went up.
                    assert!(at + 1 >= next, "round {next}: {:?} of round {at}", cursor.key());
                    is_there = cursor.next().unwrap();
                }
            }
        });
        lsm.clear().unwrap();
        put(&lsm, "last", "v");
        assert_eq!(keys(&lsm), ["last"]);
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_sound());
        lsm.close().unwrap();
        drop(lsm);
        let lsm = open();
        assert_eq!(keys(&lsm), ["last"]);
        let files = vfs.list().unwrap();
        assert!(files.len() < 12, "{files:?}");
    }
}

//! Clearing all keys: atomically, concurrently with everything else, and in constant time.
//!
//! The conformance kit includes clears in its histories, power cuts and faults. These tests need
//! threads or numbers.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

const SMALL: &str = "memtable=8KiB target_file_size=4KiB levels=12KiB:48KiB:256KiB experimental.l0_compaction_trigger=2 l0_capacity=0";

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
    let mut is_valid = cursor.first().unwrap();
    while is_valid {
        keys.push(String::from_utf8(cursor.key().to_vec()).unwrap());
        is_valid = cursor.next().unwrap();
    }
    keys
}

fn replayable() -> Env {
    Env::replayable(Arc::new(ManualClock::at(1)), 1)
}

#[test]
fn older_snapshots_and_cursors_keep_their_view_until_they_are_dropped() {
    for policy in ["whole", "sliced", "columns", "novelsm"] {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let pool = if policy == "whole" { "triad.log=on" } else { "pmem.size=256KiB" };
        let options = options(&format!("{SMALL} l0_policy={policy} {pool}"));
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

        let entry = lsm.get_at(b"key:0000", &before).unwrap().unwrap();
        assert_eq!(entry.value, b"newest");
        let mut scan = lsm.range(KeyRange::all(), Some(&before)).unwrap();
        let mut count = u32::from(scan.first().unwrap());
        while scan.next().unwrap() {
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

        // A second clear, with snapshots from before and after the first.
        lsm.clear().unwrap();
        assert_eq!(lsm.get_at(b"key:0000", &before).unwrap().unwrap().value, b"newest");
        assert!(lsm.get_at(b"key:0000", &between).unwrap().is_none());
        drop((before, between, cursor, scan));
        let tables = || vfs.list().unwrap().iter().filter(|name| name.ends_with(".sst")).count();
        assert_eq!(tables(), 0, "{policy}: {:?}", vfs.list().unwrap());
        lsm.close().unwrap();
        drop(lsm);
    }
}

#[test]
fn cost_of_a_clear_is_independent_of_the_number_of_keys() {
    let vfs: Arc<dyn Vfs> = Arc::new(siltstone_vfs::MeteredVfs::new(Arc::new(Ram::new())));
    let options = options("memtable=64KiB target_file_size=64KiB levels=256KiB:1MiB:8MiB");
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

/// Clears repeatedly while writers, flushes, compactions and checkpoints are running.
#[test]
fn concurrent_clear_removes_older_writes_and_keeps_newer_ones() {
    const ROUNDS: u64 = 30;
    for extra in ["triad.log=on triad.mem=on", "l0_policy=sliced pmem.size=256KiB triad.mem=on"] {
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
                        // The round is read before the write, so it may be older than the write.
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
                    let mut sink = siltstone_testkit::sink::VfsSink::new(copy.clone());
                    engine.checkpoint(&mut sink).unwrap();
                    let copied = Lsm::open(copy, replayable(), options(SMALL)).unwrap();
                    copied.verify(&mut |_, _| ()).unwrap();
                }
            });
            for next in 1..=ROUNDS {
                std::thread::sleep(std::time::Duration::from_millis(15));
                engine.clear().unwrap();
                // A writer that reads this round writes after the clear.
                round.store(next, SeqCst);
                let mut cursor = engine.iter().unwrap();
                let mut is_valid = cursor.first().unwrap();
                while is_valid {
                    let value = String::from_utf8_lossy(cursor.value()).into_owned();
                    let at: u64 = value.split(' ').next().unwrap().parse().unwrap();
                    // A writer may have read the round just before it was incremented.
                    assert!(at + 1 >= next, "round {next}: {:?} of round {at}", cursor.key());
                    is_valid = cursor.next().unwrap();
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

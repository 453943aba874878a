//! Clearing all keys: concurrently with writers, flushes, compactions and checkpoints, and in
//! constant time.
//!
//! The conformance kit includes clears in its histories, power cuts and faults. These tests need
//! threads or numbers.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
use siltstone_testkit::sink::VfsSink;
use siltstone_trie::{Options, Trie};
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

fn options() -> Options {
    let pairs = [("htable_size", "8KiB"), ("bucket_size", "512"), ("levels", "3")];
    let pairs = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
    Options::from_map(&BTreeMap::from(pairs)).unwrap()
}

fn replayable() -> Env {
    Env::replayable(Arc::new(ManualClock::at(1)), 1)
}

fn put(engine: &dyn Engine, key: &str, value: &str) {
    let mut batch = WriteBatch::new();
    batch.put(key.as_bytes(), value.as_bytes());
    engine.write(&batch, Durability::Buffered).unwrap();
}

/// The keys, and the numbers at the beginning of their values.
fn contents(engine: &dyn Engine) -> Vec<(String, u64)> {
    let mut cursor = engine.iter().unwrap();
    let mut found = Vec::new();
    let mut is_valid = cursor.first().unwrap();
    while is_valid {
        let value = String::from_utf8_lossy(cursor.value()).into_owned();
        let round = value.split(' ').next().unwrap().parse().unwrap();
        found.push((String::from_utf8_lossy(cursor.key()).into_owned(), round));
        is_valid = cursor.next().unwrap();
    }
    found
}

#[test]
fn cost_of_a_clear_is_independent_of_the_number_of_keys() {
    let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
    let trie = Trie::open(vfs, replayable(), options()).unwrap();
    for i in 0..10_000 {
        put(&trie, &format!("key:{i:06}"), &format!("0 {}", "v".repeat(100)));
    }
    trie.flush().unwrap();
    trie.maintain().unwrap();
    let mut cursor = trie.iter().unwrap();
    assert!(cursor.first().unwrap());
    let before = trie.stats().media_bytes_written();
    trie.clear().unwrap();
    let cost = trie.stats().media_bytes_written() - before;
    assert!(cost < 64 << 10, "{cost} bytes were written to remove 1 MiB");
    assert!(contents(&trie).is_empty());
    assert_eq!(trie.stats().keys_estimate, Some(0));
    // A cursor keeps its view.
    let mut count = 1;
    while cursor.next().unwrap() {
        count += 1;
    }
    assert_eq!(count, 10_000);
    drop(cursor);
    assert!(trie.stats().space_bytes < 64 << 10, "{}", trie.stats().space_bytes);
}

#[test]
fn concurrent_clear_removes_older_writes_and_keeps_newer_ones() {
    const ROUNDS: u64 = 30;
    let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
    let trie = Trie::open(vfs.clone(), Env::system(2), options()).unwrap();
    let round = AtomicU64::new(0);
    let (engine, round) = (&trie, &round);
    std::thread::scope(|scope| {
        for thread in 0..3 {
            scope.spawn(move || {
                for i in 0.. {
                    // The round is read before the write, so it may be older than the write.
                    let at = round.load(SeqCst);
                    if at == ROUNDS {
                        break;
                    }
                    put(engine, &format!("{thread}:{i:06}"), &format!("{at} {}", "v".repeat(80)));
                }
            });
        }
        scope.spawn(move || {
            while round.load(SeqCst) < ROUNDS {
                let copy: Arc<dyn Vfs> = Arc::new(Ram::new());
                engine.checkpoint(&mut VfsSink::new(copy.clone())).unwrap();
                let copied = Trie::open(copy, replayable(), options()).unwrap();
                assert!(copied.verify(&mut |_, _| ()).unwrap().is_sound());
            }
        });
        for next in 1..=ROUNDS {
            std::thread::sleep(Duration::from_millis(15));
            engine.clear().unwrap();
            // A writer that reads this round writes after the clear.
            round.store(next, SeqCst);
            for (key, at) in contents(engine) {
                // A writer may have read the round just before it was incremented.
                assert!(at + 1 >= next, "round {next}: {key} of round {at}");
            }
        }
    });
    trie.clear().unwrap();
    put(&trie, "last", "7");
    assert_eq!(contents(&trie), [("last".to_owned(), 7)]);
    assert!(trie.verify(&mut |_, _| ()).unwrap().is_sound());
    trie.close().unwrap();
    drop(trie);
    let trie = Trie::open(vfs.clone(), Env::system(1), options()).unwrap();
    assert_eq!(contents(&trie), [("last".to_owned(), 7)]);
    let files = vfs.list().unwrap();
    assert!(files.len() < 12, "{files:?}");
}

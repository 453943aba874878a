//! Clearing all keys in constant time. The conformance kit clears in its histories, power cuts and
//! faults, and concurrently with writers.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_runtime::Env;
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
    assert!(!trie.iter().unwrap().first().unwrap());
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

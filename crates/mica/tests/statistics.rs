//! Statistics of a table: operations and memory.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, ManualClock, WriteBatch};
use siltstone_mica::{Mica, Options};
use siltstone_runtime::Env;

#[test]
fn statistics_count_operations_and_memory() {
    let given = [("memory", "4MiB"), ("partitions", "2")];
    let map = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    let env = Env::replayable(Arc::new(ManualClock::at(1000)), 1);
    let mica = Mica::open(env, Options::from_map(&map).unwrap()).unwrap();
    for key in 0..100u64 {
        let mut batch = WriteBatch::new();
        batch.put(&key.to_le_bytes(), &[7; 50]);
        mica.write(&batch, Durability::Buffered).unwrap();
    }
    for key in 90..120u64 {
        assert_eq!(mica.get(&key.to_le_bytes()).unwrap().is_some(), key < 100);
    }
    let stats = mica.stats();
    assert_eq!((stats.writes, stats.gets, stats.gets_found), (100, 30, 10));
    assert_eq!(mica.verify(&mut |_, _| ()).unwrap().entries, 100);
    // A cursor's copy counts until it is dropped: its bytes and the positions of the items.
    let copies = || mica.stats().memory["cursors"];
    assert_eq!(copies(), 0);
    let cursor = mica.iter().unwrap();
    let one = copies();
    assert!(one > 100 * (58 + 24), "{one}");
    let other = mica.iter().unwrap();
    assert_eq!(copies(), 2 * one);
    drop(cursor);
    assert_eq!(copies(), one);
    drop(other);
    assert_eq!(copies(), 0);
}

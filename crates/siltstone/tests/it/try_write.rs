//! Writes that do not wait.

use std::sync::Arc;

use siltstone::{Env, ManualClock, Table, WriteBatch};

use crate::support;

fn put(key: u32) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(&key.to_be_bytes(), &[b'v'; 300]);
    batch
}

#[test]
fn try_write_fails_where_a_write_would_stall_and_succeeds_afterwards() {
    let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
    let engine = support::lsm_in(&env, &[("memtable", "64KiB"), ("memtables", "2")]);
    let table = Table::new("t", engine);
    // Jobs run only inside of calls that wait.
    let written = (0..1000).take_while(|key| table.try_write(&put(*key)).unwrap()).count() as u32;
    assert!((200..1000).contains(&written), "{written} writes");
    let stall = table.stats().stall;
    assert_eq!(stall.slowdown_us + stall.flush_us + stall.compaction_us, 0, "{stall:?}");
    assert_eq!(table.get(&written.to_be_bytes()).unwrap(), None);
    assert!(table.get(&(written - 1).to_be_bytes()).unwrap().is_some());
    table.maintain().unwrap();
    assert!(table.try_write(&put(written)).unwrap());
    assert!(table.get(&written.to_be_bytes()).unwrap().is_some());
}

#[test]
fn try_write_fails_beside_another_writer_and_a_transaction() {
    for engine in ["lsm", "trie", "silt"] {
        let engine = support::open(engine, &[]);
        let table = Table::new("t", engine.clone());
        let empty = WriteBatch::new();
        let writer = engine.prepare(&empty, true).unwrap();
        assert!(!table.try_write(&put(1)).unwrap());
        drop(writer);
        assert!(table.try_write(&put(1)).unwrap());
        assert!(table.get(&1u32.to_be_bytes()).unwrap().is_some());
    }
    let table = support::table();
    let transaction = table.transaction().unwrap();
    assert!(!table.try_write(&put(1)).unwrap());
    drop(transaction);
    assert!(table.try_write(&put(1)).unwrap());
    table.engine().close().unwrap();
    table.try_write(&put(2)).unwrap_err();
}

//! Idle snapshots and transactions expire, so that they do not hold old versions forever.

use std::sync::Arc;
use std::time::Duration;

use crate::support::{lsm_in, table_at};
use siltstone::{Durability, Env, Error, ManualClock, Table, TransactionOptions};

const IDLE: u64 = 10_000;

fn table() -> (Arc<ManualClock>, Table) {
    let clock = Arc::new(ManualClock::at(1_000_000));
    let idle = Some(Duration::from_millis(IDLE));
    let table = table_at(clock.clone(), TransactionOptions { idle, ..Default::default() });
    table.put(b"k", b"old").unwrap();
    (clock, table)
}

/// Writes often enough for an expiry check.
fn write(table: &Table) {
    (0..100).for_each(|_| table.put(b"k", b"new").unwrap());
}

fn is_expired<T>(outcome: siltstone::Result<T>) -> bool {
    matches!(outcome, Err(Error::Expired { .. }))
}

#[test]
fn watermark_is_the_oldest_live_reader() {
    let (clock, table) = table();
    assert_eq!(table.watermark(), None);
    let old = table.snapshot().unwrap();
    let oldest = table.watermark().unwrap();
    write(&table);
    let young = table.transaction().unwrap();
    assert_eq!(table.watermark(), Some(oldest));
    // Only the young one is used from now on.
    for _ in 0..4 {
        clock.advance(IDLE / 2);
        young.get(b"k").unwrap();
        write(&table);
    }
    assert!(table.watermark().unwrap() > oldest);
    assert!(is_expired(old.get(b"k")));
    assert!(is_expired(old.iter()));
    assert_eq!(young.get(b"k").unwrap().unwrap(), b"new");
    drop(young);
    assert_eq!(table.watermark(), None);
    assert_eq!(table.stats().counters["readers_expired"], 1);
}

#[test]
fn idle_transaction_fails_and_releases_its_history() {
    let (clock, table) = table();
    let mut idle = table.transaction().unwrap();
    idle.get(b"other").unwrap();
    idle.put(b"mine", b"").unwrap();
    write(&table);
    assert!(table.stats().counters["transaction_history_bytes"] > 0);
    for _ in 0..2 {
        clock.advance(IDLE);
        write(&table);
    }
    let stats = table.stats().counters;
    assert_eq!((stats["transactions_open"], stats["transaction_history_bytes"]), (0, 0));
    // Nothing it read was written, but the history that proves it is gone.
    assert!(is_expired(idle.get(b"k")));
    assert!(is_expired(idle.range("a"..)));
    assert!(is_expired(idle.commit(Durability::Buffered)));
    assert_eq!(table.get(b"mine").unwrap(), None);
    // Its end is counted once.
    let open = table.transaction().unwrap();
    assert_eq!(table.stats().counters["transactions_open"], 1);
    drop(open);
}

#[test]
fn versions_are_dropped_when_their_reader_has_expired() {
    for is_used in [true, false] {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let idle = Some(Duration::from_millis(IDLE));
        let options = TransactionOptions { idle, ..Default::default() };
        // L0 runs that are tables of their own, so that a flush drops invisible versions.
        let engine = lsm_in(
            &Env::replayable(clock.clone(), 1),
            &[("l0_capacity", "0"), ("triad.log", "off")],
        );
        let table = Table::with("t", engine, clock.clone(), &options);
        table.put(b"k", b"old").unwrap();
        let snapshot = table.snapshot().unwrap();
        table.put(b"k", b"new").unwrap();
        clock.advance(IDLE);
        if is_used {
            snapshot.get(b"k").unwrap();
        }
        table.maintain().unwrap();
        table.flush().unwrap();
        let entries = table.verify(&mut |_, _| ()).unwrap().entries;
        assert_eq!(entries, if is_used { 2 } else { 1 });
        assert_eq!(is_expired(snapshot.get(b"k")), !is_used);
    }
}

#[test]
fn iterator_keeps_its_reader_alive_and_expires_with_it() {
    let (clock, table) = table();
    (0..50u8).for_each(|i| table.put(&[i], b"").unwrap());
    let transaction = table.transaction().unwrap();
    let mut used = transaction.iter().unwrap();
    for _ in 0..10 {
        assert!(used.next().unwrap().is_ok());
        clock.advance(IDLE / 2);
        write(&table);
    }
    for _ in 0..2 {
        clock.advance(IDLE);
        write(&table);
    }
    assert!(is_expired(used.next().unwrap()));
    assert!(used.next().is_none());
}

#[test]
fn no_reader_expires_without_a_limit_or_after_a_clock_jump() {
    let clock = Arc::new(ManualClock::at(1_000_000));
    let table = table_at(clock.clone(), TransactionOptions { idle: None, ..Default::default() });
    table.put(b"k", b"old").unwrap();
    let snapshot = table.snapshot().unwrap();
    clock.advance(u64::MAX / 2);
    write(&table);
    assert_eq!(snapshot.get(b"k").unwrap().unwrap(), b"old");

    let (clock, table) = self::table();
    let snapshot = table.snapshot().unwrap();
    clock.set(5);
    write(&table);
    clock.advance(IDLE - 1);
    write(&table);
    assert_eq!(snapshot.get(b"k").unwrap().unwrap(), b"old");
}

//! Snapshots and transactions that are not used do not keep old versions for ever.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::Duration;

use siltstone::{Durability, Env, Error, ManualClock, Table, TransactionOptions};
use support::{lsm_in, table_at};

const IDLE: u64 = 10_000;

fn table() -> (Arc<ManualClock>, Table) {
    let clock = Arc::new(ManualClock::at(1_000_000));
    let idle = Some(Duration::from_millis(IDLE));
    let table = table_at(clock.clone(), TransactionOptions { idle, ..Default::default() });
    table.put(b"k", b"old").unwrap();
    (clock, table)
}

/// As much as it takes for someone to look.
fn write(table: &Table) {
    (0..100).for_each(|_| table.put(b"k", b"new").unwrap());
}

fn is_expired<T>(outcome: siltstone::Result<T>) -> bool {
    matches!(outcome, Err(Error::Expired { .. }))
}

#[test]
fn the_watermark_is_the_oldest_live_reader() {
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
fn a_silent_transaction_is_refused_and_lets_go() {
    let (clock, table) = table();
    let mut silent = table.transaction().unwrap();
    silent.get(b"other").unwrap();
    silent.put(b"mine", b"").unwrap();
    write(&table);
    assert!(table.stats().counters["transactions_remembered_bytes"] > 0);
    for _ in 0..2 {
        clock.advance(IDLE);
        write(&table);
    }
    let stats = table.stats().counters;
    assert_eq!((stats["transactions_open"], stats["transactions_remembered_bytes"]), (0, 0));
    // Nothing it read was written, but who could know that now?
    assert!(is_expired(silent.get(b"k")));
    assert!(is_expired(silent.range("a"..)));
    assert!(is_expired(silent.commit(Durability::Buffered)));
    assert_eq!(table.get(b"mine").unwrap(), None);
    // It is not counted out twice.
    let open = table.transaction().unwrap();
    assert_eq!(table.stats().counters["transactions_open"], 1);
    drop(open);
}

#[test]
fn versions_go_when_their_reader_has_expired() {
    for is_used in [true, false] {
        let clock = Arc::new(ManualClock::at(1_000_000));
        let idle = Some(Duration::from_millis(IDLE));
        let options = TransactionOptions { idle, ..Default::default() };
        // Rows that are tables of their own, so that a flush drops what no one can see.
        let engine =
            lsm_in(&Env::replayable(clock.clone(), 1), &[("container", "0"), ("triad_log", "off")]);
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
fn an_iterator_keeps_its_reader_alive_and_falls_with_it() {
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
fn without_a_limit_and_with_a_clock_that_jumps_nobody_expires_wrongly() {
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

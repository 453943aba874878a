//! Transactions that are older than the memory of recent writes: they commit unless something that
//! they have read has changed.

use std::sync::Arc;

use crate::support::open;
use siltstone::{
    Durability, Error, ManualClock, Result, SystemClock, Table, Transaction, TransactionOptions,
    WriteBatch,
};

const BUDGET_BYTES: usize = 4 << 10;

fn options() -> TransactionOptions {
    TransactionOptions { remembered_bytes: BUDGET_BYTES, ..TransactionOptions::default() }
}

fn table_on(engine: &str, options_of_engine: &[(&str, &str)]) -> Table {
    Table::with("t", open(engine, options_of_engine), Arc::new(SystemClock), &options())
}

/// Writes other keys until the history has forgotten what came before.
fn write_elsewhere(table: &Table, keys: u32) {
    for first in (0..keys).step_by(1000) {
        let mut batch = WriteBatch::new();
        for number in first..keys.min(first + 1000) {
            batch.put(format!("other {number}").as_bytes(), b"");
        }
        table.write(&batch, Durability::Buffered).unwrap();
    }
    assert!(counter(table, "transaction_history_bytes") <= BUDGET_BYTES as u64);
}

fn counter(table: &Table, name: &str) -> u64 {
    table.stats().counters[name]
}

fn commit(transaction: Transaction) -> Option<Vec<u8>> {
    match transaction.commit(Durability::Buffered) {
        Ok(()) => None,
        Err(Error::Conflict { key }) => Some(key),
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn transaction_commits_after_a_million_foreign_writes() {
    let table = table_on("lsm", &[("memtable", "8MiB")]);
    for number in 0..100 {
        table.put(format!("key {number:02}").as_bytes(), b"old").unwrap();
    }
    let mut transaction = table.transaction().unwrap();
    assert!(transaction.contains_key(b"key 07").unwrap());
    assert_eq!(transaction.get(b"missing").unwrap(), None);
    assert_eq!(transaction.prefix("key 1").unwrap().count(), 10);
    assert_eq!(transaction.range("key 5"..).unwrap().rev().take(0).count(), 0);
    assert_eq!(transaction.range("key 8".."key 9").unwrap().rev().take(3).count(), 3);
    transaction.put(b"result", b"27").unwrap();
    write_elsewhere(&table, 1_000_000);
    // Neither of the parts that were read.
    table.put(b"key 80", b"new").unwrap();
    assert_eq!(commit(transaction), None);
    assert_eq!(table.get(b"result").unwrap().unwrap(), b"27");
    assert_eq!(counter(&table, "transactions_revalidated"), 1);
    assert_eq!(counter(&table, "transaction_history_bytes"), 0);
}

#[test]
fn old_transaction_conflicts_only_with_changes_of_what_it_read() {
    type Step = fn(&Table);
    let changes: [(&str, Step, Option<&[u8]>); 8] = [
        ("nothing", |_| (), None),
        ("a value", |table| table.put(b"b", b"new").unwrap(), Some(b"b")),
        ("a deletion", |table| table.delete(b"b").unwrap(), Some(b"b")),
        ("a missing key", |table| table.put(b"x", b"").unwrap(), Some(b"x")),
        ("a phantom", |table| table.put(b"q", b"").unwrap(), Some(b"q")),
        ("the end of a range", |table| table.delete(b"r").unwrap(), Some(b"r")),
        ("an unread key", |table| table.put(b"unread", b"").unwrap(), None),
        (
            "a change and its undoing",
            |table| {
                table.put(b"b", b"new").unwrap();
                table.put(b"b", b"old").unwrap();
            },
            None,
        ),
    ];
    for (name, change, expected) in changes {
        let table = table_on("lsm", &[]);
        for key in [b"b", b"p", b"r"] {
            table.put(key, b"old").unwrap();
        }
        let mut transaction = table.transaction().unwrap();
        transaction.get(b"b").unwrap();
        transaction.get(b"x").unwrap();
        assert_eq!(transaction.range("p".."s").unwrap().count(), 2);
        transaction.put(b"result", b"").unwrap();
        change(&table);
        write_elsewhere(&table, 2000);
        assert_eq!(commit(transaction).as_deref(), expected, "{name}");
        assert_eq!(table.contains_key(b"result").unwrap(), expected.is_none(), "{name}");
    }
}

#[test]
fn old_transaction_without_order_commits_and_conflicts() {
    let table = table_on("skimpy", &[("capacity", "32MiB")]);
    table.put(b"a", b"old").unwrap();
    let begin = || -> Result<Transaction> {
        let mut transaction = table.transaction()?;
        transaction.get(b"a")?;
        transaction.put(b"result", b"")?;
        Ok(transaction)
    };
    let fits = begin().unwrap();
    write_elsewhere(&table, 5000);
    assert_eq!(commit(fits), None);
    let conflicts = begin().unwrap();
    table.put(b"a", b"new").unwrap();
    write_elsewhere(&table, 5000);
    assert_eq!(commit(conflicts).unwrap(), b"a");
}

#[test]
fn clear_conflicts_with_an_old_transaction() {
    let table = table_on("lsm", &[]);
    let mut transaction = table.transaction().unwrap();
    transaction.get(b"missing").unwrap();
    transaction.put(b"result", b"").unwrap();
    table.clear().unwrap();
    write_elsewhere(&table, 2000);
    assert!(commit(transaction).is_some());
}

#[test]
fn entry_that_has_expired_since_it_was_read_counts_as_changed() {
    for ranges in [false, true] {
        let clock = Arc::new(ManualClock::at(1000));
        let engine = crate::support::lsm_in(&siltstone::Env::replayable(clock.clone(), 1), &[]);
        let table = Table::with("t", engine, clock.clone(), &options());
        table.put_until(b"a", b"read", 2000).unwrap();
        let mut transaction = table.transaction().unwrap();
        if ranges {
            assert_eq!(transaction.range("a".."b").unwrap().count(), 1);
        } else {
            assert!(transaction.contains_key(b"a").unwrap());
        }
        transaction.put(b"result", b"").unwrap();
        // Hidden by expiry, as the entry that was read.
        table.put_until(b"a", b"other", 2000).unwrap();
        write_elsewhere(&table, 2000);
        clock.set(3000);
        assert_eq!(commit(transaction).unwrap(), b"a");
    }
}

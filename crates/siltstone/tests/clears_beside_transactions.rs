//! A removal of all keys is a write to everything: who has read anything before it conflicts with
//! it.

#![allow(clippy::unwrap_used, reason = "a test may fail by panicking")]

use siltstone::{Db, DbOptions, Durability, Error, Table};

fn table(scratch: &tempfile::TempDir) -> (Db, Table) {
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &std::collections::BTreeMap::new()).unwrap();
    (db, table)
}

#[test]
fn a_transaction_that_read_anything_conflicts_with_a_removal_of_all_keys() {
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = table(&scratch);
    table.put(b"a", b"1").unwrap();

    // A key, a key that was not there, a range: all were read before.
    let mut of_key = table.transaction().unwrap();
    assert!(of_key.get(b"a").unwrap().is_some());
    let mut of_none = table.transaction().unwrap();
    assert!(of_none.get(b"none").unwrap().is_none());
    let mut of_range = table.transaction().unwrap();
    assert_eq!(of_range.range("a".."z").unwrap().count(), 1);
    let mut blind = table.transaction().unwrap();
    table.clear().unwrap();
    let mut later = table.transaction().unwrap();
    assert!(later.get(b"a").unwrap().is_none());

    // What they see is still the moment of their beginning.
    assert_eq!(of_key.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    for transaction in [&mut of_key, &mut of_none, &mut of_range, &mut blind, &mut later] {
        transaction.put(b"b", b"2").unwrap();
    }
    for transaction in [of_key, of_none, of_range] {
        let refused = transaction.commit(Durability::Buffered);
        assert!(matches!(refused, Err(Error::Conflict { .. })), "{refused:?}");
        assert_eq!(table.get(b"b").unwrap(), None);
    }
    // Who read nothing comes after the removal, and so does who began behind it.
    blind.commit(Durability::Buffered).unwrap();
    later.commit(Durability::Buffered).unwrap();
    assert_eq!(table.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
}

/// Threads move money between accounts while another removes everything and opens the accounts
/// anew, in two steps: no transfer may mix accounts of before with accounts of after.
#[test]
fn transfers_never_mix_what_was_before_a_removal_with_what_came_after() {
    const ACCOUNTS: u64 = 8;
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = table(&scratch);
    let table = &table;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let is_over = &is_over;
    std::thread::scope(|scope| {
        for thread in 0..2u64 {
            scope.spawn(move || {
                let mut done = 0;
                for i in thread.. {
                    if is_over.load(std::sync::atomic::Ordering::SeqCst) {
                        break;
                    }
                    let mut transfer = table.transaction().unwrap();
                    let (from, to) = (i % ACCOUNTS, (i + 1 + thread) % ACCOUNTS);
                    let balance = |transfer: &siltstone::Transaction, account: u64| {
                        let value = transfer.get(&account.to_le_bytes()).unwrap()?;
                        Some(i64::from_le_bytes(value.try_into().unwrap()))
                    };
                    let balances = (balance(&transfer, from), balance(&transfer, to));
                    let (Some(giver), Some(taker)) = balances else { continue };
                    transfer.put(&from.to_le_bytes(), &(giver - 1).to_le_bytes()).unwrap();
                    transfer.put(&to.to_le_bytes(), &(taker + 1).to_le_bytes()).unwrap();
                    done += u64::from(transfer.commit(Durability::Buffered).is_ok());
                }
                assert!(done > 0);
            });
        }
        for round in 1..60i64 {
            table.clear().unwrap();
            let mut open = siltstone::WriteBatch::new();
            for account in 0..ACCOUNTS {
                open.put(&account.to_le_bytes(), &(1000 * round).to_le_bytes());
            }
            table.write(&open, Durability::Buffered).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(2));
            let sum: i64 = table
                .iter()
                .unwrap()
                .map(|entry| i64::from_le_bytes(entry.unwrap().1.value.try_into().unwrap()))
                .sum();
            assert_eq!(sum, 1000 * round * ACCOUNTS as i64, "round {round}");
        }
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

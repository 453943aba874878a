//! A removal of all keys is a write to every key: it conflicts with every transaction that read
//! anything before it.

use siltstone::{Db, DbOptions, Durability, Error, Table};

fn table(scratch: &tempfile::TempDir) -> (Db, Table) {
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &std::collections::BTreeMap::new()).unwrap();
    (db, table)
}

#[test]
fn clear_conflicts_with_every_transaction_that_read_anything() {
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = table(&scratch);
    table.put(b"a", b"1").unwrap();

    // A key, a missing key, a range.
    let mut read_key = table.transaction().unwrap();
    assert!(read_key.get(b"a").unwrap().is_some());
    let mut read_missing = table.transaction().unwrap();
    assert!(read_missing.get(b"none").unwrap().is_none());
    let mut read_range = table.transaction().unwrap();
    assert_eq!(read_range.range("a".."z").unwrap().count(), 1);
    let mut blind = table.transaction().unwrap();
    table.clear().unwrap();
    let mut later = table.transaction().unwrap();
    assert!(later.get(b"a").unwrap().is_none());

    // They still see the moment of their beginning.
    assert_eq!(read_key.get(b"a").unwrap().as_deref(), Some(&b"1"[..]));
    for transaction in [&mut read_key, &mut read_missing, &mut read_range, &mut blind, &mut later] {
        transaction.put(b"b", b"2").unwrap();
    }
    for transaction in [read_key, read_missing, read_range] {
        let committed = transaction.commit(Durability::Buffered);
        assert!(matches!(committed, Err(Error::Conflict { .. })), "{committed:?}");
        assert_eq!(table.get(b"b").unwrap(), None);
    }
    // A transaction without reads is ordered after the removal, and so is one that began after it.
    blind.commit(Durability::Buffered).unwrap();
    later.commit(Durability::Buffered).unwrap();
    assert_eq!(table.get(b"b").unwrap().as_deref(), Some(&b"2"[..]));
}

/// Threads move money between accounts while another removes all accounts and creates them again,
/// in two steps: no transfer may mix accounts from before and after.
#[test]
fn transfers_never_mix_data_from_before_and_after_a_clear() {
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

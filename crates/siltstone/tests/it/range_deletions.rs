//! Range deletions through tables: conflicts with transactions, snapshots, and engines without
//! them.

use std::ops::Bound;

use crate::support::open;
use siltstone::{Durability, Error, KeyRange, Table, WriteBatch};

fn table() -> Table {
    let table = crate::support::table();
    for key in ["a", "b", "c", "d"] {
        table.put(key.as_bytes(), b"1").unwrap();
    }
    table
}

fn keys(table: &Table) -> String {
    let keys = table.keys().unwrap();
    keys.map(|key| String::from_utf8(key.unwrap()).unwrap()).collect()
}

#[test]
fn range_has_the_bounds_that_it_names() {
    for (range, left) in [
        (KeyRange::new("b".."d"), "ad"),
        (KeyRange::new("b"..="d"), "a"),
        (KeyRange::new("c"..), "ab"),
        (KeyRange::new(..="c"), "d"),
        (KeyRange::new::<&str>((Bound::Excluded("a"), Bound::Excluded("d"))), "ad"),
        (KeyRange::new("b".."b"), "abcd"),
        (KeyRange::all(), ""),
    ] {
        let table = table();
        let before = table.snapshot().unwrap();
        table.delete_range::<Vec<u8>>((range.start.clone(), range.end.clone())).unwrap();
        assert_eq!(keys(&table), left, "{range:?}");
        assert_eq!(before.keys().unwrap().count(), 4);
    }
    let inverted = table().delete_range("d".."b");
    assert!(matches!(inverted, Err(Error::Invalid(_))), "{inverted:?}");
}

#[test]
fn deleted_range_conflicts_with_transactions_that_read_in_it() {
    let table = table();
    let mut inside = table.transaction().unwrap();
    assert!(inside.get(b"c").unwrap().is_some());
    let mut missing = table.transaction().unwrap();
    assert!(missing.get(b"bb").unwrap().is_none());
    let mut scanned = table.transaction().unwrap();
    assert_eq!(scanned.range("a".."c").unwrap().count(), 2);
    let mut outside = table.transaction().unwrap();
    assert!(outside.get(b"a").unwrap().is_some());
    table.delete_range("b".."d").unwrap();
    // The snapshot of a transaction is from before.
    assert!(inside.get(b"c").unwrap().is_some());
    for transaction in [&mut inside, &mut missing, &mut scanned, &mut outside] {
        transaction.put(b"z", b"2").unwrap();
    }
    for transaction in [inside, missing, scanned] {
        let committed = transaction.commit(Durability::Buffered);
        assert!(matches!(committed, Err(Error::Conflict { .. })), "{committed:?}");
    }
    outside.commit(Durability::Buffered).unwrap();
    assert_eq!(keys(&table), "adz");
}

#[test]
fn engines_without_range_deletions_refuse_them_by_name_and_write_nothing() {
    let engines: [(&'static str, &[(&str, &str)]); 4] =
        [("trie", &[]), ("silt", &[]), ("mica", &[]), ("skimpy", &[("capacity", "16MiB")])];
    for (name, options) in engines {
        let table = Table::new("t", open(name, options));
        assert!(!table.engine().capabilities().range_deletes);
        let mut batch = WriteBatch::new();
        batch.put(b"k", b"1").delete_range("a".."b");
        let refused = table.write(&batch, Durability::Buffered);
        assert!(
            matches!(refused, Err(Error::Unsupported { engine, .. }) if engine == name),
            "{refused:?}"
        );
        assert!(table.get(b"k").unwrap().is_none());
    }
    assert!(table().engine().capabilities().range_deletes);
}

#[test]
fn transaction_refuses_a_batch_that_deletes_a_range() {
    let table = table();
    let mut transaction = table.transaction().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"k", b"1").delete_range("a".."b");
    assert!(matches!(transaction.write(&batch), Err(Error::Invalid(_))));
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(keys(&table), "abcd");
}

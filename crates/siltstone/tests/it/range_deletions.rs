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

#[test]
fn cursor_under_an_overlay_shows_what_its_batch_would_leave() {
    use siltstone::transaction::{Overlay, overlay_cursor};
    use siltstone_engine::{Cursor, Op};

    let name = |number: u64| vec![b'a' + number as u8];
    for seed in 0..60 {
        let mut rng = siltstone_testkit::TestRng::new(seed);
        let table = crate::support::table();
        for number in 0..20 {
            table.put(&name(number), b"0").unwrap();
        }
        // The table has range deletions of its own.
        let start = rng.below(20);
        table.delete_range(name(start)..name(start + rng.below(5))).unwrap();
        let mut overlay = Overlay::default();
        for _ in 0..1 + rng.below(6) {
            let key = name(rng.below(22));
            match rng.below(4) {
                0 => overlay.push(Op::Delete { key: &key }),
                1 => overlay.push(Op::Put { key: &key, value: b"1", expires_at: None }),
                _ => {
                    let end = name(rng.below(24));
                    overlay.delete_range(&key, (!rng.one_in(6)).then_some(&end[..]));
                }
            }
        }
        let engine = table.engine().clone();
        let range = match rng.below(3) {
            0 => KeyRange::all(),
            _ => KeyRange::new(name(rng.below(8))..name(12 + rng.below(12))),
        };
        let stored = engine.range(range.clone(), None).unwrap();
        let writes = std::sync::Arc::new(overlay);
        let mut merged = overlay_cursor(stored, writes.clone(), range.clone(), 0);
        // The same cursor without an overlay, over a copy to which it was applied.
        let applied = crate::support::table();
        for entry in table.range::<&[u8]>(..).unwrap() {
            let (key, entry) = entry.unwrap();
            applied.put(&key, &entry.value).unwrap();
        }
        applied.write(&writes.to_batch(), Durability::Buffered).unwrap();
        let mut expected = applied.engine().range(range, None).unwrap();
        for _ in 0..40 {
            let (key, choice) = (name(rng.below(25)), rng.below(8));
            let go = |cursor: &mut dyn Cursor| match choice {
                0 => cursor.first(),
                1 => cursor.last(),
                2 => cursor.seek(&key),
                3 => cursor.seek_back(&key),
                4 | 5 if cursor.valid() => cursor.next(),
                _ if cursor.valid() => cursor.prev(),
                _ => cursor.first(),
            };
            let moved = go(expected.as_mut()).unwrap();
            assert_eq!(go(merged.as_mut()).unwrap(), moved, "seed {seed}: {writes:?}");
            if moved {
                assert_eq!((merged.key(), merged.value()), (expected.key(), expected.value()));
            }
        }
    }
}

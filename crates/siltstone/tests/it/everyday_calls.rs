//! The everyday reads and updates of a table, on every engine, as far as its capabilities reach.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::support::open;
use siltstone::{CasMismatch, Entry, Error, Result, Table};
use siltstone_testkit::stop_guard::RunFlag;

const ENGINES: [(&str, &[(&str, &str)]); 5] = [
    ("lsm", &[]),
    ("trie", &[]),
    ("silt", &[]),
    ("mica", &[]),
    ("skimpy", &[("capacity", "16MiB")]),
];

fn on_every_engine(check: impl Fn(&Table)) {
    for (engine, options) in ENGINES {
        println!("{engine}");
        check(&Table::new("t", open(engine, options)));
    }
}

fn is_ordered(table: &Table) -> bool {
    table.engine().capabilities().ordered
}

fn is_versioned(table: &Table) -> bool {
    table.engine().capabilities().versioned
}

fn is_unsupported<T>(result: Result<T>) -> bool {
    matches!(result, Err(Error::Unsupported { .. }))
}

/// The range names both of its bounds in the error.
fn is_inverted<T>(result: Result<T>) -> bool {
    let Err(error) = result else { return false };
    let text = error.to_string();
    matches!(error, Error::Invalid(_)) && text.contains("'y'") && text.contains("'x'")
}

#[test]
fn point_reads_agree_on_every_engine() {
    on_every_engine(|table| {
        assert!(table.is_empty().unwrap() && table.len().unwrap() == 0);
        table.put(b"a", b"one").unwrap();
        table.put(b"b", b"").unwrap();
        table.put(b"c", b"three").unwrap();
        table.delete(b"c").unwrap();
        table.put_until(b"expired", b"x", 1).unwrap();
        let mut value = b"old content".to_vec();
        for (key, expected) in
            [(b"a", Some(&b"one"[..])), (b"b", Some(&[])), (b"c", None), (b"d", None)]
        {
            assert_eq!(table.get(key).unwrap().as_deref(), expected);
            assert_eq!(table.contains_key(key).unwrap(), expected.is_some());
            assert_eq!(table.get_into(key, &mut value).unwrap(), expected.is_some());
            assert_eq!(value, expected.unwrap_or_default());
        }
        assert!(!table.contains_key(b"expired").unwrap());
        let keys = ["d", "b", "a", "expired", "a"];
        let values = table.multi_get(&keys).unwrap();
        let one = Some(b"one".to_vec());
        assert_eq!(values, [None, Some(Vec::new()), one.clone(), None, one]);
        assert_eq!(table.multi_get(&[""]).unwrap(), [None]);
        assert!(table.multi_get::<&str>(&[]).unwrap().is_empty());
        assert!(!table.is_empty().unwrap());
        assert_eq!(table.len().unwrap(), 2);
        let keys: BTreeSet<_> = table.keys().unwrap().map(Result::unwrap).collect();
        assert_eq!(keys, [b"a".to_vec(), b"b".to_vec()].into());
        if table.engine().name() == "mica" {
            assert_eq!(table.approximate_len(), Some(3), "the expired entry is still there");
        }
        assert_eq!(table.approximate_len().is_none(), table.engine().name() == "skimpy");
    });
}

#[test]
fn cursor_lends_every_entry_on_every_engine() {
    on_every_engine(|table| {
        let expected: BTreeMap<Vec<u8>, Vec<u8>> = (0..500u32)
            .map(|i| (i.to_be_bytes().to_vec(), vec![i as u8; i as usize % 50]))
            .collect();
        for (key, value) in &expected {
            table.put(key, value).unwrap();
        }
        let (mut found, mut cursor) = (BTreeMap::new(), table.cursor().unwrap());
        assert_eq!(cursor.entry(), None);
        while let Some(entry) = cursor.next().unwrap() {
            assert_eq!(entry.expires_at, None);
            assert_eq!(found.insert(entry.key.to_vec(), entry.value.to_vec()), None);
        }
        assert_eq!(found, expected);
        assert_eq!(cursor.next().unwrap(), None, "a cursor at its end stays there");
        assert!(cursor.first().unwrap().is_some());
        if !is_ordered(table) {
            assert!(is_unsupported(cursor.prev()) && is_unsupported(cursor.seek(b"a")));
            return;
        }
        let mut cursor = table.cursor_range(100u32.to_be_bytes()..103u32.to_be_bytes()).unwrap();
        cursor.skip_values();
        let mut backwards = Vec::new();
        while let Some(entry) = cursor.prev().unwrap() {
            backwards.push(u32::from_be_bytes(entry.key.try_into().unwrap()));
        }
        assert_eq!(backwards, [102, 101, 100]);
        assert!(cursor.seek_back(&[0xff]).unwrap().is_some());
        assert_eq!(cursor.entry().unwrap().key, 102u32.to_be_bytes());
    });
}

#[test]
fn ordered_reads_are_the_same_on_table_snapshot_and_transaction() {
    let table = crate::support::table();
    for key in ["a1", "a2", "b1", "b2", "c"] {
        table.put(key.as_bytes(), key.as_bytes()).unwrap();
    }
    macro_rules! check {
        ($source:expr) => {{
            let source = $source;
            let name = |(key, _): (Vec<u8>, Entry)| String::from_utf8(key).unwrap();
            let text = |key: Result<Vec<u8>>| String::from_utf8(key.unwrap()).unwrap();
            let entry = |entry: Result<(Vec<u8>, Entry)>| name(entry.unwrap());
            assert_eq!(source.first().unwrap().map(name).as_deref(), Some("a1"));
            assert_eq!(source.last().unwrap().map(name).as_deref(), Some("c"));
            assert_eq!(source.len().unwrap(), 5);
            assert!(!source.is_empty().unwrap());
            let prefix: Vec<_> = source.prefix("b").unwrap().rev().map(entry).collect();
            assert_eq!(prefix, ["b2", "b1"]);
            let keys: Vec<_> = source.keys_prefix("a").unwrap().map(text).collect();
            assert_eq!(keys, ["a1", "a2"]);
            let keys: Vec<_> = source.keys_range("a2"..="b2").unwrap().rev().map(text).collect();
            assert_eq!(keys, ["b2", "b1", "a2"]);
            let bounds: (Bound<&str>, Bound<&str>) = (Bound::Excluded("a1"), Bound::Unbounded);
            assert_eq!(source.range::<&str>(bounds).unwrap().map(entry).next().unwrap(), "a2");
            assert_eq!(source.keys().unwrap().count(), 5);
            let mut cursor = source.cursor_range("b".."c").unwrap();
            assert_eq!(cursor.last().unwrap().unwrap().value, b"b2");
            let values = source.multi_get(&["c", "none", "a1"]).unwrap();
            assert_eq!(values, [Some(b"c".to_vec()), None, Some(b"a1".to_vec())]);
            let mut value = Vec::new();
            assert!(source.get_into(b"b1", &mut value).unwrap() && value == b"b1");
            assert!(source.contains_key(b"c").unwrap() && !source.contains_key(b"d").unwrap());
        }};
    }
    check!(&table);
    let snapshot = table.snapshot().unwrap();
    let mut transaction = table.transaction().unwrap();
    table.clear().unwrap();
    check!(&snapshot);
    check!(&transaction);
    transaction.put(b"0", b"own").unwrap();
    transaction.delete(b"c").unwrap();
    assert_eq!(transaction.first().unwrap().unwrap().0, b"0");
    assert_eq!(transaction.last().unwrap().unwrap().0, b"b2");
    assert_eq!(transaction.multi_get(&["0", "c"]).unwrap(), [Some(b"own".to_vec()), None]);
    assert_eq!(transaction.len().unwrap(), 5);
}

#[test]
fn inverted_ranges_are_invalid_everywhere() {
    on_every_engine(|table| {
        assert!(is_inverted(table.range("y".."x")));
        assert!(is_inverted(table.keys_range("y"..="x")));
        assert!(is_inverted(
            table.cursor_range::<&str>((Bound::Excluded("y"), Bound::Excluded("x")))
        ));
        if is_versioned(table) {
            let (snapshot, transaction) = (table.snapshot().unwrap(), table.transaction().unwrap());
            assert!(is_inverted(snapshot.range("y".."x")));
            assert!(is_inverted(snapshot.keys_range("y".."x")));
            assert!(is_inverted(transaction.range("y".."x")));
            assert!(is_inverted(transaction.cursor_range("y".."x")));
        }
        if is_ordered(table) {
            assert_eq!(table.range("x".."x").unwrap().count(), 0);
        } else {
            assert!(is_unsupported(table.range("x".."y")) && is_unsupported(table.prefix("x")));
            assert!(is_unsupported(table.first()) && is_unsupported(table.last()));
            assert!(is_unsupported(table.pop_first()) && is_unsupported(table.pop_last()));
        }
    });
}

#[test]
fn compare_and_swap_writes_only_over_the_expected_value() {
    on_every_engine(|table| {
        let swap = |expected: Option<&str>, new: Option<&str>| {
            let (expected, new) = (expected.map(str::as_bytes), new.map(str::as_bytes));
            table.compare_and_swap(b"k", expected, new).unwrap()
        };
        let mismatch = |current: Option<&str>| {
            Err(CasMismatch { current: current.map(|text| text.as_bytes().to_vec()) })
        };
        assert_eq!(swap(Some("1"), Some("2")), mismatch(None));
        assert_eq!(swap(None, None), Ok(()));
        assert_eq!(swap(None, Some("1")), Ok(()));
        assert_eq!(swap(None, Some("2")), mismatch(Some("1")));
        assert_eq!(swap(Some("2"), None), mismatch(Some("1")));
        assert_eq!(swap(Some("1"), Some("1")), Ok(()));
        assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"1"[..]));
        assert_eq!(swap(Some("1"), None), Ok(()));
        assert!(!table.contains_key(b"k").unwrap());
        assert_eq!(table.compare_and_swap(b"", None, Some(b"")).unwrap(), Ok(()));
        assert!(table.contains_key(b"").unwrap());
    });
}

#[test]
fn concurrent_updates_of_one_key_are_all_counted() {
    const THREADS: u64 = 4;
    const UPDATES: u64 = 200;
    on_every_engine(|table| {
        let next = |value: Option<&[u8]>| {
            let last = value.map_or(0, |value| u64::from_le_bytes(value.try_into().unwrap()));
            Some((last + 1).to_le_bytes())
        };
        let (before, after) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (before, after) = (&before, &after);
                scope.spawn(move || {
                    for update in 0..UPDATES {
                        if thread % 2 == 0 {
                            let old = table.fetch_and_update(b"k", next).unwrap();
                            let old =
                                old.map_or(0, |old| u64::from_le_bytes(old.try_into().unwrap()));
                            before.fetch_add(old, Relaxed);
                        } else {
                            let new = table.update_and_fetch(b"k", next).unwrap().unwrap();
                            after.fetch_add(u64::from_le_bytes(new.try_into().unwrap()), Relaxed);
                        }
                        // Other keys, in the same stripes and groups.
                        table.put(&update.to_le_bytes(), b"").unwrap();
                    }
                });
            }
        });
        let total = THREADS * UPDATES;
        assert_eq!(table.get(b"k").unwrap().unwrap(), total.to_le_bytes());
        // Every value from 1 to the total was made once.
        let made = before.load(Relaxed) + THREADS / 2 * UPDATES + after.load(Relaxed);
        assert_eq!(made, total * (total + 1) / 2);
        assert_eq!(
            table.fetch_and_update(b"k", |_| None::<Vec<u8>>).unwrap().unwrap(),
            total.to_le_bytes()
        );
        assert!(!table.contains_key(b"k").unwrap());
    });
}

#[test]
fn plain_write_is_never_overwritten_by_an_update_of_an_older_value() {
    on_every_engine(|table| {
        let running = RunFlag::default();
        table.put(b"k", &[0; 8]).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Sets a flag in the value.
                while running.is_set() {
                    let flag = |value: Option<&[u8]>| {
                        let value = u64::from_le_bytes(value.unwrap().try_into().unwrap());
                        Some((value | 1 << 63).to_le_bytes())
                    };
                    table.fetch_and_update(b"k", flag).unwrap();
                }
            });
            let _stop = running.clear_on_drop();
            for number in 1..2000u64 {
                table.put(b"k", &number.to_le_bytes()).unwrap();
                let value = table.get(b"k").unwrap().unwrap();
                let value = u64::from_le_bytes(value.try_into().unwrap());
                assert_eq!(value & !(1 << 63), number, "the write of {number} was lost");
            }
        });
    });
}

#[test]
fn pops_return_entries_in_order_also_after_puts_outside_of_the_rest() {
    let table = crate::support::table();
    let key = |number: u32| number.to_be_bytes();
    for number in 100..200 {
        table.put(&key(number), b"v").unwrap();
    }
    let first =
        || table.pop_first().unwrap().map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap()));
    let last =
        || table.pop_last().unwrap().map(|(key, _)| u32::from_be_bytes(key.try_into().unwrap()));
    assert_eq!((0..10).filter_map(|_| first()).collect::<Vec<_>>(), (100..110).collect::<Vec<_>>());
    assert_eq!(
        (0..10).filter_map(|_| last()).collect::<Vec<_>>(),
        (190..200).rev().collect::<Vec<_>>()
    );
    // A plain write, one beside a transaction, one in a transaction.
    table.put(&key(50), b"").unwrap();
    assert_eq!(first(), Some(50));
    let beside = table.transaction().unwrap();
    table.put(&key(60), b"").unwrap();
    table.put(&key(300), b"").unwrap();
    assert_eq!((first(), last()), (Some(60), Some(300)));
    drop(beside);
    table.transact(|tx| tx.put(&key(70), b"").and_then(|()| tx.put(&key(400), b""))).unwrap();
    assert_eq!((last(), first()), (Some(400), Some(70)));
    table.compare_and_swap(&key(1), None, Some(b"")).unwrap().unwrap();
    assert_eq!(first(), Some(1));
    let mut rest: Vec<_> = std::iter::from_fn(first).collect();
    assert_eq!(rest, (110..190).collect::<Vec<_>>());
    assert_eq!((first(), last()), (None, None));
    table.put(&key(5), b"").unwrap();
    table.clear().unwrap();
    assert_eq!(first(), None);
    table.put(&key(3), b"").unwrap();
    rest = std::iter::from_fn(last).collect();
    assert_eq!(rest, [3]);
}

#[test]
fn concurrent_pops_and_puts_lose_nothing_and_return_nothing_twice() {
    const PER_THREAD: u32 = 500;
    let table = crate::support::table();
    let popped = parking_lot::Mutex::new(Vec::new());
    let writers = AtomicU64::new(2);
    std::thread::scope(|scope| {
        for thread in 0..2u32 {
            let (table, writers) = (&table, &writers);
            scope.spawn(move || {
                for number in 0..PER_THREAD {
                    // Scattered, so that many are below or above what was popped.
                    let key = (number.wrapping_mul(0x9e37_79b9) & !1) | thread;
                    table.put(&key.to_be_bytes(), &number.to_le_bytes()).unwrap();
                }
                writers.fetch_sub(1, Relaxed);
            });
        }
        for thread in 0..3 {
            let (table, popped, writers) = (&table, &popped, &writers);
            scope.spawn(move || {
                loop {
                    let is_last_round = writers.load(Relaxed) == 0;
                    let entry = if thread == 0 { table.pop_last() } else { table.pop_first() };
                    match entry.unwrap() {
                        Some((key, _)) => popped.lock().push(key),
                        None if is_last_round => break,
                        None => std::thread::yield_now(),
                    }
                }
            });
        }
    });
    let popped = popped.into_inner();
    let distinct: BTreeSet<_> = popped.iter().collect();
    assert_eq!((popped.len(), distinct.len()), (2 * PER_THREAD as usize, popped.len()));
    assert!(table.is_empty().unwrap());
}

#[test]
fn handles_show_what_they_are() {
    let table = crate::support::table();
    table.put(b"a\xff", b"1").unwrap();
    let mut iter = table.iter().unwrap();
    iter.next().unwrap().unwrap();
    let mut keys = table.keys().unwrap();
    keys.next().unwrap().unwrap();
    let mut cursor = table.cursor().unwrap();
    cursor.next().unwrap().unwrap();
    let mut transaction = table.transaction().unwrap();
    transaction.put(b"b", b"12").unwrap();
    for (text, expected) in [
        (format!("{table:?}"), "Table { name: \"t\", engine: \"lsm\""),
        (format!("{:?}", table.snapshot().unwrap()), "Snapshot { table: \"t\", sequence: "),
        (format!("{transaction:?}"), "bytes_written: 3"),
        (format!("{iter:?}"), "Iter { front: Some(\"a\\\\xff\"), back: None"),
        (format!("{keys:?}"), "Keys { front: Some(\"a\\\\xff\")"),
        (format!("{cursor:?}"), "Cursor { key: Some(\"a\\\\xff\")"),
    ] {
        assert!(text.contains(expected), "{text} does not contain {expected}");
    }
}

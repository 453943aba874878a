//! Merge operators of a store's tables: set at open or later, recorded by name, on `lsm` alone.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use siltstone::{
    Db, DbBatch, DbOptions, Durability, Env, Error, ManualClock, MergeAppend, MergeCounter,
    MergeOperator, Result, Table, WriteBatch,
};

/// Keeps the longest operand. It has no partial merge, and fails for values that begin with `!`.
struct Longest;

impl MergeOperator for Longest {
    fn name(&self) -> &str {
        "longest"
    }

    fn full_merge(
        &self,
        _key: &[u8],
        value: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> std::result::Result<Vec<u8>, String> {
        if value.is_some_and(|value| value.starts_with(b"!")) {
            return Err("the value is locked".to_owned());
        }
        let all = value.into_iter().chain(operands.iter().copied());
        Ok(all.max_by_key(|part| part.len()).unwrap_or_default().to_vec())
    }
}

fn lsm(db: &Db, name: &str) -> Table {
    db.table_or_create(name, "lsm", &BTreeMap::new()).unwrap()
}

fn with_operator(table: &str, operator: Arc<dyn MergeOperator>) -> DbOptions {
    DbOptions {
        merge_operators: BTreeMap::from([(table.to_owned(), operator)]),
        ..DbOptions::default()
    }
}

fn counter(dir: &Path) -> (Db, Table) {
    let db = Db::open_or_create(dir, DbOptions::default()).unwrap();
    let table = lsm(&db, "t");
    table.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
    (db, table)
}

fn sum(table: &Table, key: &[u8]) -> Option<i64> {
    Some(i64::from_le_bytes(table.get(key).unwrap()?.try_into().unwrap()))
}

fn add(table: &Table, key: &[u8], by: i64) {
    table.merge(key, &by.to_le_bytes()).unwrap();
}

/// The text of an error that must be `Invalid`.
fn invalid<T: std::fmt::Debug>(result: Result<T>) -> String {
    match result {
        Err(Error::Invalid(reason)) => reason,
        other => panic!("not refused as invalid: {other:?}"),
    }
}

#[test]
fn counter_is_read_by_every_kind_of_read_before_and_after_compaction() {
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = counter(&scratch.path().join("s"));
    table.put(b"b", &10i64.to_le_bytes()).unwrap();
    for round in 0..3i64 {
        for by in [5, -3] {
            add(&table, b"a", by);
            add(&table, b"b", by);
        }
        let expected = [(b"a".to_vec(), 2 * (round + 1)), (b"b".to_vec(), 10 + 2 * (round + 1))];
        let snapshot = table.snapshot().unwrap();
        for stage in 0..3 {
            let values: Vec<_> =
                expected.iter().map(|(_, sum)| sum.to_le_bytes().to_vec()).collect();
            let found = table.multi_get(&[b"a", b"b"]).unwrap();
            assert_eq!(found, values.iter().cloned().map(Some).collect::<Vec<_>>());
            assert_eq!(table.get_with(b"a", <[u8]>::to_vec).unwrap(), Some(values[0].clone()));
            let all: Vec<_> =
                table.iter().unwrap().map(|e| e.map(|(key, e)| (key, e.value)).unwrap()).collect();
            assert_eq!(
                all,
                [(b"a".to_vec(), values[0].clone()), (b"b".to_vec(), values[1].clone())]
            );
            let back: Vec<_> = table.iter().unwrap().rev().map(|e| e.unwrap().1.value).collect();
            assert_eq!(back, [values[1].clone(), values[0].clone()]);
            assert_eq!(table.keys().unwrap().count(), 2);
            assert_eq!(snapshot.get(b"b").unwrap(), Some(values[1].clone()), "stage {stage}");
            match stage {
                0 => table.flush().unwrap(),
                _ => table.compact_range::<&[u8]>(..).unwrap(),
            }
        }
    }
    assert!(table.stats().counters["merge_operands_folded"] > 0);
    assert!(table.stats().counters["merged_reads"] > 0);
}

#[test]
fn built_in_operator_is_set_again_by_its_recorded_name() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let (db, table) = counter(&dir);
    add(&table, b"k", 4);
    db.close().unwrap();
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let table = db.table("t").unwrap();
    assert_eq!(sum(&table, b"k"), Some(4));
    add(&table, b"k", 4);
    table.clear().unwrap();
    add(&table, b"k", 1);
    assert_eq!(sum(&table, b"k"), Some(1));
    let refused = invalid(table.set_merge_operator(Some(Arc::new(MergeAppend::new(b",")))));
    assert!(refused.contains("siltstone.counter"), "{refused}");
    assert!(refused.contains("siltstone.append:2c"), "{refused}");
    db.close().unwrap();
    let read_only = DbOptions { read_only: true, ..DbOptions::default() };
    let db = Db::open(&dir, read_only).unwrap();
    assert_eq!(sum(&db.table("t").unwrap(), b"k"), Some(1));
}

#[test]
fn operands_without_their_operator_are_kept_and_named() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let db = Db::open_or_create(&dir, with_operator("t", Arc::new(Longest))).unwrap();
    let table = lsm(&db, "t");
    for operand in [&b"ab"[..], b"abcd", b"abc"] {
        table.merge(b"k", operand).unwrap();
        table.flush().unwrap();
    }
    table.put(b"plain", b"1").unwrap();
    db.close().unwrap();

    let db = Db::open(&dir, DbOptions::default()).unwrap();
    let table = db.table("t").unwrap();
    table.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(table.get(b"plain").unwrap().as_deref(), Some(&b"1"[..]));
    for reason in [
        invalid(table.get(b"k")),
        invalid(table.iter().unwrap().collect::<Result<Vec<_>>>()),
        invalid(table.iter().unwrap().rev().collect::<Result<Vec<_>>>()),
    ] {
        assert!(reason.contains("'k'") && reason.contains("set 'longest'"), "{reason}");
    }
    let refused = invalid(table.merge(b"k", b"x"));
    assert!(refused.contains("no merge operator"), "{refused}");
    table.set_merge_operator(Some(Arc::new(Longest))).unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"abcd"[..]));
    table.set_merge_operator(None).unwrap();
    assert!(table.get(b"k").is_err());
    db.close().unwrap();
    let db = Db::open(&dir, with_operator("t", Arc::new(Longest))).unwrap();
    assert_eq!(db.table("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"abcd"[..]));
}

#[test]
fn operator_that_fails_loses_no_operand() {
    let scratch = tempfile::tempdir().unwrap();
    let options = with_operator("t", Arc::new(Longest));
    let db = Db::open_or_create(scratch.path().join("s"), options).unwrap();
    let table = lsm(&db, "t");
    table.put(b"k", b"!").unwrap();
    table.merge(b"k", b"abc").unwrap();
    for _ in 0..2 {
        let reason = invalid(table.get(b"k"));
        assert!(reason.contains("the value is locked"), "{reason}");
        table.flush().unwrap();
        table.compact_range::<&[u8]>(..).unwrap();
    }
    assert_eq!(table.keys().unwrap().count(), 1, "the key is there");
    table.delete(b"k").unwrap();
    assert_eq!(table.get(b"k").unwrap(), None);
    table.merge(b"k", b"xy").unwrap();
    assert_eq!(table.get(b"k").unwrap().as_deref(), Some(&b"xy"[..]));
}

#[test]
fn operand_of_another_length_is_refused_with_its_batch() {
    let scratch = tempfile::tempdir().unwrap();
    let (db, table) = counter(&scratch.path().join("s"));
    let mut batch = WriteBatch::new();
    batch.put(b"other", b"1").merge(b"k", &[0; 8]).merge(b"k", b"123");
    let refused = invalid(table.write(&batch, Durability::Buffered));
    assert!(refused.contains("'k'") && refused.contains("3 bytes"), "{refused}");
    // The same while a transaction is open, and in a batch over tables.
    let transaction = table.transaction().unwrap();
    invalid(table.write(&batch, Durability::Buffered));
    drop(transaction);
    let second = lsm(&db, "second");
    let mut over_tables = DbBatch::new();
    over_tables.table(&second).put(b"other", b"1");
    over_tables.table(&table).merge(b"k", b"123");
    invalid(db.write(&over_tables, Durability::Synced));
    assert_eq!(table.keys().unwrap().count() + second.keys().unwrap().count(), 0);
    // A put may still write anything, and fails the reads until it is replaced.
    table.put(b"k", b"text").unwrap();
    add(&table, b"k", 1);
    let reason = invalid(table.get(b"k"));
    assert!(reason.contains("4 bytes"), "{reason}");
    table.put(b"k", &7i64.to_le_bytes()).unwrap();
    assert_eq!(sum(&table, b"k"), Some(7));
}

#[test]
fn merge_operator_and_expiry_exclude_each_other() {
    let scratch = tempfile::tempdir().unwrap();
    let clock = Arc::new(ManualClock::at(1_000));
    let env = Env { clock: clock.clone(), ..Env::system(1) };
    let options = DbOptions { env, ..DbOptions::default() };
    let db = Db::open_or_create(scratch.path().join("s"), options).unwrap();
    let table = lsm(&db, "t");
    table.put_until(b"session", b"1", 2_000).unwrap();
    let refused = invalid(table.set_merge_operator(Some(Arc::new(MergeCounter))));
    assert!(refused.contains("'session' expires"), "{refused}");
    invalid(table.merge(b"k", &[0; 8]));
    table.put_until(b"session", b"2", 2_000).unwrap();

    clock.set(2_000);
    table.set_merge_operator(Some(Arc::new(MergeCounter))).unwrap();
    let refused = invalid(table.put_until(b"session", b"3", 9_000));
    assert!(refused.contains("merge operator"), "{refused}");
    let mut over_tables = DbBatch::new();
    over_tables.table(&table).put_until(b"session", b"3", 9_000);
    over_tables.table(&lsm(&db, "second")).put(b"k", b"1");
    invalid(db.write(&over_tables, Durability::Buffered));
    // What has expired is no value to merge into.
    add(&table, b"session", 5);
    assert_eq!(sum(&table, b"session"), Some(5));
    table.flush().unwrap();
    table.compact_range::<&[u8]>(..).unwrap();
    assert_eq!(sum(&table, b"session"), Some(5));
    assert_eq!(db.table("second").unwrap().keys().unwrap().count(), 0);
}

#[test]
fn other_engines_refuse_merges_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    for engine in ["trie", "silt", "mica"] {
        let table = db.table_or_create(engine, engine, &BTreeMap::new()).unwrap();
        assert!(!table.engine().capabilities().merge);
        for refused in
            [table.merge(b"k", b"1"), table.set_merge_operator(Some(Arc::new(MergeCounter)))]
        {
            let text = refused.unwrap_err().to_string();
            assert!(text.contains(engine) && text.contains("merges"), "{text}");
        }
        assert_eq!(table.get(b"k").unwrap(), None);
    }
    let named = with_operator("t", Arc::new(MergeCounter));
    let db = Db::open_or_create(scratch.path().join("named"), named).unwrap();
    let refused = invalid(db.table_or_create("t", "trie", &BTreeMap::new()));
    assert!(refused.contains("trie") && refused.contains("merge_operators"), "{refused}");
}

#[test]
fn batch_over_tables_merges_in_both() {
    let scratch = tempfile::tempdir().unwrap();
    let dir = scratch.path().join("s");
    let (db, clicks) = counter(&dir);
    let log = lsm(&db, "log");
    log.set_merge_operator(Some(Arc::new(MergeAppend::new(b";")))).unwrap();
    for visitor in [&b"ann"[..], b"bob"] {
        let mut batch = DbBatch::new();
        batch.table(&clicks).merge(b"page", &1i64.to_le_bytes());
        batch.table(&log).merge(b"page", visitor);
        db.write(&batch, Durability::Synced).unwrap();
    }
    drop((clicks, log, db));
    let db = Db::open(&dir, DbOptions::default()).unwrap();
    assert_eq!(sum(&db.table("t").unwrap(), b"page"), Some(2));
    let log = db.table("log").unwrap();
    assert_eq!(log.get(b"page").unwrap().as_deref(), Some(&b"ann;bob"[..]));
}

#[test]
fn transaction_reads_its_own_merges_and_a_reader_conflicts_with_others() {
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = counter(&scratch.path().join("s"));
    add(&table, b"k", 1);
    let mut transaction = table.transaction().unwrap();
    transaction.merge(b"k", &10i64.to_le_bytes()).unwrap();
    transaction.merge(b"k", &10i64.to_le_bytes()).unwrap();
    assert_eq!(transaction.get(b"k").unwrap().as_deref(), Some(&21i64.to_le_bytes()[..]));
    let seen: Vec<_> = transaction.iter().unwrap().map(|entry| entry.unwrap().1.value).collect();
    assert_eq!(seen, [21i64.to_le_bytes()]);
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(sum(&table, b"k"), Some(21));

    // A plain merge of a key that was read is a conflict, of another key it is not.
    for (key, conflicts) in [(&b"k"[..], true), (b"other", false)] {
        let mut transaction = table.transaction().unwrap();
        transaction.get(b"k").unwrap();
        transaction.put(b"seen", &[0; 8]).unwrap();
        add(&table, key, 1);
        let committed = transaction.commit(Durability::Buffered);
        assert_eq!(matches!(committed, Err(Error::Conflict { .. })), conflicts, "{committed:?}");
    }

    // A batch with a bad operand changes nothing in the transaction.
    let mut transaction = table.transaction().unwrap();
    let mut batch = WriteBatch::new();
    batch.put(b"new", &[0; 8]).merge(b"k", &1i64.to_le_bytes());
    transaction.write(&batch).unwrap();
    batch.delete(b"new").merge(b"k", b"bad");
    invalid(transaction.write(&batch));
    assert!(transaction.contains_key(b"new").unwrap());
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(sum(&table, b"k"), Some(23));
}

#[test]
fn transactions_that_merge_without_reading_do_not_conflict() {
    let scratch = tempfile::tempdir().unwrap();
    let (db, table) = counter(&scratch.path().join("s"));
    let log = lsm(&db, "log");
    log.set_merge_operator(Some(Arc::new(MergeAppend::new(b"")))).unwrap();
    let merging = |by: i64, text: &[u8]| {
        let mut transaction = db.transaction(&[&table, &log]).unwrap();
        transaction.table(&table).unwrap().merge(b"k", &by.to_le_bytes()).unwrap();
        transaction.table(&log).unwrap().merge(b"k", text).unwrap();
        transaction
    };
    let (first, second) = (merging(1, b"a"), merging(10, b"b"));
    let mut reader = merging(100, b"c");
    assert!(reader.table(&log).unwrap().contains_key(b"k").unwrap());
    let mut over_one = table.transaction().unwrap();
    over_one.merge(b"k", &1000i64.to_le_bytes()).unwrap();
    // Operands follow each other in the order of the commits.
    second.commit(Durability::Synced).unwrap();
    over_one.commit(Durability::Buffered).unwrap();
    first.commit(Durability::Buffered).unwrap();
    let refused = reader.commit(Durability::Buffered);
    assert!(matches!(&refused, Err(Error::Conflict { key }) if key == b"k"), "{refused:?}");
    assert_eq!(sum(&table, b"k"), Some(1011));
    assert_eq!(log.get(b"k").unwrap().as_deref(), Some(&b"ba"[..]));
}

#[test]
fn blind_merge_into_a_value_that_does_not_merge_fails_the_read_and_not_the_commit() {
    let scratch = tempfile::tempdir().unwrap();
    let (_db, table) = counter(&scratch.path().join("s"));
    table.put(b"k", b"text").unwrap();
    let mut transaction = table.transaction().unwrap();
    transaction.merge(b"k", &[0; 8]).unwrap();
    let reason = invalid(transaction.get(b"k"));
    assert!(reason.contains("'k'") && reason.contains("4 bytes"), "{reason}");
    invalid(transaction.iter().unwrap().collect::<Result<Vec<_>>>());
    assert_eq!(transaction.keys().unwrap().count(), 1);
    transaction.commit(Durability::Buffered).unwrap();
    invalid(table.get(b"k"));
    // The operand is merged at once into what the transaction has written itself.
    let mut transaction = table.transaction().unwrap();
    transaction.put(b"k", b"again").unwrap();
    invalid(transaction.merge(b"k", &[0; 8]));
    transaction.delete(b"k").unwrap();
    transaction.merge(b"k", &7i64.to_le_bytes()).unwrap();
    transaction.commit(Durability::Buffered).unwrap();
    assert_eq!(sum(&table, b"k"), Some(7));
}

/// Random puts, deletes and merges of a transaction: every read of it agrees with a model, and so
/// does the table after the commit.
#[test]
fn random_merges_of_a_transaction_are_shown_by_all_of_its_reads() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    let table = lsm(&db, "t");
    table.set_merge_operator(Some(Arc::new(MergeAppend::new(b"+")))).unwrap();
    let mut rng = siltstone_testkit::TestRng::new(5);
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for round in 0..200 {
        let mut transaction = table.transaction().unwrap();
        for step in 0..rng.below(12) {
            let key = vec![b'a' + rng.below(10) as u8];
            let value = format!("{round}.{step}").into_bytes();
            match rng.below(4) {
                0 => {
                    transaction.put(&key, &value).unwrap();
                    model.insert(key, value);
                }
                1 => {
                    transaction.delete(&key).unwrap();
                    model.remove(&key);
                }
                _ => {
                    transaction.merge(&key, &value).unwrap();
                    let merged = match model.get(&key) {
                        Some(before) => [before, &b"+"[..], &value].concat(),
                        None => value,
                    };
                    model.insert(key, merged);
                }
            }
        }
        let pair = |entry: Result<(Vec<u8>, siltstone::Entry)>| {
            entry.map(|(key, entry)| (key, entry.value)).unwrap()
        };
        let expected: Vec<_> = model.clone().into_iter().collect();
        let backwards: Vec<_> = expected.iter().rev().cloned().collect();
        assert_eq!(transaction.iter().unwrap().map(pair).collect::<Vec<_>>(), expected);
        assert_eq!(transaction.iter().unwrap().rev().map(pair).collect::<Vec<_>>(), backwards);
        let keys = transaction.keys().unwrap().collect::<Result<Vec<_>>>().unwrap();
        assert_eq!(keys, model.keys().cloned().collect::<Vec<_>>());
        assert_eq!(transaction.len().unwrap(), model.len() as u64);
        for key in b'a'..=b'j' {
            let found = transaction.get(&[key]).unwrap();
            assert_eq!(found.as_ref(), model.get(&[key][..]));
            assert_eq!(transaction.contains_key(&[key]).unwrap(), found.is_some());
        }
        // There and back across every key.
        let mut cursor = transaction.cursor().unwrap();
        for at in 0..expected.len() {
            let key = cursor.next().unwrap().unwrap().key.to_vec();
            assert_eq!(key, expected[at].0);
            if let Some(before) = at.checked_sub(1) {
                let shown = cursor.prev().unwrap().unwrap();
                assert_eq!((shown.key, shown.value), (&*expected[before].0, &*expected[before].1));
                let shown = cursor.next().unwrap().unwrap();
                assert_eq!((shown.key, shown.value), (&*expected[at].0, &*expected[at].1));
            }
        }
        drop(cursor);
        transaction.commit(Durability::Buffered).unwrap();
        assert_eq!(table.iter().unwrap().map(pair).collect::<Vec<_>>(), expected);
        if round % 40 == 0 {
            table.compact_range::<&[u8]>(..).unwrap();
        }
    }
}

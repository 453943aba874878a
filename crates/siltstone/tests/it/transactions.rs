//! The anomalies of weaker isolation levels, each against two or three hand-interleaved
//! transactions; and what a transaction sees of its own writes.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Barrier};
use std::time::Duration;

use crate::support::table;
use siltstone::{
    Db, DbOptions, Durability, Error, IngestMode, IngestOptions, Retry, SortedFileWriter, Table,
    Transaction, WriteBatch,
};
use siltstone_testkit::TestRng;
use siltstone_testkit::serial::{PausePoint, Witness};

fn commit(transaction: Transaction) -> siltstone::Result<()> {
    transaction.commit(Durability::Buffered)
}

/// The key of the expected conflict.
fn conflict(outcome: siltstone::Result<()>) -> String {
    match outcome {
        Err(Error::Conflict { key }) => String::from_utf8(key).unwrap(),
        other => panic!("expected a conflict, got {other:?}"),
    }
}

fn text(table: &Table, key: &str) -> Option<String> {
    table.get(key.as_bytes()).unwrap().map(|value| String::from_utf8(value).unwrap())
}

fn keys(iter: siltstone::Iter) -> Vec<String> {
    iter.map(|entry| String::from_utf8(entry.unwrap().0).unwrap()).collect()
}

/// An ingestion is a write of all keys between the first and the last one of its files.
#[test]
fn ingestion_conflicts_with_reads_in_its_ranges_alone() {
    let scratch = tempfile::tempdir().unwrap();
    let path = scratch.path().join("f");
    let write_file = |keys: &[&str]| {
        let mut file = SortedFileWriter::create(&path, &BTreeMap::new()).unwrap();
        keys.iter().for_each(|key| file.put(key.as_bytes(), b"file").unwrap());
        file.finish().unwrap();
    };
    let db = Db::open_or_create(scratch.path().join("db"), DbOptions::default()).unwrap();
    let table = db.table_or_create("t", "lsm", &BTreeMap::new()).unwrap();
    let options = IngestOptions { mode: IngestMode::Move, ..IngestOptions::default() };
    table.put(b"a", b"1").unwrap();
    let mut within = table.transaction().unwrap();
    within.get(b"m").unwrap();
    let mut scan = table.transaction().unwrap();
    scan.range("z"..).unwrap().for_each(|entry| drop(entry.unwrap()));
    let mut beside = table.transaction().unwrap();
    assert_eq!(beside.get(b"a").unwrap().unwrap(), b"1");
    write_file(&["k", "n", "zz"]);
    table.ingest(&[&path], options.clone()).unwrap();
    // What it reads from now on is as of its beginning.
    assert!(beside.contains_key(b"a").unwrap());
    for transaction in [&mut within, &mut scan, &mut beside] {
        transaction.put(b"result", b"").unwrap();
    }
    assert_eq!(conflict(commit(within)), "m");
    assert_eq!(conflict(commit(scan)), "z");
    commit(beside).unwrap();
    let mut before = table.transaction().unwrap();
    assert_eq!(before.get(b"n").unwrap().unwrap(), b"file");
    before.put(b"n", b"later").unwrap();
    commit(before).unwrap();
    assert_eq!(text(&table, "n").unwrap(), "later");
    // The bounds that removals of the first entry keep follow an ingestion.
    while table.pop_first().unwrap().is_some() {}
    write_file(&["b"]);
    table.ingest(&[&path], options).unwrap();
    assert_eq!(table.pop_first().unwrap().unwrap().0, b"b");
}

#[test]
fn empty_key_conflicts_like_any_other() {
    let table = table();
    for value in [b"1", b"2"] {
        let mut lookup = table.transaction().unwrap();
        let mut scan = table.transaction().unwrap();
        lookup.get(b"").unwrap();
        assert_eq!(keys(scan.range::<&str>(..).unwrap()).len(), usize::from(value == b"2"));
        for transaction in [&mut lookup, &mut scan] {
            transaction.put(b"y", b"").unwrap();
        }
        table.put(b"", value).unwrap();
        assert_eq!((conflict(commit(lookup)), conflict(commit(scan))), Default::default());
    }
    let mut transaction = table.transaction().unwrap();
    transaction.put(b"", b"own").unwrap();
    assert_eq!(transaction.get(b"").unwrap().unwrap(), b"own");
    assert_eq!(keys(transaction.range::<&str>(..).unwrap()), [""]);
    transaction.delete(b"").unwrap();
    commit(transaction).unwrap();
    assert_eq!(text(&table, ""), None);
}

#[test]
fn lost_update_is_a_conflict() {
    let table = table();
    table.put(b"x", b"1").unwrap();
    let mut first = table.transaction().unwrap();
    let mut second = table.transaction().unwrap();
    for transaction in [&mut first, &mut second] {
        assert_eq!(transaction.get(b"x").unwrap().unwrap(), b"1");
        transaction.put(b"x", b"2").unwrap();
    }
    commit(first).unwrap();
    assert_eq!(conflict(commit(second)), "x");
    // Against a plain write and a plain deletion as well.
    for write in [WriteBatch::new().put(b"x", b"3"), WriteBatch::new().delete(b"x")] {
        let mut third = table.transaction().unwrap();
        third.get(b"x").unwrap();
        third.put(b"y", b"").unwrap();
        table.write(write, Durability::Buffered).unwrap();
        assert_eq!(conflict(commit(third)), "x");
    }
    // And against a write through the engine.
    let mut fourth = table.transaction().unwrap();
    fourth.get(b"x").unwrap();
    fourth.put(b"y", b"").unwrap();
    table.engine().write(WriteBatch::new().put(b"x", b"4"), Durability::Synced).unwrap();
    assert_eq!(conflict(commit(fourth)), "x");
    assert_eq!(text(&table, "y"), None);
}

#[test]
fn write_skew_is_a_conflict() {
    let table = table();
    let mut first = table.transaction().unwrap();
    let mut second = table.transaction().unwrap();
    for (transaction, writes) in [(&mut first, b"x"), (&mut second, b"y")] {
        // A missing key counts as read, too.
        assert_eq!(transaction.get(b"x").unwrap(), None);
        assert_eq!(transaction.get(b"y").unwrap(), None);
        transaction.put(writes, b"1").unwrap();
    }
    commit(second).unwrap();
    assert_eq!(conflict(commit(first)), "y");
}

#[test]
fn long_fork_cannot_happen() {
    let table = table();
    let mut writes_x = table.transaction().unwrap();
    let mut writes_y = table.transaction().unwrap();
    writes_x.put(b"x", b"1").unwrap();
    writes_y.put(b"y", b"1").unwrap();
    let before = table.transaction().unwrap();
    commit(writes_x).unwrap();
    let between = table.transaction().unwrap();
    commit(writes_y).unwrap();
    let seen = |reader: &Transaction| [b"x", b"y"].map(|key| reader.get(key).unwrap().is_some());
    assert_eq!(seen(&before), [false, false]);
    assert_eq!(seen(&between), [true, false]);
    assert_eq!(seen(&table.transaction().unwrap()), [true, true]);
    // Read-only transactions commit whatever was written since.
    commit(before).unwrap();
    commit(between).unwrap();
}

#[test]
fn read_only_anomaly_cannot_happen() {
    // Fekete, O'Neil and O'Neil (2004): the withdrawal has read a savings account to which a
    // deposit was made since, and a report has already shown the deposit without the withdrawal.
    let table = table();
    table.put(b"checking", b"0").unwrap();
    table.put(b"savings", b"0").unwrap();
    let mut withdraws = table.transaction().unwrap();
    withdraws.get(b"checking").unwrap();
    withdraws.get(b"savings").unwrap();
    let mut deposits = table.transaction().unwrap();
    deposits.get(b"savings").unwrap();
    deposits.put(b"savings", b"20").unwrap();
    commit(deposits).unwrap();
    let report = table.snapshot().unwrap();
    assert_eq!(report.get(b"savings").unwrap().unwrap(), b"20");
    assert_eq!(report.get(b"checking").unwrap().unwrap(), b"0");
    withdraws.put(b"checking", b"-11").unwrap();
    assert_eq!(conflict(commit(withdraws)), "savings");
}

#[test]
fn phantoms_are_conflicts_within_the_scanned_part_of_a_range() {
    let table = table();
    for key in ["b", "d", "f", "h"] {
        table.put(key.as_bytes(), b"").unwrap();
    }
    // Reads some of a range; then a key is written.
    let outcome = |read: fn(&mut siltstone::Iter), written: &str, deletes: bool| {
        let mut transaction = table.transaction().unwrap();
        read(&mut transaction.range("a".."i").unwrap());
        transaction.put(b"result", b"").unwrap();
        let was_there = table.get(written.as_bytes()).unwrap().is_some();
        let mut batch = WriteBatch::new();
        match deletes {
            true => batch.delete(written.as_bytes()),
            false => batch.put(written.as_bytes(), b"new"),
        };
        table.write(&batch, Durability::Buffered).unwrap();
        let outcome = commit(transaction);
        if was_there {
            table.put(written.as_bytes(), b"").unwrap();
        } else {
            table.delete(written.as_bytes()).unwrap();
        }
        outcome.map_err(|_| written.to_owned()).err()
    };
    let all: fn(&mut siltstone::Iter) = |iter| iter.for_each(drop);
    let two: fn(&mut siltstone::Iter) = |iter| drop((iter.next(), iter.next()));
    let both_ends: fn(&mut siltstone::Iter) = |iter| drop((iter.next(), iter.next_back()));
    for key in ["a", "b", "c", "g", "hh"] {
        assert_eq!(outcome(all, key, false).as_deref(), Some(key));
    }
    assert_eq!(outcome(all, "d", true).as_deref(), Some("d"));
    assert_eq!(outcome(all, "i", false), None);
    assert_eq!(outcome(all, "0", false), None);
    // b and d were returned: e and later keys were not read.
    assert_eq!(outcome(two, "c", false).as_deref(), Some("c"));
    assert_eq!(outcome(two, "a", false).as_deref(), Some("a"));
    assert_eq!(outcome(two, "e", false), None);
    // b and h were returned.
    assert_eq!(outcome(both_ends, "a", false).as_deref(), Some("a"));
    assert_eq!(outcome(both_ends, "hh", false).as_deref(), Some("hh"));
    assert_eq!(outcome(both_ends, "e", false), None);
}

#[test]
fn own_write_in_a_scan_does_not_hide_the_keys_before_it() {
    // a is stored and m is an own write: the scan has read that there is nothing in between.
    for (backwards, phantom) in [(false, "g"), (true, "r")] {
        let table = table();
        table.put(b"a", b"").unwrap();
        table.put(b"z", b"").unwrap();
        let mut transaction = table.transaction().unwrap();
        transaction.put(b"m", b"").unwrap();
        let mut iter = transaction.iter().unwrap();
        let returned = match backwards {
            false => [iter.next(), iter.next()],
            true => [iter.next_back(), iter.next_back()],
        };
        assert_eq!(returned[1].as_ref().unwrap().as_ref().unwrap().0, b"m");
        table.put(phantom.as_bytes(), b"").unwrap();
        assert_eq!(conflict(commit(transaction)), phantom);
    }
}

#[test]
fn begin_waits_for_unrecorded_writes() {
    // The write has locked `active` and is paused in the engine.
    let open = Arc::new(Barrier::new(2));
    let opened = open.clone();
    let paused = Witness::pausing(crate::support::lsm(&[]), move |point| {
        if point == PausePoint::BeforeWrite {
            opened.wait();
        }
    });
    let table = Table::new("t", Arc::new(paused));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| table.put(b"x", b"new"));
        let reader = scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            let transaction = table.transaction().unwrap();
            transaction.get(b"x").unwrap()
        });
        std::thread::sleep(Duration::from_millis(90));
        open.wait();
        writer.join().unwrap().unwrap();
        // The snapshot shows it; else a conflict with it would go undetected.
        assert_eq!(reader.join().unwrap().as_deref(), Some(&b"new"[..]));
    });
}

#[test]
fn blind_writes_and_reads_of_own_writes_conflict_with_nothing() {
    let table = table();
    let mut blind = table.transaction().unwrap();
    blind.put(b"x", b"mine").unwrap();
    assert_eq!(blind.get(b"x").unwrap().unwrap(), b"mine");
    blind.delete(b"y").unwrap();
    assert_eq!(blind.get(b"y").unwrap(), None);
    table.put(b"x", b"other").unwrap();
    table.put(b"y", b"other").unwrap();
    commit(blind).unwrap();
    assert_eq!((text(&table, "x").as_deref(), text(&table, "y")), (Some("mine"), None));
}

#[test]
fn dropped_or_rolled_back_transaction_leaves_nothing() {
    let table = table();
    let mut dropped = table.transaction().unwrap();
    dropped.put(b"x", b"1").unwrap();
    drop(dropped);
    let mut rolled_back = table.transaction().unwrap();
    rolled_back.put(b"x", b"1").unwrap();
    rolled_back.rollback();
    assert_eq!(text(&table, "x"), None);
    // An invalid write changes nothing in the transaction.
    let mut transaction = table.transaction().unwrap();
    transaction.put(b"y", b"1").unwrap();
    assert!(matches!(transaction.put(&vec![0; 1 << 17], b""), Err(Error::TooLarge { .. })));
    let mut batch = WriteBatch::new();
    batch.put(b"z", b"1").delete(&[0; 1 << 17]);
    assert!(transaction.write(&batch).is_err());
    commit(transaction).unwrap();
    assert_eq!((text(&table, "y").as_deref(), text(&table, "z")), (Some("1"), None));
}

#[test]
fn scans_show_own_writes_in_both_directions() {
    let table = table();
    let mut rng = TestRng::new(7);
    let name = |number: u64| format!("k{number:02}");
    for round in 0..200 {
        let mut model: BTreeMap<String, u64> = BTreeMap::new();
        table
            .write(
                &(0..40).fold(WriteBatch::new(), |mut batch, number| {
                    if rng.one_in(2) {
                        model.insert(name(number), 0);
                        batch.put(name(number).as_bytes(), &[0]);
                    } else {
                        batch.delete(name(number).as_bytes());
                    }
                    batch
                }),
                Durability::Buffered,
            )
            .unwrap();
        let mut transaction = table.transaction().unwrap();
        for _ in 0..rng.below(30) {
            let key = name(rng.below(40));
            match rng.below(4) {
                0 => {
                    transaction.delete(key.as_bytes()).unwrap();
                    model.remove(&key);
                }
                // Expired before it is written.
                1 => {
                    transaction.put_until(key.as_bytes(), &[9], 1).unwrap();
                    model.remove(&key);
                }
                _ => {
                    transaction.put(key.as_bytes(), &[1]).unwrap();
                    model.insert(key, 1);
                }
            }
        }
        // Later writes of others are invisible.
        table.put(name(rng.below(40)).as_bytes(), &[7]).unwrap();
        let (mut low, mut high) = (rng.below(41), rng.below(41));
        if low > high {
            (low, high) = (high, low);
        }
        let expected: Vec<_> = model
            .range::<String, _>((Bound::Included(name(low)), Bound::Excluded(name(high))))
            .map(|(key, value)| (key.clone().into_bytes(), vec![*value as u8]))
            .collect();
        let range = || transaction.range(name(low)..name(high)).unwrap();
        let pairs = |entry: siltstone::Result<(Vec<u8>, siltstone::Entry)>| {
            let (key, entry) = entry.unwrap();
            (key, entry.value)
        };
        assert_eq!(range().map(pairs).collect::<Vec<_>>(), expected, "round {round}");
        let mut back: Vec<_> = range().rev().map(pairs).collect();
        back.reverse();
        assert_eq!(back, expected, "round {round}, backwards");
        // From both ends in random turns: each entry once.
        let (mut iter, mut front, mut end) = (range(), Vec::new(), Vec::new());
        loop {
            let item = if rng.one_in(2) { (iter.next(), true) } else { (iter.next_back(), false) };
            match item {
                (None, _) => break,
                (Some(entry), true) => front.push(pairs(entry)),
                (Some(entry), false) => end.push(pairs(entry)),
            }
        }
        front.extend(end.into_iter().rev());
        assert_eq!(front, expected, "round {round}, from both ends");
        for number in 0..40 {
            let value = transaction.get(name(number).as_bytes()).unwrap();
            assert_eq!(value.map(|value| u64::from(value[0])), model.get(&name(number)).copied());
        }
    }
}

#[test]
fn iterator_shows_the_writes_before_it() {
    let table = table();
    let mut transaction = table.transaction().unwrap();
    transaction.put(b"a", b"").unwrap();
    let before = transaction.iter().unwrap();
    transaction.put(b"b", b"").unwrap();
    assert_eq!(keys(before), ["a"]);
    assert_eq!(keys(transaction.prefix("b").unwrap()), ["b"]);
    assert_eq!(keys(transaction.iter().unwrap()), ["a", "b"]);
}

#[test]
fn writes_without_an_open_transaction_are_not_recorded() {
    let table = table();
    let tracked = || table.stats().counters["transactions_tracked_writes"];
    (0..100u32).for_each(|i| table.put(&i.to_le_bytes(), b"").unwrap());
    let snapshot = table.snapshot().unwrap();
    (0..100u32).for_each(|i| table.put(&i.to_le_bytes(), b"").unwrap());
    assert_eq!(tracked(), 0);
    let transaction = table.transaction().unwrap();
    (0..100u32).for_each(|i| table.put(&i.to_le_bytes(), b"").unwrap());
    assert_eq!(tracked(), 100);
    assert!(table.stats().counters["transaction_history_bytes"] > 0);
    drop((transaction, snapshot));
    assert_eq!(table.stats().counters["transaction_history_bytes"], 0);
    (0..100u32).for_each(|i| table.put(&i.to_le_bytes(), b"").unwrap());
    assert_eq!(tracked(), 100);
}

#[test]
fn unversioned_engines_report_transactions_as_unsupported() {
    let scratch = tempfile::tempdir().unwrap();
    let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default()).unwrap();
    for engine in ["trie", "silt", "mica"] {
        let table = db.table_or_create(engine, engine, &Default::default()).unwrap();
        for error in [table.transaction().err(), table.snapshot().err()] {
            assert!(matches!(error, Some(Error::Unsupported { .. })), "{engine}: {error:?}");
        }
        assert!(table.transact(|_| Ok(())).is_err());
        assert_eq!(table.watermark(), None);
    }
}

#[test]
fn conflict_message_names_the_key_and_the_remedy() {
    let conflict = Error::Conflict { key: b"user:\xff7".to_vec() }.to_string();
    assert!(conflict.contains("key 'user:\\xff7'") && conflict.contains("run it again"));
    assert!(Error::Conflict { key: vec![b'x'; 60_000] }.to_string().len() < 300);
}

#[test]
fn retries_stop_at_their_limit_and_at_other_errors() {
    let table = table();
    let retry = Retry { tries: 5, ..Retry::default() };
    let mut tries = 0;
    let outcome = table.transact_with(retry, Durability::Buffered, |transaction| {
        tries += 1;
        transaction.get(b"x")?;
        table.put(b"x", b"concurrent")?;
        transaction.put(b"x", b"")
    });
    assert_eq!((conflict(outcome).as_str(), tries), ("x", 5));
    // Two conflicts, then success.
    let mut conflicts = 0;
    let result = table.transact(|transaction| {
        transaction.get(b"x")?;
        if conflicts < 2 {
            conflicts += 1;
            table.put(b"x", b"concurrent")?;
        }
        transaction.put(b"x", b"mine")?;
        Ok(conflicts)
    });
    assert_eq!(result.unwrap(), 2);
    assert_eq!(text(&table, "x").as_deref(), Some("mine"));
    // An error of the work is not retried, and leaves nothing.
    let mut tries = 0;
    let outcome: siltstone::Result<()> = table.transact(|transaction| {
        tries += 1;
        transaction.put(b"x", b"half")?;
        transaction.put(&[0; 1 << 17], b"")
    });
    assert!(matches!(outcome, Err(Error::TooLarge { .. })));
    assert_eq!((tries, text(&table, "x").as_deref()), (1, Some("mine")));
}

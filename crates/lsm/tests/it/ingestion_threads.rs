//! Ingestions beside writers, readers and compactions.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use siltstone_engine::{Durability, Engine, IngestMode, KeyRange, WriteBatch};
use siltstone_lsm::Lsm;
use siltstone_runtime::Env;
use siltstone_testkit::TestRng;

use crate::ingestion::{SMALL, ingest, key, open, options, put, ram, value, write_file};

/// Each ingestion sets all keys of two files to its number, among writers and readers.
#[test]
fn reader_among_threads_sees_an_ingestion_whole() {
    const KEYS: u64 = 60;
    for texts in [&[SMALL, "triad.mem=on triad.log=on"][..], &[SMALL, "l0_capacity=32KiB"]] {
        let vfs = ram();
        let lsm = Lsm::open(vfs.clone(), Env::system(2), options(texts)).unwrap();
        let (lsm, is_done) = (&lsm, &AtomicBool::new(false));
        let all = |lsm: &Lsm| {
            let mut batch = WriteBatch::new();
            (0..KEYS).for_each(|number| _ = batch.put(&key(number), &0u64.to_be_bytes()));
            lsm.write(&batch, Durability::Buffered).unwrap();
        };
        all(lsm);
        std::thread::scope(|scope| {
            for writer in 0..2u64 {
                scope.spawn(move || {
                    let mut rng = TestRng::of(writer, 1);
                    while !is_done.load(SeqCst) {
                        put(lsm, 1000 + rng.below(3000), &rng.bytes(100));
                        // Overwrites what is ingested, too, whole.
                        if rng.one_in(500) {
                            all(lsm);
                        }
                    }
                });
            }
            scope.spawn(move || {
                let mut last_scan = 0;
                while !is_done.load(SeqCst) {
                    let range = KeyRange::new(key(0)..key(KEYS));
                    let mut cursor = lsm.range(range, None).unwrap();
                    let (mut values, mut is_valid) = (Vec::new(), cursor.first().unwrap());
                    while is_valid {
                        values.push(cursor.value().to_vec());
                        is_valid = cursor.next().unwrap();
                    }
                    assert_eq!(values.len() as u64, KEYS);
                    assert!(values.iter().all(|value| *value == values[0]), "{values:?}");
                    last_scan += 1;
                }
                assert!(last_scan > 0);
            });
            for round in 1..40u64 {
                let half = KEYS / 2;
                write_file(&vfs, "a", 0..half, &round.to_be_bytes());
                write_file(&vfs, "b", half..KEYS, &round.to_be_bytes());
                let mode = [IngestMode::Move, IngestMode::Copy][round as usize % 2];
                ingest(lsm, &["b", "a"], mode).unwrap();
                let _ = (vfs.remove("a"), vfs.remove("b"));
            }
            is_done.store(true, SeqCst);
        });
        assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
        lsm.close().unwrap();
    }
}

/// Files go into gaps of levels while compactions that span the gaps are running.
#[test]
fn ingestion_among_compactions_keeps_levels_disjoint_and_every_entry() {
    let vfs = ram();
    let lsm = Lsm::open(vfs.clone(), Env::system(3), options(&[SMALL, "max_compactions=3"]));
    let lsm = lsm.unwrap();
    let (mut rng, mut expected) = (TestRng::of(3, 1), BTreeMap::new());
    for round in 0..60u64 {
        for _ in 0..120 {
            let (number, value) = (rng.below(4000), rng.bytes(60));
            put(&lsm, number, &value);
            expected.insert(number, value);
        }
        let from = rng.below(4000);
        let keys: Vec<u64> = (from..from + 1 + rng.below(6)).collect();
        let value = round.to_be_bytes();
        write_file(&vfs, "f", keys.iter().copied(), &value);
        ingest(&lsm, &["f"], IngestMode::Move).unwrap();
        expected.extend(keys.into_iter().map(|number| (number, value.to_vec())));
        if round % 10 == 9 {
            lsm.compact_range(&KeyRange::new(key(0)..key(rng.below(4000)))).unwrap();
        }
    }
    let check = |lsm: &Lsm| {
        expected.iter().for_each(|(number, written)| {
            assert_eq!(value(lsm, *number).as_ref(), Some(written), "{number}");
        });
    };
    check(&lsm);
    lsm.maintain().unwrap();
    check(&lsm);
    lsm.close().unwrap();
    drop(lsm);
    check(&open(&vfs, &[SMALL]));
}

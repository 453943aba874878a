//! Does a seek to a key that is there leave runs alone whose filters rule the key out, and go on rightly
//! through them all the same?

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Cursor, Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::Faulty;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{Metered, Vfs};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store of many rows over two levels, and what is in it.
fn filled() -> (Lsm, Model) {
    filled_with(&[])
}

fn filled_with(options: &[(&str, &str)]) -> (Lsm, Model) {
    let (lsm, mut model, mut rng) = (empty(options), Model::new(), StdRng::seed_from_u64(5));
    let key = |rng: &mut StdRng| format!("{:06}", rng.random_range(0..20_000));
    write(&lsm, &mut model, &mut rng, key, 6000);
    lsm.flush().unwrap();
    assert!(lsm.stats().levels.iter().all(|level| level.files > 0 || level.name > "L2".into()));
    (lsm, model)
}

fn empty(given: &[(&str, &str)]) -> Lsm {
    let small = [
        ("memtable", "32KiB"),
        ("table", "32KiB"),
        ("levels", "128KiB:1MiB"),
        ("container", "512KiB"),
        ("cache", "0"),
    ];
    let options =
        small.iter().chain(given).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let vfs: Arc<dyn Vfs> = Arc::new(Metered::new(Arc::new(Faulty::new(1))));
    Lsm::open(vfs, env, Options::from_map(&options.collect()).unwrap()).unwrap()
}

/// Puts, and now and then deletes, keys that are drawn, so many times.
fn write(
    lsm: &Lsm,
    model: &mut Model,
    rng: &mut StdRng,
    draw: impl Fn(&mut StdRng) -> String,
    times: u32,
) {
    for _ in 0..times {
        let key = draw(rng).into_bytes();
        let mut batch = WriteBatch::new();
        if rng.random_range(0..10) == 0 {
            batch.delete(&key);
            model.remove(&key);
        } else {
            let value = vec![rng.random(); 200];
            batch.put(&key, &value);
            model.insert(key, value);
        }
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

fn shown(cursor: &dyn Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()))
}

fn copied((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

#[test]
fn is_all_found_behind_a_key_that_was_found_at_once() {
    let (lsm, model) = filled();
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut rng = StdRng::seed_from_u64(6);
    for _ in 0..3000 {
        let key = format!("{:06}", rng.random_range(0..20_000)).into_bytes();
        cursor.seek(&key).unwrap();
        let mut after = model.range(key.clone()..);
        let mut expected = after.next().map(copied);
        assert_eq!(shown(&*cursor), expected);
        for _ in 0..rng.random_range(0..4) {
            if !cursor.valid() {
                break;
            }
            if rng.random_range(0..4) == 0 {
                cursor.prev().unwrap();
                let at = expected.unwrap().0;
                assert_eq!(shown(&*cursor), model.range(..at).next_back().map(copied));
                break;
            }
            cursor.next().unwrap();
            expected = after.next().map(copied);
            assert_eq!(shown(&*cursor), expected);
        }
    }
}

#[test]
fn does_a_seek_to_a_key_read_little_more_than_a_get() {
    let (lsm, model) = filled();
    lsm.maintain().unwrap();
    let reads = |purpose: &str| lsm.stats().io.get(purpose).map_or(0, |io| io.reads);
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let keys: Vec<_> = model.keys().step_by(7).collect();
    let before = [reads("get"), reads("scan")];
    for key in &keys {
        assert!(cursor.seek(key).unwrap());
        assert!(lsm.get(key).unwrap().is_some());
    }
    let [gets, seeks] = [reads("get") - before[0], reads("scan") - before[1]];
    assert!(seeks * 10 < gets * 13, "{seeks} reads of seeks, {gets} of gets");
}

/// Half of the rows, on average, are passed by the cursor over level 0 where a key is sought.
#[test]
fn does_a_seek_to_no_key_leave_rows_alone_that_are_passed_there() {
    let (lsm, model) = filled_with(&[("block", "256B"), ("range_filter", "off")]);
    let (rows, deeper) = runs(&lsm);
    let (reads, seeks) = reads_of_seeks_to_no_key(&lsm, &model);
    assert!(reads * 2 < seeks * (rows + deeper), "{reads} reads of {seeks} seeks, {rows} rows");
}

/// And of the others most have nothing up to the key that comes next.
#[test]
fn does_a_seek_to_no_key_leave_rows_alone_that_have_nothing_up_to_the_next() {
    let (lsm, model) = filled_with(&[("block", "256B")]);
    let (rows, deeper) = runs(&lsm);
    assert!(rows > 8 && deeper == 2, "{rows} rows over {deeper} levels");
    let (reads, seeks) = reads_of_seeks_to_no_key(&lsm, &model);
    // One of the deepest level, and often one of the level above it.
    assert!(reads * 2 < seeks * 5, "{reads} reads of {seeks} seeks, {rows} rows");
}

/// The rows of level 0, and how many levels have tables.
fn runs(lsm: &Lsm) -> (u64, u64) {
    let levels = lsm.stats().levels;
    let deeper = levels.iter().skip(1).filter(|level| level.files > 0);
    (levels[0].files, deeper.count() as u64)
}

/// Reads, and seeks.
fn reads_of_seeks_to_no_key(lsm: &Lsm, model: &Model) -> (u64, u64) {
    let reads = || lsm.stats().io.get("scan").map_or(0, |io| io.reads);
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let (before, mut seeks) = (reads(), 0);
    // In no order, so that hardly a block is the one before.
    for key in (0..3000).map(|i| format!("{:06}", i * 7919 % 20_000).into_bytes()) {
        if !model.contains_key(&key) {
            cursor.seek(&key).unwrap();
            seeks += 1;
        }
    }
    (reads() - before, seeks)
}

/// While the cursor over level 0 goes over keys of which many begin another, so that it stands at some, each is
/// sought, and what comes next has to be right.
#[test]
fn is_what_is_behind_the_cursor_over_level_0_found_from_before_it() {
    // Rows with their values, so that a side is a small part of the container.
    let (lsm, mut model, mut rng) =
        (empty(&[("triad_log", "off")]), Model::new(), StdRng::seed_from_u64(7));
    // All words of two letters, up to so long.
    let word = |number: u32| format!("{:b}", number + 2).split_off(1);
    let count = 4094;
    let draw = |rng: &mut StdRng| word(rng.random_range(0..count));
    for _ in 0..70 {
        write(&lsm, &mut model, &mut rng, draw, 250);
        lsm.flush().unwrap();
        let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
        for key in (0..count).map(|number| word(number).into_bytes()) {
            cursor.seek(&key).unwrap();
            for expected in model.range(key..).map(copied).take(3) {
                assert_eq!(shown(&*cursor), Some(expected));
                cursor.next().unwrap();
            }
        }
    }
}

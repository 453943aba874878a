//! Deferred seeks: runs that filters exclude are not read, and iteration is still correct.

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Cursor, Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Vfs};

pub(crate) type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A store of many runs over two levels, and its content.
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

pub(crate) fn empty(given: &[(&str, &str)]) -> Lsm {
    let small = [
        ("memtable", "32KiB"),
        ("target_file_size", "32KiB"),
        ("levels", "128KiB:1MiB"),
        ("l0_capacity", "512KiB"),
        ("cache", "0"),
    ];
    let options =
        small.iter().chain(given).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(Arc::new(FaultyVfs::new(1))));
    Lsm::open(vfs, env, Options::from_map(&options.collect()).unwrap()).unwrap()
}

/// Puts, and sometimes deletes, `times` drawn keys.
pub(crate) fn write(
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

pub(crate) fn current_entry(cursor: &dyn Cursor) -> Option<(Vec<u8>, Vec<u8>)> {
    cursor.valid().then(|| (cursor.key().to_vec(), cursor.value().to_vec()))
}

fn to_owned_pair((key, value): (&Vec<u8>, &Vec<u8>)) -> (Vec<u8>, Vec<u8>) {
    (key.clone(), value.clone())
}

#[test]
fn iteration_after_a_seek_to_an_existing_key_is_correct() {
    let (lsm, model) = filled();
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut rng = StdRng::seed_from_u64(6);
    for _ in 0..3000 {
        let key = format!("{:06}", rng.random_range(0..20_000)).into_bytes();
        cursor.seek(&key).unwrap();
        let mut after = model.range(key.clone()..);
        let mut expected = after.next().map(to_owned_pair);
        assert_eq!(current_entry(&*cursor), expected);
        for _ in 0..rng.random_range(0..4) {
            if !cursor.valid() {
                break;
            }
            if rng.random_range(0..4) == 0 {
                cursor.prev().unwrap();
                let at = expected.unwrap().0;
                assert_eq!(
                    current_entry(&*cursor),
                    model.range(..at).next_back().map(to_owned_pair)
                );
                break;
            }
            cursor.next().unwrap();
            expected = after.next().map(to_owned_pair);
            assert_eq!(current_entry(&*cursor), expected);
        }
    }
}

#[test]
fn seek_to_an_existing_key_reads_little_more_than_a_get() {
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

/// The L0 cursor has passed the target in half of the runs on average.
#[test]
fn seek_to_an_absent_key_skips_runs_that_are_dead_there() {
    let (lsm, model) = filled_with(&[("block_size", "256B"), ("experimental.range_filter", "off")]);
    let (rows, deeper) = runs(&lsm);
    let (reads, seeks) = reads_of_seeks_to_no_key(&lsm, &model);
    assert!(reads * 2 < seeks * (rows + deeper), "{reads} reads of {seeks} seeks, {rows} rows");
}

/// Most of the other runs have no key up to the next one.
#[test]
fn seek_to_an_absent_key_skips_runs_that_range_filters_exclude() {
    let (lsm, model) = filled_with(&[("block_size", "256B")]);
    let (rows, deeper) = runs(&lsm);
    assert!(rows > 8 && deeper == 2, "{rows} rows over {deeper} levels");
    let (reads, seeks) = reads_of_seeks_to_no_key(&lsm, &model);
    // One read in the deepest level, and often one in the level above it.
    assert!(reads * 2 < seeks * 5, "{reads} reads of {seeks} seeks, {rows} rows");
}

/// The number of L0 runs, and of levels with tables.
fn runs(lsm: &Lsm) -> (u64, u64) {
    let levels = lsm.stats().levels;
    let deeper = levels.iter().skip(1).filter(|level| level.files > 0);
    (levels[0].files, deeper.count() as u64)
}

/// The numbers of reads and of seeks.
fn reads_of_seeks_to_no_key(lsm: &Lsm, model: &Model) -> (u64, u64) {
    let reads = || lsm.stats().io.get("scan").map_or(0, |io| io.reads);
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let (before, mut seeks) = (reads(), 0);
    // Shuffled, so that seeks rarely hit the last block.
    for key in (0..3000).map(|i| format!("{:06}", i * 7919 % 20_000).into_bytes()) {
        if !model.contains_key(&key) {
            cursor.seek(&key).unwrap();
            seeks += 1;
        }
    }
    (reads() - before, seeks)
}

/// The L0 cursor moves over keys that are prefixes of others. Each key is a seek target while the
/// cursor is at a key, and the following entries must be correct.
#[test]
fn seek_from_before_the_l0_cursor_finds_the_keys_after_it() {
    // Runs contain their values, so that a slice is a small part of the L0 capacity.
    let (lsm, mut model, mut rng) =
        (empty(&[("triad.log", "off")]), Model::new(), StdRng::seed_from_u64(7));
    // All words of two letters, up to a maximum length.
    let word = |number: u32| format!("{:b}", number + 2).split_off(1);
    let count = 4094;
    let draw = |rng: &mut StdRng| word(rng.random_range(0..count));
    for _ in 0..70 {
        write(&lsm, &mut model, &mut rng, draw, 250);
        lsm.flush().unwrap();
        let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
        for key in (0..count).map(|number| word(number).into_bytes()) {
            cursor.seek(&key).unwrap();
            for expected in model.range(key..).map(to_owned_pair).take(3) {
                assert_eq!(current_entry(&*cursor), Some(expected));
                cursor.next().unwrap();
            }
        }
    }
}

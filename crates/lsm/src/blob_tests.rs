//! Tests of key-value separation: how much is written and kept, and what is read.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, MergeAppend, Stats, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

use crate::{Lsm, Options};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

const VALUE_BYTES: usize = 4096;
const KEYS: u32 = 1000;

fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect()
}

fn disk() -> Arc<dyn Vfs> {
    Arc::new(MeteredVfs::new(Arc::new(Ram::new())))
}

fn open_at(vfs: &Arc<dyn Vfs>, now: u64, given: &[(&str, &str)]) -> Lsm {
    let mut options = map(&[
        ("memtable", "256KiB"),
        ("target_file_size", "256KiB"),
        ("l0_capacity", "1MiB"),
        ("blob_threshold", "1KiB"),
    ]);
    options.extend(map(given));
    let env = Env::replayable(Arc::new(ManualClock::at(now)), 1);
    Lsm::open(vfs.clone(), env, Options::from_map(&options).unwrap()).unwrap()
}

fn open(vfs: &Arc<dyn Vfs>, given: &[(&str, &str)]) -> Lsm {
    open_at(vfs, 1, given)
}

fn key(number: u32) -> Vec<u8> {
    format!("{:08}", number.wrapping_mul(2_654_435_761) % 100_000_000).into_bytes()
}

/// Writes each of `numbers` with a large and with a small value.
fn fill(lsm: &Lsm, model: &mut Model, numbers: impl Iterator<Item = u32>, round: u8) {
    for number in numbers {
        let (large, mut small) = (key(number), key(number));
        small.push(b's');
        let value = vec![round ^ number as u8; VALUE_BYTES];
        let mut batch = WriteBatch::new();
        batch.put(&large, &value).put(&small, &[round; 10]);
        lsm.write(&batch, Durability::Buffered).unwrap();
        model.insert(large, value);
        model.insert(small, vec![round; 10]);
    }
    lsm.maintain().unwrap();
}

fn assert_has(lsm: &Lsm, model: &Model) {
    let mut expected = model.iter();
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut is_valid = cursor.first().unwrap();
    while is_valid {
        let (key, value) = expected.next().unwrap();
        assert!(cursor.key() == key.as_slice() && cursor.value() == value.as_slice());
        is_valid = cursor.next().unwrap();
    }
    assert!(expected.next().is_none());
    for (key, value) in model.iter().step_by(7) {
        assert!(lsm.get(key).unwrap().unwrap().value == *value);
    }
}

fn written(stats: &Stats) -> u64 {
    stats.io.values().map(|io| io.bytes_written).sum()
}

fn files(vfs: &Arc<dyn Vfs>, extension: &str) -> usize {
    vfs.list().unwrap().iter().filter(|name| name.ends_with(extension)).count()
}

#[test]
fn large_values_are_written_once_and_read_from_every_level() {
    for order in ["random", "ascending"] {
        let mut write_amplification = Vec::new();
        for threshold in ["1KiB", "0"] {
            let vfs = disk();
            let lsm = open(&vfs, &[("blob_threshold", threshold)]);
            let mut model = Model::new();
            let mut numbers: Vec<u32> = (0..KEYS).collect();
            if order == "ascending" {
                numbers.sort_by_key(|&number| key(number));
            }
            fill(&lsm, &mut model, numbers.into_iter(), 0);
            let stats = lsm.stats();
            let ratio = written(&stats) as f64 / stats.user_bytes_written as f64;
            write_amplification.push(ratio);
            assert_has(&lsm, &model);
            lsm.compact_range(&KeyRange::all()).unwrap();
            assert_has(&lsm, &model);
            lsm.close().unwrap();
            let lsm = open(&vfs, &[]);
            assert_has(&lsm, &model);
            assert!(lsm.verify(&mut |_, _| ()).unwrap().is_intact());
        }
        assert!(write_amplification[0] < 1.15, "{order}: {write_amplification:?}");
        assert!(write_amplification[1] > 1.7, "{order}: {write_amplification:?}");
    }
}

#[test]
fn garbage_collection_bounds_the_space_of_values() {
    for (ratio, share) in [("0.2", 0.2), ("0.5", 0.5)] {
        let vfs = disk();
        let lsm = open(&vfs, &[("blob_gc_ratio", ratio)]);
        let mut model = Model::new();
        for round in 0..8 {
            fill(&lsm, &mut model, (0..KEYS).filter(|number| number % 8 >= round), round as u8);
        }
        let stats = lsm.stats();
        let (bytes, garbage) = (stats.counters["blob_bytes"], stats.counters["blob_garbage_bytes"]);
        assert!(garbage as f64 <= share * bytes as f64, "{garbage} of {bytes}");
        assert!(stats.counters["blob_values_written"] > 0);
        // Versions that level 0 has not shown to be obsolete, and the active log, come on top.
        let live = model.values().map(|value| value.len() as u64).sum::<u64>();
        let limit = (live as f64 / (1.0 - share)) as u64 + (2 << 20);
        assert!(stats.space_bytes < limit, "{} of {limit}", stats.space_bytes);
        assert_has(&lsm, &model);
        lsm.close().unwrap();
        assert_has(&open(&vfs, &[]), &model);
    }
}

#[test]
fn files_with_values_go_with_the_last_reference() {
    let vfs = disk();
    let lsm = open(&vfs, &[]);
    let mut model = Model::new();
    fill(&lsm, &mut model, 0..KEYS, 0);
    let snapshot = lsm.snapshot().unwrap();
    assert!(files(&vfs, ".log") > 10);
    for key in model.keys() {
        lsm.write(WriteBatch::new().delete(key), Durability::Buffered).unwrap();
    }
    lsm.compact_range(&KeyRange::all()).unwrap();
    let mut cursor = lsm.range(KeyRange::all(), Some(&snapshot)).unwrap();
    let mut is_valid = cursor.first().unwrap();
    for (key, value) in &model {
        assert!(is_valid && cursor.key() == key.as_slice() && cursor.value() == value.as_slice());
        is_valid = cursor.next().unwrap();
    }
    drop((cursor, snapshot));
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.maintain().unwrap();
    assert!(files(&vfs, ".log") <= 2, "{:?}", vfs.list().unwrap());
    assert_eq!(files(&vfs, ".blob"), 0);
}

#[test]
fn threshold_changes_which_values_are_separated_from_now_on() {
    let vfs = disk();
    let lsm = open(&vfs, &[("blob_threshold", "0"), ("blob_gc_ratio", "0.05")]);
    let mut model = Model::new();
    fill(&lsm, &mut model, 0..KEYS, 0);
    lsm.compact_range(&KeyRange::all()).unwrap();
    assert_eq!(lsm.stats().counters["blob_files"], 0);
    lsm.set_options(&map(&[("blob_threshold", "1KiB")])).unwrap();
    lsm.compact_range(&KeyRange::all()).unwrap();
    let stats = lsm.stats();
    assert_eq!(stats.counters["blob_values_written"], u64::from(KEYS));
    assert_eq!(files(&vfs, ".blob") as u64, stats.counters["blob_files"]);
    assert_has(&lsm, &model);
    // What is collected goes back into tables.
    lsm.set_options(&map(&[("blob_threshold", "0")])).unwrap();
    fill(&lsm, &mut model, (0..KEYS).step_by(3), 1);
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.maintain().unwrap();
    assert_eq!(lsm.stats().counters["blob_values_written"], u64::from(KEYS));
    let (bytes, garbage) =
        (lsm.stats().counters["blob_bytes"], lsm.stats().counters["blob_garbage_bytes"]);
    assert!(garbage as f64 <= 0.05 * bytes as f64, "{garbage} of {bytes}");
    assert_has(&lsm, &model);
}

#[test]
fn expiry_of_a_separated_value_is_kept_when_it_moves() {
    let vfs = disk();
    let lsm = open(&vfs, &[("blob_gc_ratio", "0.05")]);
    let value = vec![7; VALUE_BYTES];
    for number in 0..KEYS {
        let mut batch = WriteBatch::new();
        batch.put_until(&key(number), &value, 1000 + u64::from(number % 2) * 1000);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.close().unwrap();
    let lsm = open_at(&vfs, 1500, &[("blob_gc_ratio", "0.05")]);
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.maintain().unwrap();
    assert!(lsm.stats().counters["blob_values_written"] > 0);
    assert_eq!(lsm.get(&key(0)).unwrap(), None);
    let entry = lsm.get(&key(1)).unwrap().unwrap();
    assert_eq!((entry.value, entry.expires_at), (value, Some(2000)));
    lsm.close().unwrap();
    let lsm = open_at(&vfs, 2500, &[]);
    lsm.compact_range(&KeyRange::all()).unwrap();
    assert!(!lsm.range(KeyRange::all(), None).unwrap().first().unwrap());
}

#[test]
fn operands_are_merged_with_a_separated_value() {
    let vfs = disk();
    let lsm = open(&vfs, &[]);
    lsm.set_merge_operator(Some(Arc::new(MergeAppend::new(b"")))).unwrap();
    let mut model = Model::new();
    fill(&lsm, &mut model, 0..KEYS / 4, 0);
    lsm.compact_range(&KeyRange::all()).unwrap();
    for (key, value) in &mut model {
        lsm.write(WriteBatch::new().merge(key, b"more"), Durability::Buffered).unwrap();
        value.extend_from_slice(b"more");
    }
    assert_has(&lsm, &model);
    lsm.compact_range(&KeyRange::all()).unwrap();
    assert_has(&lsm, &model);
    lsm.close().unwrap();
    assert!(crate::verify_closed(&vfs).unwrap().is_intact());
}

#[test]
fn damaged_file_with_values_costs_its_damaged_values_alone() {
    let ram = Arc::new(FaultyVfs::new(1));
    let vfs: Arc<dyn Vfs> = ram.clone();
    let lsm = open(&vfs, &[]);
    let mut model = Model::new();
    fill(&lsm, &mut model, 0..KEYS, 0);
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.close().unwrap();
    let name = vfs.list().unwrap().into_iter().find(|name| name.ends_with(".log")).unwrap();
    let byte = ram.read_raw(&name).unwrap()[100_000];
    ram.write_raw(&name, 100_000, &[byte ^ 1]).unwrap();
    assert!(!crate::verify_closed(&vfs).unwrap().is_intact());
    let report = crate::repair(&vfs).unwrap();
    assert!(!report.is_lossless() && vfs.exists(&format!("{name}.damaged")).unwrap());
    let lsm = open(&vfs, &[]);
    let lost = model.iter().filter(|(key, value)| match lsm.get(key).unwrap() {
        Some(entry) => entry.value != **value,
        None => true,
    });
    assert_eq!(lost.count(), 1);
}

#[test]
fn damaged_table_costs_no_value_that_it_refers_to() {
    let ram = Arc::new(FaultyVfs::new(1));
    let vfs: Arc<dyn Vfs> = ram.clone();
    let lsm = open(&vfs, &[("target_file_size", "8KiB")]);
    let mut model = Model::new();
    fill(&lsm, &mut model, 0..KEYS, 0);
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.close().unwrap();
    model.retain(|_, value| value.len() == VALUE_BYTES);
    let tables = vfs.list().unwrap().into_iter().filter(|name| name.ends_with(".sst"));
    let tables: Vec<String> = tables.collect();
    let byte = ram.read_raw(&tables[0]).unwrap()[100];
    ram.write_raw(&tables[0], 100, &[byte ^ 1]).unwrap();
    vfs.remove(&tables[1]).unwrap();
    assert!(!crate::repair(&vfs).unwrap().is_lossless());
    let lsm = open(&vfs, &[]);
    for (key, value) in &model {
        assert!(lsm.get(key).unwrap().unwrap().value == *value);
    }
}

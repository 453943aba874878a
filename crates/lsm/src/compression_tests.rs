//! Tests of compression by level: which files are dense, what that saves, and what a damaged
//! dictionary costs.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, Stats, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Ram, Vfs};

use crate::{Lsm, Options};

const DENSE: &[(&str, &str)] =
    &[("bottommost_compression", "zstd:3"), ("compression_dict_size", "4KiB")];

fn open(vfs: Arc<dyn Vfs>, given: &[(&str, &str)]) -> siltstone_engine::Result<Lsm> {
    let small = [
        ("memtable", "256KiB"),
        ("target_file_size", "256KiB"),
        ("levels", "1MiB:16MiB"),
        ("l0_capacity", "0"),
        ("triad.log", "off"),
    ];
    let options = small.iter().chain(given).map(|&(k, v)| (k.to_owned(), v.to_owned()));
    let options = Options::from_map(&options.collect()).unwrap();
    Lsm::open(vfs, Env::replayable(Arc::new(ManualClock::at(1)), 1), options)
}

fn hash(number: u64) -> u64 {
    let mixed = number.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

/// A key of 16 bytes, in random order.
fn key(number: u64) -> Vec<u8> {
    format!("{:016x}", hash(number)).into_bytes()
}

/// A JSON document of about 200 bytes.
fn row(number: u64) -> Vec<u8> {
    const COUNTRIES: [&str; 4] = ["NZ", "Chile", "Iceland", "Portugal"];
    let [a, b, c] = [1, 2, 3].map(|salt| hash(number ^ salt << 40));
    format!(
        "{{\"id\":{number},\"name\":\"user {:x}\",\"country\":\"{}\",\"visits\":{},\"score\":0.{},\
         \"active\":{},\"created\":\"2026-{:02}-{:02}T{:02}:{:02}:00Z\",\"tags\":[\"{:x}\",\"new\"],\
         \"comment\":null}}",
        a >> 20,
        COUNTRIES[(a % 4) as usize],
        b % 10_000,
        b >> 40,
        c % 3 == 0,
        1 + c % 12,
        1 + b % 28,
        a % 24,
        b % 60,
        c >> 44,
    )
    .into_bytes()
}

fn fill(lsm: &Lsm, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        let mut batch = WriteBatch::new();
        batch.put(&key(number), &row(number));
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

/// Of each level: the files, and those with a dictionary.
fn files(lsm: &Lsm) -> BTreeMap<usize, (usize, usize)> {
    let mut files = BTreeMap::new();
    for (level, file) in lsm.table().view.load_full().version.files() {
        let (all, dense): &mut (usize, usize) = files.entry(level).or_default();
        *all += 1;
        *dense += usize::from(file.table().dictionary_bytes() > 0);
    }
    files
}

/// Reads each of `numbers` once. Not inlined, so that a profiler can count it alone.
#[inline(never)]
fn read_rows(lsm: &Lsm, numbers: impl Iterator<Item = u64>) {
    for number in numbers {
        assert_eq!(lsm.get(&key(number)).unwrap().unwrap().value, row(number));
    }
}

#[test]
fn files_of_the_last_level_are_dense_and_those_above_are_not() {
    let small = [("levels", "192KiB:16MiB"), ("experimental.l0_compaction_trigger", "2")];
    let lsm = open(Arc::new(Ram::new()), &[&small, DENSE].concat()).unwrap();
    fill(&lsm, 0..8000);
    lsm.flush().unwrap();
    lsm.maintain().unwrap();
    lsm.compact_range(&KeyRange::all()).unwrap();
    // The last file may be too small for a dictionary.
    let is_dense = |(all, dense): (usize, usize)| dense > 0 && dense + 1 >= all;
    assert!(files(&lsm).iter().all(|(level, files)| *level > 0 && is_dense(*files)));
    assert!(lsm.stats().space_bytes < 8000 * 110, "{}", lsm.stats().space_bytes);
    // Level 1 begins below level 0 and above level 2.
    let deepest = *files(&lsm).keys().max().unwrap();
    assert_eq!(deepest, 2, "{:?}", files(&lsm));
    // Two runs go down to level 1, which has room for them; the third stays.
    for part in [0..400, 400..800, 800..900] {
        fill(&lsm, part);
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
    }
    let now = files(&lsm);
    let above = |level| now.get(&level).copied().unwrap_or_default();
    assert_eq!((above(0).1, above(1).1), (0, 0), "{now:?}");
    assert!(above(0).0 > 0 && above(1).0 > 0 && is_dense(now[&2]), "{now:?}");
    lsm.verify(&mut |_, _| ()).unwrap();
    read_rows(&lsm, 0..8000);
}

#[test]
fn ascending_load_is_written_again_for_the_last_level_only_if_that_is_denser() {
    for (given, moved) in [(&[][..], true), (&[("compression", "zstd")], true), (DENSE, false)] {
        let given = [&[("experimental.l0_compaction_trigger", "2")], given].concat();
        let lsm = open(Arc::new(Ram::new()), &given).unwrap();
        for number in 0..8000u64 {
            let mut batch = WriteBatch::new();
            batch.put(&number.to_be_bytes(), &row(number));
            lsm.write(&batch, Durability::Buffered).unwrap();
        }
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        let files = files(&lsm);
        let below = files.iter().filter(|(level, _)| **level > 0);
        assert!(below.clone().count() > 0 && (lsm.stats().counters["table_moves"] > 0) == moved);
        assert!(moved || below.clone().all(|(_, (all, dense))| dense + 1 >= *all), "{files:?}");
    }
}

#[test]
fn damaged_dictionary_is_told_and_repair_saves_the_other_files() {
    let vfs = Arc::new(FaultyVfs::new(1));
    let lsm = open(vfs.clone(), DENSE).unwrap();
    fill(&lsm, 0..8000);
    lsm.compact_range(&KeyRange::all()).unwrap();
    lsm.close().unwrap();
    drop(lsm);
    let mut names = vfs.list().unwrap();
    names.sort();
    let name = names.into_iter().find(|name| name.ends_with(".sst")).unwrap();
    let mut bytes = vfs.read_raw(&name).unwrap();
    let magic = [0x37, 0xA4, 0x30, 0xEC];
    let at = bytes.windows(4).rposition(|four| four == magic).unwrap();
    bytes[at + 100] ^= 4;
    vfs.write_raw(&name, 0, &bytes).unwrap();
    let refused = open(vfs.clone(), DENSE).err().unwrap().to_string();
    assert!(refused.contains(&name) && refused.contains("dictionary"), "{refused}");
    let shared: Arc<dyn Vfs> = vfs.clone();
    let report = crate::repair(&shared).unwrap();
    assert!(!report.losses.is_empty() && report.losses.iter().all(|loss| loss.file == name));
    let lsm = open(vfs, DENSE).unwrap();
    lsm.verify(&mut |_, _| ()).unwrap();
    let kept = (0..8000).filter(|&number| lsm.get(&key(number)).unwrap().is_some()).count();
    assert!(kept > 1000 && kept < 8000, "{kept}");
}

/// Prints what formats save. With `SILTSTONE_ROWS` for more rows than by default; under a profiler
/// with `SILTSTONE_FORMAT` for one of the formats.
#[test]
fn dictionary_saves_what_zstd_alone_leaves() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let rows = number("SILTSTONE_ROWS").unwrap_or(10_000);
    let formats: [&[(&str, &str)]; 4] = [
        &[],
        &[("bottommost_compression", "zstd")],
        &[("bottommost_compression", "zstd"), ("compression_dict_size", "4KiB")],
        &[("bottommost_compression", "zstd"), ("compression_dict_size", "16KiB")],
    ];
    let measure = |format: &[(&str, &str)]| {
        let vfs = Arc::new(MeteredVfs::new(Arc::new(Ram::new())));
        let bench = [("cache", "0"), ("block_size", "4KiB"), ("target_file_size", "2MiB")];
        let lsm = open(vfs, &[&bench, format].concat()).unwrap();
        fill(&lsm, 0..rows);
        lsm.flush().unwrap();
        lsm.maintain().unwrap();
        let Stats { user_bytes_written, io, .. } = lsm.stats();
        let written: u64 = io.values().map(|io| io.bytes_written).sum();
        lsm.compact_range(&KeyRange::all()).unwrap();
        read_rows(&lsm, 0..rows);
        let bytes: u64 = lsm.stats().levels.iter().map(|level| level.bytes).sum();
        let per_row = bytes as f64 / rows as f64;
        let amplification = written as f64 / user_bytes_written as f64;
        println!("{format:?}: {per_row:.1} bytes per row, write amplification {amplification:.2}");
        per_row
    };
    if let Some(format) = number("SILTSTONE_FORMAT") {
        measure(formats[format as usize]);
        return;
    }
    let [none, zstd, small, large] = formats.map(measure);
    assert!(zstd < none * 0.75 && small.min(large) < zstd * 0.9);
}

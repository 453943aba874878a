//! Checks what a power cut leaves of a mapping: everything persisted, and any allowed part of the
//! rest.

#![allow(clippy::single_range_in_vec_init)] // A list of one range is meant.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_faults::{FaultKind, FaultyVfs, Survival};
use siltstone_vfs::{Mapping, Vfs};

const WHY: Purpose = Purpose::Flush;
const LINE: usize = 64;

fn kind<T>(result: Result<T>) -> ErrorKind {
    match result {
        Err(Error::Io { kind, .. }) => kind,
        Err(other) => panic!("not an I/O error: {other}"),
        Ok(_) => panic!("no error"),
    }
}

fn read(mapping: &Mapping, offset: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0xAA; len];
    mapping.read(offset, &mut bytes, WHY).unwrap();
    bytes
}

fn surviving_mappings(vfs: &FaultyVfs) -> impl Iterator<Item = Mapping> {
    (0..1000).map(|seed| vfs.survivors(seed).map("m", 256).unwrap())
}

fn durable_mapping(vfs: &FaultyVfs) -> Mapping {
    let mapping = vfs.map("m", 256).unwrap();
    vfs.sync_dir(WHY).unwrap();
    mapping
}

#[test]
fn unpersisted_lines_are_kept_lost_or_torn_at_words() {
    let vfs = FaultyVfs::new(7);
    let mapping = durable_mapping(&vfs);
    mapping.store(0, &[1; 256], WHY).unwrap();
    mapping.persist(&[64..65], WHY).unwrap();
    let (mut whole, mut torn) = (BTreeSet::new(), 0);
    for survivor in surviving_mappings(&vfs) {
        let bytes = read(&survivor, 0, 256);
        let lines: Vec<&[u8]> = bytes.chunks(LINE).collect();
        assert_eq!(lines[1], [1; LINE], "persisted");
        let words: Vec<bool> = bytes.chunks(8).map(|word| word[0] == 1).collect();
        assert!(bytes.chunks(8).all(|word| word.iter().all(|&b| b == word[0])), "{bytes:?}");
        let kept: Vec<bool> = words.chunks(8).map(|line| line[0]).collect();
        match words.chunks(8).all(|line| line.iter().all(|&w| w == line[0])) {
            true => drop(whole.insert((kept[0], kept[2], kept[3]))),
            false => torn += 1,
        }
    }
    assert_eq!(whole.len(), 8, "every subset of three lines");
    assert!(torn > 50, "{torn}");
}

#[test]
fn stores_to_a_line_are_kept_in_order() {
    let vfs = FaultyVfs::new(7);
    let mapping = durable_mapping(&vfs);
    for value in 1..=4 {
        mapping.store(value * 8, &[value as u8; 8], WHY).unwrap();
    }
    let mut prefixes = BTreeSet::new();
    let mut others = 0;
    for survivor in surviving_mappings(&vfs) {
        let bytes = read(&survivor, 8, 32);
        let kept: Vec<bool> = bytes.chunks(8).map(|word| word[0] != 0).collect();
        match kept.is_sorted_by(|a, b| a >= b) {
            true => drop(prefixes.insert(kept.iter().filter(|&&k| k).count())),
            false => others += 1,
        }
    }
    assert_eq!(prefixes, (0..=4).collect());
    assert!((1..300).contains(&others), "only torn lines are out of order: {others}");
}

#[test]
fn failed_persist_is_not_repaired_by_a_later_one() {
    let vfs = FaultyVfs::new(3);
    let mapping = durable_mapping(&vfs);
    mapping.store(0, &[1; 128], WHY).unwrap();
    vfs.fail_next(FaultKind::Sync, 1);
    assert!(mapping.persist(&[0..64], WHY).is_err());
    mapping.persist(&[0..256], WHY).unwrap();
    let survivor = vfs.survivors_as(Survival::LoseAll, 0).map("m", 256).unwrap();
    assert_eq!(read(&survivor, 0, 64), [0; 64], "in doubt");
    mapping.store(5, &[2], WHY).unwrap();
    mapping.persist(&[0..256], WHY).unwrap();
    let survivor = vfs.survivors_as(Survival::LoseAll, 0).map("m", 256).unwrap();
    let mut expected = [1; 64];
    expected[5] = 2;
    assert_eq!(read(&survivor, 0, 64), expected, "stored to again, so written back completely");
}

#[test]
fn power_can_be_cut_at_each_operation_of_a_mapping() {
    let run = |vfs: &FaultyVfs| -> Result<()> {
        let mapping = vfs.map("m", 256)?;
        vfs.sync_dir(WHY)?;
        mapping.store(0, &[1; 100], WHY)?;
        mapping.persist(&[0..100], WHY)?;
        mapping.store(100, &[2; 100], WHY)?;
        mapping.persist(&[100..200], WHY)
    };
    let calm = FaultyVfs::new(1);
    run(&calm).unwrap();
    assert_eq!(calm.operations(), 8, "create, set length, sync, sync_dir, and the four of memory");
    for cut in 0..calm.operations() {
        for seed in 0..50 {
            let vfs = FaultyVfs::new(1);
            vfs.cut_power_at(cut);
            run(&vfs).unwrap_err();
            let survivor = vfs.survivors(seed).map("m", 256).unwrap();
            let bytes = read(&survivor, 0, 256);
            assert!(cut < 6 || bytes[..100] == [1; 100], "cut {cut}, seed {seed}");
            assert!(bytes[200..] == [0; 56]);
            assert!(bytes.iter().all(|&byte| byte <= 2));
        }
    }
}

#[test]
fn damage_is_visible_when_the_file_is_mapped_again() {
    let vfs = FaultyVfs::new(3);
    let mapping = durable_mapping(&vfs);
    mapping.store(9, &[1], WHY).unwrap();
    vfs.flip_bit("m", 9, 7).unwrap();
    assert_eq!(read(&mapping, 9, 1), [1]);
    drop(mapping);
    assert_eq!(read(&vfs.map("m", 256).unwrap(), 9, 1), [0x81]);
    vfs.set_capacity(1);
    assert_eq!(kind(vfs.map("other", 4096)), ErrorKind::StorageFull);
}

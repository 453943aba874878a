//! Subcompactions: their outputs are adjacent without gaps or overlaps, and are removed if one
//! fails.

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::FaultyVfs;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

const KEYS: u32 = 16_000;
const VALUE: usize = 1000;

/// Level 1 takes everything: each compaction of level 0 merges 16 MiB, in subcompactions of 4 MiB.
fn open(vfs: &FaultyVfs) -> Lsm {
    let options = [
        ("memtable", "1MiB"),
        ("target_file_size", "256KiB"),
        ("levels", "64MiB:640MiB"),
        ("l0_capacity", "0"),
        ("max_subcompactions", "2"),
    ];
    let options =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(Arc::new(vfs.clone()), env, Options::from_map(&options).unwrap()).unwrap()
}

/// Shuffled, because runs of ordered keys would be moved and not merged.
fn key_of(number: u32) -> [u8; 4] {
    number.wrapping_mul(2_654_435_761).to_be_bytes()
}

fn write(lsm: &Lsm, keys: std::ops::Range<u32>, round: u8) {
    for key in keys {
        let mut batch = WriteBatch::new();
        batch.put(&key_of(key), &[round; VALUE]);
        lsm.write(&batch, Durability::Buffered).unwrap();
    }
}

/// The number of SSTables on the file system, and in the tree.
fn tables(vfs: &FaultyVfs, lsm: &Lsm) -> (u64, u64) {
    let names = vfs.list().unwrap();
    let on_disk = names.iter().filter(|name| name.ends_with(".sst")).count() as u64;
    (on_disk, lsm.stats().levels.iter().map(|level| level.files).sum())
}

fn entries(lsm: &Lsm) -> u32 {
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut is_valid = cursor.first().unwrap();
    let mut entries = 0;
    while is_valid {
        entries += 1;
        is_valid = cursor.next().unwrap();
    }
    entries
}

#[test]
fn subcompactions_leave_no_gap_and_no_overlap() {
    let vfs = FaultyVfs::new(1);
    let lsm = open(&vfs);
    for round in 0..3 {
        write(&lsm, 0..KEYS, round);
        // A version edit that adds overlapping SSTables to a level would be rejected.
        lsm.maintain().unwrap();
        assert_eq!(entries(&lsm), KEYS, "after round {round}");
    }
    assert!(lsm.stats().counters["compactions"] > 3);
}

#[test]
fn outputs_are_removed_if_another_subcompaction_fails() {
    let vfs = FaultyVfs::new(1);
    let lsm = open(&vfs);
    write(&lsm, 0..KEYS, 0);
    lsm.maintain().unwrap();
    let mut failed = 0;
    for round in 1..20u8 {
        write(&lsm, 0..KEYS / 4, round);
        let free = u64::from(round) << 20;
        vfs.set_capacity(vfs.space_used() + free);
        if lsm.maintain().is_err() {
            failed += 1;
        }
        let (on_disk, known) = tables(&vfs, &lsm);
        assert_eq!(on_disk, known, "with {free} bytes free");
        vfs.set_capacity(u64::MAX);
        lsm.maintain().unwrap();
    }
    assert!(failed > 2, "{failed}");
    assert_eq!(entries(&lsm), KEYS);
}

//! A compaction that is large enough is cut into pieces: do they meet without a gap or an overlap, and is nothing
//! left of one whose neighbour failed?

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use siltstone_engine::{Durability, Engine, KeyRange, ManualClock, WriteBatch};
use siltstone_faults::Faulty;
use siltstone_lsm::{Lsm, Options};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

const KEYS: u32 = 16_000;
const VALUE: usize = 1000;

/// Level 1 takes all: each compaction of level 0 merges it whole, 16 MiB, and a piece is of 4.
fn open(vfs: &Faulty) -> Lsm {
    let options = [
        ("memtable", "1MiB"),
        ("table", "256KiB"),
        ("levels", "64MiB:640MiB"),
        ("container", "0"),
        ("subcompactions", "2"),
    ];
    let options =
        options.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
    Lsm::open(Arc::new(vfs.clone()), env, Options::from_map(&options).unwrap()).unwrap()
}

/// In no order: rows of keys in order would only change their level.
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

/// Tables on the medium, and those that the tree has.
fn tables(vfs: &Faulty, lsm: &Lsm) -> (u64, u64) {
    let names = vfs.list().unwrap();
    let there = names.iter().filter(|name| name.ends_with(".sst")).count() as u64;
    (there, lsm.stats().levels.iter().map(|level| level.files).sum())
}

fn entries(lsm: &Lsm) -> u32 {
    let mut cursor = lsm.range(KeyRange::all(), None).unwrap();
    let mut there = cursor.first().unwrap();
    let mut entries = 0;
    while there {
        entries += 1;
        there = cursor.next().unwrap();
    }
    entries
}

#[test]
fn do_pieces_meet_without_gap_or_overlap() {
    let vfs = Faulty::new(1);
    let lsm = open(&vfs);
    for round in 0..3 {
        write(&lsm, 0..KEYS, round);
        // Tables of a level that overlap are refused.
        lsm.maintain().unwrap();
        assert_eq!(entries(&lsm), KEYS, "after round {round}");
    }
    assert!(lsm.stats().counters["compactions"] > 3);
}

#[test]
fn is_nothing_left_of_pieces_whose_neighbour_failed() {
    let vfs = Faulty::new(1);
    let lsm = open(&vfs);
    write(&lsm, 0..KEYS, 0);
    lsm.maintain().unwrap();
    let mut failed = 0;
    for round in 1..20u8 {
        write(&lsm, 0..KEYS / 4, round);
        let room = u64::from(round) << 20;
        vfs.set_capacity(vfs.space_used() + room);
        if lsm.maintain().is_err() {
            failed += 1;
        }
        let (there, known) = tables(&vfs, &lsm);
        assert_eq!(there, known, "with room for {room} bytes");
        vfs.set_capacity(u64::MAX);
        lsm.maintain().unwrap();
    }
    assert!(failed > 2, "{failed}");
    assert_eq!(entries(&lsm), KEYS);
}

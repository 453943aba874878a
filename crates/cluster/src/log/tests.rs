//! The log after conflicts, compaction, power cuts and damage; planted faults are found.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use raft::eraftpb::{Entry, HardState};
use siltstone_faults::FaultyVfs;
use siltstone_testkit::TestRng;

use super::*;
use crate::planted::with_planted;

const NODE: LogIdentity = LogIdentity { group: 1, node: 2 };

pub(super) fn entry(index: u64, term: u64, data: &[u8]) -> Entry {
    let mut entry = Entry::default();
    (entry.index, entry.term) = (index, term);
    entry.data = data.to_vec().into();
    entry.context = b"id".to_vec().into();
    entry
}

fn state(term: u64, vote: u64, commit: u64) -> HardState {
    let mut state = HardState::default();
    (state.term, state.vote, state.commit) = (term, vote, commit);
    state
}

fn create(vfs: &FaultyVfs) -> Result<RaftLog> {
    RaftLog::create(Arc::new(vfs.clone()), NODE, Marker { index: 1, term: 1 }, 1)
}

fn open(vfs: &FaultyVfs) -> Result<RaftLog> {
    RaftLog::open(Arc::new(vfs.clone()), NODE)
}

/// What a log has, to compare.
#[derive(Debug, Clone, PartialEq)]
struct Image {
    marker: Marker,
    table: u64,
    hard_state: HardState,
    entries: Vec<Entry>,
}

fn image(log: &RaftLog) -> Image {
    Image {
        marker: log.marker(),
        table: log.table(),
        hard_state: log.hard_state().clone(),
        entries: (log.first_index()..=log.last_index())
            .map(|index| log.entry(index).unwrap().clone())
            .collect(),
    }
}

#[test]
fn conflicting_suffix_is_replaced_also_after_reopen() {
    let vfs = FaultyVfs::new(1);
    let mut log = create(&vfs).unwrap();
    let entries: Vec<_> = (2..6).map(|index| entry(index, 1, b"old")).collect();
    log.append(&state(1, 2, 1), &entries).unwrap();
    log.append(&state(3, 0, 2), &[entry(4, 3, b"new")]).unwrap();
    log.sync().unwrap();
    let before = image(&log);
    assert_eq!((log.last_index(), log.term(4), log.term(5)), (4, Some(3), None));
    drop(log);
    let log = open(&vfs).unwrap();
    assert_eq!((image(&log), log.incarnation()), (before, 2));
}

#[test]
fn gap_and_compacted_entry_are_rejected() {
    let vfs = FaultyVfs::new(1);
    let mut log = create(&vfs).unwrap();
    assert!(log.append(&state(1, 0, 1), &[entry(3, 1, b"")]).is_err());
    assert!(log.append(&state(1, 0, 1), &[entry(1, 1, b"")]).is_err());
    assert!(log.compact(2).is_err());
    log.append(&state(1, 0, 1), &[entry(2, 1, b"")]).unwrap();
}

#[test]
fn retained_entries_are_limited_by_number_and_bytes() {
    let mut log = create(&FaultyVfs::new(1)).unwrap();
    let entries: Vec<_> = (2..12).map(|index| entry(index, 1, &[0; 98])).collect();
    log.append(&state(1, 0, 1), &entries).unwrap();
    for (limits, start) in [((3, 1000), 8), ((100, 250), 9), ((100, 5000), 1), ((0, 5000), 11)] {
        assert_eq!(log.start_of(11, limits.0, limits.1), start, "{limits:?}");
    }
}

#[test]
fn second_creation_and_other_identities_are_refused() {
    let vfs = FaultyVfs::new(1);
    drop(create(&vfs).unwrap());
    assert!(create(&vfs).is_err());
    let other = LogIdentity { node: 9, ..NODE };
    let Err(error) = RaftLog::open(Arc::new(vfs.clone()), other) else { panic!("it opened") };
    assert!(error.to_string().contains("node 2 of group 1") && !is_lost(&error), "{error}");
    let Err(error) = open(&FaultyVfs::new(2)) else { panic!("it opened without a file") };
    assert!(is_lost(&error), "{error}");
}

/// A change of the log.
#[derive(Debug)]
enum Op {
    Append(HardState, u64, Vec<Entry>),
    Sync,
    Compact(u64),
    Replace(Marker, u64, HardState),
}

impl Op {
    fn random(image: &Image, rng: &mut TestRng, term: u64) -> Op {
        let first = image.marker.index + 1;
        let after = first + image.entries.len() as u64;
        match rng.below(16) {
            0 | 1 => Op::Compact(first - 1 + rng.below(after - first + 1)),
            2 => {
                let marker = Marker { index: after - 1 + rng.below(3), term };
                Op::Replace(marker, image.table + 1, state(term, 1, marker.index))
            }
            3..6 => Op::Sync,
            _ => {
                let from = first + rng.below(after - first + 1);
                let data = vec![7; rng.below(9000) as usize];
                let entries = (from..from + rng.below(4)).map(|index| entry(index, term, &data));
                Op::Append(state(term, rng.below(5), first - 1), from, entries.collect())
            }
        }
    }

    fn run(&self, log: &mut RaftLog) -> Result<()> {
        match self {
            Op::Append(state, _, entries) => log.append(state, entries),
            Op::Sync => log.sync(),
            Op::Compact(index) => log.compact(*index),
            Op::Replace(marker, table, state) => log.replace(*marker, *table, state, &[]),
        }
    }

    fn image_after(&self, mut image: Image) -> Image {
        match self {
            Op::Append(state, from, entries) => {
                image.hard_state = state.clone();
                if !entries.is_empty() {
                    image.entries.truncate((from - image.marker.index - 1) as usize);
                    image.entries.extend(entries.iter().cloned());
                }
            }
            Op::Sync => {}
            Op::Compact(index) => {
                let removed = (index - image.marker.index) as usize;
                if let Some(last) = removed.checked_sub(1) {
                    image.marker = Marker { index: *index, term: image.entries[last].term };
                }
                image.entries.drain(..removed);
            }
            Op::Replace(marker, table, state) => {
                image = Image {
                    marker: *marker,
                    table: *table,
                    hard_state: state.clone(),
                    entries: vec![],
                };
            }
        }
        image
    }
}

/// Cuts power at a random operation, and again while the log is opened; `Err` names the violation.
fn cut_power(seed: u64) -> Result<bool, String> {
    let mut rng = TestRng::new(seed);
    let vfs = FaultyVfs::new(seed);
    let mut log = create(&vfs).unwrap();
    vfs.cut_power_at(vfs.operations() + rng.below(60));
    // Every image since the last sync may be the one that survives.
    let mut possible = vec![image(&log)];
    for term in 2..60 {
        let before = image(&log);
        let op = Op::random(&before, &mut rng, term);
        let outcome = op.run(&mut log);
        let after = op.image_after(before);
        if outcome.is_err() {
            possible.push(after);
            break;
        }
        assert_eq!(image(&log), after);
        if !matches!(op, Op::Append(..)) {
            possible.clear();
        }
        possible.push(after);
    }
    let was_cut = vfs.power_is_off();
    vfs.cut_power();
    let survivor = vfs.survivors(seed);
    survivor.cut_power_at(rng.below(8));
    drop(open(&survivor));
    let reopened = open(&survivor.survivors(seed + 1)).map_err(|error| error.to_string())?;
    match possible.contains(&image(&reopened)) {
        true => Ok(was_cut),
        false => Err(format!("{:?} is none of {}", image(&reopened).hard_state, possible.len())),
    }
}

#[test]
fn power_cut_at_any_operation_keeps_what_was_synced() {
    let cut = |seed| cut_power(seed).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    let cuts = (0..600).filter(|&seed| cut(seed)).count();
    assert!(cuts > 300, "only {cuts} cuts");
}

#[test]
fn planted_faults_of_the_log_are_found_by_power_cuts() {
    for fault in [Fault::SkippedSync, Fault::ForgottenVote] {
        let find = || (0..200).any(|seed| cut_power(seed).is_err());
        let is_found = std::panic::catch_unwind(|| with_planted(fault, find)).unwrap_or(true);
        assert!(is_found, "{fault:?}");
    }
}

#[test]
fn damage_before_the_last_append_is_refused_with_advice() {
    let original = FaultyVfs::new(3);
    let mut log = create(&original).unwrap();
    for index in 2..30 {
        log.append(&state(1, 1, 1), &[entry(index, 1, &[5; 100])]).unwrap();
        log.sync().unwrap();
    }
    let whole = log.bytes();
    drop(log);
    for bit in (0..8 * (whole - 200)).step_by(101) {
        let vfs = original.survivors(0);
        vfs.flip_bit("raft-000001.log", bit / 8, (bit % 8) as u8).unwrap();
        let Err(error) = open(&vfs) else { panic!("bit {bit} was ignored") };
        assert!(is_lost(&error) && error.to_string().contains("new node id"), "{error}");
        assert!(vfs.exists("raft-000001.log").unwrap(), "it was removed");
    }
}

#[test]
fn closed_log_shows_damage_of_its_last_append() {
    let original = FaultyVfs::new(3);
    let mut log = create(&original).unwrap();
    log.append(&state(1, 1, 1), &[entry(2, 1, &[5; 100])]).unwrap();
    let end = log.bytes();
    log.close().unwrap();
    open(&original.survivors(0)).unwrap();
    for byte in end - 130..end {
        let vfs = original.survivors(0);
        vfs.flip_bit("raft-000001.log", byte, 3).unwrap();
        assert!(open(&vfs).is_err_and(|error| is_lost(&error)), "byte {byte} was ignored");
    }
}

//! Power cuts at any file operation: every operation on collections is applied completely or not at
//! all, in order, and synced ones survive. `SILTSTONE_POWER_CUTS` sets the number of cuts.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use siltstone::{Clock, Durability, ManualClock};
use siltstone_faults::FaultyVfs;
use siltstone_testkit::{Scale, TestRng};
use support::{Models, expire, open, read_all, step};

const STEPS: usize = 60;

/// Runs operations until power goes off. Returns the models after each, the first of them empty,
/// the number of the last synced one, and the clock.
fn work(disk: &FaultyVfs, seed: u64) -> (Vec<Models>, usize, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1));
    let (mut states, mut synced) = (vec![Models::new()], 0);
    let Ok(collections) = open(disk, &clock, seed) else { return (states, synced, clock) };
    let mut rng = TestRng::of(seed, 1);
    for number in 1..=STEPS {
        if rng.one_in(4) {
            clock.advance(rng.below(10));
        }
        let mut models = states[number - 1].clone();
        expire(&mut models, clock.now());
        let before = models.clone();
        let durability = if rng.one_in(4) { Durability::Synced } else { Durability::Buffered };
        let outcome = step(&collections, &mut models, &clock, &mut rng, durability);
        // A failed operation may have been applied; the model does not know what it would have
        // done.
        if outcome.is_err() {
            assert!(disk.power_is_off());
            break;
        }
        // An operation that changes nothing writes nothing, so it syncs nothing.
        let is_changed = models != before;
        states.push(models);
        if durability == Durability::Synced && is_changed {
            synced = number;
        }
    }
    (states, synced, clock)
}

#[test]
fn operations_survive_power_cuts_atomically_and_in_order() {
    let cuts = Scale::from_env().power_cuts.min(400);
    let mut lost = 0;
    for case in 0..cuts {
        let seed = case / 16;
        let (all, length) = {
            let disk = FaultyVfs::new(seed);
            let (states, ..) = work(&disk, seed);
            assert_eq!(states.len(), STEPS + 1);
            (states, disk.operations())
        };
        let mut rng = TestRng::of(case, 2);
        let disk = FaultyVfs::new(seed);
        disk.cut_power_at(rng.below(length));
        let (states, synced, clock) = work(&disk, seed);
        let survivors = disk.survivors(rng.draw());
        let collections = open(&survivors, &clock, seed).unwrap();
        let found = read_all(&collections);
        // The operation in progress at the cut may have survived: the uncut run shows its result.
        let possible = synced..=states.len().min(STEPS);
        let at = possible.clone().rev().find(|at| {
            let mut expected = all[*at].clone();
            expire(&mut expected, clock.now());
            expected == found
        });
        let at = at.unwrap_or_else(|| panic!("case {case}: none of {possible:?} was found"));
        lost += states.len().saturating_sub(1).saturating_sub(at);
        // The table accepts operations again.
        let mut models = found;
        step(&collections, &mut models, &clock, &mut rng, Durability::Synced).unwrap();
        assert_eq!(read_all(&collections), models, "case {case}");
    }
    assert!(lost > 0 || cuts < 100, "no unsynced operation was ever lost");
}

//! Random operations agree with a model in standard types, also after the table was reopened and
//! compacted, and while keys expire. `SILTSTONE_HISTORIES` sets the number of runs.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;

use siltstone::{Clock, Durability, ManualClock};
use siltstone_faults::FaultyVfs;
use siltstone_testkit::{Scale, TestRng};
use support::{Models, expire, live_rows, open, read_all, step};

#[test]
fn collections_agree_with_the_model() {
    for seed in 0..Scale::from_env().histories.min(60) {
        let (disk, clock) = (FaultyVfs::new(seed), Arc::new(ManualClock::at(1000)));
        let mut rng = TestRng::of(seed, 1);
        let mut models = Models::new();
        let mut collections = open(&disk, &clock, seed).unwrap();
        for _ in 0..150 {
            step(&collections, &mut models, &clock, &mut rng, Durability::Buffered).unwrap();
            if rng.one_in(4) {
                clock.advance(rng.below(10));
            }
            if rng.one_in(40) {
                let engine = collections.table().engine().clone();
                if rng.one_in(2) {
                    engine.flush().unwrap();
                    engine.maintain().unwrap();
                }
                engine.close().unwrap();
                collections = open(&disk, &clock, seed).unwrap();
            }
        }
        let now = clock.now();
        expire(&mut models, now);
        assert_eq!(read_all(&collections), models, "seed {seed}");
        // An owner row per collection, and the marker.
        let expected: usize = models.values().map(|(model, _)| model.rows() + 1).sum();
        assert_eq!(live_rows(&collections).0, expected + 1, "seed {seed}");
    }
}

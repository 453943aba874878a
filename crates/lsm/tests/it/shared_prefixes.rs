//! Cursors over keys that share long prefixes, as the rows of collections do, and over several
//! such groups of keys at once.

use std::ops::Bound;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use siltstone_engine::{Cursor, Engine, KeyRange};

use crate::deferred_seeks::{Model, current_entry, empty, write};

/// The groups differ in the length of what their keys share, and some are prefixes of others.
const GROUPS: [&str; 6] =
    ["", "a", "a:collection", "a:collection:with:a:long:name:", "a:collection:with:b:", "\u{7f}z"];

fn draw(rng: &mut StdRng) -> String {
    let group = GROUPS[rng.random_range(0..GROUPS.len())];
    let number: u32 = rng.random_range(0..4000);
    match rng.random_range(0..3) {
        0 => format!("{group}{number:04}"),
        1 => format!("{group}{number:020}"),
        // Equal for a long way, also behind numbers that differ.
        _ => format!("{group}{:02}:equal:for:a:while:{number:04}", number % 7),
    }
}

/// The entry at the cursor must be `expected`.
fn check(cursor: &dyn Cursor, expected: Option<(&Vec<u8>, &Vec<u8>)>) {
    let expected = expected.map(|(key, value)| (key.clone(), value.clone()));
    assert_eq!(current_entry(cursor), expected);
}

/// Moves on from a seek to `from`, and sometimes back and on again.
fn walk(cursor: &mut dyn Cursor, in_range: &Model, from: Vec<u8>, rng: &mut StdRng) {
    let mut after = in_range.range(from.clone()..);
    cursor.seek(&from).unwrap();
    let mut expected = after.next();
    check(cursor, expected);
    for _ in 0..rng.random_range(0..200) {
        let Some((key, _)) = expected else { return };
        if rng.random_range(0..60) == 0 {
            cursor.prev().unwrap();
            let before = in_range.range(..key.clone()).next_back();
            check(cursor, before);
            if before.is_none() {
                return;
            }
            cursor.next().unwrap();
            check(cursor, expected);
        }
        cursor.next().unwrap();
        expected = after.next();
        check(cursor, expected);
    }
}

/// Moves back from the end.
fn walk_back(cursor: &mut dyn Cursor, in_range: &Model) {
    let mut is_valid = cursor.last().unwrap();
    for expected in in_range.iter().rev().take(100) {
        assert!(is_valid);
        check(cursor, Some(expected));
        is_valid = cursor.prev().unwrap();
    }
}

#[test]
fn cursor_over_keys_with_shared_prefixes_visits_each_once_in_order() {
    let (lsm, mut model, mut rng) = (empty(&[]), Model::new(), StdRng::seed_from_u64(11));
    // Walks see memtables, runs of level 0 and levels, and several versions of many keys.
    for _ in 0..12 {
        write(&lsm, &mut model, &mut rng, draw, 1500);
        for _ in 0..60 {
            let mut ends = [draw(&mut rng).into_bytes(), draw(&mut rng).into_bytes()];
            ends.sort();
            let range = match rng.random_range(0..3) {
                0 => KeyRange::all(),
                1 => KeyRange::prefix(GROUPS[rng.random_range(0..GROUPS.len())].as_bytes()),
                _ => KeyRange {
                    start: Bound::Included(ends[0].clone()),
                    end: Bound::Included(ends[1].clone()),
                },
            };
            let mut cursor = lsm.range(range.clone(), None).unwrap();
            let bounds = (range.start.clone(), range.end.clone());
            let entries = model.range(bounds).map(|(key, value)| (key.clone(), value.clone()));
            let in_range: Model = entries.collect();
            let from = match &range.start {
                Bound::Unbounded => draw(&mut rng).into_bytes(),
                Bound::Included(start) | Bound::Excluded(start) => {
                    start.clone().max(draw(&mut rng).into_bytes())
                }
            };
            walk(&mut *cursor, &in_range, from, &mut rng);
            walk_back(&mut *cursor, &in_range);
        }
    }
    let levels = lsm.stats().levels;
    assert!(levels.iter().filter(|level| level.files > 0).count() >= 3, "{levels:?}");
}

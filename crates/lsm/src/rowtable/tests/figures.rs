//! How many key comparisons and cache lines does a lookup cost, with hints and without?
//!
//! ```text
//! cargo test -p siltstone-lsm --lib rowtable::tests::figures -- --nocapture
//! ```
//!
//! Plain is level 0 in persistent memory as it would be without hints: a binary search of each row in
//! full, newest first, over the same metadata. Comparisons are those of the key searched for with
//! one of a row's, or with what all of a row begin with; lines are of 64 bytes, in the pool, each
//! counted once a lookup, those of the value left out (both read it, once).

use super::super::hints;
use super::super::probe::Watch;
use super::*;

const LOOKUPS: u64 = 400;

struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Comparisons and lines a lookup.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    comparisons: f64,
    lines: f64,
}

fn measure(keys: &[Vec<u8>], mut lookup: impl FnMut(&[u8], &mut Watch)) -> Cost {
    let (mut comparisons, mut lines) = (0, 0);
    for key in keys {
        let mut watch = Watch::default();
        lookup(key, &mut watch);
        comparisons += watch.comparisons;
        lines += watch.lines();
    }
    let each = |n: u64| n as f64 / keys.len() as f64;
    Cost { comparisons: each(comparisons), lines: each(lines) }
}

/// Rows newest first, each of `keys` random keys of 16 digits.
fn stack(rows: u64, keys: usize, dice: &mut Dice) -> (Vec<Arc<RowTable>>, Vec<Vec<u8>>) {
    let bytes = (rows * keys as u64 * 80).next_multiple_of(1 << 20) + (1 << 20);
    let pool = PmemPool::open(Ram::new().map("pool", bytes).unwrap(), 4096).unwrap().ready();
    let mut stack: Vec<Arc<RowTable>> = Vec::new();
    let mut known = Vec::new();
    for number in 1..=rows {
        let entry = |_| {
            let key = format!("{:016}", dice.next() % 10_000_000_000_000_000);
            Entry::put(key.as_bytes(), number, b"12345678")
        };
        let entries = sort((0..keys).map(entry).collect());
        known.extend(entries.iter().step_by(keys / 16).map(|entry| entry.key.clone()));
        stack.insert(0, build(&pool, number, stack.first(), &entries));
    }
    (stack, known)
}

fn compare(name: &str, rows: &[Arc<RowTable>], keys: &[Vec<u8>]) -> (Cost, Cost) {
    let plain = measure(keys, |key, watch| {
        for row in rows {
            if row.get_watched(key, u64::MAX, watch).unwrap().is_some() {
                return;
            }
        }
    });
    let hinted = measure(keys, |key, watch| {
        hints::get_watched(rows, key, u64::MAX, watch).unwrap();
    });
    println!(
        "{name:<34} plain {:7.1} comparisons {:7.1} lines | hints {:6.1} comparisons {:6.1} lines | \
         {:4.1} and {:4.1} times fewer",
        plain.comparisons,
        plain.lines,
        hinted.comparisons,
        hinted.lines,
        plain.comparisons / hinted.comparisons,
        plain.lines / hinted.lines
    );
    (plain, hinted)
}

#[test]
fn how_much_less_does_a_lookup_cost_with_hints() {
    for (rows, keys) in [(64, 4096), (64, 16_384), (128, 4096), (64, 32_768)] {
        let mut dice = Dice(7);
        let (stack, known) = stack(rows, keys, &mut dice);
        let absent: Vec<Vec<u8>> =
            (0..LOOKUPS).map(|_| format!("{:016}", dice.next() % 10_u64.pow(16)).into()).collect();
        let step = known.len().div_ceil(LOOKUPS as usize);
        let present: Vec<Vec<u8>> = known.into_iter().step_by(step).collect();
        let name = |what| format!("{rows} rows of {keys}, {what}");
        let (plain, hinted) = compare(&name("absent"), &stack, &absent);
        assert!(plain.comparisons > 8.0 * hinted.comparisons);
        assert!(plain.lines > 6.0 * hinted.lines);
        compare(&name("present"), &stack, &present);
    }
}

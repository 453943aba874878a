//! How many key comparisons and cache lines does a lookup cost, with hints and without?
//!
//! ```text
//! cargo test -p siltstone-lsm --lib rowtable::tests::figures -- --nocapture --include-ignored
//! ```
//!
//! Plain is level 0 in persistent memory as it would be without hints: a binary search of each row in
//! full, newest first, over the same metadata. A comparison is one of the key searched for with a key
//! of a row; lines are of 64 bytes, in the pool, each counted once a lookup.
//!
//! Hints cost about 1.15 comparisons and 1.15 lines a row, whatever the row's size: the gap that a key
//! falls in is twice as wide as the average, so two keys of the row before lie in it on average, which
//! takes 1.25 comparisons to sort out by halving and fewer where the keys around tell which is nearer.
//! The first row takes five by guessing. Plain search costs log₂ of the row's size. So the factor grows
//! with the rows, and passes ten at about 2¹⁵ keys a row.

use super::super::hints;
use super::super::probe::Watch;
use super::super::search::GUESSES;
use super::*;

const LOOKUPS: u64 = 400;
const TENS: u64 = 10_u64.pow(16);

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

/// Rows newest first, each of `keys` random keys of 20 bytes.
fn stack(rows: u64, keys: usize, dice: &mut Dice) -> (Vec<Arc<RowTable>>, Vec<Vec<u8>>) {
    let bytes = (rows * keys as u64 * 88).next_multiple_of(1 << 20) + (1 << 20);
    let pool = PmemPool::open(Ram::new().map("pool", bytes).unwrap(), 4096).unwrap().ready();
    let mut stack: Vec<Arc<RowTable>> = Vec::new();
    let mut known = Vec::new();
    for number in 1..=rows {
        let entry = |_| {
            let key = format!("user{:016}", dice.next() % TENS);
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
            if row.get(key, u64::MAX, watch).unwrap().is_some() {
                return;
            }
        }
    });
    let hinted = measure(keys, |key, watch| {
        hints::get(rows, key, u64::MAX, watch).unwrap();
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

/// Absent keys search every row; of those that are there, half the rows on average.
fn factors(rows: u64, keys: usize) -> Cost {
    let mut dice = Dice(7);
    let (stack, known) = stack(rows, keys, &mut dice);
    let absent: Vec<Vec<u8>> =
        (0..LOOKUPS).map(|_| format!("user{:016}", dice.next() % TENS).into()).collect();
    let step = known.len().div_ceil(LOOKUPS as usize);
    let present: Vec<Vec<u8>> = known.into_iter().step_by(step).collect();
    let name = |what| format!("{rows} rows of {keys}, {what}");
    compare(&name("present"), &stack, &present);
    let (plain, hinted) = compare(&name("absent"), &stack, &absent);
    Cost { comparisons: plain.comparisons / hinted.comparisons, lines: plain.lines / hinted.lines }
}

/// Rows whose keys mislead whoever guesses: in a lump at one end, ever further apart, in two lumps
/// far from each other, and alike in all that an element holds of them.
fn misleading(keys: usize) -> Vec<Vec<Vec<u8>>> {
    let number = |n: u64| n.to_be_bytes().to_vec();
    let keys = keys as u64;
    let lump = (1..keys).map(number).chain([number(u64::MAX)]).collect();
    let closer = (0..keys).map(|i| number((1 << (i * 60 / keys)) + i)).collect();
    let two = (0..keys).map(|i| number(if i % 2 == 0 { i } else { u64::MAX - i })).collect();
    let alike = (0..keys).map(|i| format!("{}aaaaaaaaa{i:06}", i % 2).into_bytes()).collect();
    vec![lump, closer, two, alike]
}

/// Guesses may be wrong, but not more often than a search may guess.
#[test]
fn do_misleading_keys_cost_no_more_than_halving_and_the_guesses() {
    const KEYS: usize = 4096;
    for (number, keys) in (1..).zip(misleading(KEYS)) {
        let pool = PmemPool::open(Ram::new().map("pool", 2 << 20).unwrap(), 4096).unwrap().ready();
        let entries = sort(keys.iter().map(|key| Entry::put(key, 1, b"1")).collect());
        let row = build(&pool, number, None, &entries);
        let mut most = 0;
        for key in &keys {
            let mut watch = Watch::default();
            assert!(hints::get([&row], key, u64::MAX, &mut watch).unwrap().is_some());
            most = most.max(watch.comparisons);
        }
        let bound = u64::from(GUESSES) + u64::from(KEYS.ilog2()) + 1;
        println!("row {number}: at most {most} comparisons");
        assert!(most <= bound, "{most} comparisons in row {number}, and {bound} are allowed");
    }
}

#[test]
fn how_much_less_does_a_lookup_cost_with_hints_in_small_rows() {
    let factor = factors(64, 4096);
    assert!(factor.comparisons > 8.0 && factor.lines > 6.5, "{factor:?}");
}

#[test]
#[ignore = "builds millions of entries"]
fn is_it_ten_times_less_in_rows_of_the_size_of_a_memtable() {
    factors(64, 16_384);
    let factor = factors(64, 65_536);
    assert!(factor.comparisons > 10.0 && factor.lines > 9.5, "{factor:?}");
    let factor = factors(128, 65_536);
    assert!(factor.comparisons > 10.0 && factor.lines > 10.0, "{factor:?}");
}

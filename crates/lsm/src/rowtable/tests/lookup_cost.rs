//! The cost of a lookup in key comparisons and cache lines, with and without hints.
//!
//! ```text
//! cargo test -p siltstone-lsm --lib rowtable::tests::lookup_cost -- --nocapture --include-ignored
//! ```
//!
//! The baseline ("plain") is a binary search of each complete row, newest first, over the same
//! metadata. A comparison is one of the searched key with a key of a row; cache lines have 64
//! bytes, are in the pool, and are counted once per lookup.
//!
//! Hints cost about 1.15 comparisons and 1.15 lines per row, whatever the size of the rows: a key
//! is in a gap twice as wide as the average, so two keys of the previous row are in that
//! gap on average, which takes 1.25 comparisons with binary search and fewer with interpolation.
//! The first row takes five with interpolation. Plain search costs log₂ of the row's size. So the
//! factor grows with the rows, and exceeds ten at about 2¹⁵ keys per row.

use super::super::hints;
use super::super::search::MAX_GUESSES;
use super::super::search_stats::LineCounter;
use super::*;

const LOOKUPS: u64 = 400;
const KEY_SPACE: u64 = 10_u64.pow(16);

struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Comparisons and lines per lookup.
#[derive(Debug, Clone, Copy, Default)]
struct Cost {
    comparisons: f64,
    lines: f64,
}

fn measure(keys: &[Vec<u8>], mut lookup: impl FnMut(&[u8], &mut LineCounter)) -> Cost {
    let (mut comparisons, mut lines) = (0, 0);
    for key in keys {
        let mut counter = LineCounter::default();
        lookup(key, &mut counter);
        comparisons += counter.comparisons;
        lines += counter.lines();
    }
    let each = |n: u64| n as f64 / keys.len() as f64;
    Cost { comparisons: each(comparisons), lines: each(lines) }
}

/// Rows newest first, each with `keys` random keys of 20 bytes.
fn stack(rows: u64, keys: usize, rng: &mut SplitMix) -> (Vec<Arc<RowTable>>, Vec<Vec<u8>>) {
    let bytes = (rows * keys as u64 * 88).next_multiple_of(1 << 20) + (1 << 20);
    let pool = PmemPool::open(Ram::new().map("pool", bytes).unwrap(), 4096).unwrap().ready();
    let mut stack: Vec<Arc<RowTable>> = Vec::new();
    let mut known = Vec::new();
    for number in 1..=rows {
        let entry = |_| {
            let key = format!("user{:016}", rng.next() % KEY_SPACE);
            Entry::put(key.as_bytes(), number, b"12345678")
        };
        let entries = sort((0..keys).map(entry).collect());
        known.extend(entries.iter().step_by(keys / 16).map(|entry| entry.key.clone()));
        stack.insert(0, build(&pool, number, stack.first(), &entries));
    }
    (stack, known)
}

fn compare(name: &str, rows: &[Arc<RowTable>], keys: &[Vec<u8>]) -> (Cost, Cost) {
    let plain = measure(keys, |key, counter| {
        for row in rows {
            if row.get(key, u64::MAX, counter).unwrap().is_some() {
                return;
            }
        }
    });
    let hinted = measure(keys, |key, counter| {
        hints::get(rows, key, u64::MAX, counter).unwrap();
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

/// Absent keys search every row; present ones half of the rows on average.
fn factors(rows: u64, keys: usize) -> Cost {
    let mut rng = SplitMix(7);
    let (stack, known) = stack(rows, keys, &mut rng);
    let absent: Vec<Vec<u8>> =
        (0..LOOKUPS).map(|_| format!("user{:016}", rng.next() % KEY_SPACE).into()).collect();
    let step = known.len().div_ceil(LOOKUPS as usize);
    let present: Vec<Vec<u8>> = known.into_iter().step_by(step).collect();
    let name = |what| format!("{rows} rows of {keys}, {what}");
    compare(&name("present"), &stack, &present);
    let (plain, hinted) = compare(&name("absent"), &stack, &absent);
    Cost { comparisons: plain.comparisons / hinted.comparisons, lines: plain.lines / hinted.lines }
}

/// Keys that mislead interpolation: clustered at one end, with growing gaps, in two
/// distant clusters, and with equal fragments.
fn misleading(keys: usize) -> Vec<Vec<Vec<u8>>> {
    let number = |n: u64| n.to_be_bytes().to_vec();
    let keys = keys as u64;
    let clustered = (1..keys).map(number).chain([number(u64::MAX)]).collect();
    let growing_gaps = (0..keys).map(|i| number((1 << (i * 60 / keys)) + i)).collect();
    let two_clusters =
        (0..keys).map(|i| number(if i % 2 == 0 { i } else { u64::MAX - i })).collect();
    let equal_fragments =
        (0..keys).map(|i| format!("{}aaaaaaaaa{i:06}", i % 2).into_bytes()).collect();
    vec![clustered, growing_gaps, two_clusters, equal_fragments]
}

/// Interpolation may be wrong only a limited number of times.
#[test]
fn misleading_keys_cost_at_most_the_guesses_more_than_binary_search() {
    const KEYS: usize = 4096;
    for (number, keys) in (1..).zip(misleading(KEYS)) {
        let pool = PmemPool::open(Ram::new().map("pool", 2 << 20).unwrap(), 4096).unwrap().ready();
        let entries = sort(keys.iter().map(|key| Entry::put(key, 1, b"1")).collect());
        let row = build(&pool, number, None, &entries);
        let mut max_comparisons = 0;
        for key in &keys {
            let mut counter = LineCounter::default();
            assert!(hints::get([&row], key, u64::MAX, &mut counter).unwrap().is_some());
            max_comparisons = max_comparisons.max(counter.comparisons);
        }
        let bound = u64::from(MAX_GUESSES) + u64::from(KEYS.ilog2()) + 1;
        println!("row {number}: at most {max_comparisons} comparisons");
        assert!(
            max_comparisons <= bound,
            "{max_comparisons} comparisons in row {number}, and {bound} are allowed"
        );
    }
}

#[test]
fn hints_save_comparisons_in_small_rows() {
    let factor = factors(64, 4096);
    assert!(factor.comparisons > 8.0 && factor.lines > 6.5, "{factor:?}");
}

#[test]
#[ignore = "builds millions of entries"]
fn hints_save_a_factor_of_ten_in_rows_of_memtable_size() {
    factors(64, 16_384);
    let factor = factors(64, 65_536);
    assert!(factor.comparisons > 10.0 && factor.lines > 9.5, "{factor:?}");
    let factor = factors(128, 65_536);
    assert!(factor.comparisons > 10.0 && factor.lines > 10.0, "{factor:?}");
}

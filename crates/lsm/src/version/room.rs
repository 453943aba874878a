//! What the rows of level 0 take of its room.
//!
//! **Keys and values, each key once.** What a newer row hides goes no further: a merge drops it, and level 1 is
//! rewritten for the rest alone. So under a skewed load level 0 may collect more before it is merged.
//!
//! ```text
//!   newest  ██████████████  share s₀ of its keys is live    D₀ distinct keys
//!           ███████████     s₁                              D₁ in this and the one above
//!   oldest  █████           s₂                              D₂ in all three
//!                           distinct: D₂·s₂ + D₁·(s₁ − s₂) + D₀·(s₀ − s₁)
//! ```
//!
//! The distinct keys are told by the rows' HyperLogLogs, merged from the newest down. A small row
//! has none and counts whole.
//!
//! **Space.** A log stays until the cursor has passed all of its keys, however few of its bytes still count:
//! what is on the medium has a limit too, [`MEDIUM`] times the room.
//!
//! A row in persistent memory takes the pages that it holds.
//!
//! Sources: TriangleKV paper, section 3.1 (a container of a given capacity); TRIAD paper, section 4.2 (distinct
//! keys by HyperLogLog). Counting the distinct ones is ours.

use siltstone_structures::HyperLogLog;

use super::Row;

/// Rows may take so many times their room on the medium.
const MEDIUM: u64 = 6;
/// So many estimates are made at most; between them the number of distinct keys is taken to rise evenly.
const ESTIMATES: usize = 8;

/// What `rows`, newest first, take of their room, in bytes.
pub(super) fn taken(rows: &[Row]) -> u64 {
    let (mut in_pages, mut on_medium, mut whole) = (0, 0, 0);
    let mut sketched = Vec::with_capacity(rows.len());
    for row in rows {
        let Some(file) = row.file() else {
            in_pages += row.held_bytes();
            continue;
        };
        on_medium += row.medium_bytes();
        match file.sketch() {
            Some(sketch) => sketched.push(Sketched {
                sketch,
                data_bytes: row.data_bytes(),
                entries: row.entries(),
                live_share: row.live_bytes() as f64 / row.data_bytes().max(1) as f64,
            }),
            None => whole += row.live_bytes(),
        }
    }
    in_pages + (whole + distinct_bytes(&sketched)).max(on_medium / MEDIUM)
}

/// A row whose keys can be told from others'.
struct Sketched<'a> {
    sketch: &'a HyperLogLog,
    /// Keys and values.
    data_bytes: u64,
    entries: u64,
    /// How much of it is live.
    live_share: f64,
}

/// About the live keys and values of `rows`, newest first, that no newer one hides.
fn distinct_bytes(rows: &[Sketched<'_>]) -> u64 {
    let mut union = HyperLogLog::new();
    let (mut bytes, mut entries) = (0, 0);
    // Of the rows before: what is live of all of them, and the bytes of their distinct keys.
    let (mut share, mut before) = (1.0f64, 0.0);
    let mut sum = 0.0;
    for group in rows.chunks(rows.len().div_ceil(ESTIMATES).max(1)) {
        for row in group {
            union.merge(row.sketch);
            bytes += row.data_bytes;
            entries += row.entries;
        }
        let now = union.estimate() * bytes as f64 / entries.max(1) as f64;
        let ends = [group.first(), group.last()];
        let [first, last] = ends.map(|row| row.map_or(0.0, |row| row.live_share).min(share));
        sum += (share - first) * before + (first - last) * (before + now) / 2.0;
        (share, before) = (last, now);
    }
    (sum + share * before) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::rngs::StdRng;
    use rand::{RngExt, SeedableRng};
    use siltstone_structures::hash64;

    use super::*;

    /// Rows of 500 writes to keys below `keys`, newest first; of row `i` those below the share `1 - i * turned`
    /// are live. Returns what is told of the distinct ones, of 100 bytes each, and how many there are.
    fn told_and_true(rows: usize, keys: u32, turned: f64) -> (f64, f64) {
        let mut rng = StdRng::seed_from_u64(3);
        let drawn: Vec<BTreeSet<u32>> =
            (0..rows).map(|_| (0..500).map(|_| rng.random_range(0..keys)).collect()).collect();
        let share = |i: usize| 1.0 - i as f64 * turned;
        let mut live: BTreeSet<u32> = BTreeSet::new();
        let mut sketches = vec![HyperLogLog::new(); rows];
        for (i, (row, sketch)) in drawn.iter().zip(&mut sketches).enumerate() {
            row.iter().for_each(|key| sketch.insert(hash64(&key.to_le_bytes())));
            live.extend(
                row.iter().copied().filter(|&key| f64::from(key) < share(i) * f64::from(keys)),
            );
        }
        let sketched = sketches.iter().zip(&drawn).enumerate().map(|(i, (sketch, row))| Sketched {
            sketch,
            data_bytes: 100 * row.len() as u64,
            entries: row.len() as u64,
            live_share: share(i),
        });
        let told = distinct_bytes(&sketched.collect::<Vec<_>>());
        (told as f64, 100.0 * live.len() as f64)
    }

    #[test]
    fn does_each_live_key_count_once() {
        for rows in [1, 2, 7, 8, 9, 40] {
            // Few keys that come in all rows, and so many that hardly any comes twice.
            for keys in [300, 4_000, 10_000_000] {
                for turned in [0.0, 0.5 / rows as f64, 1.0 / rows as f64] {
                    let (told, truth) = told_and_true(rows, keys, turned);
                    let error = (told / truth - 1.0).abs();
                    assert!(error < 0.1, "{rows} rows, {keys} keys, {turned}: {told} of {truth}");
                }
            }
        }
        assert_eq!(distinct_bytes(&[]), 0);
    }
}

//! L0 occupancy: how much of the L0 capacity the runs take.
//!
//! **Distinct keys and values.** Versions that a newer run hides do not count: a merge drops them,
//! and level 1 is rewritten for the rest alone. So under a skewed load level 0 may collect more
//! data.
//!
//! ```text
//!   newest  ██████████████  share s₀ of its keys is live    D₀ distinct keys
//!           ███████████     s₁                              D₁ in this and the one above
//!   oldest  █████           s₂                              D₂ in all three
//!                           distinct: D₂·s₂ + D₁·(s₁ − s₂) + D₀·(s₀ − s₁)
//! ```
//!
//! The HyperLogLogs of the runs, merged from the newest down, estimate the distinct keys. A small
//! run has none and counts with all its live bytes.
//!
//! **Space.** A log stays until the cursor has passed all of its keys, however few of its bytes are
//! live. So the storage of level 0 is limited too, to [`MAX_SPACE_AMP`] times its capacity.
//!
//! A run in persistent memory counts with its pages.
//!
//! Sources: TriangleKV paper, section 3.1 (a container of a given capacity); TRIAD paper, section
//! 4.2 (distinct keys by HyperLogLog).

use siltstone_structures::HyperLogLog;

use super::L0Run;

/// The maximum ratio of the storage of L0 runs to the L0 capacity.
const MAX_SPACE_AMP: u64 = 6;
/// The maximum number of estimates; between two the number of distinct keys is interpolated.
const MAX_ESTIMATES: usize = 8;

/// The bytes of the L0 capacity that `runs` (newest first) occupy.
pub(super) fn occupancy(runs: &[L0Run]) -> u64 {
    let (mut in_pages, mut on_storage, mut unsketched) = (0, 0, 0);
    let mut sketched = Vec::with_capacity(runs.len());
    for run in runs {
        let Some(file) = run.file() else {
            in_pages += run.owned_bytes();
            continue;
        };
        on_storage += run.storage_bytes();
        match file.sketch() {
            Some(sketch) => sketched.push(SketchedRun {
                sketch,
                data_bytes: run.data_bytes(),
                entries: run.entries(),
                live_share: run.live_bytes() as f64 / run.data_bytes().max(1) as f64,
            }),
            None => unsketched += run.live_bytes(),
        }
    }
    in_pages + (unsketched + distinct_bytes(&sketched)).max(on_storage / MAX_SPACE_AMP)
}

/// A run with a sketch of its keys.
struct SketchedRun<'a> {
    sketch: &'a HyperLogLog,
    /// The size of its keys and values.
    data_bytes: u64,
    entries: u64,
    /// The share of it that is live.
    live_share: f64,
}

/// About the live bytes of `runs`, newest first, that no newer run hides.
fn distinct_bytes(runs: &[SketchedRun<'_>]) -> u64 {
    let mut union = HyperLogLog::new();
    let (mut bytes, mut entries) = (0, 0);
    // Of the groups before: the live share common to all, and the bytes of their distinct keys.
    let (mut share, mut before) = (1.0f64, 0.0);
    let mut sum = 0.0;
    for group in runs.chunks(runs.len().div_ceil(MAX_ESTIMATES).max(1)) {
        for run in group {
            union.merge(run.sketch);
            bytes += run.data_bytes;
            entries += run.entries;
        }
        let now = union.estimate() * bytes as f64 / entries.max(1) as f64;
        let ends = [group.first(), group.last()];
        let [first, last] = ends.map(|run| run.map_or(0.0, |run| run.live_share).min(share));
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

    /// Runs of 500 writes to keys below `keys`, newest first; in run `i` the keys below the share
    /// `1 - i * passed` are live. Returns the estimated and the exact bytes of distinct live keys.
    fn estimated_and_exact_bytes(runs: usize, keys: u32, passed: f64) -> (f64, f64) {
        let mut rng = StdRng::seed_from_u64(3);
        let drawn: Vec<BTreeSet<u32>> =
            (0..runs).map(|_| (0..500).map(|_| rng.random_range(0..keys)).collect()).collect();
        let share = |i: usize| 1.0 - i as f64 * passed;
        let mut live: BTreeSet<u32> = BTreeSet::new();
        let mut sketches = vec![HyperLogLog::new(); runs];
        for (i, (run, sketch)) in drawn.iter().zip(&mut sketches).enumerate() {
            run.iter().for_each(|key| sketch.insert(hash64(&key.to_le_bytes())));
            live.extend(
                run.iter().copied().filter(|&key| f64::from(key) < share(i) * f64::from(keys)),
            );
        }
        let sketched =
            sketches.iter().zip(&drawn).enumerate().map(|(i, (sketch, run))| SketchedRun {
                sketch,
                data_bytes: 100 * run.len() as u64,
                entries: run.len() as u64,
                live_share: share(i),
            });
        let estimated = distinct_bytes(&sketched.collect::<Vec<_>>());
        (estimated as f64, 100.0 * live.len() as f64)
    }

    #[test]
    fn each_live_key_is_counted_once() {
        for runs in [1, 2, 7, 8, 9, 40] {
            // Few keys that occur in all runs, up to so many that hardly any occurs twice.
            for keys in [300, 4_000, 10_000_000] {
                for passed in [0.0, 0.5 / runs as f64, 1.0 / runs as f64] {
                    let (estimated, exact) = estimated_and_exact_bytes(runs, keys, passed);
                    let error = (estimated / exact - 1.0).abs();
                    assert!(
                        error < 0.1,
                        "{runs} runs, {keys} keys, {passed}: {estimated} of {exact}"
                    );
                }
            }
        }
        assert_eq!(distinct_bytes(&[]), 0);
    }
}

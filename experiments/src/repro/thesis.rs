//! Shared parts of the experiments of the thesis's chapter 4: its workload, its key counts, and
//! simulations.
//!
//! Invariant: sizes are the thesis's; only the number of simulated keys depends on the scale.
//!
//! Source: Lim, thesis (2015), sections 4.3.5 and 4.6.3.

use siltstone_engine::Result;
use siltstone_model::optimize::optimize_levels;
use siltstone_model::simulate::Simulation;
use siltstone_model::{Breakdown, LevelDb, Popularity};

use super::model_error;

pub(super) const PAPER: &str = "Lim, Resource-Efficient Data-Intensive System Designs, 2015";

/// Number of keys of most figures.
pub(super) const KEYS: f64 = 1e8;
pub(super) const ITEM_BYTES: f64 = 1000.0;

/// The key counts of figures 4.10 and 4.12.
pub(super) const KEY_COUNTS: [f64; 7] = [1e6, 3.3e6, 1e7, 3.3e7, 1e8, 3.3e8, 1e9];
/// The largest key count that is simulated at scale 1, in seconds; at scale 100 it is 330 million.
const SIMULATED_KEYS: f64 = 3.3e6;

/// The two popularities of most figures.
pub(super) const SKEWS: [(&str, f64); 2] = [("uniform", 0.0), ("Zipf 0.99", 0.99)];
/// The exponents of figures 4.4, 4.9 and 4.14.
pub(super) const EXPONENTS: [f64; 9] = [0.0, 0.2, 0.4, 0.6, 0.8, 0.99, 1.2, 1.4, 1.6];

/// Label of the horizontal axis over key counts.
pub(super) const KEYS_AXIS: &str = "millions of keys, as a power of ten";

/// Position of a key count on that axis.
pub(super) fn on_keys_axis(keys: f64) -> f64 {
    (keys / 1e6).log10()
}

/// The key counts that are simulated at `scale`.
pub(super) fn simulated_counts(scale: f64) -> Vec<f64> {
    let max = SIMULATED_KEYS * scale * 1.000_001;
    let counts: Vec<f64> = KEY_COUNTS.into_iter().filter(|&keys| keys <= max).collect();
    // Below the thesis's smallest key count: for a quick run.
    if counts.is_empty() { vec![(KEY_COUNTS[0] * scale).round().max(1e5)] } else { counts }
}

pub(super) fn popularity(keys: f64, skew: f64) -> Result<Popularity> {
    Popularity::zipf(keys, skew).map_err(model_error)
}

/// LevelDB's sizes, for the number of levels that `keys` need.
pub(super) fn standard(keys: f64) -> Result<LevelDb> {
    LevelDb::standard(keys, ITEM_BYTES, 10).map_err(model_error)
}

/// The optimiser's sizes for the number of levels of `like`.
pub(super) fn optimised(like: &LevelDb, popularity: &Popularity) -> Result<LevelDb> {
    let levels = like.level_items.len() + 1;
    let found = optimize_levels(popularity, like.log_items, like.level0_tables, levels);
    Ok(found.map_err(model_error)?.design)
}

/// Write amplification of `design` by the model.
pub(super) fn modelled(design: &LevelDb, popularity: &Popularity) -> Result<f64> {
    design.total(popularity).map_err(model_error)
}

/// Write amplification of `design` by the simulator; `own_sizes` if its levels are not LevelDB's.
pub(super) fn simulated(
    design: &LevelDb,
    (keys, skew): (f64, f64),
    own_sizes: bool,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Breakdown> {
    let mut simulation = Simulation::standard(design.clone(), keys as u32, skew, ITEM_BYTES);
    if own_sizes {
        simulation.overlap_tables = None;
    }
    simulation.run(progress).map_err(model_error)
}

/// Progress of parts of equal weight.
pub(super) struct Parts<'a> {
    progress: &'a mut dyn FnMut(u64, u64),
    part: u64,
    parts: u64,
}

impl<'a> Parts<'a> {
    pub(super) fn new(parts: usize, progress: &'a mut dyn FnMut(u64, u64)) -> Self {
        Parts { progress, part: 0, parts: parts as u64 }
    }

    /// Runs the next part.
    pub(super) fn next<T>(&mut self, run: impl FnOnce(&mut dyn FnMut(u64, u64)) -> T) -> T {
        let (part, parts) = (self.part, self.parts);
        let progress = &mut *self.progress;
        let result = run(&mut |done, total| progress(part * total + done, parts * total));
        self.part += 1;
        (self.progress)(self.part, parts);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scale_says_how_many_keys_are_simulated() {
        assert_eq!(simulated_counts(1.0), [1e6, 3.3e6]);
        assert_eq!(simulated_counts(100.0).last(), Some(&3.3e8));
        assert_eq!(simulated_counts(0.01), [1e5]);
    }

    #[test]
    fn progress_rises_over_all_parts() {
        let mut updates = Vec::new();
        let mut listen = |done: u64, total: u64| updates.push(done as f64 / total as f64);
        let mut parts = Parts::new(2, &mut listen);
        for _ in 0..2 {
            parts.next(|progress| progress(1, 2));
        }
        assert_eq!(updates, [0.25, 0.5, 0.75, 1.0]);
    }
}

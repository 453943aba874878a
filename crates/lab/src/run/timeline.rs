//! Throughput over time, in slices.
//!
//! Each thread counts what it finished in each slice of the clock; the counts of all threads add up.
//! A long run is folded to slices of a second, so a report stays short.
//!
//! Invariant: the counts of all slices sum up to the operations that were done.
//!
//! Source: ours.

use std::time::Duration;

use crate::report::Timeline;

/// The length of a slice while running.
const SLICE: Duration = Duration::from_millis(100);

/// Beyond this many, slices are folded.
const MOST_SLICES: usize = 600;

/// How many slices make one after folding: a second.
const FOLD: usize = 10;

/// Operations finished in each slice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slices {
    counts: Vec<u64>,
}

impl Slices {
    /// Counts one operation that ended this long after the start.
    pub fn record(&mut self, elapsed: Duration) {
        let slice = (elapsed.as_nanos() / SLICE.as_nanos()) as usize;
        if slice >= self.counts.len() {
            self.counts.resize(slice + 1, 0);
        }
        self.counts[slice] += 1;
    }

    /// Adds what another thread counted.
    pub fn merge(&mut self, other: &Slices) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// Operations a second in each slice of a run of this length. The last slice is as short as the
    /// run left it.
    pub fn timeline(&self, run: Duration) -> Timeline {
        let (counts, slice) = if self.counts.len() > MOST_SLICES {
            let folded = self.counts.chunks(FOLD).map(|chunk| chunk.iter().sum()).collect();
            (folded, SLICE * FOLD as u32)
        } else {
            (self.counts.clone(), SLICE)
        };
        let slice_seconds = slice.as_secs_f64();
        let rate = |(i, count): (usize, &u64)| {
            let left = run.as_secs_f64() - i as f64 * slice_seconds;
            // Never divide by next to nothing: a run may end right after a slice began.
            *count as f64 / left.clamp(slice_seconds / 10.0, slice_seconds)
        };
        let ops_per_second = counts.iter().enumerate().map(rate).collect();
        Timeline { slice_seconds, ops_per_second }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_add_up_and_the_last_slice_is_not_underrated() {
        let (mut one, mut two) = (Slices::default(), Slices::default());
        for ms in [0, 50, 99, 100] {
            one.record(Duration::from_millis(ms));
        }
        two.record(Duration::from_millis(240));
        one.merge(&two);
        let timeline = one.timeline(Duration::from_millis(250));
        let rounded: Vec<_> = timeline.ops_per_second.iter().map(|r| r.round() as u64).collect();
        assert_eq!(rounded, [30, 10, 20]);
    }

    #[test]
    fn a_long_run_is_folded_to_seconds() {
        let mut slices = Slices::default();
        for ms in (0..120_000).step_by(10) {
            slices.record(Duration::from_millis(ms));
        }
        let timeline = slices.timeline(Duration::from_secs(120));
        assert_eq!(timeline.slice_seconds, 1.0);
        assert_eq!(timeline.ops_per_second.len(), 120);
        assert!(timeline.ops_per_second.iter().all(|rate| (rate - 100.0).abs() < 1e-6));
    }
}

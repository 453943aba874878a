//! Throughput over time, in slices.
//!
//! Each thread counts the operations that it finished in each time slice; the counts of all threads
//! are added. A long run is folded to slices of one second, so that a report stays short.
//!
//! Invariant: the counts of all slices add up to the number of operations.

use std::time::Duration;

use crate::report::Timeline;

/// Length of a slice during a run.
const SLICE: Duration = Duration::from_millis(100);

/// Number of slices above which they are folded.
const MAX_SLICES: usize = 600;

/// Number of slices that are folded into one of a second.
const FOLD: usize = 10;

/// Number of operations finished in each slice.
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

    /// Adds the counts of another thread.
    pub fn merge(&mut self, other: &Slices) {
        if other.counts.len() > self.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
    }

    /// Operations per second in each slice of a run of this length. The last slice may be shorter.
    pub fn timeline(&self, run: Duration) -> Timeline {
        let (counts, slice) = if self.counts.len() > MAX_SLICES {
            let folded = self.counts.chunks(FOLD).map(|chunk| chunk.iter().sum()).collect();
            (folded, SLICE * FOLD as u32)
        } else {
            (self.counts.clone(), SLICE)
        };
        let slice_seconds = slice.as_secs_f64();
        let rate = |(i, count): (usize, &u64)| {
            let left = run.as_secs_f64() - i as f64 * slice_seconds;
            // Avoid a division by almost zero: a run may end right after the start of a slice.
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
    fn counts_are_summed_and_the_last_slice_is_scaled() {
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
    fn long_run_is_folded_to_seconds() {
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

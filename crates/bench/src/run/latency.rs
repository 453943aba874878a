//! Latencies by kind of operation.
//!
//! One HDR histogram per kind: 1 ns to one hour at three significant digits, so every percentile is
//! within 0.1 %, and the size of a histogram does not depend on the number of operations.
//!
//! Invariant: each operation is recorded once under each kind that it includes (a read-modify-write
//! is a get and a put), and merging is lossless.
//!
//! Source: Tene's HdrHistogram.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::report::{LatencyByKind, Percentiles};

const MAX_NS: u64 = 3_600_000_000_000;
const DIGITS: u8 = 3;

/// Kind of a timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A write.
    Put,
    /// A point lookup.
    Get,
    /// A seek or a scan.
    Scan,
}

const KINDS: usize = 3;

/// Latencies of all kinds of operations.
#[derive(Debug, Clone)]
pub struct Latencies {
    histograms: [Histogram<u64>; KINDS],
}

impl Default for Latencies {
    fn default() -> Self {
        // The constants satisfy the bounds of the crate: 1 ≤ low, 2·low ≤ high, digits ≤ 5.
        let empty = || Histogram::new_with_bounds(1, MAX_NS, DIGITS).expect("valid bounds");
        Latencies { histograms: std::array::from_fn(|_| empty()) }
    }
}

impl Latencies {
    /// Records one operation; durations above one hour count as one hour.
    pub fn record(&mut self, kind: Kind, took: Duration) {
        let ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.histograms[kind as usize].saturating_record(ns.max(1));
    }

    /// Adds the latencies of another thread.
    pub fn merge(&mut self, other: &Latencies) {
        for (mine, theirs) in self.histograms.iter_mut().zip(&other.histograms) {
            // The bounds are equal, so every value fits.
            mine.add(theirs).expect("equal bounds");
        }
    }

    /// Number of recorded operations of a kind.
    pub fn count(&self, kind: Kind) -> u64 {
        self.histograms[kind as usize].len()
    }

    /// Percentiles by kind; `None` for a kind without operations.
    pub fn summary(&self) -> LatencyByKind {
        let of = |kind: Kind| {
            let histogram = &self.histograms[kind as usize];
            let us = |ns: u64| ns as f64 / 1e3;
            let at = |quantile| us(histogram.value_at_quantile(quantile));
            (!histogram.is_empty()).then(|| Percentiles {
                p50: at(0.5),
                p99: at(0.99),
                p999: at(0.999),
                p9999: at(0.9999),
                max: us(histogram.max()),
                slowest_mean: mean_of_slowest(histogram) / 1e3,
            })
        };
        LatencyByKind { put: of(Kind::Put), get: of(Kind::Get), scan: of(Kind::Scan) }
    }
}

/// The mean in nanoseconds of the slowest 0.1 % of the operations, at least one.
fn mean_of_slowest(histogram: &Histogram<u64>) -> f64 {
    let count = (histogram.len() / 1000).max(1);
    let (mut left, mut sum) = (count, 0.0);
    let recorded: Vec<_> = histogram.iter_recorded().collect();
    for step in recorded.iter().rev() {
        let taken = step.count_at_value().min(left);
        sum += taken as f64 * step.value_iterated_to() as f64;
        left -= taken;
        if left == 0 {
            break;
        }
    }
    sum / count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_cover_all_threads() {
        let (mut one, mut two) = (Latencies::default(), Latencies::default());
        for us in 1..=10_000 {
            let half = if us % 2 == 0 { &mut one } else { &mut two };
            half.record(Kind::Get, Duration::from_micros(us));
        }
        one.merge(&two);
        assert_eq!((one.count(Kind::Get), one.count(Kind::Put)), (10_000, 0));
        let summary = one.summary();
        assert!(summary.put.is_none() && summary.scan.is_none());
        let get = summary.get.unwrap();
        let expected = [
            (get.p50, 5000.0),
            (get.p99, 9900.0),
            (get.p999, 9990.0),
            (get.p9999, 9999.0),
            (get.slowest_mean, 9995.5),
        ];
        for (ours, exact) in expected {
            assert!((ours / exact - 1.0).abs() < 0.001, "{ours} for {exact}");
        }
        assert!((get.max / 10_000.0 - 1.0).abs() < 0.001);
    }

    #[test]
    fn extreme_latencies_are_recorded() {
        let mut latencies = Latencies::default();
        latencies.record(Kind::Put, Duration::ZERO);
        latencies.record(Kind::Put, Duration::from_secs(1 << 40));
        assert_eq!(latencies.count(Kind::Put), 2);
    }
}

//! The `skimpy` engine: versions in one log over the flash device, whose buckets are relocated in
//! round-robin order.
//!
//! In one pass of the log over the device the user writes A versions, and garbage collection
//! relocates every bucket once: all of its live versions, R in total, are copied to the head,
//! regardless of their age. Dead versions keep their space until the pass is over, so
//!
//! ```text
//! A / fill + R = C        C: capacity of the device in versions; fill: mean fill of puts' pages
//! R = N + W               the newest version of each key, and the versions superseded by requests
//!                         since the watermark
//! ```
//!
//! Each request since the watermark supersedes one version, whatever its key. So skew makes no
//! difference, and with little spare space the cost grows as 1/(C − N − W). A log that is cleaned
//! page by page from its tail would copy fewer young versions, but would need the location of every
//! version in memory.
//!
//! ```text
//! put                1
//! padding            1 / fill − 1      pages programmed before they are full
//! garbage collection R / A
//! ```
//!
//! Source: SkimpyFTL paper, section 3.4 (collection by bucket, by watermark).

use crate::error::{InvalidParameter, within};
use crate::{Breakdown, Popularity};

/// A flash device with a log of versions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skimpy {
    /// Capacity of the device in versions, without its reserve.
    pub capacity_items: f64,
    /// Requests since the watermark; no version younger than the watermark is discarded.
    pub window_requests: f64,
    /// Mean fill of a page when it is programmed for puts, as a share.
    pub page_fill: f64,
}

impl Skimpy {
    /// Versions written per version that the user writes, stage by stage.
    ///
    /// # Errors
    /// [`InvalidParameter`], also for a capacity below the number of keys plus the window's
    /// versions.
    pub fn write_amplification(
        &self,
        popularity: &Popularity,
    ) -> Result<Breakdown, InvalidParameter> {
        let reason = "give a number of requests from 0 to 10^15";
        let window = within("window_requests", self.window_requests, 0.0, 1e15, reason)?;
        let fill = within("page_fill", self.page_fill, 1e-3, 1.0, "give a part from 0.001 to 1")?;
        let live = popularity.keys() + window;
        let reason = "give more versions than there are keys and versions since the watermark";
        let least = live * (1.0 + MIN_SPARE_SHARE);
        let capacity = within("capacity_items", self.capacity_items, least, 1e18, reason)?;
        let written = (capacity - live) * fill;
        Ok(Breakdown {
            by_stage: vec![
                ("put".to_owned(), 1.0),
                ("padding".to_owned(), 1.0 / fill - 1.0),
                ("garbage collection".to_owned(), live / written),
            ],
        })
    }
}

/// Minimal spare space, as a share of the live versions: with none, collection would never end.
const MIN_SPARE_SHARE: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: Skimpy = Skimpy { capacity_items: 2e6, window_requests: 1e5, page_fill: 0.9 };

    fn of(skimpy: Skimpy, skew: f64) -> Vec<f64> {
        let keys = Popularity::zipf(1e6, skew).unwrap();
        let stages = skimpy.write_amplification(&keys).unwrap().by_stage;
        stages.iter().map(|(_, cost)| *cost).collect()
    }

    #[test]
    fn costs_agree_with_a_simulation() {
        // Buckets of one key, each relocated just before the log reaches its last location.
        const BUCKETS: usize = 1000;
        const CAPACITY: usize = 2000;
        let mut relocated: Vec<usize> = (0..BUCKETS).collect();
        let (mut head, mut next, mut puts, mut copies) = (BUCKETS, 0, 0_u32, 0_u32);
        while head < 100 * CAPACITY {
            if head - relocated[next] >= CAPACITY {
                relocated[next] = head;
                next = (next + 1) % BUCKETS;
                copies += 1;
            } else {
                puts += 1;
            }
            head += 1;
        }
        let skimpy = Skimpy { window_requests: 0.0, page_fill: 1.0, ..GOOD };
        let simulated = f64::from(copies) / f64::from(puts);
        assert!((simulated / of(skimpy, 0.0)[2] - 1.0).abs() < 0.02, "{simulated}");
    }

    #[test]
    fn watermark_and_page_fill_change_costs_and_skew_does_not() {
        // By hand: C = 2 M, N + W = 1.1 M, so that 0.9 M · 0.9 are put per pass.
        let by_hand = [1.0, 1.0 / 0.9 - 1.0, 1.1 / 0.81];
        for skew in [0.0, 0.99] {
            let stages = of(GOOD, skew);
            assert!(stages.iter().zip(by_hand).all(|(a, b)| (a - b).abs() < 1e-9), "{stages:?}");
        }
        assert!(of(Skimpy { window_requests: 5e5, ..GOOD }, 0.0)[2] > 2.0 * by_hand[2]);
    }

    #[test]
    fn invalid_parameter_is_named() {
        let keys = Popularity::uniform(1e6).unwrap();
        let named = |skimpy: Skimpy| skimpy.write_amplification(&keys).unwrap_err().parameter;
        for capacity_items in [0.0, -1.0, 1.1e6, f64::NAN, f64::INFINITY] {
            assert_eq!(named(Skimpy { capacity_items, ..GOOD }), "capacity_items");
        }
        for window_requests in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(named(Skimpy { window_requests, ..GOOD }), "window_requests");
        }
        for page_fill in [0.0, -0.5, 1.5, f64::NAN] {
            assert_eq!(named(Skimpy { page_fill, ..GOOD }), "page_fill");
        }
    }
}

//! The `skimpy` engine: versions in one log over the flash device, whose buckets are remapped in turn.
//!
//! The log goes round the device. In one turn the user writes A versions, and collection remaps every bucket
//! once: all of its versions that are still wanted, R in all, go to the head, however young they are. What
//! is not wanted stays where it is until the turn is over, so
//!
//! ```text
//! A / fill + R = C        C: versions that the device holds; fill: how full the pages of puts are
//! R = N + W               the newest of each key, and what requests since the watermark have superseded
//! ```
//!
//! each of which supersedes one version, whatever its key. So skew makes no difference; and with little to spare
//! the cost grows as 1/(C − N − W). A log that is cleaned page by page from its tail would copy less of what
//! is young, and need the place of every version in memory to know it.
//!
//! ```text
//! put                1
//! padding            1 / fill − 1      pages that were programmed before they were full
//! garbage collection R / A
//! ```
//!
//! Source: ours, for the SkimpyFTL paper's section 3.4 (collection by bucket, by watermark).

use crate::error::{BadParameter, within};
use crate::{Breakdown, Popularity};

/// A flash device with its log of versions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Skimpy {
    /// Versions that the device holds, its reserve not counted.
    pub capacity_items: f64,
    /// Requests since the watermark: no version younger than it is discarded.
    pub window_requests: f64,
    /// How full a page is when it is programmed for a put, on average.
    pub page_fill: f64,
}

impl Skimpy {
    /// Versions written for each that the user writes, stage by stage. Cost: a few operations.
    ///
    /// # Errors
    /// [`BadParameter`]; a capacity that cannot hold every key and the window's versions is one.
    pub fn write_amplification(&self, popularity: &Popularity) -> Result<Breakdown, BadParameter> {
        let reason = "give a number of requests from 0 to 10^15";
        let window = within("window_requests", self.window_requests, 0.0, 1e15, reason)?;
        let fill = within("page_fill", self.page_fill, 1e-3, 1.0, "give a part from 0.001 to 1")?;
        let wanted = popularity.keys() + window;
        let reason = "give more versions than there are keys and versions since the watermark";
        let least = wanted * (1.0 + LEAST_ROOM);
        let capacity = within("capacity_items", self.capacity_items, least, 1e18, reason)?;
        let written = (capacity - wanted) * fill;
        Ok(Breakdown {
            by_stage: vec![
                ("put".to_owned(), 1.0),
                ("padding".to_owned(), 1.0 / fill - 1.0),
                ("garbage collection".to_owned(), wanted / written),
            ],
        })
    }
}

/// Room beside what is wanted, as a share of it: with none collection would never end.
const LEAST_ROOM: f64 = 1e-6;

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
    fn costs_are_what_a_simulation_counts() {
        // Buckets of one key, each remapped just before the log comes round to where it was remapped last.
        const BUCKETS: usize = 1000;
        const CAPACITY: usize = 2000;
        let mut remapped: Vec<usize> = (0..BUCKETS).collect();
        let (mut head, mut next, mut puts, mut copies) = (BUCKETS, 0, 0_u32, 0_u32);
        while head < 100 * CAPACITY {
            if head - remapped[next] >= CAPACITY {
                remapped[next] = head;
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
    fn skew_makes_no_difference_and_a_watermark_and_half_full_pages_do() {
        // By hand: C = 2 M, N + W = 1.1 M, so that 0.9 M · 0.9 are put a turn.
        let by_hand = [1.0, 1.0 / 0.9 - 1.0, 1.1 / 0.81];
        for skew in [0.0, 0.99] {
            let stages = of(GOOD, skew);
            assert!(stages.iter().zip(by_hand).all(|(a, b)| (a - b).abs() < 1e-9), "{stages:?}");
        }
        assert!(of(Skimpy { window_requests: 5e5, ..GOOD }, 0.0)[2] > 2.0 * by_hand[2]);
    }

    #[test]
    fn bad_parameters_are_named() {
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

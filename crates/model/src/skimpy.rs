//! The `skimpy` engine: versions in one log over the flash device, cleaned from its tail.
//!
//! The log goes round the device. In one turn the user writes A versions and the cleaner copies R
//! that are still wanted to the head, so
//!
//! ```text
//! A / fill + R(A) = C            C: versions that the device holds; fill: how full the pages are
//! R(A) = Σ keys · λA · E[⌊(g + W) / A⌋]
//! ```
//!
//! A version is wanted until a newer one is older than the watermark, W requests back: for a time of
//! g + W, where g, the gap to the next write of its key, is exponential with the key's rate λ; it is
//! copied each time that the tail passes meanwhile. λA versions of a key are written a turn. The
//! expectation is Σ over j of e^(−λ·max(0, jA − W)): with n = ⌊W / A⌋ turns that pass in any case,
//!
//! ```text
//! E = n + e^(−λ((n+1)A − W)) / (1 − e^(−λA))
//! ```
//!
//! Without a watermark and under a uniform popularity this is the known equation of a log cleaned in
//! order, WA = C/A = 1/(1 − e^(−A/N)). Skew makes it worse: hot and cold keys share the one log.
//!
//! ```text
//! put                1
//! padding            1 / fill − 1      pages that were programmed before they were full
//! garbage collection R / A
//! ```
//!
//! Source: ours, for the SkimpyFTL paper's section 3.4 (collection from the tail, by watermark).

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
    /// Versions written for each that the user writes, stage by stage. Cost: some 100 sums over the
    /// popularity's groups.
    ///
    /// # Errors
    /// [`BadParameter`]; a capacity that cannot hold every key and the window's versions is one.
    pub fn write_amplification(&self, popularity: &Popularity) -> Result<Breakdown, BadParameter> {
        let reason = "give a number of requests from 0 to 10^15";
        let window = within("window_requests", self.window_requests, 0.0, 1e15, reason)?;
        let fill = within("page_fill", self.page_fill, 1e-3, 1.0, "give a part from 0.001 to 1")?;
        let least = (popularity.keys() + window) * (1.0 + LEAST_ROOM);
        let reason = "give more versions than there are keys and versions since the watermark";
        let capacity = within("capacity_items", self.capacity_items, least, 1e18, reason)?;
        // A turn of hardly any request copies every wanted version, which leaves room; one of
        // capacity·fill requests leaves none.
        let (mut low, mut high) = (0.0, capacity * fill);
        for _ in 0..MOST_HALVINGS {
            let middle = f64::midpoint(low, high);
            if middle / fill + copied(popularity, middle, window) > capacity {
                high = middle;
            } else {
                low = middle;
            }
        }
        let requests = high;
        Ok(Breakdown {
            by_stage: vec![
                ("put".to_owned(), 1.0),
                ("padding".to_owned(), 1.0 / fill - 1.0),
                ("garbage collection".to_owned(), copied(popularity, requests, window) / requests),
            ],
        })
    }
}

/// Room beside what is wanted, as a share of it: with none the cleaner would never end.
const LEAST_ROOM: f64 = 1e-6;
/// Halves the bracket to the last digit, from any capacity.
const MOST_HALVINGS: usize = 120;

/// Versions copied in a turn of `requests`: R(A).
fn copied(popularity: &Popularity, requests: f64, window: f64) -> f64 {
    let in_any_case = (window / requests).floor();
    // Of a window of very many turns the difference may be rounded out of its range.
    let rest = ((in_any_case + 1.0) * requests - window).clamp(0.0, requests);
    let of_group = |keys: f64, rate: f64| {
        let written = rate * requests;
        let after = if written > 0.0 {
            // z / (1 − e^(−z)) tends to 1.
            written * (-rate * rest).exp() / -(-written).exp_m1()
        } else {
            1.0
        };
        keys * (written * in_any_case + after)
    };
    popularity.groups.iter().map(|group| of_group(group.keys, group.rate)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform() -> Popularity {
        Popularity::uniform(1e6).unwrap()
    }

    #[test]
    fn a_log_cleaned_in_order_costs_what_is_known() {
        // Two requests for each key a turn: C/N = 2/(1 − e⁻²), WA = 1/(1 − e⁻²).
        let not_missed = -(-2f64).exp_m1();
        let skimpy =
            Skimpy { capacity_items: 2e6 / not_missed, window_requests: 0.0, page_fill: 1.0 };
        let wa = skimpy.write_amplification(&uniform()).unwrap();
        assert!((wa.total() * not_missed - 1.0).abs() < 1e-5, "{wa:?}");
    }

    #[test]
    fn a_watermark_keeps_versions_longer() {
        // A turn of N requests with half of it younger than the watermark: by hand,
        // R/N = e^(−1/2) / (1 − e⁻¹).
        let copied_by_hand = (-0.5f64).exp() / -(-1f64).exp_m1();
        let capacity_items = 1e6 * (1.0 + copied_by_hand);
        let skimpy = Skimpy { capacity_items, window_requests: 0.5e6, page_fill: 1.0 };
        let wa = skimpy.write_amplification(&uniform()).unwrap();
        assert!((wa.by_stage[2].1 / copied_by_hand - 1.0).abs() < 1e-5, "{wa:?}");
        // And a window of many turns: all of it is copied in each.
        assert!((copied(&uniform(), 1e3, 1e5) / 1.1e6 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn half_full_pages_cost_twice_and_leave_less_room() {
        let full = Skimpy { capacity_items: 4e6, window_requests: 0.0, page_fill: 1.0 };
        let half = Skimpy { page_fill: 0.5, ..full };
        let wa = |skimpy: Skimpy| skimpy.write_amplification(&uniform()).unwrap();
        assert_eq!(wa(half).by_stage[1].1, 1.0);
        assert!(wa(half).by_stage[2].1 > wa(full).by_stage[2].1);
    }

    #[test]
    fn skew_makes_more_to_copy() {
        // Copies are convex in a key's rate: what cold keys add outweighs what hot ones save, as
        // long as both share one log.
        let skimpy = Skimpy { capacity_items: 1.5e6, window_requests: 1e5, page_fill: 1.0 };
        let wa = |skew| {
            skimpy.write_amplification(&Popularity::zipf(1e6, skew).unwrap()).unwrap().total()
        };
        assert!(wa(0.99) > wa(0.5) && wa(0.5) > wa(0.0));
    }

    #[test]
    fn bad_parameters_are_named() {
        let good = Skimpy { capacity_items: 2e6, window_requests: 1e5, page_fill: 0.9 };
        let named = |skimpy: Skimpy| skimpy.write_amplification(&uniform()).unwrap_err().parameter;
        for capacity_items in [0.0, -1.0, 1.1e6, f64::NAN, f64::INFINITY] {
            assert_eq!(named(Skimpy { capacity_items, ..good }), "capacity_items");
        }
        for window_requests in [-1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(named(Skimpy { window_requests, ..good }), "window_requests");
        }
        for page_fill in [0.0, -0.5, 1.5, f64::NAN] {
            assert_eq!(named(Skimpy { page_fill, ..good }), "page_fill");
        }
    }
}

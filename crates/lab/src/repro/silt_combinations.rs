//! `silt-store-combinations`: memory with and without each kind of store.
//!
//! The experiment of `silt-memory` with the options `stores=log`, `log-hash` (no SortedStore),
//! `log-sorted` (no HashStore) and `all`.
//!
//! What is claimed follows from how many entries wait for a merge, w of N, at 2.02 bytes in a HashStore
//! and 6.45 in a LogStore (15 bits and 6 bytes a slot, 93 % full), and from the index of the others:
//!
//! ```text
//!   all             0.69 N = 2.02 w + 0.31 (N - w) + 0.06 N    w = 0.19 N: 155 stores of 62 a merge
//!   LogStore only   6.45 N                                      9.3 times
//!   no SortedStore  2.02 N + 0.06 N                             3.0 times (the thesis says 4)
//!   no HashStore    6.45 w + 0.31 (N - w)                       2.1 times, with the same w
//! ```
//!
//! So the last is a matter of w. Instances of the thesis merge one after the other, whatever kind of
//! stores they merge, and so do HashStores here: 62 + 47 + 31 + 16 of them wait at most. Our LogStores
//! have one log for all instances and are merged together; so that no more of them wait they are merged
//! when there are 39 of each instance, not 62, at the cost of 1.6 times the merges.
//!
//! Source: Lim, thesis (2015), section 2.5.1, figure 2.10.

use siltstone_engine::Result;

use super::silt_memory::{Growth, picture};
use super::silt_table::{PAPER, keys};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::Plot;

/// Slots of a table at scale 1.
const SLOTS: f64 = 256.0;
/// The four, and how many times the memory of all stores the thesis finds.
const STORES: [(&str, &str, f64); 4] = [
    ("LogStore only", "log", 10.0),
    ("no SortedStore", "log-hash", 4.0),
    ("no HashStore", "log-sorted", 2.0),
    ("all", "all", 1.0),
];

pub(super) struct SiltCombinations;

impl Experiment for SiltCombinations {
    fn id(&self) -> &'static str {
        "silt-store-combinations"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 2.10"
    }

    fn claim(&self) -> &'static str {
        "LogStores alone need nearly 10 times the memory, without SortedStore 4 times, without \
         HashStore twice"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let slots = ((SLOTS * scale).max(64.0) as u64).next_power_of_two();
        let total = keys(slots as f64);
        let (mut bytes, mut lines) = (Vec::new(), Vec::new());
        for (at, (name, stores, _)) in STORES.iter().enumerate() {
            // Every entry told apart, as in the thesis.
            let more = [("stores", *stores), ("block", "1")];
            let growth = Growth::watch(&more, slots, total, &mut |done| {
                progress(at as u64 * total + done, STORES.len() as u64 * total);
            })?;
            bytes.push(growth.most().bytes());
            lines.push(growth.line(name));
        }
        let all = bytes[STORES.len() - 1];
        let check = |(&(name, _, claimed), ours): (&(&str, &str, f64), &f64)| Check {
            what: format!("{name}, times the memory of all stores"),
            claimed,
            ours: ours / all,
            tolerance: 0.25,
            direction: Direction::AtLeast(0.5 * claimed),
        };
        let each =
            (STORES.iter().zip(&bytes)).map(|((name, ..), bytes)| format!("{name} {bytes:.3}"));
        let each = each.collect::<Vec<_>>().join(", ");
        Ok(Measured {
            scale: format!(
                "{total} entries of 20 + 1000 bytes, half of them inserted; bytes an entry: {each}"
            ),
            checks: STORES.iter().zip(&bytes).take(STORES.len() - 1).map(check).collect(),
            plot: Some(Plot::Lines(picture(
                "SILT: memory by the kinds of stores there are",
                lines,
            ))),
        })
    }
}

//! `silt-store-combinations`: memory with and without each kind of store.
//!
//! The experiment of `silt-memory` with the options `stores=log`, `log-hash` (no SortedStore),
//! `log-sorted` (no HashStore: as many LogStores wait as there would be HashStores) and `all`.
//!
//! Source: Lim, thesis (2015), section 2.5.1, figure 2.10.

use siltstone_engine::Result;

use super::silt_memory::peak;
use super::silt_table::{PAPER, keys};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Bars, Plot};

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
        let mut bytes = Vec::new();
        for (at, (_, stores, _)) in STORES.iter().enumerate() {
            // Every entry told apart, as in the thesis.
            let more = [("stores", *stores), ("block", "1")];
            let (most, _) = peak(&more, slots, total, &mut |done| {
                progress(at as u64 * total + done, STORES.len() as u64 * total);
            })?;
            bytes.push(most as f64 / total as f64);
        }
        let all = bytes[STORES.len() - 1];
        let check = |(&(name, _, claimed), ours): (&(&str, &str, f64), &f64)| Check {
            what: format!("{name}, times the memory of all stores"),
            claimed,
            ours: ours / all,
            tolerance: 0.25,
            direction: Direction::AtLeast(0.5 * claimed),
        };
        let bars = Bars {
            title: "SILT: memory by the kinds of stores there are".to_owned(),
            y: "bytes an entry".to_owned(),
            groups: vec![format!("{total} entries")],
            series: (STORES.iter().zip(&bytes))
                .map(|(&(name, ..), &bytes)| (name.to_owned(), vec![bytes]))
                .collect(),
        };
        Ok(Measured {
            scale: format!("{total} entries of 20 + 1000 bytes, half of them inserted"),
            checks: STORES.iter().zip(&bytes).take(STORES.len() - 1).map(check).collect(),
            plot: Some(Plot::Bars(bars)),
        })
    }
}

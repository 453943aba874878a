//! `silt-store-combinations`: memory with and without each kind of store.
//!
//! The experiment of `silt-memory` with the options `stores=log`, `log-hash` (no SortedStore),
//! `log-sorted` (no HashStore) and `all`.
//!
//! The claims follow from the number of entries that wait for a merge, w of N, at 2.02 bytes in a
//! HashStore and 6.45 in a LogStore (15 bits and 6 bytes per slot, 93 % full), and from the index
//! of the others:
//!
//! ```text
//!   all             0.69 N = 2.02 w + 0.31 (N - w) + 0.06 N   w = 0.19 N: 155 stores, 62 per merge
//!   LogStore only   6.45 N                                      9.3 times
//!   no SortedStore  2.02 N + 0.06 N                             3.0 times (the thesis says 4)
//!   no HashStore    6.45 w + 0.31 (N - w)                       2.1 times, with the same w
//! ```
//!
//! So the last depends on w. Instances of the thesis merge one after the other for all kinds of
//! stores, as do HashStores here: at most 62 + 47 + 31 + 16 of them wait. Our LogStores have one
//! log for all instances and are merged together. To keep the number of waiting LogStores equal,
//! they are merged at 39 per instance instead of 62, at the cost of 1.6 times as many merges.
//!
//! Source: Lim, thesis (2015), section 2.5.1, figure 2.10.

use siltstone_bench::plot::Plot;
use siltstone_engine::Result;

use super::bars::{Bar, bar};
use super::silt_memory::{Growth, memory_chart};
use super::silt_table::{PAPER, keys};
use super::{Experiment, Measurement};

/// Slots per table at scale 1.
const SLOTS: f64 = 256.0;
/// The four configurations.
const STORES: [(&str, &str); 4] = [
    ("LogStore only", "log"),
    ("no SortedStore", "log-hash"),
    ("no HashStore", "log-sorted"),
    ("all", "all"),
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

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let slots = ((SLOTS * scale).max(64.0) as u64).next_power_of_two();
        let total = keys(slots as f64);
        let (mut bytes, mut lines) = (Vec::new(), Vec::new());
        for (at, (name, stores)) in STORES.iter().enumerate() {
            // Every entry is in the trie, as in the thesis.
            let more = [("experimental.stores", *stores), ("block_size", "1")];
            let growth = Growth::measure(&more, slots, total, &mut |done| {
                progress(at as u64 * total + done, STORES.len() as u64 * total);
            })?;
            bytes.push(growth.peak().bytes());
            lines.push(growth.line(name));
        }
        let all = bytes[STORES.len() - 1];
        let bars = [
            bar("silt-store-combinations", "log"),
            bar("silt-store-combinations", "log-hash"),
            bar("silt-store-combinations", "log-sorted"),
        ];
        let check = |((bar, (name, _)), ours): ((&'static Bar, &(&str, &str)), &f64)| {
            bar.check(format!("{name}, times the memory of all stores"), ours / all)
        };
        let each =
            (STORES.iter().zip(&bytes)).map(|((name, ..), bytes)| format!("{name} {bytes:.3}"));
        let each = each.collect::<Vec<_>>().join(", ");
        Ok(Measurement {
            scale: format!(
                "{total} entries of 20 + 1000 bytes, half of them inserted; bytes per entry: {each}"
            ),
            checks: bars.into_iter().zip(&STORES).zip(&bytes).map(check).collect(),
            plot: Some(Plot::Lines(memory_chart("SILT: memory by kinds of stores", lines))),
        })
    }
}

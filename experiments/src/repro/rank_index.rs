//! `rank-index`: a minimal perfect hash function compared with the trie, in size and time.
//!
//! The thesis compares its trie with external perfect hashing, which takes more bits and less time.
//! Perfect hashing has become smaller since: the bars are 1.75 bits per key in total, and no lookup
//! slower than the trie's. Both index the same keys, and every key is looked up.
//!
//! Invariant: sizes are lengths of stored forms; times are of one run.
//!
//! Source: Lim, thesis (2015), section 3.3.3, for the trie; Esposito, Graf, Vigna, ALENEX 2020, and
//! Lehmann et al., ESA 2025, for the hash function. The bars are ours.

use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::Result;
use siltstone_structures::ect::{Ect, EctOptions};
use siltstone_structures::recsplit::{RecSplit, RecSplitOptions};

use super::{Check, Direction, Experiment, Measured, hashes};

const KEYS: f64 = 4_194_304.0;
const BAR: f64 = 1.75;

pub(super) struct RankIndexes;

impl Experiment for RankIndexes {
    fn id(&self) -> &'static str {
        "rank-index"
    }

    fn paper(&self) -> &'static str {
        "Esposito, Graf, Vigna, RecSplit, 2020; Lim, 2015"
    }

    fn figure(&self) -> &'static str {
        "thesis section 3.3.3, with RecSplit in the place of external perfect hashing"
    }

    fn claim(&self) -> &'static str {
        "a minimal perfect hash function in at most 1.75 bits per key, everything counted, looked up \
         in no more time than an entropy-coded trie"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = (KEYS * scale).round().max(10_000.0) as u64;
        progress(0, 3);
        let hashes = hashes::sorted(keys);
        progress(1, 3);
        let trie = hashes::build::<Ect>(&hashes, &EctOptions::default())?;
        progress(2, 3);
        let split = hashes::build::<RecSplit>(&hashes, &RecSplitOptions::default())?;
        progress(3, 3);
        let lookups = [split.lookup_nanoseconds(&hashes), trie.lookup_nanoseconds(&hashes)];
        let right = split.right(&hashes, 1).min(trie.right(&hashes, 1));
        let checks = vec![
            Check {
                what: "bits per key of RecSplit".to_owned(),
                claimed: BAR,
                ours: split.bits(),
                tolerance: 0.0,
                direction: Direction::AtMost(BAR),
            },
            Check {
                what: "bits per key of RecSplit over the trie's".to_owned(),
                claimed: BAR / 2.51,
                ours: split.bits() / trie.bits(),
                tolerance: 0.0,
                direction: Direction::AtMost(BAR / 2.51),
            },
            Check {
                what: "time of a lookup over the trie's".to_owned(),
                claimed: 1.0,
                ours: lookups[0] / lookups[1],
                tolerance: 0.0,
                direction: Direction::AtMost(1.0),
            },
            Check {
                what: "share of keys that both find at their position".to_owned(),
                claimed: 1.0,
                ours: right,
                tolerance: 0.0,
                direction: Direction::None,
            },
        ];
        let bars = Bars {
            title: "Two indexes of the same keys".to_owned(),
            y: "bits per key; hundreds of nanoseconds".to_owned(),
            groups: ["bits per key", "lookup, 100 ns"].map(str::to_owned).into(),
            series: vec![
                ("RecSplit".to_owned(), vec![split.bits(), lookups[0] / 100.0]),
                ("trie".to_owned(), vec![trie.bits(), lookups[1] / 100.0]),
            ],
        };
        Ok(Measured { scale: format!("{keys} keys"), checks, plot: Some(Plot::Bars(bars)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn bars_are_met_at_a_small_scale() {
        let finding = run(&RankIndexes, 0.01, &mut |_, _| ()).unwrap();
        let counted = finding.checks.iter().filter(|check| !check.what.contains("time"));
        let worst = counted.map(Check::verdict).max();
        assert!(worst <= Some(Verdict::TrendOnly), "{:?}", finding.checks);
        assert!(finding.plot.is_some());
    }
}

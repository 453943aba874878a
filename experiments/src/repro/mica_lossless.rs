//! `mica-lossless`: does bulk chaining with 10 % overflow buckets store a whole data set?
//!
//! The store is sized for the number of tiny items that are put; all of them must be found at the
//! end.
//!
//! Invariant: all numbers are counts and reproducible.
//!
//! Source: Lim, thesis (2015), section 5.3.3, "Store Mode".

use siltstone_engine::Result;
use siltstone_mica::{Action, Answer, Outcome, Request};

use super::bars::bar;
use super::mica_bench::{PAPER, filled, options};
use super::{Experiment, Measurement};

/// Items at scale 1, an eighth of the thesis's.
const ITEMS: f64 = (24 << 20) as f64;
/// Items per main bucket of 7 entries.
const LOAD: f64 = 4.55;

pub(super) struct MicaLossless;

impl Experiment for MicaLossless {
    fn id(&self) -> &'static str {
        "mica-lossless"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 5.3.3, Store Mode"
    }

    fn claim(&self) -> &'static str {
        "spare buckets of 10 % of the main ones let the whole set of 192 Mi items be stored, about 95 % \
         of it in main buckets"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let buckets = (items as f64 / LOAD) as u64;
        let memory = items * 40 + buckets * 64 * 11 / 10 + (4 << 20);
        let text = format!(
            "mode=store partitions=1 memory={memory} buckets={buckets} spare=0.1 hash_seed=1"
        );
        options(&text)?;
        let store = filled(&text, items)?;
        progress(1, 2);
        let mut found = 0u64;
        for key in 0..items {
            let key = key.to_le_bytes();
            let request = Request { hash: store.hash(&key), key: &key, action: Action::Get };
            let mut value = Vec::new();
            let answer: Answer = store.one(&request, &mut value);
            found += u64::from(answer.outcome == Outcome::Found && value == key);
        }
        progress(2, 2);
        let in_main = store.entries().0 as f64 / items as f64;
        let checks = vec![
            bar("mica-lossless", "stored")
                .check("share of the items that are stored", found as f64 / items as f64),
            bar("mica-lossless", "main").check("share of the entries in main buckets", in_main),
        ];
        let scale = format!(
            "{items} items, {buckets} main buckets of 7 entries, {} overflow buckets left",
            store.counters()["spare_buckets_left"]
        );
        Ok(Measurement { scale, checks, plot: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn small_data_set_is_stored_completely() {
        let finding = run(&MicaLossless, 0.01, 1, &mut |_, _| ()).unwrap();
        assert_eq!(finding.verdict, Verdict::Confirmed, "{:?}", finding.checks);
    }
}

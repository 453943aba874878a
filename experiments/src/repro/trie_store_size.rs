//! `trie-store-size`: lookups per device request as the store grows.
//!
//! With the filters in memory the paper's read throughput stays that of the device at any size
//! (figure 12, 64 GB); with those of the last level on flash it falls towards half, as more lookups
//! reach that level (figure 13, 4 GB). The effect of the page cache on a small store is excluded:
//! every request is counted.
//!
//! Source: LSM-trie paper, figures 12 and 13.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::trie_bench::{Load, PAPER, Run};
use super::{Experiment, Measurement};

pub(super) struct TrieStoreSize;

impl Experiment for TrieStoreSize {
    fn id(&self) -> &'static str {
        "trie-store-size"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figures 12 and 13"
    }

    fn claim(&self) -> &'static str {
        "reads cost the same at every size with the filters in memory; with those of the last level on \
         flash they fall towards half as the store outgrows the levels above"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let mut series = Vec::new();
        let mut ends = Vec::new();
        for (name, options) in [
            ("filters in memory (figure 12)", &[][..]),
            ("the last level's on flash (figure 13)", &[("filter_memory", "0")]),
        ] {
            let mut points = Vec::new();
            for items in [0.1e6, 0.2e6, 0.4e6, 1e6, 2e6, 4e6] {
                let load = Load::of(items, scale);
                let run = Run::of(load, options, progress)?;
                // Relative to a device with a fixed number of requests per second.
                points.push((load.items as f64, 1.0 / run.reads.max(1.0)));
            }
            ends.push((points[0].1, points[points.len() - 1].1));
            series.push(Line { name: name.to_owned(), points, is_reference: false });
        }
        let checks = vec![
            bar("trie-store-size", "in-memory").check(
                "throughput at the largest over the smallest, in memory",
                ends[0].1 / ends[0].0,
            ),
            bar("trie-store-size", "on-flash")
                .check("the same, the last level's on flash", ends[1].1 / ends[1].0),
        ];
        let plot = Lines {
            title: "Lookups per device request, by the size of the store".to_owned(),
            x: "items written".to_owned(),
            y: "lookups per device request".to_owned(),
            series,
        };
        let scale = Load::of(4e6, scale).words();
        Ok(Measurement { scale: format!("up to {scale}"), checks, plot: Some(Plot::Lines(plot)) })
    }
}

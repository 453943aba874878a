//! `trie-frontier`: write amplification, reads and memory, by the organisation of the last level.
//!
//! Sub-levels with filters, in memory or clustered, against dense runs with a rank index, merged at
//! different numbers of sub-levels.
//!
//! Source: SILT's point is that of Lim et al., SOSP 2011, Table 5 and section 5 (0.7 bytes per key,
//! 1.01 reads, write amplification 5.4).

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::trie_bench::{Load, Run};
use super::{Experiment, Measurement};

pub(super) struct TrieFrontier;

/// Settings of the last level, by name.
const SETTINGS: [(&str, &[(&str, &str)]); 9] = [
    ("sub-levels, filters in memory", &[]),
    ("sub-levels, BloomClusters", &[("filter_memory", "0")]),
    ("a run at 8 sub-levels", &[("dense_run_at", "8")]),
    ("a run at 5 sub-levels, 12 bits", &[("dense_run_at", "5"), ("filter_bits_per_key", "12")]),
    ("a run at 4 sub-levels", &[("dense_run_at", "4")]),
    ("a run at 3 sub-levels", &[("dense_run_at", "3")]),
    ("a run at 3 sub-levels, 12 bits", &[("dense_run_at", "3"), ("filter_bits_per_key", "12")]),
    ("a run at 2 sub-levels", &[("dense_run_at", "2")]),
    (CHOSEN.1, &[("dense_run_at", "2"), ("filter_bits_per_key", "12")]),
];

/// From this scale on only this setting is run, because a run of all takes hours.
const CHOSEN: (f64, &str) = (5.0, "a run at 2 sub-levels, 12 bits");

impl Experiment for TrieFrontier {
    fn id(&self) -> &'static str {
        "trie-frontier"
    }

    fn paper(&self) -> &'static str {
        "ours; LSM-trie, 2015, and SILT, 2011, as points"
    }

    fn figure(&self) -> &'static str {
        "none: write amplification, reads per lookup and memory per key"
    }

    fn claim(&self) -> &'static str {
        "some setting of the last level has at most 1.05 reads per lookup, at most 1 byte per key in \
         memory, and a write amplification of at most 7"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let mut series = Vec::new();
        let mut best: Option<[f64; 3]> = None;
        // The largest excess over the three bars.
        let excess = |p: &[f64; 3]| (p[0] / 7.0).max(p[1] / 1.05).max(p[2]);
        // The trie has the same shape at every scale: its tables grow with the items.
        let table_bytes = ((128.0 * 1024.0 * scale) as u64).max(64 << 10);
        let load = Load { value_bytes: 16, table_bytes, ..Load::of(2e6, scale) };
        let chosen = |name: &str| scale < CHOSEN.0 || name == CHOSEN.1;
        for (name, options) in SETTINGS.into_iter().filter(|(name, _)| chosen(name)) {
            let run = Run::of(load, options, progress)?;
            let point = [run.amplification(), run.reads, run.memory()];
            series.push(Line {
                name: format!("{name}: WA {:.1}, {:.3} reads", point[0], point[1]),
                points: cross(point[2], point[0]),
                is_reference: false,
            });
            if best.is_none_or(|best| excess(&point) < excess(&best)) {
                best = Some(point);
            }
        }
        for (name, memory, amplification) in
            [("LSM-trie, 1.05 reads", 2.0, 5.0), ("SILT, 1.01 reads", 0.7, 5.4)]
        {
            let points = cross(memory, amplification);
            series.push(Line { name: name.to_owned(), points, is_reference: true });
        }
        let [amplification, reads, memory] = best.unwrap_or([f64::NAN; 3]);
        let of = |what: &str| format!("{what}, of the setting closest to all three");
        let checks = vec![
            bar("trie-frontier", "write-amplification")
                .check(of("write amplification, log included"), amplification),
            bar("trie-frontier", "reads").check(of("reads per lookup"), reads),
            bar("trie-frontier", "memory").check(of("bytes per key in memory"), memory),
        ];
        let plot = Lines {
            title: "Settings of the last level".to_owned(),
            x: "bytes per key in memory".to_owned(),
            y: "write amplification".to_owned(),
            series,
        };
        Ok(Measurement { scale: load.words(), checks, plot: Some(Plot::Lines(plot)) })
    }
}

/// A point, drawn as a small cross, because charts only have lines.
fn cross(x: f64, y: f64) -> Vec<(f64, f64)> {
    let (w, h) = (0.02, 0.06);
    vec![(x - w, y), (x + w, y), (x, y), (x, y + h), (x, y - h)]
}

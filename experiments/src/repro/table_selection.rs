//! `table-selection`: round-robin compaction against compaction of the largest table first.
//!
//! The same design twice in the simulator: LevelDB's selection of the next table in key order, and
//! RocksDB 3.9's of the largest. The thesis measured both in RocksDB itself and found round-robin
//! up to 32.2 % cheaper; a simulator only has the selection, without other effects of RocksDB, and
//! finds up to 21 %: the trend, and two thirds of the size. (17 % if tables of the same number of
//! items are chosen at random instead of in key order.)
//!
//! Invariant: the runs differ only in the selection of tables.
//!
//! Source: Lim, thesis (2015), section 4.7, figure 4.17.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;
use siltstone_model::simulate::{Selection, Simulation};

use super::bars::bar;
use super::thesis::{
    ITEM_BYTES, KEYS_AXIS, PAPER, Parts, SKEWS, on_keys_axis, simulated_counts, standard,
};
use super::{Experiment, Measurement, model_error};

pub(super) struct TableSelection;

impl Experiment for TableSelection {
    fn id(&self) -> &'static str {
        "table-selection"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 4.17"
    }

    fn claim(&self) -> &'static str {
        "compacting tables in turn writes up to 32.2 % less than the largest first"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "the simulator has the selection alone, and RocksDB more: the thesis measured \
             RocksDB itself",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let counts = simulated_counts(scale);
        let mut parts = Parts::new(2 * SKEWS.len() * counts.len(), progress);
        let mut series = Vec::new();
        let mut saved = Vec::new();
        for (name, skew) in SKEWS {
            let (mut in_turn, mut largest) = (Vec::new(), Vec::new());
            for &keys in &counts {
                for (line, selection) in
                    [(&mut in_turn, Selection::RoundRobin), (&mut largest, Selection::Largest)]
                {
                    let design = standard(keys)?;
                    let simulation = Simulation {
                        selection,
                        ..Simulation::standard(design, keys as u32, skew, ITEM_BYTES)
                    };
                    let wa =
                        parts.next(|progress| simulation.run(progress)).map_err(model_error)?;
                    line.push((on_keys_axis(keys), wa.total()));
                }
            }
            saved.extend(
                in_turn.iter().zip(&largest).map(|(turn, largest)| 1.0 - turn.1 / largest.1),
            );
            for (kind, points, is_reference) in
                [("in turn", in_turn, false), ("largest", largest, true)]
            {
                series.push(Line { name: format!("{name}, {kind}"), points, is_reference });
            }
        }
        let checks = vec![
            bar("table-selection", "maximum").check(
                "maximal saving of round-robin selection",
                saved.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ),
            bar("table-selection", "saves").check(
                "share of runs in which it saves",
                saved.iter().filter(|saved| **saved > 0.0).count() as f64 / saved.len() as f64,
            ),
        ];
        let lines = Lines {
            title: "Which table is compacted next".to_owned(),
            x: KEYS_AXIS.to_owned(),
            y: "write amplification".to_owned(),
            series,
        };
        let max = counts.last().copied().unwrap_or_default();
        Ok(Measurement {
            scale: format!("simulator, to {max:.1e} keys"),
            checks,
            plot: Some(Plot::Lines(lines)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repro::{Verdict, run};

    #[test]
    fn the_direction_holds() {
        let finding = run(&TableSelection, 0.3, 1, &mut |_, _| ()).unwrap();
        assert!(finding.verdict <= Verdict::TrendOnly, "{:?}", finding.checks);
    }
}

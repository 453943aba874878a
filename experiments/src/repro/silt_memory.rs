//! `silt-memory`: maximal memory per entry while half of the entries are inserted.
//!
//! As in the thesis, a table of N/2 entries receives N/2 new entries, and memory by structure is
//! sampled with every batch: LogStores (two during a conversion), filters of HashStores, indexes of
//! SortedStores. The chart shows it over the insertion. Once with every entry in the trie, as in
//! the thesis, and once with blocks of 4 KiB. The memory of a running merge (its sort buffer and
//! the index under construction) is not included, as in equation 2.7.
//!
//! Source: Lim, thesis (2015), section 2.5.1 (memory overhead) and equation 2.7.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_bench::engines::Storage;
use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{ManualClock, Result};
use siltstone_runtime::Env;

use super::bars::bar;
use super::silt_table::{PAPER, SiltTable, keys, options};
use super::{Experiment, Measurement};

/// Slots per table at scale 1.
const SLOTS: f64 = 1024.0;
/// Points per line of the chart.
const STEPS: f64 = 400.0;

pub(super) struct SiltMemory;

impl Experiment for SiltMemory {
    fn id(&self) -> &'static str {
        "silt-memory"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 2.5.1, memory overhead"
    }

    fn claim(&self) -> &'static str {
        "at most 0.69 bytes of memory per entry while 50 M entries are inserted into 50 M"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let slots = ((SLOTS * scale).max(64.0) as u64).next_power_of_two();
        let total = keys(slots as f64);
        let (mut checks, mut parts, mut growths) = (Vec::new(), Vec::new(), Vec::new());
        for (at, (name, block)) in
            [("every entry in the trie", "1"), ("blocks of 4 KiB", "4KiB")].into_iter().enumerate()
        {
            let growth = Growth::measure(&[("block_size", block)], slots, total, &mut |done| {
                progress(at as u64 * total + done, 2 * total);
            })?;
            let peak = growth.peak();
            let share = |(structure, bytes): (&&str, &f64)| format!("{structure} {bytes:.3}");
            let shares: Vec<_> = peak.parts.iter().map(share).collect();
            parts.push(format!("{name}: {}", shares.join(", ")));
            checks.push(
                bar("silt-memory", "bytes")
                    .check(format!("{name}: maximal bytes of memory per entry"), peak.bytes()),
            );
            growths.push(growth);
        }
        let parts = parts.join("; ");
        Ok(Measurement {
            scale: format!("{total} entries of 20 + 1000 bytes, half of them inserted; {parts}"),
            checks,
            plot: growths.first().map(|growth| Plot::Lines(growth.by_structure())),
        })
    }
}

/// Memory while the second half of the entries is inserted.
pub(super) struct Growth {
    moments: Vec<Sample>,
}

/// A sample of memory, in bytes per entry of the final table.
#[derive(Debug, Clone, Default)]
pub(super) struct Sample {
    /// Inserted entries, as a share of the initial ones.
    inserted: f64,
    parts: BTreeMap<&'static str, f64>,
}

impl Sample {
    /// Total bytes per entry.
    pub(super) fn bytes(&self) -> f64 {
        self.parts.values().sum()
    }
}

impl Growth {
    /// Fills a table with half of `total` entries and samples memory while the others are inserted.
    /// `more` are options in addition to those of all experiments.
    ///
    /// # Errors
    /// Errors of the engine.
    pub(super) fn measure(
        more: &[(&str, &str)],
        slots: u64,
        total: u64,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self> {
        let env = Env::replayable(Arc::new(ManualClock::at(0)), 1);
        let table = SiltTable::open(options(slots, more), Storage::Ram, env)?;
        let half = total / 2;
        table.put(0..half, |done| {
            progress(done);
            table.engine().maintain()
        })?;
        let mut moments: Vec<Sample> = Vec::new();
        table.put(half..total, |done| {
            progress(half + done);
            let parts = table.stats().memory.into_iter();
            let parts = parts.map(|(part, bytes)| (part, bytes as f64 / total as f64)).collect();
            let moment = Sample { inserted: done as f64 / half as f64, parts };
            // The sample with the largest memory of each step.
            let step = (moment.inserted * STEPS).ceil() as usize;
            if moments.len() < step {
                moments.push(moment);
            } else if let Some(last) = moments.last_mut().filter(|l| l.bytes() < moment.bytes()) {
                *last = moment;
            }
            table.engine().maintain()
        })?;
        Ok(Growth { moments })
    }

    /// The sample with the largest memory.
    pub(super) fn peak(&self) -> Sample {
        let moments = self.moments.iter();
        moments.max_by(|a, b| a.bytes().total_cmp(&b.bytes())).cloned().unwrap_or_default()
    }

    /// Total memory over the insertion.
    pub(super) fn line(&self, name: &str) -> Line {
        self.line_of(name, Sample::bytes)
    }

    /// A chart of the memory of every structure over the insertion.
    fn by_structure(&self) -> Lines {
        let structures = self.moments.first().map_or(Vec::new(), |first| {
            first.parts.keys().map(|&part| (part, part.replace('_', " "))).collect()
        });
        let of = |(part, name): &(&str, String)| self.line_of(name, |moment| moment.parts[part]);
        let mut series: Vec<Line> = structures.iter().map(of).collect();
        series.push(self.line("all"));
        memory_chart("SILT: memory while half of the entries are inserted", series)
    }

    fn line_of(&self, name: &str, bytes: impl Fn(&Sample) -> f64) -> Line {
        let points = self.moments.iter().map(|moment| (moment.inserted, bytes(moment))).collect();
        Line { name: name.to_owned(), points, is_reference: false }
    }
}

/// Lines of memory over the insertion.
pub(super) fn memory_chart(title: &str, series: Vec<Line>) -> Lines {
    Lines {
        title: title.to_owned(),
        x: "entries inserted per initial entry".to_owned(),
        y: "bytes per entry".to_owned(),
        series,
    }
}

//! `skimpy-throughput`: operations per second of the three mappings by share of puts.
//!
//! With puts only, VFTL needs less device time per operation (31.7 µs, SkimpyFTL 36.4) but waits
//! more: its channels are 76 % busy, SkimpyFTL's 90 %, whose pages are written to idle channels.
//! Two stacked logs cost VFTL little here: both write the channels page by page and have blocks of
//! one size, so the upper log overwrites whole blocks of the lower one, and almost nothing is left
//! to copy. With gets among the operations, a part of SkimpyFTL's gain is memory: gets find the
//! newest records in 16 buffered pages, where the others have one, as in the paper. A VFTL with as
//! many would be ahead at 10 and 25 % puts.
//!
//! The report has the device time by cause, also of VFTL with uncoordinated logs, as in the paper.
//! The verdict is about VFTL with coordinated logs and one buffered page, which is faster. A mix of
//! gets only is run on several placements of the keys. Every mix is run on devices conditioned in
//! the same way, with Zipf 0.99, five keys per bucket and a cache of a tenth of the keys;
//! collection that a mix needs runs during the mix.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 5 and section 4.1.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::{Bar, bar};
use super::skimpy_flash::{
    FlashTable, KEYS, MIN_KEYS, PAPER, PARTS, Run, VFTL_BUFFERED, VFTL_UNCOORDINATED,
};
use super::{Check, Experiment, Measurement};

pub(super) const MIXES: [u32; 6] = [0, 10, 25, 50, 75, 100];
pub(super) const MAPPINGS: [&str; 3] = ["semel", "skimpy", "vftl"];
/// Other variants of VFTL, which are reported but not judged.
const OTHERS: [(&str, &str); 2] = [
    (
        VFTL_UNCOORDINATED,
        "VFTL with uncoordinated logs (the lower one writes to the least-loaded channel)",
    ),
    (VFTL_BUFFERED, "VFTL with as many buffered pages as SkimpyFTL"),
];
/// SkimpyFTL's share of SEMEL against the bar for mixes that mostly read, or that for the others.
pub(super) fn share_of_semel(
    [read, written]: [&'static Bar; 2],
    what: String,
    puts: u32,
    ours: f64,
) -> Check {
    if puts > 25 { written.check(what, ours) } else { read.check(what, ours) }
}

pub(super) struct SkimpyThroughput;

impl Experiment for SkimpyThroughput {
    fn id(&self) -> &'static str {
        "skimpy-throughput"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 5, section 4.1"
    }

    fn claim(&self) -> &'static str {
        "72 % to 91 % of SEMEL's throughput for read-dominant mixes, and more than VFTL's at every mix"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "SkimpyFTL keeps the channels busier, as the size states: it gathers 16 pages and holds \
             records, which the paper's does not",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let keys = ((KEYS * scale) as u64).max(MIN_KEYS);
        let mut rates = vec![Vec::new(); MAPPINGS.len()];
        let mut notes = Vec::new();
        each_mix(&MAPPINGS, keys, progress, |at, puts, run| {
            let mapping = MAPPINGS[at];
            rates[at].push(run.per_second);
            notes.push(format!("{mapping} at {puts} % puts: {}", run.device.summary()));
            if mapping == "skimpy" && puts == 0 {
                let (hits, reads) = (100.0 * run.hit_rate, run.reads_per_get);
                notes.push(format!("{hits:.1} % hits, {reads:.2} page reads per get at 0 % puts"));
            }
        })?;
        let mut others = vec![Vec::new(); OTHERS.len()];
        let names = OTHERS.map(|(mapping, _)| mapping);
        each_mix(&names, keys, progress, |at, _, run| others[at].push(run.per_second))?;
        let mut checks = Vec::new();
        for (mix, puts) in MIXES.iter().enumerate() {
            let [semel, skimpy, vftl] = [0, 1, 2].map(|at: usize| rates[at][mix]);
            let what = format!("SkimpyFTL's throughput over SEMEL's, {puts} % puts");
            let bars =
                [bar("skimpy-throughput", "share"), bar("skimpy-throughput", "share-of-puts")];
            checks.push(share_of_semel(bars, what, *puts, skimpy / semel));
            checks.push(bar("skimpy-throughput", "over-vftl").check(
                format!("SkimpyFTL's throughput over VFTL's, {puts} % puts"),
                skimpy / vftl,
            ));
        }
        let series = MAPPINGS.iter().zip(&rates).map(|(mapping, rates)| Line {
            name: (*mapping).to_owned(),
            points: MIXES.iter().zip(rates).map(|(mix, rate)| (f64::from(*mix), *rate)).collect(),
            is_reference: false,
        });
        let plot = Lines {
            title: "Throughput of the mappings".to_owned(),
            x: "puts, %".to_owned(),
            y: "operations per second".to_owned(),
            series: series.collect(),
        };
        let details = |name: &str, rates: &[f64]| {
            let rates: Vec<_> = rates.iter().map(|rate| format!("{:.0}", rate / 1e3)).collect();
            format!("{name} {} thousand per second", rates.join(" "))
        };
        notes.extend(MAPPINGS.iter().zip(&rates).map(|(mapping, rates)| details(mapping, rates)));
        for ((_, name), others) in OTHERS.iter().zip(&others) {
            let over =
                rates[1].iter().zip(others).map(|(ours, other)| format!("{:.2}", ours / other));
            let over = over.collect::<Vec<_>>().join(" ");
            notes.push(format!("not judged: {}, SkimpyFTL over it {over}", details(name, others)));
        }
        let scale = format!(
            "{keys} keys of 512 bytes, 128 clients; microseconds of device time per operation ({PARTS}): {}",
            notes.join("; ")
        );
        Ok(Measurement { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

/// Runs every mix on every mapping, and calls `each` with the mapping's index, the puts and the
/// run.
pub(super) fn each_mix(
    mappings: &[&str],
    keys: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut each: impl FnMut(usize, u32, &Run),
) -> Result<()> {
    let total = (mappings.len() * MIXES.len()) as u64;
    for (at, mapping) in mappings.iter().enumerate() {
        let mut table = FlashTable::open(mapping, keys, 5)?;
        table.condition()?;
        for (mix, puts) in MIXES.into_iter().enumerate() {
            // A warm-up brings the device into its steady state.
            table.run(puts, keys / 2)?;
            let run = match puts {
                0 => table.gets_of_places(2 * keys)?,
                _ => table.run(puts, 2 * keys)?,
            };
            each(at, puts, &run);
            progress((at * MIXES.len() + mix) as u64 + 1, total);
        }
    }
    Ok(())
}

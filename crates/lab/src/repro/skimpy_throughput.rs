//! `skimpy-throughput`: operations a second of the three mappings over the share of puts.
//!
//! With puts alone VFTL works less for an operation (31.7 µs of the device, SkimpyFTL 36.4) and waits more: its
//! channels are 76 % busy, SkimpyFTL's 90 %, whose pages go where nobody waits. Two logs one on the other cost VFTL
//! little here: both go round the lanes page by page and have blocks of one size, so the upper one overwrites the lower
//! one's blocks whole, and next to nothing is left in them to copy. Where gets are among the operations, a part of what
//! SkimpyFTL gains by sorting is memory: they find the newest records in 16 pages that wait, where the others have one,
//! as in the paper. A VFTL that gathered as many would be ahead with 10 and 25 % puts.
//!
//! It tells what the device's time goes into, and what VFTL does so, and where its two logs know nothing of each
//! other, as the paper has it: judged is the one whose logs go alike, which is the faster, with a page that waits. A mix of gets alone is run on several placements of the keys.
//! Every mix is run on devices that were conditioned alike, with Zipf 0.99, five keys a bucket and a cache
//! of a tenth of the keys; what a mix needs collected is collected while it runs.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 5 and section 4.1.

use siltstone_engine::Result;

use super::skimpy_flash::{
    FlashTable, KEYS, LEAST_KEYS, PAPER, PARTS, Run, VFTL_APART, VFTL_GATHERS,
};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

pub(super) const MIXES: [u32; 6] = [0, 10, 25, 50, 75, 100];
pub(super) const MAPPINGS: [&str; 3] = ["semel", "skimpy", "vftl"];
/// What VFTL would do otherwise: told, not judged.
const OTHERS: [(&str, &str); 2] = [
    (
        VFTL_APART,
        "VFTL whose two logs know nothing of each other (the lower one's pages go to the idlest lane)",
    ),
    (VFTL_GATHERS, "VFTL that gathers as many pages in memory as SkimpyFTL sorts"),
];
/// The paper's least and its best, of SEMEL's throughput.
pub(super) const LEAST: f64 = 0.72;

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

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = ((KEYS * scale) as u64).max(LEAST_KEYS);
        let mut rates = vec![Vec::new(); MAPPINGS.len()];
        let mut notes = Vec::new();
        each_mix(&MAPPINGS, keys, progress, |at, puts, run| {
            let mapping = MAPPINGS[at];
            rates[at].push(run.per_second);
            notes.push(format!("{mapping} at {puts} % puts: {}", run.device.told()));
            if mapping == "skimpy" && puts == 0 {
                let (hits, reads) = (100.0 * run.hit_rate, run.reads_per_get);
                notes.push(format!("{hits:.1} % hits, {reads:.2} page reads a get at 0 % puts"));
            }
        })?;
        let mut others = vec![Vec::new(); OTHERS.len()];
        let names = OTHERS.map(|(mapping, _)| mapping);
        each_mix(&names, keys, progress, |at, _, run| others[at].push(run.per_second))?;
        let mut checks = Vec::new();
        for (mix, puts) in MIXES.iter().enumerate() {
            let [semel, skimpy, vftl] = [0, 1, 2].map(|at: usize| rates[at][mix]);
            checks.push(Check {
                what: format!("SkimpyFTL's throughput over SEMEL's, {puts} % puts"),
                claimed: LEAST,
                ours: skimpy / semel,
                tolerance: 0.0,
                direction: Direction::AtLeast(LEAST),
            });
            checks.push(Check {
                what: format!("SkimpyFTL's throughput over VFTL's, {puts} % puts"),
                claimed: 1.0,
                ours: skimpy / vftl,
                tolerance: 0.0,
                direction: Direction::AtLeast(1.0),
            });
        }
        let series = MAPPINGS.iter().zip(&rates).map(|(mapping, rates)| Line {
            name: (*mapping).to_owned(),
            points: MIXES.iter().zip(rates).map(|(mix, rate)| (f64::from(*mix), *rate)).collect(),
            is_reference: false,
        });
        let plot = Lines {
            title: "Throughput of the mappings".to_owned(),
            x: "puts, %".to_owned(),
            y: "operations a second".to_owned(),
            series: series.collect(),
        };
        let told = |name: &str, rates: &[f64]| {
            let rates: Vec<_> = rates.iter().map(|rate| format!("{:.0}", rate / 1e3)).collect();
            format!("{name} {} thousand a second", rates.join(" "))
        };
        notes.extend(MAPPINGS.iter().zip(&rates).map(|(mapping, rates)| told(mapping, rates)));
        for ((_, name), others) in OTHERS.iter().zip(&others) {
            let over =
                rates[1].iter().zip(others).map(|(ours, other)| format!("{:.2}", ours / other));
            let over = over.collect::<Vec<_>>().join(" ");
            notes.push(format!("not judged: {}, SkimpyFTL over it {over}", told(name, others)));
        }
        let scale = format!(
            "{keys} keys of 512 bytes, 128 clients; microseconds of the device an operation ({PARTS}): {}",
            notes.join("; ")
        );
        Ok(Measured { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

/// Runs every mix on every mapping, and shows what was measured: the mapping's place, the puts, the run.
pub(super) fn each_mix(
    mappings: &[&str],
    keys: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut see: impl FnMut(usize, u32, &Run),
) -> Result<()> {
    let total = (mappings.len() * MIXES.len()) as u64;
    for (at, mapping) in mappings.iter().enumerate() {
        let mut table = FlashTable::open(mapping, keys, 5)?;
        table.condition()?;
        for (mix, puts) in MIXES.into_iter().enumerate() {
            // A part of the mix brings the device into its balance, and is not counted.
            table.run(puts, keys / 2)?;
            let run = match puts {
                0 => table.gets_of_places(2 * keys)?,
                _ => table.run(puts, 2 * keys)?,
            };
            see(at, puts, &run);
            progress((at * MIXES.len() + mix) as u64 + 1, total);
        }
    }
    Ok(())
}

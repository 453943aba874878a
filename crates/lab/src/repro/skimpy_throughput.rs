//! `skimpy-throughput`: operations a second of the three mappings over the share of puts.
//!
//! It tells what the device's time goes into. A mix of gets alone is run on several placements of the keys.
//! Every mix is run on devices that were conditioned alike, with Zipf 0.99, five keys a bucket and a cache
//! of a tenth of the keys; what a mix needs collected is collected while it runs.
//!
//! Invariant: one seed, virtual time: the numbers are the same on every machine.
//!
//! Source: SkimpyFTL paper, figure 5 and section 4.1.

use siltstone_engine::Result;

use super::skimpy_flash::{FlashTable, KEYS, LEAST_KEYS, PAPER, PARTS, Run};
use super::{Check, Direction, Experiment, Measured};
use crate::plot::{Line, Lines, Plot};

pub(super) const MIXES: [u32; 6] = [0, 10, 25, 50, 75, 100];
pub(super) const MAPPINGS: [&str; 3] = ["semel", "skimpy", "vftl"];
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

    fn cause(&self) -> Option<&'static str> {
        Some(
            "an operation takes 1.2 times SEMEL's time of the device up to 25 % puts, 1.28 at 50 %, 1.37 at 75 %, 1.44 at \
             100 % (skimpy-account has it cause by cause): a get reads 1.14 to 1.2 pages, and collecting a bucket 3.3 with \
             puts alone. Taken in its turn, and not when pages at hand are of use for it, it would read 3.7: its \
             last copies 0.8, the newest version of each key that was put since 1.9, and one of a key that was put, left \
             the cache and was put again, 0.9. SEMEL reads the tail's pages, each once, with eight records. With many puts \
             the share of SEMEL's throughput is above that of the times because SEMEL's writers wait for one page of the \
             tail at a time, all on one channel, which leaves a quarter of the device idle. Two logs one on the other cost \
             VFTL little here: both have blocks of one size on one channel, and the upper one overwrites them in the order \
             in which the lower one wrote them, which therefore copies next to nothing. Its device is 70 to 76 % busy with \
             puts where ours is 82 to 89 %, and that makes up for no more than a part. Without puts the busiest channel \
             alone decides, and only SkimpyFTL moves the hot keys on it apart",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let keys = ((KEYS * scale) as u64).max(LEAST_KEYS);
        let mut rates = vec![Vec::new(); MAPPINGS.len()];
        let mut notes = Vec::new();
        each_mix(keys, progress, |at, puts, run| {
            let mapping = MAPPINGS[at];
            rates[at].push(run.per_second);
            notes.push(format!("{mapping} at {puts} % puts: {}", run.device.told()));
            if mapping == "skimpy" && puts == 0 {
                let (hits, reads) = (100.0 * run.hit_rate, run.reads_per_get);
                notes.push(format!("{hits:.1} % hits, {reads:.2} page reads a get at 0 % puts"));
            }
        })?;
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
        let rate = |at: usize| rates[at].iter().map(|rate| format!("{:.0}", rate / 1e3));
        let told = MAPPINGS.iter().enumerate().map(|(at, mapping)| {
            format!("{mapping} {} thousand a second", rate(at).collect::<Vec<_>>().join(" "))
        });
        notes.extend(told);
        let scale = format!(
            "{keys} keys of 512 bytes, 128 clients; microseconds of the device an operation ({PARTS}): {}",
            notes.join("; ")
        );
        Ok(Measured { scale, checks, plot: Some(Plot::Lines(plot)) })
    }
}

/// Runs every mix on every mapping, and shows what was measured: the mapping's place, the puts, the run.
pub(super) fn each_mix(
    keys: u64,
    progress: &mut dyn FnMut(u64, u64),
    mut see: impl FnMut(usize, u32, &Run),
) -> Result<()> {
    let total = (MAPPINGS.len() * MIXES.len()) as u64;
    for (at, mapping) in MAPPINGS.iter().enumerate() {
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

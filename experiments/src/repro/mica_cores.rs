//! `mica-cores`: the gain of a second core, and the cost of skew for each core.
//!
//! In process, under EREW: one thread per core, each with two of four partitions; a single thread
//! has all four. The thesis's figures are of 16 cores behind a network, whose text says "nearly
//! linearly"; here server and load would have to share two cores, so no network is involved.
//!
//! Invariant: both loads alternate on one store, for several rounds, and each is judged by its best
//! round.
//!
//! Source: Lim, thesis (2015), sections 5.4.2 and 5.4.4, figures 5.11 and 5.14.

use siltstone_engine::Result;

use super::bars::bar;
use super::mica_bench::{Load, PAPER, filled, rates};
use super::{Experiment, Measurement};

const ITEMS: f64 = (8 << 20) as f64;
const ROUNDS: usize = 3;
/// Seconds per turn; a round has three turns.
const SECONDS: f64 = 0.4;

pub(super) struct MicaCores;

impl Experiment for MicaCores {
    fn id(&self) -> &'static str {
        "mica-cores"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figures 5.11 and 5.14"
    }

    fn claim(&self) -> &'static str {
        "throughput grows nearly linearly with cores, skewed, at 50 and 95 % GET; no core does less than 86 % for \
         skew"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let memory = items * 60 + (16 << 20);
        let text = format!("mode=cache memory={memory} item=16 partitions=4 hash_seed=1");
        let store = filled(&text, items)?;
        let load = |skew, gets, threads| Load { items, skew, gets, threads };
        // One core and two at 50 and 95 % GET, and two without skew: the best round of each core.
        let loads = [
            load(0.99, 0.5, 1),
            load(0.99, 0.5, 2),
            load(0.99, 0.95, 1),
            load(0.99, 0.95, 2),
            load(0.0, 0.5, 2),
        ];
        let mut best = [const { Vec::new() }; 5];
        for round in 0..ROUNDS {
            for (best, load) in best.iter_mut().zip(loads) {
                let rates = rates(&store, load, SECONDS)?;
                best.resize(rates.len(), 0.0);
                for (best, rate) in best.iter_mut().zip(rates) {
                    *best = f64::max(*best, rate / 1e6);
                }
            }
            progress(round as u64 + 1, ROUNDS as u64);
        }
        let sum = |at: usize| best[at].iter().sum::<f64>();
        let mut checks = Vec::new();
        for (at, gets) in [(0, 50), (2, 95)] {
            checks.push(bar("mica-cores", "two-cores").check(
                format!(
                    "times one core by two, Zipf 0.99, {gets} % GET ({:.1}, {:.1} M/s)",
                    sum(at),
                    sum(at + 1)
                ),
                sum(at + 1) / sum(at),
            ));
        }
        for (core, (skewed, uniform)) in best[1].iter().zip(&best[4]).enumerate() {
            checks.push(bar("mica-cores", "skewed").check(
                format!("core {core}, skewed against uniform ({skewed:.1}, {uniform:.1} M/s)"),
                skewed / uniform,
            ));
        }
        let scale = format!("{items} items of 8 + 8 bytes, 4 partitions, in process");
        Ok(Measurement { scale, checks, plot: None })
    }
}

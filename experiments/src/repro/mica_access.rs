//! `mica-access`: the benefit of exclusive access.
//!
//! Two threads on one store. Under EREW each serves the requests for its own partitions; under CREW
//! each looks up any key and writes to its own partitions; under CRCW each serves everything. The
//! thesis has 16 cores and a network in front of them; we have two cores, which share less between
//! each other.
//!
//! Invariant: the modes alternate on one store, in many short rounds, because other load on the
//! machine disturbs it for seconds, and each is judged by its best round.
//!
//! Source: Lim, thesis (2015), section 5.4.5 and figure 5.16.

use siltstone_engine::Result;
use siltstone_mica::Access;

use super::bars::bar;
use super::mica_bench::{Load, PAPER, filled, rates_of, requests};
use super::{Experiment, Measurement};

const ITEMS: f64 = (8 << 20) as f64;
const ROUNDS: usize = 12;
/// Seconds per turn; each mode has three per round.
const SECONDS: f64 = 0.15;
const MODES: [Access; 3] = [Access::Erew, Access::Crew, Access::Crcw];

pub(super) struct MicaAccess;

impl Experiment for MicaAccess {
    fn id(&self) -> &'static str {
        "mica-access"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 5.16"
    }

    fn claim(&self) -> &'static str {
        "with 50 % GET, EREW is not slower than CREW, nor CREW than CRCW, uniform and skewed"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let memory = items * 60 + (16 << 20);
        let text = format!("mode=cache memory={memory} item=16 partitions=4 hash_seed=1");
        let store = filled(&text, items)?;
        let mut checks = Vec::new();
        for (turn, (name, skew)) in (0..).zip([("uniform", 0.0), ("Zipf 0.99", 0.99)]) {
            let load = Load { items, skew, gets: 0.5, threads: 2 };
            let ready = MODES.map(|access| {
                store.set_access(access);
                [0, 1].map(|thread| requests(&store, load, thread))
            });
            let mut best = [0f64; 3];
            for _ in 0..ROUNDS {
                for ((best, access), ready) in best.iter_mut().zip(MODES).zip(&ready) {
                    store.set_access(access);
                    let rates = rates_of(&store, ready, SECONDS)?;
                    *best = best.max(rates.iter().sum::<f64>() / 1e6);
                }
            }
            let [erew, crew, crcw] = best;
            for (pair, ratio) in [("EREW over CREW", erew / crew), ("CREW over CRCW", crew / crcw)]
            {
                checks.push(
                    bar("mica-access", "modes").check(
                        format!("{pair}, {name} ({erew:.1}, {crew:.1}, {crcw:.1} M/s)"),
                        ratio,
                    ),
                );
            }
            progress(turn + 1, 2);
        }
        let scale = format!("{items} items of 8 + 8 bytes, 2 threads, 4 partitions");
        Ok(Measurement { scale, checks, plot: None })
    }
}

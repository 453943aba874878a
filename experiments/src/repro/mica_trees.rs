//! `mica-trees`: a partition of `mica` compared with an ordered tree on one core.
//!
//! The thesis uses Masstree, one instance per core with its support for concurrent access disabled,
//! behind MICA's own network. Masstree was not available, so the standard library's B-tree replaces
//! it, with keys as integers, as Masstree compares them: in process, one thread, no network.
//!
//! So the thesis's numbers are those of another tree, and only the trend can be confirmed:
//! partitioning alone does not make a structure fast.
//!
//! Invariant: both get the same requests, and every response is checked.
//!
//! Source: Lim, thesis (2015), section 5.4.5 and table 5.2.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;

use siltstone_engine::{Error, Result};

use super::bars::bar;
use super::mica_bench::{Load, PAPER, PreparedRequests, filled, rates_of, requests};
use super::{Experiment, Measurement};

const ITEMS: f64 = (8 << 20) as f64;
const ROUNDS: u64 = 3;
const SECONDS: f64 = 0.5;
/// Requests between two readings of the clock.
const CHUNK: usize = 2048;

pub(super) struct MicaTrees;

impl Experiment for MicaTrees {
    fn id(&self) -> &'static str {
        "mica-trees"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "table 5.2"
    }

    fn claim(&self) -> &'static str {
        "partitioned Masstree reaches 8.2 % (50 % GET) and 27.3 % (95 % GET) of MICA, skewed; here a B-tree"
    }

    fn cause(&self) -> Option<&'static str> {
        Some(
            "the tree is the standard library's instead of Masstree, and there is no network: \
             only the trend of the thesis's numbers can be confirmed",
        )
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let memory = items * 60 + (8 << 20);
        let text = format!("mode=cache memory={memory} item=16 partitions=1 hash_seed=1");
        let store = filled(&text, items)?;
        let mut tree: BTreeMap<u64, [u8; 8]> =
            (0..items).map(|item| (ordered(item.to_le_bytes()), item.to_le_bytes())).collect();
        let mut checks = Vec::new();
        let mixes = [(0.5, bar("mica-trees", "gets-50")), (0.95, bar("mica-trees", "gets-95"))];
        for (turn, (gets, bar)) in (0..).zip(mixes) {
            let load = Load { items, skew: 0.99, gets, threads: 1 };
            let ready = [requests(&store, load, 0)];
            let (mut ours, mut trees) = (0f64, 0f64);
            for round in 0..ROUNDS {
                ours = rates_of(&store, &ready, SECONDS)?.into_iter().fold(ours, f64::max);
                trees = trees.max(measure(&mut tree, &ready[0])?);
                progress(turn * ROUNDS + round + 1, 2 * ROUNDS);
            }
            checks.push(bar.check(
                format!(
                    "an ordered tree against mica, Zipf 0.99, {} % GET ({:.2}, {:.2} M/s)",
                    gets * 100.0,
                    trees / 1e6,
                    ours / 1e6
                ),
                trees / ours,
            ));
        }
        Ok(Measurement {
            scale: format!("{items} items of 8 + 8 bytes, one core, in process"),
            checks,
            plot: None,
        })
    }
}

/// The integer with the same order as the key's bytes.
fn ordered(key: [u8; 8]) -> u64 {
    u64::from_be_bytes(key)
}

/// Operations per second, the best of three runs.
fn measure(tree: &mut BTreeMap<u64, [u8; 8]>, ready: &PreparedRequests) -> Result<f64> {
    let mut best = 0f64;
    for _ in 0..3 {
        let (begin, mut done, mut wrong) = (Instant::now(), 0, 0);
        let mut some = ready.chunks_exact(CHUNK).cycle();
        while begin.elapsed().as_secs_f64() < SECONDS {
            let Some(some) = some.next() else { break };
            for (key, is_get) in some {
                let at = ordered(*key);
                match is_get {
                    true => wrong += usize::from(black_box(tree.get(&at)) != Some(key)),
                    false => drop(tree.insert(at, *key)),
                }
            }
            done += some.len();
        }
        if wrong > 0 {
            return Err(Error::Invalid(format!("{wrong} of {done} responses are wrong")));
        }
        best = best.max(done as f64 / begin.elapsed().as_secs_f64());
    }
    Ok(best)
}

//! `mica-prefetch`: throughput by the distance between the stages of a burst.
//!
//! A burst handles its requests in stages: it prefetches a request's bucket, some requests later
//! its item, and some requests later answers it. The option `prefetch_distance` is that number of
//! requests. At 1 there is nearly no time between a prefetch and the access, so nearly every access
//! waits for memory.
//!
//! Invariant: the stores differ in that option alone, and run the same requests.
//!
//! Source: Lim, thesis (2015), section 5.4.1 (the load); the thesis has no measurement without
//! prefetching.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::Result;

use super::bars::bar;
use super::mica_bench::{Load, PAPER, filled, operations_per_second};
use super::{Experiment, Measurement};

/// Items at scale 1, 768 MiB in total.
const ITEMS: f64 = (24 << 20) as f64;
/// From nearly no prefetching to the largest distance; the default is 8.
const DISTANCES: [usize; 5] = [1, 2, 4, 8, 16];
const DEFAULT: usize = 3;

pub(super) struct MicaPrefetch;

impl Experiment for MicaPrefetch {
    fn id(&self) -> &'static str {
        "mica-prefetch"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "section 5.3.2"
    }

    fn claim(&self) -> &'static str {
        "prefetching ahead of a burst's accesses hides their time in memory: half as many requests \
         again, at least"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let memory = items * 60 + (8 << 20);
        let mut rates = Vec::new();
        for (turn, distance) in (0..).zip(DISTANCES) {
            progress(turn, DISTANCES.len() as u64);
            let text = format!(
                "mode=store memory={memory} expected_item_bytes=16 partitions=1 \
                 prefetch_distance={distance} experimental.hash_seed=1"
            );
            let store = filled(&text, items)?;
            let load = Load { items, skew: 0.0, gets: 0.95, threads: 1 };
            rates.push(operations_per_second(&store, load, 1.0)? / 1e6);
        }
        progress(DISTANCES.len() as u64, DISTANCES.len() as u64);
        let details: Vec<_> = DISTANCES.iter().zip(&rates).collect();
        let details: Vec<_> =
            details.iter().map(|(distance, rate)| format!("{distance}: {rate:.1}")).collect();
        let points = DISTANCES.iter().zip(&rates).map(|(&distance, &rate)| (distance as f64, rate));
        Ok(Measurement {
            scale: format!(
                "{items} items of 8 + 8 bytes, 95 % GET, one thread; M requests/s by distance: {}",
                details.join(", ")
            ),
            checks: vec![bar("mica-prefetch", "gain").check(
                format!("requests/s at distance {} over distance 1", DISTANCES[DEFAULT]),
                rates[DEFAULT] / rates[0],
            )],
            plot: Some(Plot::Lines(Lines {
                title: "Requests per second by prefetch distance, one core".to_owned(),
                x: "prefetch distance (requests)".to_owned(),
                y: "M requests/s".to_owned(),
                series: vec![Line {
                    name: "95 % GET, uniform".to_owned(),
                    points: points.collect(),
                    is_reference: false,
                }],
            })),
        })
    }
}

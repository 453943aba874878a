//! `mica-network`: over loopback against memcached and Redis, on one core each.
//!
//! The thesis runs all systems over its own network stack and without batches; over the kernel's,
//! what a packet costs would hide everything else, so all get the same batches: so many requests in a
//! packet or a write, so many of those at once. Server and load have a core each.
//!
//! memcached sends each answer to a pipelined `get` by itself, and gathers those to its meta commands,
//! which few clients speak yet: it is measured with both.
//!
//! Two things are told apart: what comes from MICA's own protocol (UDP, client-side hashing, bursts)
//! and what from the store, by our server under memcached's protocol as well.
//!
//! Invariant: all have the same keys, values, batches and clocks; every answer is looked at.
//!
//! Source: Lim, thesis (2015), sections 5.4.1 and 5.4.2.

use siltstone_engine::Result;

use super::mica_bench::PAPER;
use super::{Check, Direction, Experiment, Measured};
use crate::net::drivers::{Driver, Protocol};
use crate::net::servers::{Kind, Server};
use crate::net::{Load, stay_on};
use crate::plot::{Bars, Plot};

/// Items at scale 1.
const ITEMS: f64 = 1e6;
/// What each server may take for items, in MiB a million of them.
const MEMORY_MIB: f64 = 256.0;
const SECONDS: f64 = 2.0;

pub(super) struct MicaNetwork;

impl Experiment for MicaNetwork {
    fn id(&self) -> &'static str {
        "mica-network"
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 5.10, section 5.4.2"
    }

    fn claim(&self) -> &'static str {
        "at least 4 times the next best system, uniform and skewed, at 50 and 95 % GET"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        stay_on(1)?;
        let items = (ITEMS * scale) as u64;
        let memory = (MEMORY_MIB * scale).ceil() as u64 + 64;
        let load = Load { items, skew: 0.0, gets: 0.5, batch: 64, window: 16, windows: 16 };
        let ours = Kind::Ours { ports: 1, any_port: false };
        let subjects = [
            ("mica over UDP", ours, Protocol::Udp),
            ("mica over memcached's protocol", ours, Protocol::Memcached),
            ("mica over memcached's meta commands", ours, Protocol::MemcachedMeta),
            ("memcached", Kind::Memcached, Protocol::Memcached),
            ("memcached's meta commands", Kind::Memcached, Protocol::MemcachedMeta),
            ("Redis", Kind::Redis, Protocol::Redis),
        ];
        let cases = [(0.0, 0.5), (0.0, 0.95), (0.99, 0.5), (0.99, 0.95)];
        let mut rates = vec![Vec::new(); subjects.len()];
        for (turn, ((_, kind, protocol), rates)) in (0..).zip(subjects.iter().zip(&mut rates)) {
            let server = Server::start(*kind, "0", 1, memory)?;
            let mut driver = Driver::connect(&server, *protocol, load)?;
            driver.fill(load)?;
            for (skew, gets) in cases {
                let load = Load { skew, gets, ..load };
                // The better of two turns: the machine is not ours alone.
                let first = driver.run(load, SECONDS / 2.0)?.rate;
                rates.push(first.max(driver.run(load, SECONDS / 2.0)?.rate));
            }
            progress(turn + 1, subjects.len() as u64);
        }
        let mut checks = Vec::new();
        for (at, (skew, gets)) in cases.into_iter().enumerate() {
            let draw = if skew == 0.0 { "uniform" } else { "Zipf 0.99" };
            for (peer, (name, ..)) in subjects.iter().enumerate().skip(3) {
                checks.push(Check {
                    what: format!("times {name}, {draw}, {} % GET", gets * 100.0),
                    claimed: 4.0,
                    ours: rates[0][at] / rates[peer][at],
                    tolerance: 0.0,
                    direction: Direction::AtLeast(4.0),
                });
            }
        }
        let groups = cases.map(|(skew, gets)| {
            format!("{} {} %", if skew == 0.0 { "uniform" } else { "Zipf" }, gets * 100.0)
        });
        let told: Vec<_> = subjects
            .iter()
            .zip(&rates)
            .map(|((name, ..), rates)| {
                let rates: Vec<_> = rates.iter().map(|rate| format!("{:.2}", rate / 1e6)).collect();
                format!("{name} {}", rates.join(" "))
            })
            .collect();
        let plot = Plot::Bars(Bars {
            title: "Operations over loopback, one core each".to_owned(),
            y: "millions a second".to_owned(),
            groups: groups.to_vec(),
            series: subjects
                .iter()
                .zip(&rates)
                .map(|((name, ..), rates)| {
                    ((*name).to_owned(), rates.iter().map(|rate| rate / 1e6).collect())
                })
                .collect(),
        });
        let scale = format!(
            "{items} items of 8 + 8 bytes, batches of {}, {} at once; M operations/s ({}): {}",
            load.batch,
            load.window,
            groups.join(", "),
            told.join("; ")
        );
        Ok(Measured { scale, checks, plot: Some(plot) })
    }
}

//! `mica-latency`: latency of a response by operations per second; `mica-latency-past`: with kernel
//! bypass (AF_XDP), over a pair of virtual interfaces, with memcached still over loopback.
//!
//! The load sends 1, 2, 4, … batches at once and awaits them all, so load and latency rise
//! together. The figure shows two curves; the compared number is our throughput at the latency that
//! memcached has at its maximal throughput.
//!
//! memcached is measured with its meta commands, which it serves faster (see `mica-network`).
//!
//! Invariant: the latency of a batch is the time from the start of its round to its last response,
//! in both.
//!
//! Source: Lim, thesis (2015), section 5.4.3 and figure 5.13.

use siltstone_bench::plot::{Line, Lines, Plot};
use siltstone_engine::{Error, Result};

use super::bars::bar;
use super::mica_bench::PAPER;
use super::{Experiment, Measurement};
use crate::net::draws::Sizes;
use crate::net::drivers::{Driver, Protocol};
use crate::net::servers::{Between, GSO_SEGMENTS, Kind, Server, wire};
use crate::net::{Load, pin_to_core};

const ITEMS: f64 = 1e6;
const SECONDS: f64 = 1.0;
const WINDOWS: [usize; 6] = [1, 2, 4, 8, 16, 32];

pub(super) struct MicaLatency {
    pub(super) xdp: bool,
}

/// Operations per second, and microseconds at percentiles 50, 95, 99, 99.9.
type Point = (f64, [f64; 4]);

impl Experiment for MicaLatency {
    fn id(&self) -> &'static str {
        if self.xdp { "mica-latency-past" } else { "mica-latency" }
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 5.13"
    }

    fn claim(&self) -> &'static str {
        "at a similar latency far more operations per second than memcached (there two orders, past the \
         kernel; the bar here is 4 times)"
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let items = (ITEMS * scale) as u64;
        let wire = if self.xdp { Some(wire()?) } else { None };
        let between = wire.as_ref().map_or(Between::Loopback, Between::VethPair);
        let ours = Kind::Ours {
            ports: 1,
            item: 16,
            any_port: false,
            xdp: self.xdp,
            gso_segments: GSO_SEGMENTS,
        };
        let subjects = [
            (
                if self.xdp { "mica over AF_XDP" } else { "mica over UDP" },
                ours,
                Protocol::Udp,
                between,
            ),
            ("memcached", Kind::Memcached, Protocol::MemcachedMeta, Between::Loopback),
        ];
        let mut curves: Vec<Vec<Point>> = Vec::new();
        for (turn, (_, kind, protocol, between)) in (1..).zip(subjects) {
            // A separate thread, because entering a namespace is permanent.
            let curve = std::thread::scope(|scope| {
                let there = scope.spawn(|| curve(kind, protocol, between, items));
                there.join().map_err(|_| Error::Invalid("the load panicked".to_owned()))?
            });
            curves.push(curve?);
            progress(turn, 2);
        }
        let [ours, peer] = &curves[..] else {
            return Err(Error::Invalid("two curves are needed".to_owned()));
        };
        let max_rate = |curve: &[Point]| curve.iter().map(|point| point.0).fold(0.0, f64::max);
        // The first point within a tenth of memcached's maximum.
        let full = peer.iter().find(|point| point.0 >= 0.9 * max_rate(peer));
        let budget = full.map_or(0.0, |point| point.1[1]);
        let within: Vec<_> = ours.iter().filter(|point| point.1[1] <= budget).copied().collect();
        let bars = match self.xdp {
            true => [bar("mica-latency-past", "throughput"), bar("mica-latency-past", "one-batch")],
            false => [bar("mica-latency", "throughput"), bar("mica-latency", "one-batch")],
        };
        let checks = vec![
            bars[0].check(
                format!(
                    "times memcached's maximal throughput, at its 95th percentile of {budget:.0} µs"
                ),
                max_rate(&within) / max_rate(peer),
            ),
            bars[1].check(
                "95th percentile of one batch at a time, against memcached's",
                ours[0].1[1] / peer[0].1[1],
            ),
        ];
        let mut details = Vec::new();
        let mut series = Vec::new();
        for ((name, ..), curve) in subjects.iter().zip(&curves) {
            let points: Vec<_> = curve
                .iter()
                .map(|(rate, at)| {
                    let at = at.map(|micros| format!("{micros:.0}"));
                    format!("{:.2} M: {}", rate / 1e6, at.join("/"))
                })
                .collect();
            details.push(format!("{name} {}", points.join(", ")));
            for (index, percentile) in ["median", "95 %"].iter().enumerate() {
                let points = curve.iter().map(|(rate, at)| (rate / 1e6, at[index])).collect();
                let name = format!("{name}, {percentile}");
                series.push(Line { name, points, is_reference: false });
            }
        }
        let plot = Plot::Lines(Lines {
            title: "Latency of a batch of 32 over loopback".to_owned(),
            x: "millions of operations per second".to_owned(),
            y: "µs".to_owned(),
            series,
        });
        let scale = format!(
            "{items} items of 8 + 8 bytes, 50 % GET; operations/s: µs at 50/95/99/99.9 %: {}",
            details.join("; ")
        );
        Ok(Measurement { scale, checks, plot: Some(plot) })
    }
}

/// One point per number of batches in flight.
fn curve(kind: Kind, protocol: Protocol, between: Between<'_>, items: u64) -> Result<Vec<Point>> {
    between.enter()?;
    pin_to_core(1)?;
    let server = Server::start(kind, between, "0", 1, 320)?;
    let mut curve = Vec::new();
    for window in WINDOWS {
        let load =
            Load { items, sizes: Sizes::TINY, skew: 0.0, gets: 0.5, batch: 32, window, windows: 1 };
        let mut driver = Driver::connect(&server, protocol, load)?;
        if curve.is_empty() {
            driver.fill(load)?;
        }
        let measured = driver.run(load, SECONDS)?;
        let at = |quantile| measured.latency.value_at_quantile(quantile) as f64 / 1e3;
        curve.push((measured.rate, [0.5, 0.95, 0.99, 0.999].map(at)));
    }
    Ok(curve)
}

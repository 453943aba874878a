//! `mica-network`: over loopback against memcached and Redis, on one core each; `mica-small` and
//! `mica-large`: the same with the thesis's larger items; `mica-past`: past the kernel's network, over a pair of
//! virtual interfaces.
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
//! With larger items the thesis's network is full before MICA is, and the text has no numbers but its own: so
//! what is claimed of them is that it is still the fastest. Here bytes are copied by both ends' cores instead.
//!
//! Past the kernel means AF_XDP at both ends. The peers have the kernel's network, over the same pair
//! of interfaces without programs on them, and over loopback, where they are faster.
//!
//! UDP is measured with trains of datagrams, the default, and with each datagram by itself. Past the kernel a
//! frame of 64 KiB, as long as TCP's segments are, takes as many packets as it has room for.
//!
//! Invariant: all have the same keys, values, batches and clocks; every answer is looked at.
//!
//! Source: Lim, thesis (2015), sections 5.4.1 and 5.4.2.

use siltstone_engine::{Error, Result};

use super::mica_bench::PAPER;
use super::{Check, Direction, Experiment, Measured};
use crate::net::draws::Sizes;
use crate::net::drivers::{Driver, Protocol};
use crate::net::servers::{Between, Kind, Server, TRAIN, wire};
use crate::net::{Load, stay_on};
use crate::plot::{Bars, Plot};

/// What each server may take for items, in MiB at scale 1.
const MEMORY_MIB: f64 = 256.0;
const SECONDS: f64 = 2.0;

/// One of the experiments.
pub(super) enum MicaNetwork {
    /// Over loopback.
    Tiny,
    /// Over loopback, items of 16 + 64 bytes.
    Small,
    /// Over loopback, items of 128 + 1024 bytes.
    Large,
    /// Past the kernel.
    Past,
}

impl MicaNetwork {
    /// What is asked, uniform and half of it look-ups, with so many items at scale 1.
    fn load(&self, scale: f64) -> Load {
        let (sizes, items, batch, window) = match self {
            MicaNetwork::Tiny | MicaNetwork::Past => (Sizes::TINY, 1e6, 64, 16),
            MicaNetwork::Small => (Sizes::SMALL, 1e6, 64, 16),
            // A batch is as long as a datagram may be, and as many as a socket holds are under way.
            MicaNetwork::Large => (Sizes::LARGE, 1e5, 32, 8),
        };
        let items = (items * scale) as u64;
        Load { items, sizes, skew: 0.0, gets: 0.5, batch, window, windows: 16 }
    }

    fn is_past(&self) -> bool {
        matches!(self, MicaNetwork::Past)
    }

    /// Times the next best.
    fn bar(&self) -> f64 {
        match self {
            MicaNetwork::Tiny | MicaNetwork::Past => 4.0,
            MicaNetwork::Small | MicaNetwork::Large => 1.0,
        }
    }
}

/// What is measured: its name, the server, how it is asked, and over what.
struct Subject<'w> {
    name: &'static str,
    kind: Kind,
    protocol: Protocol,
    between: Between<'w>,
    is_peer: bool,
}

impl Subject<'_> {
    /// Operations a second in each case.
    fn rates(&self, load: Load, cases: &[(f64, f64)], memory: u64) -> Result<Vec<f64>> {
        self.between.enter()?;
        stay_on(1)?;
        let server = Server::start(self.kind, self.between, "0", 1, memory)?;
        let mut driver = Driver::connect(&server, self.protocol, load)?;
        driver.fill(load)?;
        let mut rates = Vec::new();
        for &(skew, gets) in cases {
            let load = Load { skew, gets, ..load };
            // The better of two turns: the machine is not ours alone.
            let first = driver.run(load, SECONDS / 2.0)?.rate;
            rates.push(first.max(driver.run(load, SECONDS / 2.0)?.rate));
        }
        Ok(rates)
    }
}

impl Experiment for MicaNetwork {
    fn id(&self) -> &'static str {
        match self {
            MicaNetwork::Tiny => "mica-network",
            MicaNetwork::Small => "mica-small",
            MicaNetwork::Large => "mica-large",
            MicaNetwork::Past => "mica-past",
        }
    }

    fn paper(&self) -> &'static str {
        PAPER
    }

    fn figure(&self) -> &'static str {
        "figure 5.10, section 5.4.2"
    }

    fn claim(&self) -> &'static str {
        match self {
            MicaNetwork::Tiny => {
                "at least 4 times the next best system, uniform and skewed, at 50 and 95 % GET"
            }
            MicaNetwork::Small => {
                "with items of 16 + 64 bytes the fastest, uniform and skewed, at 50 and 95 % GET, by less"
            }
            MicaNetwork::Large => {
                "with items of 128 + 1024 bytes the fastest, uniform and skewed, at 50 and 95 % GET, by still less"
            }
            MicaNetwork::Past => {
                "past the kernel at least 4 times the next best system, uniform and skewed, at 50 and \
                 95 % GET"
            }
        }
    }

    fn cause(&self) -> Option<&'static str> {
        match self {
            MicaNetwork::Small | MicaNetwork::Large => None,
            MicaNetwork::Past => Some(
                "under Zipf the peers find what is asked for in the processor's caches and do two to three times as \
                 much, so what each request costs at both ends counts: when each packet had a frame of its own, \
                 which goes through the virtual interface by itself, it was 3.0 to 5.2 times",
            ),
            MicaNetwork::Tiny => Some(
                "under Zipf the peers find what is asked for in the processor's caches and do two to three times as \
                 much, so what each request costs at both ends counts: when the server compared the tags of a bucket \
                 one after the other, which branches that nobody predicts, and had no room ready for a burst's \
                 requests, it was 3.9 times",
            ),
        }
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measured> {
        let memory = (MEMORY_MIB * scale).ceil() as u64 + 64;
        let load = self.load(scale);
        let item = load.sizes.item();
        let wire = if self.is_past() { Some(wire()?) } else { None };
        let over_wire = wire.as_ref().map(Between::Wire);
        let over_loopback = Some(Between::Loopback);
        let ours = |past| Kind::Ours { ports: 1, item, any_port: false, past, train: TRAIN };
        let single = Kind::Ours { ports: 1, item, any_port: false, past: false, train: 1 };
        let here = if self.is_past() { None } else { over_loopback };
        use Protocol::{Memcached, MemcachedMeta, Redis, Udp};
        let subjects = [
            ("mica past the kernel", ours(true), Udp, over_wire),
            ("mica over UDP", ours(false), Udp, here.or(over_wire)),
            ("mica over UDP, a datagram at a time", single, Udp, here.or(over_wire)),
            ("mica over memcached's protocol", ours(false), Memcached, here),
            ("mica over memcached's meta commands", ours(false), MemcachedMeta, here),
            ("memcached", Kind::Memcached, Memcached, here),
            ("memcached's meta commands", Kind::Memcached, MemcachedMeta, over_loopback),
            (
                "memcached's meta commands on the same wire",
                Kind::Memcached,
                MemcachedMeta,
                over_wire,
            ),
            ("Redis", Kind::Redis, Redis, over_loopback),
            ("Redis on the same wire", Kind::Redis, Redis, over_wire),
        ];
        let subjects: Vec<_> = subjects
            .into_iter()
            .filter_map(|(name, kind, protocol, between)| {
                let is_peer = !matches!(kind, Kind::Ours { .. });
                Some(Subject { name, kind, protocol, between: between?, is_peer })
            })
            .collect();
        let cases = [(0.0, 0.5), (0.0, 0.95), (0.99, 0.5), (0.99, 0.95)];
        let mut rates = Vec::new();
        for (turn, subject) in (1..).zip(&subjects) {
            // A thread of its own, since who goes to the other end of a wire stays there.
            let measured = std::thread::scope(|scope| {
                let there = scope.spawn(|| subject.rates(load, &cases, memory));
                there.join().map_err(|_| Error::Invalid("the load died".to_owned()))?
            });
            rates.push(measured?);
            progress(turn, subjects.len() as u64);
        }
        let mut checks = Vec::new();
        for (at, (skew, gets)) in cases.into_iter().enumerate() {
            let draw = if skew == 0.0 { "uniform" } else { "Zipf 0.99" };
            for (peer, subject) in subjects.iter().enumerate().filter(|(_, it)| it.is_peer) {
                checks.push(Check {
                    what: format!("times {}, {draw}, {} % GET", subject.name, gets * 100.0),
                    claimed: self.bar(),
                    ours: rates[0][at] / rates[peer][at],
                    tolerance: 0.0,
                    direction: Direction::AtLeast(self.bar()),
                });
            }
        }
        let groups = cases.map(|(skew, gets)| {
            format!("{} {} %", if skew == 0.0 { "uniform" } else { "Zipf" }, gets * 100.0)
        });
        let told: Vec<_> = subjects
            .iter()
            .zip(&rates)
            .map(|(subject, rates)| {
                let rates: Vec<_> = rates.iter().map(|rate| format!("{:.2}", rate / 1e6)).collect();
                format!("{} {}", subject.name, rates.join(" "))
            })
            .collect();
        let plot = Plot::Bars(Bars {
            title: "Operations over the network, one core each".to_owned(),
            y: "millions a second".to_owned(),
            groups: groups.to_vec(),
            series: subjects
                .iter()
                .zip(&rates)
                .map(|(subject, rates)| {
                    (subject.name.to_owned(), rates.iter().map(|rate| rate / 1e6).collect())
                })
                .collect(),
        });
        let scale = format!(
            "{} items of {} + {} bytes, batches of {}, {} at once; M operations/s ({}): {}",
            load.items,
            load.sizes.key,
            load.sizes.value,
            load.batch,
            load.window,
            groups.join(", "),
            told.join("; ")
        );
        Ok(Measured { scale, checks, plot: Some(plot) })
    }
}

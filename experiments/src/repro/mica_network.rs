//! `mica-network`: over loopback against memcached and Redis, on one core each; `mica-small` and
//! `mica-large`: the same with the thesis's larger items; `mica-past`: with kernel bypass (AF_XDP),
//! over a pair of virtual interfaces.
//!
//! The thesis runs all systems over its own network stack and without batches. Over the kernel's
//! stack the cost of a packet would dominate, so all systems get the same batches: a number of
//! requests per packet or write, and a number of those in flight. Server and load have a core each.
//!
//! memcached sends each response to a pipelined `get` separately, and combines those to its meta
//! commands, which few clients use: it is measured with both.
//!
//! To separate the effect of MICA's protocol (UDP, client-side hashing, bursts) from that of the
//! store, our server is also measured with memcached's protocol.
//!
//! With larger items the thesis's network is saturated before MICA is, and the text has no numbers
//! but its own: the claim for them is that MICA is still the fastest. Here bytes are copied by the
//! cores of both ends instead.
//!
//! Kernel bypass is AF_XDP at both ends. The peers use the kernel's network, over the same pair of
//! interfaces without XDP programs, and over loopback, where they are faster.
//!
//! UDP is measured with GSO batches of datagrams, the default, and with single datagrams. With
//! AF_XDP a frame of 64 KiB, as long as TCP's segments, contains as many packets as fit.
//!
//! Invariant: all systems have the same keys, values, batches and clocks; every response is
//! checked.
//!
//! Source: Lim, thesis (2015), sections 5.4.1 and 5.4.2.

use siltstone_bench::plot::{Bars, Plot};
use siltstone_engine::{Error, Result};

use super::bars::{Bar, bar};
use super::mica_bench::PAPER;
use super::{Experiment, Measurement};
use crate::net::draws::Sizes;
use crate::net::drivers::{Driver, Protocol};
use crate::net::servers::{Between, GSO_SEGMENTS, Kind, Server, wire};
use crate::net::{Load, pin_to_core};

/// Memory of each server for items, in MiB at scale 1.
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
    /// With AF_XDP.
    KernelBypass,
}

impl MicaNetwork {
    /// A uniform load with half lookups.
    fn load(&self, scale: f64) -> Load {
        let (sizes, items, batch, window) = match self {
            MicaNetwork::Tiny | MicaNetwork::KernelBypass => (Sizes::TINY, 1e6, 64, 16),
            MicaNetwork::Small => (Sizes::SMALL, 1e6, 64, 16),
            // A batch is a maximal datagram, and as many as a socket buffers are in flight.
            MicaNetwork::Large => (Sizes::LARGE, 1e5, 32, 8),
        };
        let items = (items * scale) as u64;
        Load { items, sizes, skew: 0.0, gets: 0.5, batch, window, windows: 16 }
    }

    fn is_kernel_bypass(&self) -> bool {
        matches!(self, MicaNetwork::KernelBypass)
    }

    /// The required factor over the next best system: "at least 4 times", or "the fastest".
    fn next_best_bar(&self) -> &'static Bar {
        match self {
            MicaNetwork::Tiny => bar("mica-network", "peers"),
            MicaNetwork::Small => bar("mica-small", "peers"),
            MicaNetwork::Large => bar("mica-large", "peers"),
            MicaNetwork::KernelBypass => bar("mica-past", "peers"),
        }
    }
}

/// A measured system: server, protocol and network.
struct Subject<'w> {
    name: &'static str,
    kind: Kind,
    protocol: Protocol,
    between: Between<'w>,
    is_peer: bool,
}

impl Subject<'_> {
    /// Operations per second in each case.
    fn rates(&self, load: Load, cases: &[(f64, f64)], memory: u64) -> Result<Vec<f64>> {
        self.between.enter()?;
        pin_to_core(1)?;
        let server = Server::start(self.kind, self.between, "0", 1, memory)?;
        let mut driver = Driver::connect(&server, self.protocol, load)?;
        driver.fill(load)?;
        let mut rates = Vec::new();
        for &(skew, gets) in cases {
            let load = Load { skew, gets, ..load };
            // The better of two runs, because the machine has other load.
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
            MicaNetwork::KernelBypass => "mica-past",
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
            MicaNetwork::KernelBypass => {
                "with kernel bypass at least 4 times the next best system, uniform and skewed, at 50 and \
                 95 % GET"
            }
        }
    }

    fn cause(&self) -> Option<&'static str> {
        match self {
            MicaNetwork::Small | MicaNetwork::Large => None,
            MicaNetwork::KernelBypass => Some(
                "under Zipf the peers find keys in the processor's caches and serve two to three \
                 times as many requests, so the cost per request at both ends dominates: when \
                 each packet had its own frame, which passes the virtual interface separately, \
                 it was 3.0 to 5.2 times",
            ),
            MicaNetwork::Tiny => Some(
                "under Zipf the peers find keys in the processor's caches and serve two to three \
                 times as many requests, so the cost per request at both ends dominates: when \
                 the server compared the tags of a bucket one after the other, with mispredicted \
                 branches, and did not preallocate a burst's requests, it was 3.9 times",
            ),
        }
    }

    fn run(&self, scale: f64, progress: &mut dyn FnMut(u64, u64)) -> Result<Measurement> {
        let memory = (MEMORY_MIB * scale).ceil() as u64 + 64;
        let load = self.load(scale);
        let item = load.sizes.item();
        let wire = if self.is_kernel_bypass() { Some(wire()?) } else { None };
        let over_wire = wire.as_ref().map(Between::VethPair);
        let over_loopback = Some(Between::Loopback);
        let ours =
            |xdp| Kind::Ours { ports: 1, item, any_port: false, xdp, gso_segments: GSO_SEGMENTS };
        let single = Kind::Ours { ports: 1, item, any_port: false, xdp: false, gso_segments: 1 };
        let here = if self.is_kernel_bypass() { None } else { over_loopback };
        use Protocol::{Memcached, MemcachedMeta, Redis, Udp};
        let subjects = [
            ("mica over AF_XDP", ours(true), Udp, over_wire),
            ("mica over UDP", ours(false), Udp, here.or(over_wire)),
            ("mica over UDP, single datagrams", single, Udp, here.or(over_wire)),
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
            // A separate thread, because entering a namespace is permanent.
            let measured = std::thread::scope(|scope| {
                let there = scope.spawn(|| subject.rates(load, &cases, memory));
                there.join().map_err(|_| Error::Invalid("the load panicked".to_owned()))?
            });
            rates.push(measured?);
            progress(turn, subjects.len() as u64);
        }
        let mut checks = Vec::new();
        for (at, (skew, gets)) in cases.into_iter().enumerate() {
            let draw = if skew == 0.0 { "uniform" } else { "Zipf 0.99" };
            for (peer, subject) in subjects.iter().enumerate().filter(|(_, it)| it.is_peer) {
                checks.push(self.next_best_bar().check(
                    format!("times {}, {draw}, {} % GET", subject.name, gets * 100.0),
                    rates[0][at] / rates[peer][at],
                ));
            }
        }
        let groups = cases.map(|(skew, gets)| {
            format!("{} {} %", if skew == 0.0 { "uniform" } else { "Zipf" }, gets * 100.0)
        });
        let details: Vec<_> = subjects
            .iter()
            .zip(&rates)
            .map(|(subject, rates)| {
                let rates: Vec<_> = rates.iter().map(|rate| format!("{:.2}", rate / 1e6)).collect();
                format!("{} {}", subject.name, rates.join(" "))
            })
            .collect();
        let plot = Plot::Bars(Bars {
            title: "Operations over the network, one core each".to_owned(),
            y: "millions per second".to_owned(),
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
            details.join("; ")
        );
        Ok(Measurement { scale, checks, plot: Some(plot) })
    }
}

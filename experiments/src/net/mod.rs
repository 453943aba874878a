//! Servers over loopback, or a pair of virtual interfaces, under one load: ours, memcached, Redis.
//!
//! A server is a process on some cores; the load comes from this thread on another core. Every
//! protocol has the same rule: `batch` requests are sent together (in a packet, or one write to a
//! socket), and up to `window` batches are in flight. The network of each protocol coalesces
//! batches on its own: TCP segments, GSO for UDP ([`siltstone_client::gso`]), and AF_XDP frames
//! ([`siltstone_client::coalesce`]).
//!
//! | module | contents |
//! | --- | --- |
//! | [`draws`] | prepared requests |
//! | [`servers`] | server processes |
//! | [`drivers`] | the load, in each protocol |
//! | `frames` | requests and responses over TCP |
//!
//! Invariant: every lookup is for a stored key, and a run in which more than one in a hundred
//! misses is an error.
//!
//! Source: Lim, thesis (2015), section 5.4.1: items of 8 + 8, 16 + 64 and 128 + 1024 bytes, uniform
//! and Zipf of 0.99, 50 % and 95 % GET.

pub mod draws;
pub mod drivers;
mod frames;
pub mod servers;

use rand::RngExt;
use rustix::thread::{CpuSet, sched_setaffinity};
use siltstone_bench::generate::{Chooser, Draw, stream};
use siltstone_engine::{Error, Result};

use self::draws::{Draws, Sizes};

/// A load on a server.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Number of stored items.
    pub items: u64,
    /// Sizes of the items.
    pub sizes: Sizes,
    /// Zipf exponent; 0 is uniform.
    pub skew: f64,
    /// Share of lookups.
    pub gets: f64,
    /// Requests per batch, which are sent together.
    pub batch: usize,
    /// Batches in flight.
    pub window: usize,
    /// Number of windows per round, after which all responses are awaited.
    pub windows: usize,
}

impl Load {
    /// Requests per round.
    pub fn round(&self) -> usize {
        self.batch * self.window * self.windows
    }

    /// Prepares `count` requests, or fewer of large items.
    pub fn draws(&self, count: usize) -> Draws {
        let draw = match self.skew {
            0.0 => Draw::Uniform,
            skew => Draw::Zipf { skew },
        };
        let mut rng = stream(11, 0);
        let mut chooser = Chooser::new(draw, self.items, 1, 0, 1);
        let next = |_| (chooser.next(&mut rng, self.items), rng.random_bool(self.gets));
        Draws::of(self.sizes, (0..count).map(next))
    }
}

/// Pins this thread to a core.
///
/// # Errors
/// If the system refuses.
pub fn pin_to_core(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| Error::Invalid(format!("cannot pin to core {core}: {error}")))
}

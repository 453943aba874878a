//! Servers over loopback, or a pair of virtual interfaces, under one load: ours, memcached, Redis.
//!
//! A server is a process of its own on some cores, the load comes from this thread on another core.
//! Every protocol has the same rule: so many requests are sent together (a packet, or one write to a
//! socket), and so many such batches may wait for their answers. How many of them travel as one is left to
//! each protocol's network: TCP gathers them, UDP's trains do ([`siltstone_client::gso`]), and past the
//! kernel frames do ([`siltstone_client::coalesce`]).
//!
//! | module | one idea |
//! | --- | --- |
//! | [`draws`] | what is asked, made ready before |
//! | [`servers`] | processes that serve, and where |
//! | [`drivers`] | the load, in each protocol |
//! | `frames` | requests and answers over TCP |
//!
//! Invariant: every look-up is for a key that was stored, and a run in which more than one in a
//! hundred misses is an error.
//!
//! Source: Lim, thesis (2015), section 5.4.1: items of 8 + 8, 16 + 64 and 128 + 1024 bytes, uniform and
//! Zipf of 0.99, 50 % and 95 % GET.

pub mod draws;
pub mod drivers;
mod frames;
pub mod servers;

use rand::RngExt;
use rustix::thread::{CpuSet, sched_setaffinity};
use siltstone_engine::{Error, Result};

use self::draws::{Draws, Sizes};
use crate::generate::{Chooser, Draw, stream};

/// What is asked of a server.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Items that are stored.
    pub items: u64,
    /// Their bytes.
    pub sizes: Sizes,
    /// 0 is uniform.
    pub skew: f64,
    /// The share of look-ups.
    pub gets: f64,
    /// Requests that are sent together.
    pub batch: usize,
    /// Batches that wait for their answers at once.
    pub window: usize,
    /// How many times so many batches are a round, after which all answers are awaited.
    pub windows: usize,
}

impl Load {
    /// Requests of a round.
    pub fn round(&self) -> usize {
        self.batch * self.window * self.windows
    }

    /// So many requests, or fewer of large items.
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

/// Keeps this thread on one core.
///
/// # Errors
/// If the system refuses.
pub fn stay_on(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| Error::Invalid(format!("core {core} is not to be had: {error}")))
}

//! What a model asks of a workload: the primitives, however they are computed.
//!
//! [`Popularity`] computes them exactly; [`Tabulated`](crate::Tabulated) looks them up.
//!
//! Invariant: `unique` rises from 0 at no requests to `keys` at infinitely many, and
//! `unique_inverse` inverts it.
//!
//! Source: thesis, section 4.2.

use crate::Popularity;

/// The primitives that every model is arithmetic on. All quantities are counts of items or requests.
pub trait Workload {
    /// How many keys there are.
    fn keys(&self) -> f64;

    /// How many distinct keys `requests` requests touch.
    fn unique(&self, requests: f64) -> f64;

    /// How many requests it takes to touch `unique` distinct keys; ∞ for all of them.
    fn unique_inverse(&self, unique: f64) -> f64;

    /// How many requests pass between two compactions of one key, in a level of `size` distinct
    /// keys that is compacted round-robin; ∞ if the level holds all keys.
    fn compaction_interval(&self, size: f64) -> f64;

    /// The size of two tables of `u` and `v` distinct keys when merged.
    fn merge(&self, u: f64, v: f64) -> f64 {
        self.unique(self.unique_inverse(u) + self.unique_inverse(v))
    }
}

impl Workload for Popularity {
    fn keys(&self) -> f64 {
        self.keys()
    }
    fn unique(&self, requests: f64) -> f64 {
        self.unique(requests)
    }
    fn unique_inverse(&self, unique: f64) -> f64 {
        self.unique_inverse(unique)
    }
    fn compaction_interval(&self, size: f64) -> f64 {
        self.compaction_interval(size)
    }
}

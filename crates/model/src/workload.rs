//! The primitives that every model needs of a workload.
//!
//! [`Popularity`] computes them exactly; [`InterpolatedPopularity`](crate::InterpolatedPopularity)
//! interpolates them.
//!
//! Invariant: `unique` increases from 0 at no requests to `keys` at infinitely many, and
//! `unique_inverse` is its inverse.
//!
//! Source: Lim, thesis, section 4.2.

use crate::Popularity;

/// The primitives of the models. All quantities are counts of items or requests.
pub trait Workload {
    /// Number of keys.
    fn keys(&self) -> f64;

    /// Number of distinct keys among `requests` requests.
    fn unique(&self, requests: f64) -> f64;

    /// Number of requests until `unique` distinct keys were requested; ∞ for all keys.
    fn unique_inverse(&self, unique: f64) -> f64;

    /// Number of requests between two compactions of one key, in a level of `size` distinct keys
    /// that is compacted round-robin; ∞ if the level holds all keys.
    fn compaction_interval(&self, size: f64) -> f64;

    /// Size of the last level when it has been merged: all keys, unless some were deleted.
    fn last_level(&self) -> f64 {
        self.keys()
    }

    /// Size of the merge of two tables with `u` and `v` distinct keys.
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

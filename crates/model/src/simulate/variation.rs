//! Requests that are not puts of items of one size with a fixed popularity, and what items weigh then.

use super::requests::Requests;
use crate::Popularity;
use crate::error::{InvalidParameter, within};

/// How requests vary. The default: not at all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Variation {
    /// Share of the requests that delete their key. Of the keys that fill the store the same share
    /// is filled as deleted.
    pub deletes: f64,
    /// Size of a tombstone over the mean size of a put item.
    pub tombstone_size: f64,
    /// Shares of the keys and the size of their items, the most popular keys first; empty for one
    /// size.
    pub item_sizes: Vec<(f64, f64)>,
    /// Number of requests after which the popularities are given to other keys. Sizes stay with
    /// their keys.
    pub phase: Option<u64>,
}

impl Variation {
    /// What items weigh, in items of the mean size of a written one; `None` if all weigh 1.
    pub(super) fn weights(
        &self,
        keys: u32,
        skew: f64,
        requests: &Requests,
    ) -> Result<Option<Weights>, InvalidParameter> {
        within("deletes", self.deletes, 0.0, 0.999, "give a share of deletions from 0 to 0.999")?;
        let reason = "give the size of a tombstone as a share of an item, from 0 to 1";
        within("tombstone_size", self.tombstone_size, 0.0, 1.0, reason)?;
        let phase = self.phase.unwrap_or(1) as f64;
        within("phase", phase, 1.0, 1e15, "give a phase of 1 request to 10^15")?;
        if self.deletes == 0.0 && self.item_sizes.is_empty() {
            return Ok(None);
        }
        let mean_size = 1.0 - self.deletes + self.deletes * self.tombstone_size;
        let put = 1.0 / mean_size;
        let mut puts = Vec::new();
        if !self.item_sizes.is_empty() {
            let popularity = Popularity::zipf(f64::from(keys), skew)?;
            // One key counts as its size over the mean size of a put item.
            let sum = popularity.with_item_sizes(&self.item_sizes)?.keys();
            let bytes: f64 = self.item_sizes.iter().map(|(share, size)| share * size).sum();
            let scale = put * sum / (f64::from(keys) * bytes);
            puts = vec![0.0; keys as usize];
            let mut classes = self.item_sizes.iter();
            let (mut size, mut end) = (1.0, 0.0);
            for rank in 0..keys {
                while f64::from(rank) >= end
                    && let Some(&(share, of_class)) = classes.next()
                {
                    end += share * f64::from(keys);
                    size = of_class;
                }
                puts[requests.scatter(rank) as usize] = (size * scale) as f32;
            }
        }
        let tombstone = self.tombstone_size * put;
        Ok(Some(Weights { puts, put, tombstone }))
    }
}

/// What items weigh.
pub(super) struct Weights {
    /// By key; empty if all puts weigh the same.
    puts: Vec<f32>,
    put: f64,
    tombstone: f64,
}

impl Weights {
    pub(super) fn of(&self, entry: Entry) -> f64 {
        match self.puts.get(entry.key() as usize) {
            _ if entry.is_tombstone() => self.tombstone,
            Some(&put) => f64::from(put),
            None => self.put,
        }
    }
}

/// A key that was put or deleted. The order is that of keys, and within a key meaningless.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry(u32);

impl Entry {
    /// Keys are below 2³¹.
    pub(super) fn new(key: u32, is_tombstone: bool) -> Self {
        Entry(key << 1 | u32::from(is_tombstone))
    }

    pub(super) fn key(self) -> u32 {
        self.0 >> 1
    }

    pub(super) fn is_tombstone(self) -> bool {
        self.0 & 1 == 1
    }
}

//! What items weigh, in items of the mean size of a written one.

use super::entry::Entry;
use super::requests::Requests;
use super::variation::Variation;
use crate::Popularity;
use crate::error::InvalidParameter;

/// What items weigh.
pub(super) struct Weights {
    /// By key; empty if all puts weigh the same.
    puts: Vec<f32>,
    put: f64,
    tombstone: f64,
}

impl Weights {
    /// The weights of a simulation with these keys; `None` if all items weigh 1.
    pub(super) fn new(
        variation: &Variation,
        keys: u32,
        skew: f64,
        requests: &Requests,
    ) -> Result<Option<Weights>, InvalidParameter> {
        variation.check()?;
        if variation.deletes == 0.0 && variation.item_sizes.is_empty() {
            return Ok(None);
        }
        let mean_size = 1.0 - variation.deletes + variation.deletes * variation.tombstone_size;
        let put = 1.0 / mean_size;
        let mut puts = Vec::new();
        if !variation.item_sizes.is_empty() {
            let popularity = Popularity::zipf(f64::from(keys), skew)?;
            // One key counts as its size over the mean size of a put item.
            let sum = popularity.with_item_sizes(&variation.item_sizes)?.keys();
            let bytes: f64 = variation.item_sizes.iter().map(|(share, size)| share * size).sum();
            let scale = put * sum / (f64::from(keys) * bytes);
            puts = vec![0.0; keys as usize];
            let mut classes = variation.item_sizes.iter();
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
        let tombstone = variation.tombstone_size * put;
        Ok(Some(Weights { puts, put, tombstone }))
    }

    pub(super) fn of(&self, entry: Entry) -> f64 {
        match self.puts.get(entry.key() as usize) {
            _ if entry.is_tombstone() => self.tombstone,
            Some(&put) => f64::from(put),
            None => self.put,
        }
    }
}

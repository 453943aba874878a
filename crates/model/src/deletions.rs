//! Requests of which some delete their key.
//!
//! A deletion writes a *tombstone*. It replaces the item of its key in each level that it reaches,
//! and is dropped in the last level. If a share d of the requests to every key deletes it, then
//!
//! ```text
//! levels but the last    Unique(p) keys of p requests, of which d are tombstones
//! last level             N · (1 − d) items: keys whose last request to arrive was a put
//! ```
//!
//! Sizes are in items of the mean size of a *written* item: 1 − d + d·t put items, for tombstones
//! of t times the size of a put item. In this unit the primitives stay as they are, because puts and
//! tombstones are mixed alike everywhere; only the last level changes.
//!
//! The primitives of the thesis know no deletions (section 4.8 leaves them open).

use crate::Workload;
use crate::error::{InvalidParameter, within};

/// A workload with deletions.
#[derive(Debug, Clone)]
pub struct Deletions<W> {
    requests: W,
    share: f64,
    mean_size: f64,
}

impl<W: Workload> Deletions<W> {
    /// The requests of `requests`, of which `share` are deletions, to each key alike. A tombstone
    /// has `tombstone_size` times the size of an item.
    ///
    /// # Errors
    /// [`InvalidParameter`] unless `share` is from 0 to 0.999 and `tombstone_size` from 0 to 1.
    pub fn new(requests: W, share: f64, tombstone_size: f64) -> Result<Self, InvalidParameter> {
        within("deletes", share, 0.0, 0.999, "give a share of deletions from 0 to 0.999")?;
        let reason = "give the size of a tombstone as a share of an item, from 0 to 1";
        within("tombstone_size", tombstone_size, 0.0, 1.0, reason)?;
        let mean_size = 1.0 - share + share * tombstone_size;
        Ok(Deletions { requests, share, mean_size })
    }

    /// The mean size of a written item over that of an item that is put: the unit of all sizes.
    pub fn mean_size(&self) -> f64 {
        self.mean_size
    }
}

impl<W: Workload> Workload for Deletions<W> {
    fn keys(&self) -> f64 {
        self.requests.keys()
    }

    fn unique(&self, requests: f64) -> f64 {
        self.requests.unique(requests)
    }

    fn unique_inverse(&self, unique: f64) -> f64 {
        self.requests.unique_inverse(unique)
    }

    fn compaction_interval(&self, size: f64) -> f64 {
        self.requests.compaction_interval(size)
    }

    fn last_level(&self) -> f64 {
        self.requests.last_level() * (1.0 - self.share) / self.mean_size
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LevelDb, Popularity};

    #[test]
    fn only_the_last_level_knows_of_deletions() {
        let keys = Popularity::zipf(1e6, 0.99).unwrap();
        let design = LevelDb::standard(1e6, 1000.0, 3).unwrap();
        let without = design.write_amplification(&keys).unwrap().by_stage;
        let none = Deletions::new(keys.clone(), 0.0, 0.1).unwrap();
        assert_eq!(design.write_amplification(&none).unwrap().by_stage, without);
        let half = Deletions::new(keys, 0.5, 0.0).unwrap();
        // Tombstones without size: the last level has half of the keys, in items of half the size.
        assert!((half.last_level() - 1e6).abs() < 1e-6);
        let full_size = Deletions::new(half.requests, 0.5, 1.0).unwrap();
        let with = design.write_amplification(&full_size).unwrap().by_stage;
        let last = with.len() - 1;
        assert_eq!(with[..last], without[..last]);
        assert!(with[last].1 < without[last].1);
    }

    #[test]
    fn invalid_parameter_is_named() {
        let keys = || Popularity::uniform(1e6).unwrap();
        assert_eq!(Deletions::new(keys(), 1.0, 0.0).unwrap_err().parameter, "deletes");
        assert_eq!(Deletions::new(keys(), 0.5, 1.5).unwrap_err().parameter, "tombstone_size");
    }
}

//! How requests differ from puts of items of one size with a fixed popularity.

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
    pub(super) fn check(&self) -> Result<(), InvalidParameter> {
        within("deletes", self.deletes, 0.0, 0.999, "give a share of deletions from 0 to 0.999")?;
        let reason = "give the size of a tombstone as a share of an item, from 0 to 1";
        within("tombstone_size", self.tombstone_size, 0.0, 1.0, reason)?;
        let phase = self.phase.unwrap_or(1) as f64;
        within("phase", phase, 1.0, 1e15, "give a phase of 1 request to 10^15")?;
        Ok(())
    }
}

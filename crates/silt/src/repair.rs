//! Repairing a damaged table: not yet.
//!
//! Filters and indexes need no repair: opening makes them again. What this should do with the rest is
//! what the tree's does: keep the stores that are sound, set aside those that are not, replay the logs
//! up to their first damage, and write a new manifest; footers tell the partition and the seed. Until
//! it does, it says so and touches nothing.

use std::sync::Arc;

use siltstone_engine::{Error, Result};
use siltstone_media::Media;

use crate::version::ENGINE;

/// Rebuilds what can be saved of a damaged table.
///
/// # Errors
/// [`Error::Unsupported`]: it cannot yet.
pub fn repair(_media: &Arc<dyn Media>) -> Result<Vec<String>> {
    Err(Error::Unsupported { engine: ENGINE, operation: "repairing damaged stores" })
}

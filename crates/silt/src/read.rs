//! The read path.
//!
//! ```text
//!   view ─▶ active generation ─▶ generations being converted, newest first ─▶ HashStores of the
//!           key's partition, newest first ─▶ its SortedStore
//! ```
//!
//! Source: Lim, thesis, section 2.1 (key-value operations).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Entry, Purpose, Result};
use siltstone_structures::HashKey;

use crate::engine::SiltEngine;
use crate::item::Item;
use crate::view::View;

/// The kind of store that has an entry; for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum StoreKind {
    Log,
    Hash,
    Sorted,
}

/// The newest entry of `key`, deleted or expired ones too, and where it was.
fn find(
    view: &View,
    partition: usize,
    hash: &HashKey,
    key: &[u8],
) -> Result<Option<(Item, StoreKind)>> {
    let purpose = Purpose::Get;
    for generation in view.memtables() {
        if let Some((_, item)) = generation.find(partition, hash, key, purpose)? {
            return Ok(Some((item, StoreKind::Log)));
        }
    }
    let stores = &view.version.partitions[partition];
    for store in &stores.hash_stores {
        if let Some(item) = store.get(hash, key, purpose)? {
            return Ok(Some((item, StoreKind::Hash)));
        }
    }
    match &stores.sorted {
        Some(store) => Ok(store.get(hash, key, purpose)?.map(|item| (item, StoreKind::Sorted))),
        None => Ok(None),
    }
}

impl SiltEngine {
    /// The entry of `key` now.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let view = self.pin()?;
        self.counters.gets.fetch_add(1, Relaxed);
        let keys = self.keys;
        let hash = keys.hash(key);
        let Some((item, place)) = find(&view, keys.partition(&hash), &hash, key)? else {
            return Ok(None);
        };
        let entry = item.visible(self.env.clock.now());
        if entry.is_some() {
            self.counters.gets_found[place as usize].fetch_add(1, Relaxed);
        }
        Ok(entry)
    }

    /// The current view of a table that is open.
    pub(crate) fn pin(&self) -> Result<Arc<View>> {
        self.background.check_open()?;
        Ok(self.view.load_full())
    }
}

//! What a reader sees, and how a get travels.
//!
//! ```text
//!   view ─▶ active generation ─▶ generations being converted, newest first ─▶ version's HashStores
//!           of the key's partition, newest first ─▶ its SortedStore
//! ```
//!
//! Invariant: every write that returned before the view was loaded is in it or will be in its active
//! generation; views follow each other without a moment in which an entry is in none.
//!
//! Source: Lim, thesis, section 2.1 (key-value operations).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Entry, Purpose, Result};
use siltstone_structures::HashKey;

use crate::engine::Inner;
use crate::generation::Generation;
use crate::item::Item;
use crate::version::Version;

/// The generations and the version that a reader holds.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<Generation>,
    /// Full ones, the oldest first.
    pub(crate) frozen: Vec<Arc<Generation>>,
    pub(crate) version: Arc<Version>,
}

/// The kind of store that has an entry; for counting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum FoundIn {
    Log,
    Hash,
    Sorted,
}

impl View {
    /// All generations, the newest first.
    pub(crate) fn generations(&self) -> impl Iterator<Item = &Arc<Generation>> {
        std::iter::once(&self.active).chain(self.frozen.iter().rev())
    }

    /// The newest entry of `key`, deleted or expired ones too, and where it was.
    fn find(
        &self,
        partition: usize,
        hash: &HashKey,
        key: &[u8],
    ) -> Result<Option<(Item, FoundIn)>> {
        let purpose = Purpose::Get;
        for generation in self.generations() {
            if let Some((_, item)) = generation.find(partition, hash, key, purpose)? {
                return Ok(Some((item, FoundIn::Log)));
            }
        }
        let stores = &self.version.partitions[partition];
        for store in &stores.hash_stores {
            if let Some(item) = store.get(hash, key, purpose)? {
                return Ok(Some((item, FoundIn::Hash)));
            }
        }
        match &stores.sorted {
            Some(store) => Ok(store.get(hash, key, purpose)?.map(|item| (item, FoundIn::Sorted))),
            None => Ok(None),
        }
    }
}

impl Inner {
    /// The entry of `key` now.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let view = self.pin()?;
        self.counters.gets.fetch_add(1, Relaxed);
        let keys = self.versions.keys();
        let hash = keys.hash(key);
        let Some((item, place)) = view.find(keys.partition(&hash), &hash, key)? else {
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

//! Selects which filters and indexes are loaded, within a memory limit.
//!
//! ```text
//!   limit ─▶ SortedStore indexes first, 0.1 to 2.5 bits per entry ─▶ HashStore filters, 15 bits
//!            the others stay on disk: lookups there use binary search, or read two buckets
//! ```
//!
//! The limit can change while the table is open: files above a lower limit are unloaded at once,
//! those that fit a higher one are loaded in the background. With `load_indexes=background` opening
//! does not wait for loading either: lookups need more reads until it is done.
//!
//! Invariant: the result of a lookup never depends on what is loaded.
//!
//! Source: Lim, thesis, section 2.3 (fail-graceful indexing).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};
use siltstone_runtime::BackgroundWork;

use crate::engine::SiltEngine;
use crate::hash_store::HashStore;
use crate::sorted_store::SortedStore;
use crate::version::Version;

/// A store with a filter or an index that can be loaded.
enum IndexedStore<'a> {
    Sorted(&'a Arc<SortedStore>),
    Hash(&'a Arc<HashStore>),
}

impl IndexedStore<'_> {
    fn is_loaded(&self) -> bool {
        match self {
            IndexedStore::Sorted(store) => store.is_loaded(),
            IndexedStore::Hash(store) => store.is_loaded(),
        }
    }

    fn number(&self) -> u64 {
        match self {
            IndexedStore::Sorted(store) => store.entry().number,
            IndexedStore::Hash(store) => store.entry().number,
        }
    }

    /// Bytes that it takes when loaded. The same before and after loading, so that it stays loaded.
    fn memory(&self) -> u64 {
        match self {
            IndexedStore::Sorted(store) => store.memory_loaded(),
            IndexedStore::Hash(store) => store.memory_loaded(),
        }
    }

    fn load(&self, purpose: Purpose) -> Result<()> {
        match self {
            IndexedStore::Sorted(store) => store.load(purpose),
            IndexedStore::Hash(store) => store.load(purpose),
        }
    }

    fn unload(&self) {
        match self {
            IndexedStore::Sorted(store) => store.unload(),
            IndexedStore::Hash(store) => store.unload(),
        }
    }
}

/// Divides the stores into those that should be loaded within a limit (0: no limit), and the
/// others.
fn divide(version: &Version, limit: u64) -> (Vec<IndexedStore<'_>>, Vec<IndexedStore<'_>>) {
    let mut left = if limit == 0 { u64::MAX } else { limit };
    let sorted = version.sorted_stores().map(IndexedStore::Sorted);
    sorted.chain(version.hash_stores().map(IndexedStore::Hash)).partition(|store| {
        let fits = store.memory() <= left;
        left -= if fits { store.memory() } else { 0 };
        fits
    })
}

/// Loads those of the stores with these numbers that fit within the limit, and unloads those that
/// do not fit.
pub(crate) fn load(version: &Version, limit: u64, numbers: &[u64], purpose: Purpose) -> Result<()> {
    let (wanted, others) = divide(version, limit);
    others.iter().for_each(IndexedStore::unload);
    let mut wanted = wanted.iter().filter(|store| numbers.contains(&store.number()));
    wanted.try_for_each(|store| store.load(purpose))
}

impl SiltEngine {
    /// Whether a filter or index that fits the limit is not loaded.
    pub(crate) fn lacks_indexes(&self) -> bool {
        let view = self.view.load();
        let (wanted, _) = divide(&view.version, self.index_memory.load(Relaxed));
        wanted.iter().any(|store| !store.is_loaded())
    }

    /// Loads the filters and indexes that fit the limit, and unloads the others. Begins again if
    /// the limit or the stores change meanwhile.
    pub(crate) fn load_indexes(&self) -> Result<()> {
        let mut is_current = false;
        while !is_current {
            self.unload_above_limit();
            let version = self.view.load_full().version.clone();
            let limit = self.index_memory.load(Relaxed);
            is_current = true;
            let (wanted, _) = divide(&version, limit);
            for store in wanted.iter().filter(|store| !store.is_loaded()) {
                self.background.check_cancelled()?;
                // Who changes either of them waits for the lock, and unloads afterwards what is
                // above the limit.
                let _lock = self.loading.lock();
                is_current = self.index_memory.load(Relaxed) == limit
                    && Arc::ptr_eq(&self.view.load().version, &version);
                if !is_current {
                    break;
                }
                store.load(Purpose::Maintenance)?;
            }
        }
        Ok(())
    }

    /// Unloads the filters and indexes above the limit. Waits while one is being loaded.
    pub(crate) fn unload_above_limit(&self) {
        let _lock = self.loading.lock();
        let version = self.view.load_full().version.clone();
        divide(&version, self.index_memory.load(Relaxed)).1.iter().for_each(IndexedStore::unload);
    }

    /// Limits the memory of filters and indexes to `bytes` from now on (0: no limit). Those above
    /// the limit are unloaded before this returns, and those of a store that is just being added
    /// when it is; those that fit are loaded in the background. Lookups continue with more reads.
    pub fn set_index_memory(&self, bytes: u64) {
        self.index_memory.store(bytes, Relaxed);
        self.unload_above_limit();
        self.schedule();
    }
}

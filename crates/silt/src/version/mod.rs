//! A version: the immutable set of stores at one moment. Readers pin the version that they began
//! with.
//!
//! ```text
//!   partition 0   HashStores, the newest first ─▶ SortedStore
//!   partition 1   …
//! ```
//!
//! Invariant: the newest entry of a key is in the first store, in this order, that has one.
//!
//! Source: Lim, thesis, section 2.1.

mod edit;
mod set;

pub(crate) use edit::Edit;
pub(crate) use set::{ENGINE, open_versions};

use std::sync::Arc;

use siltstone_engine::{Error, Result};

use crate::hash_store::HashStore;
use crate::keys::KeyHasher;
use crate::sorted_store::SortedStore;
use crate::store_entry::StoreEntry;

/// The stores of all partitions.
#[derive(Clone)]
pub struct Version {
    /// How keys are divided among partitions; never changes in the life of a table.
    keys: KeyHasher,
    pub(crate) partitions: Vec<Partition>,
}

/// The stores of one partition, except its LogStores.
#[derive(Clone, Default)]
pub(crate) struct Partition {
    /// The newest first.
    pub(crate) hash_stores: Vec<Arc<HashStore>>,
    pub(crate) sorted: Option<Arc<SortedStore>>,
}

/// Opened stores that an edit adds.
#[derive(Default)]
pub(crate) struct NewStores {
    pub(crate) hash_stores: Vec<Arc<HashStore>>,
    pub(crate) sorted_stores: Vec<Arc<SortedStore>>,
}

impl Version {
    /// A version without stores.
    pub(crate) fn empty(keys: KeyHasher) -> Self {
        Version { keys, partitions: vec![Partition::default(); keys.partitions as usize] }
    }

    /// The version after an edit that removes and adds these stores.
    ///
    /// # Errors
    /// `Corruption` of the manifest if the edit does not fit this version.
    pub(crate) fn apply(&self, removed: &[u64], added: &NewStores) -> Result<Self> {
        let wrong = |reason: String| Error::corruption("MANIFEST", 0, reason);
        let mut next = self.clone();
        for &number in removed {
            let before = next.stores();
            for partition in &mut next.partitions {
                partition.hash_stores.retain(|store| store.entry().number != number);
                partition.sorted.take_if(|store| store.entry().number == number);
            }
            if next.stores() == before {
                return Err(wrong(format!("removes store {number}, which does not exist")));
            }
        }
        let lacks =
            |partition: u32| wrong(format!("names partition {partition}, which does not exist"));
        for store in &added.hash_stores {
            let at = store.entry().partition;
            let partition = next.partitions.get_mut(at as usize).ok_or_else(|| lacks(at))?;
            partition.hash_stores.insert(0, store.clone());
        }
        for store in &added.sorted_stores {
            let at = store.entry().partition;
            let partition = next.partitions.get_mut(at as usize).ok_or_else(|| lacks(at))?;
            if partition.sorted.replace(store.clone()).is_some() {
                return Err(wrong(format!("gives partition {at} a second SortedStore")));
            }
        }
        Ok(next)
    }

    pub(crate) fn hash_stores(&self) -> impl Iterator<Item = &Arc<HashStore>> {
        self.partitions.iter().flat_map(|partition| &partition.hash_stores)
    }

    pub(crate) fn sorted_stores(&self) -> impl Iterator<Item = &Arc<SortedStore>> {
        self.partitions.iter().filter_map(|partition| partition.sorted.as_ref())
    }

    pub(crate) fn stores(&self) -> usize {
        self.hash_stores().count() + self.sorted_stores().count()
    }

    /// The manifest entries of the stores: HashStores the oldest first, the order of their
    /// additions.
    pub(crate) fn entries(&self) -> (Vec<StoreEntry>, Vec<StoreEntry>) {
        let hash = self.partitions.iter().flat_map(|partition| partition.hash_stores.iter().rev());
        let hash = hash.map(|store| *store.entry()).collect();
        (hash, self.sorted_stores().map(|store| *store.entry()).collect())
    }

    /// The names of all files.
    pub(crate) fn names(&self) -> Vec<String> {
        let hash = self.hash_stores().flat_map(|store| store.names());
        hash.chain(self.sorted_stores().flat_map(|store| store.names())).collect()
    }
}

//! How the engine's edits are recorded, opened and applied.
//!
//! The manifest, the current version and the order of steps are those of
//! [`siltstone_durable::version_set`]. This file opens the stores that an edit adds, loads their
//! filters and indexes as far as there is memory, and retires the stores that it removes.

use std::sync::Arc;

use siltstone_durable::{
    RecoveredManifest, VersionSet, VersionState, missing_file, reject_orphans,
};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::Vfs;

use super::{Edit, NewStores, Version};
use crate::hash_store::HashStore;
use crate::indexes;
use crate::keys::KeyHasher;
use crate::names;
use crate::sorted_store::SortedStore;
use crate::store_entry::StoreEntry;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "silt";

impl VersionState for Version {
    type Edit = Edit;

    const ENGINE: &'static str = ENGINE;

    fn to_edit(&self) -> Edit {
        let (hash_stores, sorted_stores) = self.entries();
        Edit { keys: Some(self.keys), hash_stores, sorted_stores, ..Edit::default() }
    }

    fn retire(&self, edit: &Edit, _: &Version) {
        let is_removed = |store: &StoreEntry| edit.removed.contains(&store.number);
        self.hash_stores().filter(|store| is_removed(store.entry())).for_each(|s| s.retire());
        self.sorted_stores().filter(|store| is_removed(store.entry())).for_each(|s| s.retire());
    }
}

/// Opens what the manifest names, or creates an empty table that partitions keys by `keys` if there
/// is no manifest.
pub(crate) fn open_versions(
    vfs: &Arc<dyn Vfs>,
    keys: KeyHasher,
) -> Result<(VersionSet<Version>, RecoveredManifest<Version>)> {
    let initial = Edit { keys: Some(keys), ..Edit::default() };
    let check_empty = || reject_orphans(vfs.as_ref(), |name| names::parse(name).is_some());
    VersionSet::open(vfs, initial, check_empty, |edit: &Edit| {
        let lacks_keys = || Error::corruption("MANIFEST", 0, "the manifest names no partitions");
        let keys = edit.keys.filter(|keys| keys.partitions > 0).ok_or_else(lacks_keys)?;
        let added = open_stores(vfs, edit, Purpose::Recovery).map_err(missing_file)?;
        Version::empty(keys).apply(&[], &added)
    })
}

impl Version {
    /// The version after `edit`. Filters and indexes may take `memory` bytes.
    pub(crate) fn open_and_apply(
        &self,
        vfs: &Arc<dyn Vfs>,
        edit: &Edit,
        memory: u64,
    ) -> Result<Version> {
        let added = open_stores(vfs, edit, Purpose::Maintenance)?;
        let next = self.apply(&edit.removed, &added)?;
        // Before readers see the version, so that no lookup lacks an index that there is memory
        // for.
        indexes::load(&next, memory, &edit.added(), Purpose::Maintenance)?;
        Ok(next)
    }

    /// The edit that removes every store, and the version after it.
    pub(crate) fn cleared(&self) -> (Edit, Version) {
        let (hash_stores, sorted_stores) = self.entries();
        let removed = hash_stores.iter().chain(&sorted_stores).map(|store| store.number).collect();
        (Edit { removed, ..Edit::default() }, Version::empty(self.keys))
    }
}

/// Opens the stores that an edit adds; filters and indexes are not loaded yet.
fn open_stores(vfs: &Arc<dyn Vfs>, edit: &Edit, purpose: Purpose) -> Result<NewStores> {
    let mut added = NewStores::default();
    for &entry in &edit.sorted_stores {
        added.sorted_stores.push(SortedStore::open(vfs, entry, purpose)?);
    }
    for &entry in &edit.hash_stores {
        added.hash_stores.push(HashStore::open(vfs, entry, purpose)?);
    }
    Ok(added)
}

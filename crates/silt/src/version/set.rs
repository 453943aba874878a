//! How the engine's edits are recorded, opened and applied.
//!
//! The manifest, the current version and the order of steps are those of
//! [`siltstone_durable::version_set`]. This file opens the stores that an edit adds, loads their
//! filters and indexes as far as there is memory, and retires the stores that it removes.

use std::sync::Arc;

use siltstone_durable::{
    EditHeader, Recovered, VersionEdit, VersionSet, VersionState, missing_file, reject_orphans,
};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::Vfs;

use super::{Added, Edit, Version};
use crate::hash_store::HashStore;
use crate::indexes;
use crate::keys::KeyHasher;
use crate::names;
use crate::sorted_store::SortedStore;
use crate::store_entry::StoreEntry;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "silt";

impl VersionEdit for Edit {
    fn encode(&self) -> Vec<u8> {
        self.encode()
    }

    fn decode(bytes: &[u8]) -> std::result::Result<Self, String> {
        Edit::decode(bytes)
    }

    fn header(&self) -> EditHeader {
        EditHeader {
            next_file: self.next_file,
            first_log: self.first_log,
            sealed_log: self.sealed_log,
            ..EditHeader::default()
        }
    }

    fn set_header(&mut self, header: EditHeader) {
        self.next_file = header.next_file;
        self.first_log = header.first_log;
        self.sealed_log = header.sealed_log;
    }

    fn merge_files(&mut self, newer: Edit) -> std::result::Result<(), String> {
        for number in newer.removed {
            let before = self.hash_stores.len() + self.sorted_stores.len();
            self.hash_stores.retain(|store| store.number != number);
            self.sorted_stores.retain(|store| store.number != number);
            if self.hash_stores.len() + self.sorted_stores.len() == before {
                return Err(format!("removes store {number}, which is not there"));
            }
        }
        self.hash_stores.extend(newer.hash_stores);
        self.sorted_stores.extend(newer.sorted_stores);
        self.keys = newer.keys.or(self.keys);
        Ok(())
    }
}

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
) -> Result<(VersionSet<Version>, Recovered<Version>)> {
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
        let stores = edit.sorted_stores.iter().chain(&edit.hash_stores);
        let numbers: Vec<u64> = stores.map(|store| store.number).collect();
        indexes::load(&next, memory, &numbers, Purpose::Maintenance)?;
        Ok(next)
    }
}

/// Opens the stores that an edit adds; filters and indexes are not loaded yet.
fn open_stores(vfs: &Arc<dyn Vfs>, edit: &Edit, purpose: Purpose) -> Result<Added> {
    let mut added = Added::default();
    for &entry in &edit.sorted_stores {
        added.sorted_stores.push(SortedStore::open(vfs, entry, purpose)?);
    }
    for &entry in &edit.hash_stores {
        added.hash_stores.push(HashStore::open(vfs, entry, purpose)?);
    }
    Ok(added)
}

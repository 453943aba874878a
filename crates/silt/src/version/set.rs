//! The current version and the manifest behind it.
//!
//! Installing an edit takes three steps in this order: the stores are opened (one that cannot be read
//! is not installed), the manifest has the edit durably, the next version is made. Only one edit is
//! installed at a time; readers never wait for one.
//!
//! Invariant: a store is named by the manifest only when its files and their names are durable, and
//! its files are removed only when the manifest has durably ceased to name it.
//!
//! Source: ours, after LevelDB's version set.

use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{FileNumbers, Manifest};
use siltstone_vfs::Vfs;

use super::{Added, Edit, StoreEntry, Version};
use crate::hash_store::HashStore;
use crate::indexes;
use crate::keys::KeyHasher;
use crate::names;
use crate::sorted_store::SortedStore;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "silt";

/// Installs edits and hands out file numbers.
pub(crate) struct Versions {
    vfs: Arc<dyn Vfs>,
    keys: KeyHasher,
    numbers: FileNumbers,
    installing: Mutex<Installing>,
}

struct Installing {
    /// `None` once the table is closed.
    manifest: Option<Manifest>,
    version: Arc<Version>,
    first_log: u64,
}

/// What the manifest says, for the rest of recovery.
pub(crate) struct Recovered {
    pub(crate) version: Arc<Version>,
    pub(crate) keys: KeyHasher,
    pub(crate) first_log: u64,
    pub(crate) sealed_log: Option<(u64, u64)>,
}

impl Versions {
    /// Opens what the manifest names, or makes an empty table that divides keys as `keys` says, if
    /// `media` has no manifest.
    pub(crate) fn open(vfs: &Arc<dyn Vfs>, keys: KeyHasher) -> Result<(Self, Recovered)> {
        let (manifest, edits) = if Manifest::exists(vfs.as_ref())? {
            Manifest::open(vfs.clone(), ENGINE).map_err(missing_manifest)?
        } else {
            refuse_remains(vfs.as_ref())?;
            let empty = Edit { next_file: Some(1), keys: Some(keys), ..Edit::default() };
            let snapshot = empty.encode();
            (Manifest::create(vfs.clone(), ENGINE, &snapshot)?, vec![snapshot])
        };
        let state = fold(&edits)?;
        let lacks_keys = || Error::corruption("MANIFEST", 0, "the manifest names no partitions");
        let keys = state.keys.filter(|keys| keys.partitions > 0).ok_or_else(lacks_keys)?;
        let first_log = state.first_log.unwrap_or(0);
        let mut versions = Versions {
            vfs: vfs.clone(),
            keys,
            numbers: FileNumbers::of_manifest(state.next_file)?,
            installing: Mutex::new(Installing {
                manifest: Some(manifest),
                version: Arc::new(Version::empty(keys.partitions)),
                first_log,
            }),
        };
        let added = versions.open_stores(&state, Purpose::Recovery).map_err(missing_file)?;
        let version = Arc::new(Version::empty(keys.partitions).apply(&[], &added)?);
        versions.installing.get_mut().version = version.clone();
        let recovered = Recovered { version, keys, first_log, sealed_log: state.sealed_log };
        Ok((versions, recovered))
    }

    pub(crate) fn keys(&self) -> KeyHasher {
        self.keys
    }

    /// A file number that was never given before.
    pub(crate) fn new_number(&self) -> u64 {
        self.numbers.take()
    }

    /// Makes sure that `number` is not given again.
    pub(crate) fn skip_number(&self, number: u64) {
        self.numbers.skip(number);
    }

    /// Opens the stores that an edit adds; filters and indexes are not loaded yet.
    fn open_stores(&self, edit: &Edit, purpose: Purpose) -> Result<Added> {
        let mut added = Added::default();
        for &entry in &edit.sorted_stores {
            added.sorted_stores.push(SortedStore::open(&self.vfs, entry, purpose)?);
        }
        for &entry in &edit.hash_stores {
            added.hash_stores.push(HashStore::open(&self.vfs, entry, purpose)?);
        }
        Ok(added)
    }

    /// Installs `edit`: the manifest first, durably; then `publish` sees the next version while no
    /// other edit can come between. Stores that were removed are retired. Filters and indexes may take
    /// `memory` bytes.
    pub(crate) fn install(
        &self,
        mut edit: Edit,
        memory: u64,
        publish: impl FnOnce(&Arc<Version>),
    ) -> Result<()> {
        let mut installing = self.installing.lock();
        let added = self.open_stores(&edit, Purpose::Maintenance)?;
        let next = Arc::new(installing.version.apply(&edit.removed, &added)?);
        // Before readers come, so that no lookup has to do without where there is room.
        let stores = edit.sorted_stores.iter().chain(&edit.hash_stores);
        let numbers: Vec<u64> = stores.map(|store| store.number).collect();
        indexes::load(&next, memory, &numbers, Purpose::Maintenance)?;
        edit.next_file = Some(self.numbers.next());
        installing.manifest.as_mut().ok_or(Error::Closed)?.append(&edit.encode())?;

        installing.first_log = edit.first_log.unwrap_or(installing.first_log);
        let before = std::mem::replace(&mut installing.version, next);
        publish(&installing.version);
        let is_gone = |store: &StoreEntry| edit.removed.contains(&store.number);
        before.hash_stores().filter(|store| is_gone(store.entry())).for_each(|s| s.retire());
        before.sorted_stores().filter(|store| is_gone(store.entry())).for_each(|s| s.retire());
        drop(before);
        self.shrink_manifest(&mut installing, edit.sealed_log);
        Ok(())
    }

    /// Makes sure that the medium has the manifest that was opened: files that it does not name may go.
    pub(crate) fn settle(&self) -> Result<()> {
        self.installing.lock().manifest.as_mut().ok_or(Error::Closed)?.persist_recovered()
    }

    /// Seals the manifest: no more edits.
    pub(crate) fn close(&self) -> Result<()> {
        self.installing.lock().manifest.take().map_or(Ok(()), Manifest::close)
    }

    /// The current version, and the edit that makes it from nothing.
    pub(crate) fn snapshot(&self) -> (Arc<Version>, Edit) {
        let installing = self.installing.lock();
        (installing.version.clone(), self.edit_of(&installing))
    }

    fn edit_of(&self, installing: &Installing) -> Edit {
        let (hash_stores, sorted_stores) = installing.version.entries();
        Edit {
            next_file: Some(self.numbers.next()),
            first_log: Some(installing.first_log),
            keys: Some(self.keys),
            hash_stores,
            sorted_stores,
            ..Edit::default()
        }
    }

    /// Rewrites the manifest once it is much longer than what it says; `sealed_log` is what the last edit
    /// says of one. The edit is installed in any case: if this fails, the next one hears of it if it must.
    fn shrink_manifest(&self, installing: &mut Installing, sealed_log: Option<(u64, u64)>) {
        if installing.manifest.as_ref().is_some_and(Manifest::should_rewrite) {
            let snapshot = Edit { sealed_log, ..self.edit_of(installing) }.encode();
            let _ = installing.manifest.as_mut().map(|manifest| manifest.rewrite(&snapshot));
        }
    }
}

/// Folds all edits into the one that makes their result from nothing.
pub(crate) fn fold(edits: &[Vec<u8>]) -> Result<Edit> {
    let mut state = Edit::default();
    for bytes in edits {
        let edit = Edit::decode(bytes).map_err(|e| Error::corruption("MANIFEST", 0, e))?;
        for number in &edit.removed {
            let before = state.hash_stores.len() + state.sorted_stores.len();
            state.hash_stores.retain(|store| store.number != *number);
            state.sorted_stores.retain(|store| store.number != *number);
            if state.hash_stores.len() + state.sorted_stores.len() == before {
                let reason = format!("removes store {number}, which is not there");
                return Err(Error::corruption("MANIFEST", 0, reason));
            }
        }
        state.hash_stores.extend(edit.hash_stores);
        state.sorted_stores.extend(edit.sorted_stores);
        state.next_file = edit.next_file.or(state.next_file);
        state.first_log = edit.first_log.or(state.first_log);
        state.keys = edit.keys.or(state.keys);
        // A seal speaks of the close before this open; any edit after it breaks it.
        state.sealed_log = edit.sealed_log;
    }
    Ok(state)
}

/// Stores or logs without a manifest are a table that lost it, not a place for a new one.
fn refuse_remains(vfs: &dyn Vfs) -> Result<()> {
    match vfs.list()?.into_iter().find(|name| names::parse(name).is_some()) {
        None => Ok(()),
        Some(name) => Err(Manifest::missing(&name)),
    }
}

fn missing_manifest(error: Error) -> Error {
    match &error {
        Error::Io { file, .. } if error.is_not_found() => {
            Error::corruption(file, 0, "CURRENT names this manifest, and it is missing")
        }
        _ => error,
    }
}

/// A file that the manifest names and the directory lacks is damage, not a missing file.
fn missing_file(error: Error) -> Error {
    match &error {
        Error::Io { file, .. } if error.is_not_found() => {
            Error::corruption(file, 0, "the manifest names this file, and it is missing")
        }
        _ => error,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use siltstone_vfs::Ram;

    use super::*;

    #[test]
    fn is_a_log_as_sealed_when_the_manifest_has_shrunk_as_before() {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let keys = KeyHasher { seed: 1, partitions: 1 };
        let (versions, _) = Versions::open(&vfs, keys).unwrap();
        let file_name = || versions.installing.lock().manifest.as_ref().unwrap().file_name();
        let (before, mut bytes) = (file_name(), 0);
        // Every edit seals, so the one after which the manifest shrinks does.
        while file_name() == before {
            bytes += 1;
            let edit = Edit { sealed_log: Some((1, bytes)), ..Edit::default() };
            versions.install(edit, 0, |_| ()).unwrap();
        }
        versions.close().unwrap();
        let (_, recovered) = Versions::open(&vfs, keys).unwrap();
        assert_eq!(recovered.sealed_log, Some((1, bytes)));
    }
}

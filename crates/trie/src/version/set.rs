//! The current version and the manifest behind it.
//!
//! Installing an edit takes two steps in this order: the manifest has it durably, then the next
//! version is made. Only one edit is installed at a time; readers never wait for one.
//!
//! Invariant: a version names only files that the manifest names durably.
//!
//! Source: LevelDB's version set; see ARCHITECTURE.md for the rules.

use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};
use siltstone_table::{FileNumbers, Manifest};
use siltstone_vfs::Vfs;

use super::{Edit, OpenFiles, TrieConfig, Version};
use crate::cluster::Cluster;
use crate::files::{Kind, StorageTiers};
use crate::htable::HTable;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "trie";

/// Installs edits and hands out file numbers.
pub(crate) struct Versions {
    tiers: StorageTiers,
    numbers: FileNumbers,
    pub(crate) config: TrieConfig,
    installing: Mutex<Installing>,
}

struct Installing {
    /// `None` once the table is closed.
    manifest: Option<Manifest>,
    version: Arc<Version>,
    /// How often all keys were removed since the opening.
    generation: u64,
    last_sequence: u64,
    first_log: u64,
}

/// What the manifest says, for the rest of recovery.
pub(crate) struct Recovered {
    /// There was no manifest before.
    pub(crate) is_new: bool,
    pub(crate) version: Arc<Version>,
    pub(crate) last_sequence: u64,
    pub(crate) first_log: u64,
    pub(crate) sealed_log: Option<(u64, u64)>,
}

impl Versions {
    /// Opens what the manifest names, or makes an empty table of `config` if `media` has none.
    pub(crate) fn open(tiers: &StorageTiers, config: TrieConfig) -> Result<(Self, Recovered)> {
        let vfs = &tiers.main;
        let is_new = !Manifest::exists(vfs.as_ref())?;
        let (manifest, edits) = if !is_new {
            Manifest::open(vfs.clone(), ENGINE).map_err(missing_manifest)?
        } else {
            refuse_remains(tiers)?;
            let empty = Edit { next_file: Some(1), config: Some(config), ..Edit::default() };
            let snapshot = empty.encode();
            (Manifest::create(vfs.clone(), ENGINE, &snapshot)?, vec![snapshot])
        };
        let state = fold(&edits)?;
        let config = state
            .config
            .ok_or_else(|| Error::corruption("MANIFEST", 0, "the table's config is missing"))?;
        let opened = open_all(tiers, &state, &Version::default())?;
        let version = Arc::new(Version::default().apply(&state, &opened)?);
        let first_log = state.first_log.unwrap_or(0);
        let last_sequence = state.last_sequence.unwrap_or(0);
        let recovered = Recovered {
            is_new,
            version: version.clone(),
            last_sequence,
            first_log,
            sealed_log: state.sealed_log,
        };
        let manifest = Some(manifest);
        let generation = 0;
        let installing = Installing { manifest, version, generation, last_sequence, first_log };
        let versions = Versions {
            tiers: tiers.clone(),
            numbers: FileNumbers::of_manifest(state.next_file)?,
            config,
            installing: Mutex::new(installing),
        };
        Ok((versions, recovered))
    }

    /// A file number that was never given before.
    pub(crate) fn new_number(&self) -> u64 {
        self.numbers.take()
    }

    /// Makes sure that `number` is not given again.
    pub(crate) fn skip_number(&self, number: u64) {
        self.numbers.skip(number);
    }

    /// Installs `edit`: the manifest first, durably; then `publish` sees the next version while no
    /// other edit can come between. Files that it no longer names are retired. `false`: all keys
    /// were removed since `generation`, and nothing is installed.
    pub(crate) fn install(
        &self,
        generation: u64,
        mut edit: Edit,
        publish: impl FnOnce(&Arc<Version>),
    ) -> Result<bool> {
        let mut installing = self.installing.lock();
        if installing.generation != generation {
            return Ok(false);
        }
        // Opened before the manifest names them: a file that cannot be read is not installed.
        let opened = open_all(&self.tiers, &edit, &installing.version)?;
        let next = Arc::new(installing.version.apply(&edit, &opened)?);
        edit.next_file = Some(self.numbers.next());
        installing.manifest.as_mut().ok_or(Error::Closed)?.append(&edit.encode())?;

        installing.last_sequence = edit.last_sequence.unwrap_or(0).max(installing.last_sequence);
        installing.first_log = edit.first_log.unwrap_or(installing.first_log);
        let before = std::mem::replace(&mut installing.version, next.clone());
        publish(&installing.version);
        retire(&edit, &before, &next);
        drop(before);
        let next_file = self.numbers.next();
        installing.shrink_manifest(self.config, next_file, edit.sealed_log);
        Ok(true)
    }

    /// Removes every table and cluster, and makes the logs before `first_log` needless: one edit,
    /// durable before `publish` sees it and the empty version. No write has a sequence number above
    /// `sequence`.
    ///
    /// # Errors
    /// The medium's. Nothing has changed if the disk is full; otherwise the next opening tells.
    pub(crate) fn clear(
        &self,
        first_log: u64,
        sequence: u64,
        publish: impl FnOnce(&Edit, &Arc<Version>),
    ) -> Result<()> {
        let mut installing = self.installing.lock();
        let (tables, clusters) = installing.version.entries();
        let mut edit = Edit {
            first_log: Some(first_log),
            last_sequence: Some(sequence.max(installing.last_sequence)),
            removed: tables.iter().map(|added| (added.container_id, added.number)).collect(),
            clusters: clusters.iter().map(|&(container_id, ..)| (container_id, 0, 0)).collect(),
            ..Edit::default()
        };
        let next = Arc::new(installing.version.apply(&edit, &OpenFiles::default())?);
        edit.next_file = Some(self.numbers.next());
        installing.manifest.as_mut().ok_or(Error::Closed)?.append(&edit.encode())?;

        installing.generation += 1;
        installing.last_sequence = installing.last_sequence.max(sequence);
        installing.first_log = first_log;
        let before = std::mem::replace(&mut installing.version, next.clone());
        publish(&edit, &installing.version);
        retire(&edit, &before, &next);
        drop(before);
        let next_file = self.numbers.next();
        installing.shrink_manifest(self.config, next_file, None);
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

    /// What the manifest would say if it were written anew now. For checkpoints.
    pub(crate) fn snapshot(&self) -> (Arc<Version>, Edit) {
        let installing = self.installing.lock();
        let edit = installing.snapshot(self.config, self.numbers.next());
        (installing.version.clone(), edit)
    }
}

impl Installing {
    fn snapshot(&self, config: TrieConfig, next_file: u64) -> Edit {
        let (added, clusters) = self.version.entries();
        Edit {
            next_file: Some(next_file),
            last_sequence: Some(self.last_sequence),
            first_log: Some(self.first_log),
            added,
            clusters,
            config: Some(config),
            ..Edit::default()
        }
    }

    /// Rewrites the manifest once it is much longer than what it says; `sealed_log` is what the last edit
    /// says of one. The edit is installed in any case: if this fails, the next one hears of it if it must.
    fn shrink_manifest(
        &mut self,
        config: TrieConfig,
        next_file: u64,
        sealed_log: Option<(u64, u64)>,
    ) {
        if self.manifest.as_ref().is_some_and(Manifest::should_rewrite) {
            let snapshot = Edit { sealed_log, ..self.snapshot(config, next_file) }.encode();
            let _ = self.manifest.as_mut().map(|manifest| manifest.rewrite(&snapshot));
        }
    }
}

/// Opens the files that `edit` adds. A filter is loaded unless a cluster has it.
fn open_all(tiers: &StorageTiers, edit: &Edit, before: &Version) -> Result<OpenFiles> {
    let mut opened = OpenFiles::default();
    for &(_, number, bytes) in edit.clusters.iter().filter(|(_, number, _)| *number > 0) {
        opened.clusters.insert(number, Arc::new(Cluster::open(tiers, number, bytes)?));
    }
    for added in &edit.added {
        let named = edit
            .clusters
            .iter()
            .rev()
            .find(|(container_id, ..)| *container_id == added.container_id);
        let cluster = match named {
            Some((_, number, _)) => opened.clusters.get(number),
            None => before.at(added.container_id).and_then(|container| container.cluster.as_ref()),
        };
        let wants_filter = !cluster.is_some_and(|cluster| cluster.contains(added.number));
        let table = HTable::open(tiers, added.number, added.bytes, wants_filter)?;
        opened.tables.insert(added.number, Arc::new(table));
    }
    Ok(opened)
}

/// Marks what only `before` names, and forgets the filters that clusters have now.
fn retire(edit: &Edit, before: &Version, next: &Version) {
    for (container_id, number) in &edit.removed {
        let tables = before.at(*container_id).into_iter().flat_map(|container| &container.tables);
        tables.filter(|table| table.number() == *number).for_each(|table| table.retire());
    }
    for (container_id, ..) in &edit.clusters {
        let old = before.at(*container_id).and_then(|container| container.cluster.as_ref());
        let new = next.at(*container_id).and_then(|container| container.cluster.as_ref());
        if let Some(old) = old.filter(|old| new.is_none_or(|new| new.number() != old.number())) {
            old.retire();
        }
        if let (Some(container), Some(cluster)) = (next.at(*container_id), new) {
            let tables = container.tables.iter();
            tables.filter(|table| cluster.contains(table.number())).for_each(|t| t.drop_filter());
        }
    }
}

/// Folds all edits into the one that makes their result from nothing.
pub(crate) fn fold(edits: &[Vec<u8>]) -> Result<Edit> {
    let mut state = Edit::default();
    for bytes in edits {
        let edit = Edit::decode(bytes).map_err(|e| Error::corruption("MANIFEST", 0, e))?;
        for &(container_id, number) in &edit.removed {
            let at = state
                .added
                .iter()
                .position(|a| (a.container_id, a.number) == (container_id, number));
            let at = at.ok_or_else(|| {
                let reason = format!("removes table {number}, which {container_id:?} lacks");
                Error::corruption("MANIFEST", 0, reason)
            })?;
            state.added.remove(at);
        }
        for added in edit.added {
            let first =
                state.added.iter().position(|other| other.container_id == added.container_id);
            let at = first.filter(|_| added.is_oldest).unwrap_or(state.added.len());
            state.added.insert(at, super::AddedTable { is_oldest: false, ..added });
        }
        for cluster in edit.clusters {
            state.clusters.retain(|(container_id, ..)| *container_id != cluster.0);
            if cluster.1 > 0 {
                state.clusters.push(cluster);
            }
        }
        state.next_file = edit.next_file.or(state.next_file);
        state.last_sequence = edit.last_sequence.max(state.last_sequence);
        state.first_log = edit.first_log.or(state.first_log);
        // A seal speaks of the close before this open; any edit after it breaks it.
        state.sealed_log = edit.sealed_log;
        state.config = edit.config.or(state.config);
    }
    Ok(state)
}

/// Files without a manifest are a store that lost it, not a place for a new one: a new one would
/// remove them.
fn refuse_remains(tiers: &StorageTiers) -> Result<()> {
    let remains = |vfs: &dyn Vfs| -> Result<Option<String>> {
        Ok(vfs.list()?.into_iter().find(|name| Kind::parse(name).is_some()))
    };
    if let Some(name) = remains(tiers.main.as_ref())? {
        return Err(Manifest::missing(&name));
    }
    match &tiers.fast {
        // They may be another table's, which is as it should be.
        Some((upper, _)) => remains(upper.as_ref())?.map_or(Ok(()), |name| {
            let reason = format!("there is {name}, and the table that is to be made has no files");
            Err(Error::Refused {
                path: upper.name(),
                reason: format!("{reason}; give another directory"),
            })
        }),
        None => Ok(()),
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

#[cfg(test)]
mod tests {
    use siltstone_faults::{FaultKind, FaultyVfs};

    use super::*;
    use crate::version::ContainerId;

    /// An edit of many bytes that changes nothing.
    fn long() -> Edit {
        Edit { clusters: vec![(ContainerId { level: 0, id: 0 }, 0, 0); 30_000], ..Edit::default() }
    }

    #[test]
    fn is_an_edit_installed_and_a_seal_kept_whether_or_not_the_manifest_can_shrink() {
        let faulty = FaultyVfs::new(1);
        let vfs: Arc<dyn Vfs> = Arc::new(faulty.clone());
        let tiers = StorageTiers { main: vfs.clone(), fast: None };
        let config = TrieConfig { fanout_bits: 1, ..TrieConfig::default() };
        let (versions, _) = Versions::open(&tiers, config).unwrap();
        let bytes = || {
            let named = |path: &str| path.contains("MANIFEST-");
            faulty.files().iter().filter(|file| named(&file.path)).map(|file| file.len).sum::<u64>()
        };
        // The first copies what was opened.
        versions.install(0, long(), |_| ()).unwrap();
        // The others only append; to begin a file is to shrink.
        faulty.fail_next(FaultKind::Names, 100);
        while bytes() < 3 << 19 {
            versions.install(0, long(), |_| ()).unwrap();
        }
        faulty.clear_faults();
        let seal = Edit { sealed_log: Some((7, 99)), ..Edit::default() };
        versions.install(0, seal, |_| ()).unwrap();
        assert!(bytes() < 1 << 19, "it was not shrunk");
        versions.close().unwrap();
        let (_, edits) = Manifest::open(vfs, ENGINE).unwrap();
        assert_eq!(fold(&edits).unwrap().sealed_log, Some((7, 99)));
    }
}

//! How the trie's edits are recorded, opened and applied.
//!
//! The manifest, the current version and the order of steps are those of
//! [`siltstone_durable::version_set`]. This file opens the tables and BloomClusters that an edit
//! adds, and retires those that it removes.

use std::sync::Arc;

use siltstone_durable::{RecoveredManifest, VersionSet, VersionState, reject_orphans};
use siltstone_engine::{Error, Result};

use super::{Edit, OpenFiles, Version};
use crate::cluster::Cluster;
use crate::config::TrieConfig;
use crate::files::{Kind, StorageTiers};
use crate::htable::HTable;

/// The engine's name in the manifest.
pub(crate) const ENGINE: &str = "trie";

impl VersionState for Version {
    type Edit = Edit;

    const ENGINE: &'static str = ENGINE;

    fn to_edit(&self) -> Edit {
        let (added, clusters) = self.entries();
        Edit { added, clusters, config: Some(self.config), ..Edit::default() }
    }

    /// Also drops the filters of tables that a cluster contains now.
    fn retire(&self, edit: &Edit, next: &Version) {
        for (container_id, number) in &edit.removed {
            let tables = self.at(*container_id).into_iter().flat_map(|container| &container.tables);
            tables.filter(|table| table.number() == *number).for_each(|table| table.retire());
        }
        for (container_id, ..) in &edit.clusters {
            let old = self.at(*container_id).and_then(|container| container.cluster.as_ref());
            let new = next.at(*container_id).and_then(|container| container.cluster.as_ref());
            if let Some(old) = old.filter(|old| new.is_none_or(|new| new.number() != old.number()))
            {
                old.retire();
            }
            if let (Some(container), Some(cluster)) = (next.at(*container_id), new) {
                let tables = container.tables.iter();
                tables
                    .filter(|table| cluster.contains(table.number()))
                    .for_each(|t| t.drop_filter());
            }
        }
    }
}

/// Opens what the manifest names, or creates an empty table of `config` if there is no manifest.
pub(crate) fn open_versions(
    tiers: &StorageTiers,
    config: TrieConfig,
) -> Result<(VersionSet<Version>, RecoveredManifest<Version>)> {
    let initial = Edit { config: Some(config), ..Edit::default() };
    VersionSet::open(
        &tiers.main,
        initial,
        || check_empty(tiers),
        |edit: &Edit| {
            let missing = || Error::corruption("MANIFEST", 0, "the table's config is missing");
            let empty = Version { config: edit.config.ok_or_else(missing)?, ..Version::default() };
            empty.apply(edit, &open_added(tiers, edit, &empty)?)
        },
    )
}

impl Version {
    /// The version after `edit`.
    pub(crate) fn open_and_apply(&self, tiers: &StorageTiers, edit: &Edit) -> Result<Version> {
        self.apply(edit, &open_added(tiers, edit, self)?)
    }

    /// The edit that removes every table and cluster, and the version after it.
    pub(crate) fn cleared(&self) -> (Edit, Version) {
        let (tables, clusters) = self.entries();
        let edit = Edit {
            removed: tables.iter().map(|added| (added.container_id, added.number)).collect(),
            clusters: clusters.iter().map(|&(container_id, ..)| (container_id, 0, 0)).collect(),
            ..Edit::default()
        };
        let levels = vec![Arc::default(); self.levels.len()];
        (edit, Version { levels, config: self.config })
    }
}

/// Opens the files that `edit` adds. A filter is loaded unless a cluster has it.
fn open_added(tiers: &StorageTiers, edit: &Edit, before: &Version) -> Result<OpenFiles> {
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

/// Rejects a new table beside files that a table has left.
fn check_empty(tiers: &StorageTiers) -> Result<()> {
    let is_table_file = |name: &str| Kind::parse(name).is_some();
    reject_orphans(tiers.main.as_ref(), is_table_file)?;
    let Some((upper, _)) = &tiers.fast else { return Ok(()) };
    // The files there may be another table's, which is as it should be.
    match upper.list()?.into_iter().find(|name| is_table_file(name)) {
        None => Ok(()),
        Some(name) => Err(Error::Refused {
            path: upper.name(),
            reason: format!(
                "there is {name}, and the table that is to be made has no files; \
                 give another directory"
            ),
        }),
    }
}

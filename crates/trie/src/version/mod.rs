//! Versions: the set of files at a point in time, as a trie.
//!
//! ```text
//!   level 0   container 0        [table 9] [table 8] [table 7]        sub-levels, newest first
//!   level 1   containers 0 … 7   [table 5] | [table 6] [table 2] | …
//!   level 2   containers 0 … 63  …                               and perhaps a BloomCluster each
//! ```
//!
//! A container is a node of the trie, with the items whose hashes begin with its number. All its
//! items are newer than those of its children. A change is an [`Edit`]: first appended to the
//! manifest (durable), then applied to make the next version. A file is deleted when the last
//! version that names it is dropped.
//!
//! Invariant: of one key, an item in an earlier table of this order is newer: levels from 0 on, in
//! a container the tables from the first on.
//!
//! Source: LSM-trie paper, sections 2.3 and 2.4.3.

mod edit;
mod set;

pub(crate) use edit::{AddedTable, Edit};
pub(crate) use set::{ENGINE, open_versions};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use siltstone_engine::{Error, Result};

use crate::cluster::Cluster;
use crate::config::TrieConfig;
use crate::container_id::ContainerId;
use crate::hash::Hash;
use crate::htable::HTable;

/// The tables of one node of the trie.
#[derive(Clone, Default)]
pub(crate) struct Container {
    /// Newest first.
    pub(crate) tables: Vec<Arc<HTable>>,
    pub(crate) cluster: Option<Arc<Cluster>>,
}

impl Container {
    pub(crate) fn bytes(&self) -> u64 {
        self.tables.iter().map(|table| table.bytes()).sum()
    }

    /// The bytes of filters in memory, except those that are dropped because the cluster has them.
    pub(crate) fn filter_bytes(&self) -> u64 {
        let is_clustered = |number| self.cluster.as_ref().is_some_and(|it| it.contains(number));
        let tables = self.tables.iter().filter(|table| !is_clustered(table.number()));
        tables.map(|table| table.memory()[0]).sum()
    }
}

/// The files of the table at a point in time.
#[derive(Clone, Default)]
pub struct Version {
    levels: Vec<Arc<BTreeMap<u64, Arc<Container>>>>,
    config: TrieConfig,
}

/// The open files that an edit adds.
#[derive(Default)]
pub(crate) struct OpenFiles {
    pub(crate) tables: HashMap<u64, Arc<HTable>>,
    pub(crate) clusters: HashMap<u64, Arc<Cluster>>,
}

impl Version {
    /// The container of `hash` on `level`, if it has tables.
    pub(crate) fn container(&self, level: usize, hash: Hash, bits: u32) -> Option<&Arc<Container>> {
        self.levels.get(level)?.get(&hash.container(level, bits))
    }

    pub(crate) fn at(&self, container_id: ContainerId) -> Option<&Arc<Container>> {
        self.levels.get(container_id.level)?.get(&container_id.id)
    }

    /// The number of levels, with tables or without.
    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The deepest level with tables.
    pub(crate) fn deepest(&self) -> usize {
        self.levels.iter().rposition(|level| !level.is_empty()).unwrap_or(0)
    }

    /// All containers with tables, from the top.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (ContainerId, &Arc<Container>)> {
        self.levels.iter().enumerate().flat_map(|(level, containers)| {
            containers.iter().map(move |(&id, container)| (ContainerId { level, id }, container))
        })
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<HTable>> {
        self.containers().flat_map(|(_, container)| &container.tables)
    }

    pub(crate) fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.containers().filter_map(|(_, container)| container.cluster.as_ref())
    }

    /// Whether the container has descendants.
    pub(crate) fn has_descendants(&self, container_id: ContainerId, bits: u32) -> bool {
        self.levels.iter().enumerate().skip(container_id.level + 1).any(|(level, containers)| {
            let shift = (level - container_id.level) as u32 * bits;
            let first = container_id.id << shift;
            containers.range(first..=first + ((1u64 << shift) - 1)).next().is_some()
        })
    }

    /// Whether the container has tables or descendants.
    pub(crate) fn is_occupied(&self, container_id: ContainerId, bits: u32) -> bool {
        self.at(container_id).is_some() || self.has_descendants(container_id, bits)
    }

    /// The manifest entries of all tables and clusters.
    pub(crate) fn entries(&self) -> (Vec<AddedTable>, Vec<(ContainerId, u64, u64)>) {
        let (mut added, mut clusters) = (Vec::new(), Vec::new());
        for (container_id, container) in self.containers() {
            added.extend(container.tables.iter().rev().map(|table| AddedTable {
                container_id,
                number: table.number(),
                bytes: table.bytes(),
                is_oldest: false,
            }));
            let cluster = container.cluster.as_ref();
            clusters
                .extend(cluster.map(|cluster| (container_id, cluster.number(), cluster.bytes())));
        }
        (added, clusters)
    }

    /// The next version: this one with `edit` applied; `opened` are the files that it adds.
    ///
    /// # Errors
    /// `Corruption` if the edit doesn't fit.
    pub(crate) fn apply(&self, edit: &Edit, opened: &OpenFiles) -> Result<Version> {
        let misfit = |what: String| Error::corruption("MANIFEST", 0, what);
        let mut next = self.clone();
        for &(container_id, number) in &edit.removed {
            next.change(container_id, |container| {
                let at = container.tables.iter().position(|table| table.number() == number);
                let at = at.ok_or_else(|| misfit(format!("removes table {number}, not there")))?;
                container.tables.remove(at);
                Ok(())
            })?;
        }
        for added in &edit.added {
            let table = opened.tables.get(&added.number);
            let table =
                table.ok_or_else(|| misfit(format!("table {} was not opened", added.number)))?;
            next.change(added.container_id, |container| {
                let at = if added.is_oldest { container.tables.len() } else { 0 };
                container.tables.insert(at, table.clone());
                Ok(())
            })?;
        }
        for &(container_id, number, _) in &edit.clusters {
            next.change(container_id, |container| {
                container.cluster = opened.clusters.get(&number).cloned();
                Ok(())
            })?;
        }
        Ok(next)
    }

    fn change(
        &mut self,
        container_id: ContainerId,
        change: impl FnOnce(&mut Container) -> Result<()>,
    ) -> Result<()> {
        while self.levels.len() <= container_id.level {
            self.levels.push(Arc::default());
        }
        let level = Arc::make_mut(&mut self.levels[container_id.level]);
        let container = level.entry(container_id.id).or_default();
        change(Arc::make_mut(container))?;
        if container.tables.is_empty() && container.cluster.is_none() {
            level.remove(&container_id.id);
        }
        Ok(())
    }
}

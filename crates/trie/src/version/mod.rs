//! Which files make up the table, now and at each moment that someone still reads: the trie.
//!
//! ```text
//!   level 0   container 0        [table 9] [table 8] [table 7]        sub-levels, newest first
//!   level 1   containers 0 … 7   [table 5] | [table 6] [table 2] | …
//!   level 2   containers 0 … 63  …                               and perhaps a BloomCluster each
//! ```
//!
//! A container holds the items whose hashes begin with its number. All that it holds is newer than
//! what its children hold. A change is an [`Edit`]: written to the manifest (durable), then applied
//! to make the next version; a file goes when the last version that names it has gone.
//!
//! Invariant: of one key, an item in an earlier table of this order is newer: levels from 0 down,
//! in a container the tables from the first on.
//!
//! Source: LSM-trie paper, sections 2.3 and 2.4.3.

mod edit;
mod set;

pub(crate) use edit::{Added, Edit, TrieShape};
pub(crate) use set::{ENGINE, Versions, fold};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use siltstone_engine::{Error, Result};

use crate::cluster::Cluster;
use crate::hash::Hash;
use crate::htable::HTable;

/// No trie is deeper: the options allow fewer levels, and what names a deeper one is damaged or made up. Five
/// bits of prefix a level are then fewer than 64.
pub(crate) const DEEPEST: usize = 12;

/// Where a container is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    pub(crate) level: usize,
    /// The hash prefix of its items.
    pub(crate) id: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "container {} of level {}", self.id, self.level)
    }
}

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

    /// Bytes of filters that are in memory, without those that go because the cluster has them.
    pub(crate) fn filter_bytes(&self) -> u64 {
        let is_clustered = |number| self.cluster.as_ref().is_some_and(|it| it.has(number));
        let tables = self.tables.iter().filter(|table| !is_clustered(table.number()));
        tables.map(|table| table.memory()[0]).sum()
    }
}

/// The files of the table at one moment.
#[derive(Clone, Default)]
pub(crate) struct Version {
    levels: Vec<Arc<BTreeMap<u64, Arc<Container>>>>,
}

/// What an edit adds, open.
#[derive(Default)]
pub(crate) struct Opened {
    pub(crate) tables: HashMap<u64, Arc<HTable>>,
    pub(crate) clusters: HashMap<u64, Arc<Cluster>>,
}

impl Version {
    /// The container of `hash` at `level`, if it has any tables.
    pub(crate) fn container(&self, level: usize, hash: Hash, bits: u32) -> Option<&Arc<Container>> {
        self.levels.get(level)?.get(&hash.container(level, bits))
    }

    pub(crate) fn at(&self, place: Place) -> Option<&Arc<Container>> {
        self.levels.get(place.level)?.get(&place.id)
    }

    /// Levels that there are, with tables or without.
    pub(crate) fn levels(&self) -> usize {
        self.levels.len()
    }

    /// The deepest level with tables.
    pub(crate) fn deepest(&self) -> usize {
        self.levels.iter().rposition(|level| !level.is_empty()).unwrap_or(0)
    }

    /// All containers that have tables, from the top.
    pub(crate) fn containers(&self) -> impl Iterator<Item = (Place, &Arc<Container>)> {
        self.levels.iter().enumerate().flat_map(|(level, containers)| {
            containers.iter().map(move |(&id, container)| (Place { level, id }, container))
        })
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = &Arc<HTable>> {
        self.containers().flat_map(|(_, container)| &container.tables)
    }

    pub(crate) fn clusters(&self) -> impl Iterator<Item = &Arc<Cluster>> {
        self.containers().filter_map(|(_, container)| container.cluster.as_ref())
    }

    /// Whether anything lies below the container.
    pub(crate) fn has_beneath(&self, place: Place, bits: u32) -> bool {
        self.levels.iter().enumerate().skip(place.level + 1).any(|(level, containers)| {
            let shift = (level - place.level) as u32 * bits;
            let first = place.id << shift;
            containers.range(first..=first + ((1u64 << shift) - 1)).next().is_some()
        })
    }

    /// Whether anything lies in or below the container.
    pub(crate) fn has_below(&self, place: Place, bits: u32) -> bool {
        self.at(place).is_some() || self.has_beneath(place, bits)
    }

    /// What a manifest written anew would say of the files.
    pub(crate) fn entries(&self) -> (Vec<Added>, Vec<(Place, u64, u64)>) {
        let (mut added, mut clusters) = (Vec::new(), Vec::new());
        for (place, container) in self.containers() {
            added.extend(container.tables.iter().rev().map(|table| Added {
                place,
                number: table.number(),
                bytes: table.bytes(),
                is_oldest: false,
            }));
            let cluster = container.cluster.as_ref();
            clusters.extend(cluster.map(|cluster| (place, cluster.number(), cluster.bytes())));
        }
        (added, clusters)
    }

    /// The next version: this one with `edit` applied; `opened` is what it adds.
    ///
    /// # Errors
    /// `Corruption` if the edit doesn't fit.
    pub(crate) fn apply(&self, edit: &Edit, opened: &Opened) -> Result<Version> {
        let misfit = |what: String| Error::corruption("MANIFEST", 0, what);
        let mut next = self.clone();
        for &(place, number) in &edit.removed {
            next.change(place, |container| {
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
            next.change(added.place, |container| {
                let at = if added.is_oldest { container.tables.len() } else { 0 };
                container.tables.insert(at, table.clone());
                Ok(())
            })?;
        }
        for &(place, number, _) in &edit.clusters {
            next.change(place, |container| {
                container.cluster = opened.clusters.get(&number).cloned();
                Ok(())
            })?;
        }
        Ok(next)
    }

    fn change(
        &mut self,
        place: Place,
        change: impl FnOnce(&mut Container) -> Result<()>,
    ) -> Result<()> {
        while self.levels.len() <= place.level {
            self.levels.push(Arc::default());
        }
        let level = Arc::make_mut(&mut self.levels[place.level]);
        let container = level.entry(place.id).or_default();
        change(Arc::make_mut(container))?;
        if container.tables.is_empty() && container.cluster.is_none() {
            level.remove(&place.id);
        }
        Ok(())
    }
}

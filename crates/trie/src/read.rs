//! How a read travels: a view is pinned, then searched from the newest data to the oldest.
//!
//! ```text
//!   get(key)   active memtable → flushing memtables → root container → its child → … → last level
//!   container  sub-levels, newest first: filter in memory, or a page of the BloomCluster (one read
//!              for all of them), then the bucket (one read)
//! ```
//!
//! A view is one pointer, loaded without a lock; nothing it names goes away while it is held. The
//! first item found is the newest: stop there.
//!
//! Invariant: a lookup reads at most one page of a cluster in each container on its way.
//!
//! Source: LSM-trie paper, sections 2.4.2 and 2.4.3.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use siltstone_engine::{Entry, Purpose, Result};

use crate::counters::Counters;
use crate::engine::Inner;
use crate::hash::Hash;
use crate::htable::Found;
use crate::memtable::Memtable;
use crate::version::{Container, Version};

/// All that a read can see: the memtables and the files of one moment.
#[derive(Clone)]
pub(crate) struct View {
    pub(crate) active: Arc<Memtable>,
    /// Full memtables on their way to the root container, oldest first.
    pub(crate) flushing: Vec<Arc<Memtable>>,
    pub(crate) version: Arc<Version>,
    /// How often all keys were removed since the opening: what a job made of an earlier
    /// generation's memtables and tables is of no use.
    pub(crate) generation: u64,
}

impl View {
    /// The memtables, newest first.
    pub(crate) fn memtables(&self) -> impl DoubleEndedIterator<Item = &Arc<Memtable>> {
        std::iter::once(&self.active).chain(self.flushing.iter().rev())
    }
}

impl Container {
    /// The item of `key` in the container's newest table that has one, and up to which sequence number
    /// that table holds writes.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: Hash,
        purpose: Purpose,
        counters: &Counters,
    ) -> Result<Option<(Found, u64)>> {
        let mut column = None;
        for table in &self.tables {
            let may_hold = match (table.may_hold(hash), &self.cluster) {
                (Some(may_hold), _) => may_hold,
                (None, Some(cluster)) if !table.is_run() && cluster.has(table.number()) => {
                    if column.is_none() {
                        column = Some(cluster.column(hash, purpose)?);
                        counters.cluster_reads.fetch_add(1, Relaxed);
                    }
                    column.as_ref().is_none_or(|column| column.may_hold(table.number(), hash))
                }
                (None, _) => true,
            };
            if may_hold {
                counters.table_lookups.fetch_add(1, Relaxed);
                if let Some(found) = table.get(key, hash, purpose)? {
                    return Ok(Some((found, table.origin().last_sequence)));
                }
                counters.false_positives.fetch_add(1, Relaxed);
            }
        }
        Ok(None)
    }
}

impl Inner {
    /// The entry of `key`, now.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Entry>> {
        siltstone_engine::entry::check_key(key)?;
        let (view, at) = self.pin()?;
        self.counters.gets.fetch_add(1, Relaxed);
        let in_memory = view.memtables().find_map(|memtable| memtable.get(key, at));
        let found = match in_memory {
            Some(found) => Some(found),
            None => {
                let found = self.find(&view.version, key, view.version.levels(), Purpose::Get)?;
                found.map(|(found, _)| found)
            }
        };
        let Some(Found { value: Some(value), expires_at }) = found else { return Ok(None) };
        if expires_at.is_some_and(|at| at <= self.env.clock.now()) {
            return Ok(None);
        }
        self.counters.gets_found.fetch_add(1, Relaxed);
        Ok(Some(Entry { value, expires_at }))
    }

    /// The newest item of `key` in the levels above `below`, and up to which sequence number its table
    /// holds writes.
    pub(crate) fn find(
        &self,
        version: &Version,
        key: &[u8],
        below: usize,
        purpose: Purpose,
    ) -> Result<Option<(Found, u64)>> {
        let shape = self.versions.shape;
        let hash = shape.hash.hash(key);
        for level in 0..below {
            if let Some(container) = version.container(level, hash, shape.fanout_bits)
                && let Some(found) = container.get(key, hash, purpose, &self.counters)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// A view, and the sequence number up to which to read in it.
    ///
    /// The view is loaded before the sequence: then it holds every write up to the sequence that
    /// this thread could have seen.
    pub(crate) fn pin(&self) -> Result<(Arc<View>, u64)> {
        self.background.check_open()?;
        let view = self.view.load_full();
        Ok((view, self.visible.load(Acquire)))
    }
}

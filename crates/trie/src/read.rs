//! The read path: a view is pinned, then searched from the newest data to the oldest.
//!
//! ```text
//!   get(key)   active memtable → flushing memtables → root container → its child → … → last level
//!   container  tables, newest first: filter in memory, or a page of the BloomCluster (one read for
//!              all of them), then the bucket (one read)
//! ```
//!
//! A view is one pointer, loaded without a lock, and keeps the files that it names alive. The first
//! item found is the newest and ends the search.
//!
//! Invariant: a lookup reads at most one page of a cluster per container.
//!
//! Source: LSM-trie paper, sections 2.4.2 and 2.4.3.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use siltstone_engine::{Entry, Purpose, Result};

use crate::cluster::Column;
use crate::counters::Counters;
use crate::engine::Tree;
use crate::hash::Hash;
use crate::htable::{HTable, LookupResult};
use crate::version::{Container, Version};
use crate::view::View;

impl Container {
    /// Whether a table of the container may have the hash; `None`: the page of its cluster says it,
    /// and `column` is not there yet.
    fn may_contain(&self, table: &HTable, hash: Hash, column: Option<&Column<'_>>) -> Option<bool> {
        match (table.may_contain(hash), &self.cluster) {
            (None, Some(cluster)) if !table.is_run() && cluster.contains(table.number()) => {
                column.map(|column| column.may_contain(table.number(), hash))
            }
            (may_contain, _) => Some(may_contain.unwrap_or(true)),
        }
    }

    /// The item of `key` in the newest table of the container that has one, and the last sequence
    /// number of that table.
    pub(crate) fn get(
        &self,
        key: &[u8],
        hash: Hash,
        purpose: Purpose,
        counters: &Counters,
    ) -> Result<Option<(LookupResult, u64)>> {
        let mut column = None;
        for table in &self.tables {
            let may_contain = match (self.may_contain(table, hash, column.as_ref()), &self.cluster)
            {
                (None, Some(cluster)) => {
                    counters.cluster_reads.fetch_add(1, Relaxed);
                    let read = column.insert(cluster.column(hash, purpose)?);
                    read.may_contain(table.number(), hash)
                }
                (may_contain, _) => may_contain.unwrap_or(true),
            };
            if may_contain {
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

impl Tree {
    /// The present entry of `key`.
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
        let Some(LookupResult { value: Some(value), expires_at }) = found else { return Ok(None) };
        if expires_at.is_some_and(|at| at <= self.env.clock.now()) {
            return Ok(None);
        }
        self.counters.gets_found.fetch_add(1, Relaxed);
        Ok(Some(Entry { value, expires_at }))
    }

    /// The newest item of `key` in the levels above `below`, and the last sequence number of its
    /// table.
    pub(crate) fn find(
        &self,
        version: &Version,
        key: &[u8],
        below: usize,
        purpose: Purpose,
    ) -> Result<Option<(LookupResult, u64)>> {
        let config = self.config;
        let hash = config.hash.hash(key);
        for level in 0..below {
            if let Some(container) = version.container(level, hash, config.fanout_bits)
                && let Some(found) = container.get(key, hash, purpose, &self.counters)?
            {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// See [`siltstone_engine::Engine::begin_reads`]. Pages of clusters are read first, of all keys
    /// at once; they show which buckets to read.
    pub(crate) fn begin_reads(&self, keys: &[&[u8]]) {
        // The lookups report errors.
        let Ok((view, at)) = self.pin() else { return };
        let is_below =
            |key: &&&[u8]| view.memtables().all(|memtable| memtable.get(key, at).is_none());
        let below = keys.iter().filter(is_below);
        let mut waiting: Vec<_> = below.map(|key| (self.config.hash.hash(key), None)).collect();
        for _ in 0..=view.version.levels() {
            let begin = |(hash, page_of)| {
                let page_of = self.begin_read(&view.version, hash, page_of)?;
                Some((hash, Some(page_of)))
            };
            waiting = waiting.into_iter().filter_map(begin).collect();
        }
    }

    /// Starts the next read for a hash. The page of the cluster at the level `page_of` is there, or
    /// on the way; the levels above do not have the hash. Returns the level whose page is read now.
    fn begin_read(&self, version: &Version, hash: Hash, page_of: Option<usize>) -> Option<usize> {
        for level in page_of.unwrap_or(0)..version.levels() {
            let Some(container) = version.container(level, hash, self.config.fanout_bits) else {
                continue;
            };
            let cluster = container.cluster.as_ref();
            let page = cluster.filter(|_| page_of == Some(level));
            let column = page.and_then(|cluster| cluster.column(hash, Purpose::Get).ok());
            for table in &container.tables {
                match (container.may_contain(table, hash, column.as_ref()), cluster) {
                    (Some(false), _) => {}
                    (None, Some(cluster)) => {
                        cluster.begin_read(hash);
                        return Some(level);
                    }
                    _ => {
                        table.begin_read(hash);
                        return None;
                    }
                }
            }
        }
        None
    }

    /// A view, and the sequence number at which to read it.
    ///
    /// The view is loaded before the sequence number, so it contains every write up to the number
    /// that this thread could have seen.
    pub(crate) fn pin(&self) -> Result<(Arc<View>, u64)> {
        self.background.check_open()?;
        let view = self.view.load_full();
        Ok((view, self.visible.load(Acquire)))
    }
}

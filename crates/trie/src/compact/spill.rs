//! A full container is emptied into its children.
//!
//! Each child that gets anything gets one table, as its newest sub-level; nothing of the children is
//! read or rewritten, but for the BloomCluster of a child of the last level, which is written anew
//! with one filter more. Deletions and expired items go along as deletions, since a deeper level may
//! hold what they hide; where there is nothing deeper they end.
//!
//! Invariant: the tables of the container and those in the children change places in one edit.
//!
//! Source: LSM-trie paper, section 2.3 and figure 3.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};

use super::Merged;
use crate::engine::Inner;
use crate::hash::Hash;
use crate::htable::{Filter, Layout, Piece};
use crate::item::Item;
use crate::version::{Edit, Place, Version};

/// What becomes of an item that is gone.
pub(super) enum Fate<'a> {
    Keep(&'a [u8]),
    /// It hides what may lie deeper: a deletion, written anew.
    Delete(Vec<u8>),
    Drop,
}

impl Inner {
    pub(super) fn spill(&self, place: Place) -> Result<()> {
        let view = self.view.load_full();
        let version = &view.version;
        let Some(container) = version.at(place) else { return Ok(()) };
        let shape = self.versions.shape;
        let merged = Merged::load(&container.tables, shape.hash, Purpose::Compaction)?;
        self.background.check_stopping()?;
        let children = 1usize << shape.fanout_bits;
        let mut parts = vec![Vec::new(); children];
        for (hash, bytes) in merged.items() {
            let child = hash.container(place.level + 1, shape.fanout_bits) as usize % children;
            parts[child].push((hash, bytes));
        }
        let mut edit = Edit {
            removed: container.tables.iter().map(|table| (place, table.number())).collect(),
            ..Edit::default()
        };
        if container.cluster.is_some() {
            edit.clusters.push((place, 0, 0));
        }
        for (child, items) in (0u64..).zip(parts) {
            let id = place.id << shape.fanout_bits | child;
            let child = Place { level: place.level + 1, id };
            if let Err(error) = self.fill(version, child, &items, &mut edit) {
                self.remove_files(&super::new_files(&edit));
                return Err(error);
            }
        }
        self.counters.items_in.fetch_add(merged.items_in(), Relaxed);
        self.finish_job(edit)?;
        self.counters.compactions.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Writes the table that goes to `child`, and its cluster if it has one.
    fn fill(
        &self,
        version: &Version,
        child: Place,
        items: &[(Hash, &[u8])],
        edit: &mut Edit,
    ) -> Result<()> {
        self.background.check_stopping()?;
        let hides = version.has_below(child, self.versions.shape.fanout_bits);
        let fates = self.fates(items, hides);
        let pieces = pieces(items, &fates);
        if pieces.is_empty() {
            return Ok(());
        }
        self.counters.items_out.fetch_add(pieces.len() as u64, Relaxed);
        let cluster = version.at(child).and_then(|container| container.cluster.as_ref());
        let build = self.build(Layout::Buckets, cluster.is_none());
        let added = self.write_table(child, &pieces, build, Purpose::Compaction)?;
        edit.added.push(added);
        if let Some(cluster) = cluster {
            let hashes = pieces.iter().map(|piece| piece.hash);
            let filter = Filter::build(hashes, cluster.columns(), self.options.filter_bits);
            let mut filters = vec![(added.number, Arc::new(filter))];
            filters.extend(cluster.load(Purpose::Compaction)?);
            let (number, bytes) = self.write_cluster(child, &filters)?;
            edit.clusters.push((child, number, bytes));
        }
        Ok(())
    }

    /// What becomes of each item, if anything older may lie where it goes (`hides`) or not.
    pub(super) fn fates<'a>(&self, items: &[(Hash, &'a [u8])], hides: bool) -> Vec<Fate<'a>> {
        let now = self.env.clock.now();
        let fate = |&(_, bytes): &(Hash, &'a [u8])| {
            let Some((item, _)) = Item::parse(bytes) else { return Fate::Keep(bytes) };
            match (item.is_gone(now), hides) {
                (true, false) => Fate::Drop,
                (true, true) if item.value.is_some() => {
                    let mut out = Vec::new();
                    Item::delete(item.key).push(&mut out);
                    Fate::Delete(out)
                }
                _ => Fate::Keep(bytes),
            }
        };
        items.iter().map(fate).collect()
    }
}

/// The items that stay, to be written.
pub(super) fn pieces<'a>(items: &[(Hash, &'a [u8])], fates: &'a [Fate<'a>]) -> Vec<Piece<'a>> {
    let piece = |(&(hash, _), fate): (&(Hash, &[u8]), &'a Fate<'a>)| {
        let bytes: &'a [u8] = match fate {
            Fate::Keep(bytes) => bytes,
            Fate::Delete(bytes) => bytes,
            Fate::Drop => return None,
        };
        let is_delete = Item::parse(bytes).is_some_and(|(item, _)| item.value.is_none());
        Some(Piece { hash, bytes, is_delete })
    };
    items.iter().zip(fates).filter_map(piece).collect()
}

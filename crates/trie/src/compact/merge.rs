//! Merging tables: all of them in memory, the newest item of every key.
//!
//! Items are brought into the order of hashes, which is that of buckets, by one sort; of equal hashes
//! the keys decide. A container is held whole: 8 tables of 32 MiB, 40 bytes for each item, and what
//! is written besides.
//!
//! Invariant: of every key exactly one item comes out, from the first table that has it.
//!
//! Source: LSM-trie paper, section 2.3; tables are as small as that so that this fits in memory.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use crate::hash::{Hash, HashKind};
use crate::htable::{HTable, Loaded};
use crate::item::Item;

/// The newest items of some tables, in the order of their hashes.
pub(crate) struct Merged {
    tables: Vec<Loaded>,
    /// Hash, table, and the item's number in it.
    order: Vec<(Hash, u32, u32)>,
}

impl Merged {
    /// Loads and merges `tables`, which come newest first.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub(crate) fn load(tables: &[Arc<HTable>], hash: HashKind, purpose: Purpose) -> Result<Self> {
        let tables: Vec<Loaded> =
            tables.iter().map(|table| table.load(hash, purpose)).collect::<Result<_>>()?;
        let mut order = Vec::with_capacity(tables.iter().map(|table| table.items.len()).sum());
        for (age, table) in (0u32..).zip(&tables) {
            order.extend((0u32..).zip(&table.items).map(|(at, item)| (item.0, age, at)));
        }
        order.sort_unstable();
        let key_of = |(_, table, at): (Hash, u32, u32)| {
            let bytes = tables[table as usize].item(at as usize);
            Item::parse(bytes).map_or(&[][..], |(item, _)| item.key)
        };
        // Of items with one hash, almost always of one key, the first of every key stays.
        let (mut kept, mut group) = (0, 0);
        for at in 0..order.len() {
            let item = order[at];
            if kept > group && order[group].0 != item.0 {
                group = kept;
            }
            let is_shadowed = order[group..kept].iter().any(|&newer| key_of(newer) == key_of(item));
            if !is_shadowed {
                order[kept] = item;
                kept += 1;
            }
        }
        order.truncate(kept);
        Ok(Merged { tables, order })
    }

    /// Items that went in.
    pub(crate) fn items_in(&self) -> u64 {
        self.tables.iter().map(|table| table.items.len() as u64).sum()
    }

    /// The newest item of every key, deletions counted, in the order of hashes.
    pub(crate) fn items(&self) -> impl Iterator<Item = (Hash, &[u8])> {
        self.order
            .iter()
            .map(|&(hash, table, at)| (hash, self.tables[table as usize].item(at as usize)))
    }
}

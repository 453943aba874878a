//! Uniform random sampling of entries.
//!
//! A path from the root draws one slot of each node, filled or not, and is rejected at an empty
//! slot. So every entry is reached by equally many paths of the same length. At the root, which all
//! paths share, only filled slots are drawn.
//!
//! Source: F. Olken and D. Rotem, "Random Sampling from B+ Trees", VLDB 1989.

use super::BLinkTree;
use super::entry::EntryRef;
use super::permutation::SLOTS;

/// Maximum number of paths: nodes are at least half full, so that in trees of any size one path in
/// hundreds is accepted.
const MAX_PATHS: usize = 4096;

impl BLinkTree {
    /// A random entry, uniformly distributed; `None` if there is none. `below(n)` returns a random
    /// number below `n`.
    pub fn random_entry(&self, below: &mut dyn FnMut(u64) -> u64) -> Option<EntryRef<'_>> {
        let found = (0..MAX_PATHS).find_map(|_| self.random_path(below));
        found.or_else(|| self.iter().next())
    }

    fn random_path(&self, below: &mut dyn FnMut(u64) -> u64) -> Option<EntryRef<'_>> {
        let mut node = self.root();
        let mut slots = node.view().count();
        loop {
            let view = node.view();
            let position = below(slots.max(1) as u64) as usize;
            if position >= view.count() {
                return None;
            }
            if node.height() == 0 {
                let entry = node.entry(view, position);
                return node.is_unchanged(view).then_some(entry);
            }
            let child = node.child(view, position);
            if !node.is_unchanged(view) {
                return None;
            }
            (node, slots) = (child, SLOTS);
        }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use std::collections::HashMap;

    use crate::blink_tree::{BLinkTree, NewVersion};

    #[test]
    fn random_entries_are_uniformly_distributed() {
        let tree = BLinkTree::new();
        assert!(tree.random_entry(&mut |n| n - 1).is_none());
        for i in 0u32..2000 {
            // Most keys are close together, some far apart, and one is written often.
            let key = if i % 10 == 0 { (i << 20).to_be_bytes() } else { i.to_be_bytes() };
            for sequence in 0..if i == 7 { 500 } else { 1 } {
                let sequence = u64::from(i) * 1000 + sequence + 1;
                let version =
                    NewVersion { sequence, kind: 1, expires_at: 0, position: 0, value: b"v" };
                tree.insert(&key, version);
            }
        }
        let mut state = 1u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let mut counts: HashMap<Vec<u8>, u32> = HashMap::new();
        for _ in 0..200_000 {
            let entry = tree.random_entry(&mut below).unwrap();
            *counts.entry(entry.key().to_vec()).or_default() += 1;
        }
        assert_eq!(counts.len(), tree.keys());
        // 100 are expected of each; six standard deviations are 60.
        assert!(counts.values().all(|count| (40..=160).contains(count)), "{counts:?}");
    }
}

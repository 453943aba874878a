//! Insertion into the skip list, free of locks: writers meet only in compare-and-swaps.
//!
//! ```text
//!  level 2   ●────────────────────────────────▶●      pred[2], succ[2]
//!  level 1   ●───────────▶●───────────────────▶●      pred[1], succ[1]
//!  level 0   ●──▶●───────▶●────────▶● ─ ✕ ─▶ ● ▶●     pred[0], succ[0]
//!                                     ╲ new ╱
//! ```
//!
//! A search notes the neighbours of the key on every level. The swap on level 0 inserts the key;
//! the swaps above only make it faster to find. A swap that fails looks onward from its
//! predecessor, which is still in the list, as nothing is ever removed. If another thread has
//! inserted the same key meanwhile, the version moves to that thread's node, and the unpublished
//! node is left to the arena.
//!
//! Invariant: a key has one node, and every level is a sorted sublist of the one below.
//!
//! Source: Herlihy, Lev, Luchangco, Shavit, "A provably correct scalable concurrent skip list",
//! OPODIS 2006, without removal. Heights from a keyed hash of the key are ours: no shared generator
//! to contend for, and the same list whatever the interleaving of its writers.

use std::cmp::Ordering::{Equal, Greater, Less};

use super::node::{NodeRef, Probe};
use super::version::{NewVersion, RecordRef};
use super::{MAX_HEIGHT, Place, SkipList};
use crate::hash::hash64_seeded;
use crate::sync::Ordering;

impl SkipList {
    /// Adds a version of a key, and counts it as an update of the key.
    ///
    /// Copies key and value into the arena. Any number of threads may insert at once. Of two
    /// versions with the same key and sequence, the one inserted last hides the other.
    ///
    /// # Panics
    ///
    /// If the key or the value has 4 GiB or more.
    pub fn insert(&self, key: &[u8], version: NewVersion<'_>) {
        let record = RecordRef::write(&self.values, &version);
        self.versions.fetch_add(1, Ordering::Relaxed);
        let probe = Probe::new(key);
        let height = self.height_of(key);
        let mut neighbours = [(self.head(), None); MAX_HEIGHT];
        let place = match self.beside_last(&probe, height) {
            Some(place) => place,
            None => self.search(&probe, false, |level, pred, succ| {
                neighbours[level] = (pred, succ);
            }),
        };
        match place {
            // SAFETY: the record is new, and the arenas live and die with the list.
            Place::Found(node) => unsafe { node.add(record) },
            Place::Between(pred, succ) => {
                neighbours[0] = (pred, succ);
                self.link(key, &probe, &neighbours[..height], record);
            }
        }
    }

    /// Makes a node as high as there are neighbours, and links it between them.
    fn link<'a>(
        &'a self,
        key: &[u8],
        probe: &Probe<'_>,
        neighbours: &[(NodeRef<'a>, Option<NodeRef<'a>>)],
        record: RecordRef<'_>,
    ) {
        // `MAX_HEIGHT` fits in a byte.
        let height = neighbours.len() as u8;
        let node = NodeRef::write(&self.nodes, key, height, Some(record));
        // Relaxed: a searcher that sees the old height only takes a longer way.
        if self.height.load(Ordering::Relaxed) < neighbours.len() {
            self.height.fetch_max(neighbours.len(), Ordering::Relaxed);
        }
        for (level, &(mut pred, mut succ)) in neighbours.iter().enumerate() {
            loop {
                // SAFETY: all nodes are of `self.nodes`; nobody reads the link of a level before
                // the node is on it; and `pred < key < succ` by the search.
                let linked = unsafe {
                    node.set_next(level, succ);
                    pred.try_link(level, succ, node)
                };
                if linked {
                    break;
                }
                match Self::onward(pred, level, probe) {
                    Place::Between(left, right) => (pred, succ) = (left, right),
                    Place::Found(other) => {
                        // Only level 0 can show the key: above it, there is no second node.
                        debug_assert_eq!(level, 0);
                        // SAFETY: the record was in the unpublished node only, which is given up.
                        unsafe { other.add(record) };
                        return;
                    }
                }
            }
        }
        self.keys.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the arenas live and die with the list.
        unsafe { self.last.store(node) };
    }

    /// Whether the key belongs right at or after the last insertion, as in a sequential load.
    ///
    /// One comparison that mostly fails for random keys, on a node still in the cache; for
    /// sequential keys it saves the search of the three in four nodes that are on level 0 only.
    fn beside_last(&self, probe: &Probe<'_>, height: usize) -> Option<Place<'_>> {
        let last = self.last.load()?;
        match last.compare(probe) {
            Equal => Some(Place::Found(last)),
            Less if height == 1 => {
                let succ = last.next(0);
                let between = succ.is_none_or(|succ| succ.compare(probe) == Greater);
                between.then_some(Place::Between(last, succ))
            }
            _ => None,
        }
    }

    /// Walks along one level, from a node known to be less than the key.
    fn onward<'a>(mut pred: NodeRef<'a>, level: usize, probe: &Probe<'_>) -> Place<'a> {
        loop {
            let succ = pred.next(level);
            match succ.map(|succ| (succ, succ.compare(probe))) {
                Some((succ, Less)) => pred = succ,
                Some((succ, Equal)) => return Place::Found(succ),
                _ => return Place::Between(pred, succ),
            }
        }
    }

    /// The height of a key's tower: one level more with a probability of one in four.
    fn height_of(&self, key: &[u8]) -> usize {
        let bits = hash64_seeded(key, self.seed);
        (bits.trailing_zeros() as usize / 2 + 1).min(MAX_HEIGHT)
    }
}

//! The filled slots of a node and their order, in one word, so that a reader sees them atomically.
//!
//! ```text
//!   bits     59 … 56            11 … 8    7 … 4      3 … 0
//!          [ slot 13th ] … [ slot 1st ][ slot 0th ][ count ]     positions >= `count`: free slots
//! ```
//!
//! Invariant: each slot of a node is at one position.
//!
//! Source: Mao, Kohler, Morris, "Cache Craftiness for Fast Multicore Key-Value Storage" (Masstree),
//! EuroSys 2012, section 4.6.2.

/// Slots of a node, which fill four cache lines.
#[cfg(not(loom))]
pub(super) const SLOTS: usize = 14;
/// Under loom, just enough to split.
#[cfg(loom)]
pub(super) const SLOTS: usize = 2;

const BITS: u32 = 4;
const MASK: u64 = (1 << BITS) - 1;

const _: () = assert!(SLOTS <= MASK as usize && (SLOTS as u32 + 1) * BITS <= u64::BITS);

/// The order of a node's slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Permutation(u64);

impl Permutation {
    /// The first `count` slots are filled, in their order.
    pub(super) fn of_first(count: usize) -> Self {
        debug_assert!(count <= SLOTS);
        let slots = (0..SLOTS).fold(0, |slots, slot| slots | (slot as u64) << Self::shift(slot));
        Permutation(slots | count as u64)
    }

    pub(super) fn from_word(word: u64) -> Self {
        Permutation(word)
    }

    pub(super) fn word(self) -> u64 {
        self.0
    }

    /// Number of filled slots.
    #[inline]
    pub(super) fn count(self) -> usize {
        (self.0 & MASK) as usize
    }

    /// The slot at a position in the order.
    #[inline]
    pub(super) fn slot(self, position: usize) -> usize {
        (self.0 >> Self::shift(position) & MASK) as usize
    }

    /// Fills the first free slot, at `position`; returns the slot. There must be a free slot.
    pub(super) fn insert(self, position: usize) -> (Self, usize) {
        let count = self.count();
        debug_assert!(position <= count && count < SLOTS);
        let slot = self.slot(count);
        let below = |position: usize| (1 << Self::shift(position)) - 1;
        // Positions before stay; those from `position` to the slot's old position move up by one.
        let before = self.0 & below(position);
        let moved = self.0 & below(count) & !below(position);
        let free = match count + 1 {
            SLOTS => 0,
            after => self.0 & !below(after),
        };
        let at = (slot as u64) << Self::shift(position);
        (Permutation((before | moved << BITS | at | free) + 1), slot)
    }

    /// Keeps the first `count` positions; the slots of the others become free.
    pub(super) fn truncate(self, count: usize) -> Self {
        debug_assert!(count <= self.count());
        Permutation(self.0 & !MASK | count as u64)
    }

    #[inline]
    fn shift(position: usize) -> u32 {
        (position as u32 + 1) * BITS
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn permutation_behaves_as_vector_of_slots(
            steps in prop::collection::vec((any::<prop::sample::Index>(), any::<bool>()), 0..100),
        ) {
            let (mut permutation, mut filled) = (Permutation::of_first(0), Vec::new());
            for (at, grow) in steps {
                let position = at.index(filled.len() + 1);
                if grow && filled.len() < SLOTS {
                    let (next, slot) = permutation.insert(position);
                    prop_assert!(!filled.contains(&slot));
                    filled.insert(position, slot);
                    permutation = next;
                } else {
                    permutation = permutation.truncate(position);
                    filled.truncate(position);
                }
                prop_assert_eq!(Permutation::from_word(permutation.word()), permutation);
                prop_assert_eq!(permutation.count(), filled.len());
                let mut all: Vec<_> = (0..SLOTS).map(|at| permutation.slot(at)).collect();
                prop_assert_eq!(&all[..filled.len()], &filled[..]);
                all.sort_unstable();
                prop_assert!(all.into_iter().eq(0..SLOTS));
            }
        }
    }
}

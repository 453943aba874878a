//! Eviction: S3-FIFO. Which cached block is dropped when there is no more space.
//!
//! ```text
//!   new ──────▶ [ small: a tenth ] ── not used since ──▶ dropped; its key becomes a ghost
//!                        └ used ──▶ [ main ] ── not used since ──▶ dropped
//!   new, ghost ───────────────────▶    ▲  └ used ─┐
//!                                      └──────────┘
//! ```
//!
//! A block that is read once, as in a long scan, goes through the small queue only, and evicts
//! nothing from the main one. A use is counted beside the block's slot, so a hit takes no lock and
//! moves nothing.
//!
//! Invariant: `bytes` of a queue is the sum of its cached blocks. A block is cached while it is in
//! its slot, and has an entry in its queue. Other entries are stale: their blocks were removed, and
//! perhaps cached again.
//!
//! Source: Yang et al., "FIFO Queues are All You Need for Cache Eviction", SOSP 2023.

use std::collections::{HashSet, VecDeque};
use std::sync::Weak;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// Uses beyond this are not counted.
const MAX_USES: u8 = 3;
/// Set in a block's state when it is in the main queue.
const IN_MAIN: u8 = 1 << 7;
/// The small queue has the capacity divided by this.
const SMALL_DIVISOR: u64 = 10;
/// A queue with more than twice as many entries as blocks, and this many, is purged of stale
/// entries.
const MIN_STALE: usize = 64;

/// The policy's state of a cached block: its uses, and its queue.
#[derive(Debug, Default)]
pub(super) struct BlockState(AtomicU8);

impl BlockState {
    /// Counts a use. Writes nothing once a block is used often, so that the cache line stays shared
    /// by all CPUs. Concurrent uses may count as one. A concurrent [`set`](Self::set) is kept: a
    /// store would put the block back into its former queue.
    #[inline]
    pub(super) fn count_use(&self) {
        let state = self.0.load(Relaxed);
        if state & !IN_MAIN < MAX_USES {
            let _ = self.0.compare_exchange(state, state + 1, Relaxed, Relaxed);
        }
    }

    /// Whether a use was counted, also before the block was cached.
    pub(super) fn was_used(&self) -> bool {
        self.uses() > 0
    }

    fn uses(&self) -> u8 {
        self.0.load(Relaxed) & !IN_MAIN
    }

    fn set(&self, uses: u8, is_in_main: bool) {
        self.0.store(uses | if is_in_main { IN_MAIN } else { 0 }, Relaxed);
    }

    fn is_in_main(&self) -> bool {
        self.0.load(Relaxed) & IN_MAIN != 0
    }
}

/// The slots of a file, for eviction.
pub(super) trait Slots: Send + Sync {
    /// The state and the size of a cached block; `None` if the slot is empty.
    fn state(&self, index: usize) -> Option<(&BlockState, u64)>;

    /// Empties a slot.
    fn clear(&self, index: usize);
}

/// A block in a queue.
pub(super) struct Entry {
    pub(super) slots: Weak<dyn Slots>,
    pub(super) index: usize,
    /// For the ghosts: distinguishes the blocks of all files.
    pub(super) key: u64,
}

/// The queues of one part of the cache.
pub(super) struct Queues {
    capacity: u64,
    small: Queue,
    main: Queue,
    ghosts: Ghosts,
}

#[derive(Default)]
struct Queue {
    entries: VecDeque<Entry>,
    /// The number and the bytes of the cached blocks.
    blocks: usize,
    bytes: u64,
}

impl Queues {
    pub(super) fn new(capacity: u64) -> Self {
        let (small, main) = (Queue::default(), Queue::default());
        Queues { capacity, small, main, ghosts: Ghosts::default() }
    }

    /// Bytes of the cached blocks.
    pub(super) fn bytes(&self) -> u64 {
        self.small.bytes + self.main.bytes
    }

    /// Whether `bytes` more can be cached without an eviction.
    pub(super) fn has_space(&self, bytes: u64) -> bool {
        self.bytes() + bytes <= self.capacity
    }

    /// Adds the block of `entry`, which is in its slot, and evicts what exceeds the capacity.
    pub(super) fn insert(&mut self, entry: Entry, state: &BlockState, bytes: u64) {
        let is_in_main = self.ghosts.remove(entry.key);
        state.set(0, is_in_main);
        self.queue(is_in_main).push(entry, bytes);
        self.evict_excess();
    }

    /// Changes the capacity, and evicts what exceeds it.
    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.capacity = capacity;
        self.evict_excess();
    }

    fn evict_excess(&mut self) {
        while self.bytes() > self.capacity {
            if self.small.bytes > self.capacity / SMALL_DIVISOR || self.main.blocks == 0 {
                self.evict_small();
            } else {
                self.evict_main();
            }
        }
    }

    /// Empties a slot if it has a block. Its entry becomes stale.
    pub(super) fn remove(&mut self, slots: &dyn Slots, index: usize) {
        if let Some((state, bytes)) = slots.state(index) {
            self.queue(state.is_in_main()).subtract(bytes);
            slots.clear(index);
        }
    }

    /// The number of entries, stale ones included.
    #[cfg(test)]
    pub(super) fn entries(&self) -> usize {
        self.small.entries.len() + self.main.entries.len()
    }

    fn queue(&mut self, is_main: bool) -> &mut Queue {
        if is_main { &mut self.main } else { &mut self.small }
    }

    /// Evicts the oldest block of the small queue. If it was used, moves it to the main queue
    /// instead.
    fn evict_small(&mut self) {
        let Some(entry) = self.small.entries.pop_front() else { return };
        let Some(slots) = entry.slots.upgrade() else { return };
        let block = slots.state(entry.index).filter(|(state, _)| !state.is_in_main());
        let Some((state, bytes)) = block else { return };
        self.small.subtract(bytes);
        if state.uses() > 0 {
            state.set(0, true);
            self.main.push(entry, bytes);
        } else {
            slots.clear(entry.index);
            self.ghosts.add(entry.key, self.small.blocks + self.main.blocks);
        }
    }

    /// Evicts the oldest block of the main queue. If it was used, moves it to the end instead, with
    /// one use less.
    fn evict_main(&mut self) {
        let Some(entry) = self.main.entries.pop_front() else { return };
        let Some(slots) = entry.slots.upgrade() else { return };
        let block = slots.state(entry.index).filter(|(state, _)| state.is_in_main());
        let Some((state, bytes)) = block else { return };
        match state.uses().checked_sub(1) {
            Some(uses) => {
                state.set(uses, true);
                self.main.entries.push_back(entry);
            }
            None => {
                self.main.subtract(bytes);
                slots.clear(entry.index);
            }
        }
    }
}

impl Queue {
    fn push(&mut self, entry: Entry, bytes: u64) {
        if self.entries.len() > 2 * self.blocks + MIN_STALE {
            self.entries.retain(|entry| {
                let slots = entry.slots.upgrade();
                slots.is_some_and(|slots| slots.state(entry.index).is_some())
            });
        }
        self.entries.push_back(entry);
        self.blocks += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: u64) {
        self.blocks -= 1;
        self.bytes -= bytes;
    }
}

/// The keys of blocks that were dropped from the small queue lately.
#[derive(Default)]
struct Ghosts {
    keys: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Ghosts {
    /// Adds a key and forgets the oldest ones beyond `limit`.
    fn add(&mut self, key: u64, limit: usize) {
        if self.keys.insert(key) {
            self.order.push_back(key);
        }
        while self.order.len() > limit.max(1) {
            let oldest = self.order.pop_front();
            oldest.inspect(|key| _ = self.keys.remove(key));
        }
    }

    /// Whether the key was there. It stays in the order until it is the oldest.
    fn remove(&mut self, key: u64) -> bool {
        self.keys.remove(&key)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn counted_use_does_not_move_a_block_to_another_queue() {
        let (state, is_done) = (BlockState::default(), AtomicBool::new(false));
        let moved = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_done.load(Relaxed) {
                    state.count_use();
                }
            });
            let mut moved = 0;
            for round in 0..2_000_000 {
                // Between any two steps of a use.
                let is_in_main = round % 2 == 0;
                state.set(0, is_in_main);
                (0..round % 7).for_each(|_| std::hint::spin_loop());
                moved += u32::from(state.is_in_main() != is_in_main);
            }
            is_done.store(true, Relaxed);
            moved
        });
        assert_eq!(moved, 0);
    }
}

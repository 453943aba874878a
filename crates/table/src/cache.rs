//! Block cache: uncompressed blocks of any number of SSTables, bounded in bytes.
//!
//! The key of a block is a cache-assigned number of its SSTable and the block's offset. The number
//! is new at each open, so a block of a removed file can never be returned for another file.
//!
//! A hit takes one shared lock on one of many shards and one atomic increment. Eviction is
//! `quick_cache`'s (CLOCK-Pro with ghost entries), which one long scan does not flush.
//!
//! Invariant: the total weight of the blocks, with bookkeeping, stays within the capacity.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::block::Block;

/// Estimated overhead per block: slot, key, ring entry.
const ENTRY_BYTES: u64 = 64;
/// Assumed weight of a block, to size the hash tables.
const TYPICAL_BLOCK_BYTES: u64 = 4096 + ENTRY_BYTES;
const COUNTER_SHARDS: usize = 16;

/// Caches uncompressed blocks of many SSTables.
pub struct BlockCache {
    cache: Cache<CacheKey, Arc<Block>, Weight, BuildHasherDefault<FoldHasher>>,
    next_table: AtomicU64,
    counters: [Counters; COUNTER_SHARDS],
}

/// Hits and misses, on a cache line of their own to avoid false sharing between threads.
#[derive(Default)]
#[repr(align(64))]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct CacheKey {
    table: u64,
    offset: u64,
}

#[derive(Clone)]
struct Weight;

impl quick_cache::Weighter<CacheKey, Arc<Block>> for Weight {
    fn weight(&self, _: &CacheKey, block: &Arc<Block>) -> u64 {
        block.memory_bytes() as u64 + ENTRY_BYTES
    }
}

impl BlockCache {
    /// Caches up to `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        let blocks = (capacity_bytes / TYPICAL_BLOCK_BYTES).max(16) as usize;
        BlockCache {
            cache: Cache::with(
                blocks,
                capacity_bytes,
                Weight,
                BuildHasherDefault::default(),
                DefaultLifecycle::default(),
            ),
            next_table: AtomicU64::new(0),
            counters: Default::default(),
        }
    }

    /// A number that no other SSTable of this cache has had.
    pub(crate) fn register(&self) -> u64 {
        self.next_table.fetch_add(1, Relaxed)
    }

    /// The block at this offset of an SSTable. Cost of a hit: 50 to 100 ns.
    #[inline]
    pub(crate) fn get(&self, table: u64, offset: u64) -> Option<Arc<Block>> {
        let found = self.cache.get(&CacheKey { table, offset });
        let counters = &self.counters[(offset >> 12) as usize % COUNTER_SHARDS];
        let counter = if found.is_some() { &counters.hits } else { &counters.misses };
        counter.fetch_add(1, Relaxed);
        found
    }

    pub(crate) fn insert(&self, table: u64, offset: u64, block: Arc<Block>) {
        self.cache.insert(CacheKey { table, offset }, block);
    }

    /// Evicts the blocks of a closed SSTable. Cost: one lookup per block.
    pub(crate) fn forget(&self, table: u64, offsets: impl Iterator<Item = u64>) {
        for offset in offsets {
            self.cache.remove(&CacheKey { table, offset });
        }
    }

    /// Cache hits.
    pub fn hits(&self) -> u64 {
        self.counters.iter().map(|c| c.hits.load(Relaxed)).sum()
    }

    /// Cache misses.
    pub fn misses(&self) -> u64 {
        self.counters.iter().map(|c| c.misses.load(Relaxed)).sum()
    }

    /// Bytes in the cache now.
    pub fn resident_bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// The capacity, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.cache.capacity()
    }

    /// Changes the capacity; evicts what exceeds it.
    pub fn set_capacity(&self, bytes: u64) {
        self.cache.set_capacity(bytes);
    }
}

/// Hashes two integers with two multiplications. No attacker chooses the keys.
#[derive(Default)]
struct FoldHasher(u64);

impl Hasher for FoldHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    #[inline]
    fn write_u64(&mut self, x: u64) {
        let wide = u128::from(self.0 ^ x ^ 0x9e37_79b9_7f4a_7c15) * 0xd6e8_feb8_6659_fd93;
        self.0 = (wide >> 64) as u64 ^ wide as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

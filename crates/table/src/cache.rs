//! The block cache: uncompressed blocks of any number of tables, bounded by bytes.
//!
//! A block is known by the cache's own number for its table, given when the table is opened, and by
//! its offset there. A file that is opened again gets a new number, so a block of a file that is gone
//! can never answer for another.
//!
//! Invariant: the weight of what is kept, each block with its bookkeeping, stays within the capacity.
//!
//! Source: eviction is `quick_cache`'s (CLOCK-Pro with ghost entries, which one long scan does not
//! flush); ours are the key and its hash. A hit takes one shared lock of one of many shards and one
//! atomic increment.

use std::hash::{BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use quick_cache::sync::{Cache, DefaultLifecycle};

use crate::block::Block;

/// What an entry costs beside its block, by estimate: the slot, the key, the ring.
const ENTRY_BYTES: u64 = 64;
/// To size the hash tables: what a block is taken to have.
const TYPICAL_BLOCK_BYTES: u64 = 4096 + ENTRY_BYTES;
const COUNTER_SHARDS: usize = 16;

/// Keeps uncompressed blocks, shared by tables.
pub struct BlockCache {
    cache: Cache<CacheKey, Arc<Block>, Weight, BuildHasherDefault<FoldHasher>>,
    next_table: AtomicU64,
    counters: [Counters; COUNTER_SHARDS],
}

/// Hits and misses; a cache line of their own, so that counting threads don't fight over one.
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
    /// Keeps at most `capacity_bytes`.
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

    /// A number for a table that no other table of this cache has had.
    pub(crate) fn register(&self) -> u64 {
        self.next_table.fetch_add(1, Relaxed)
    }

    /// The block of a table at this offset. Cost of a hit: 50 to 100 ns.
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

    /// Drops the blocks of a table that is closed. Cost: one step for each block it had.
    pub(crate) fn forget(&self, table: u64, offsets: impl Iterator<Item = u64>) {
        for offset in offsets {
            self.cache.remove(&CacheKey { table, offset });
        }
    }

    /// Lookups that found their block.
    pub fn hits(&self) -> u64 {
        self.counters.iter().map(|c| c.hits.load(Relaxed)).sum()
    }

    /// Lookups that did not.
    pub fn misses(&self) -> u64 {
        self.counters.iter().map(|c| c.misses.load(Relaxed)).sum()
    }

    /// Bytes kept now.
    pub fn resident_bytes(&self) -> u64 {
        self.cache.weight()
    }

    /// Bytes kept at most.
    pub fn capacity_bytes(&self) -> u64 {
        self.cache.capacity()
    }

    /// Changes the bound; what is over it is evicted.
    pub fn set_capacity(&self, bytes: u64) {
        self.cache.set_capacity(bytes);
    }
}

/// Hashes two integers in two multiplications; the keys are ours, so nobody floods the table.
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

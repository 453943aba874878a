//! Block cache: uncompressed blocks of any number of open files, bounded in bytes.
//!
//! ```text
//!   file 1   slots [ ·  B  ·  B  B  · ]      a block is found by its number in its file
//!   file 2   slots [ B  ·  ·  B ]
//!                    └─────┐
//!   queues, sharded  [small][main][ghosts]   which block is dropped next: see `policy`
//! ```
//!
//! A hit is one load from a slot: no hash table, no lock, no reference count (`arc_swap`), and the
//! block is not read. Threads that hit the same block write to no common cache line. Only insertion
//! and eviction lock a shard. Slots take 17 bytes per block of a file, and exist from the first
//! insertion on.
//!
//! Invariant: the total size of the blocks, with bookkeeping, stays within the capacity.

mod policy;

use std::ops::Deref;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use arc_swap::{ArcSwapOption, Guard};
use siltstone_structures::StripedCounter;

use policy::{BlockState, Entry, Queues};

/// Estimated overhead per block: slot, queue entry, ghost.
const ENTRY_BYTES: u64 = 64;
const MAX_SHARDS: u64 = 16;
/// A smaller cache has fewer shards, so that each has space for many blocks.
const MIN_SHARD_BYTES: u64 = 1 << 20;
/// A full cache admits one optional block per this number of misses of its file.
const ADMISSION_INTERVAL: u64 = 8;

/// Caches the blocks of many files.
pub struct BlockCache {
    shards: Vec<Mutex<Queues>>,
    capacity_bytes: AtomicU64,
    next_file: AtomicU64,
    hits: StripedCounter,
    misses: StripedCounter,
}

/// A block that can be cached.
pub(crate) trait CacheableBlock: Send + Sync + 'static {
    /// Resident bytes; constant.
    fn memory_bytes(&self) -> usize;
}

impl BlockCache {
    /// Caches up to `capacity_bytes`.
    pub fn new(capacity_bytes: u64) -> Self {
        let shards = (capacity_bytes / MIN_SHARD_BYTES).clamp(1, MAX_SHARDS);
        let shard = |_| Mutex::new(Queues::new(capacity_bytes / shards));
        BlockCache {
            shards: (0..shards).map(shard).collect(),
            capacity_bytes: AtomicU64::new(capacity_bytes),
            next_file: AtomicU64::new(0),
            hits: StripedCounter::default(),
            misses: StripedCounter::default(),
        }
    }

    /// Cache hits.
    pub fn hits(&self) -> u64 {
        self.hits.sum()
    }

    /// Cache misses.
    pub fn misses(&self) -> u64 {
        self.misses.sum()
    }

    /// Bytes in the cache now.
    pub fn resident_bytes(&self) -> u64 {
        (0..self.shards.len() as u64).map(|shard| self.shard(shard).bytes()).sum()
    }

    /// The capacity, in bytes.
    pub fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes.load(Relaxed)
    }

    /// Changes the capacity; evicts the blocks beyond it before it returns. The number of shards
    /// stays: a block larger than its shard's part of the capacity is not cached.
    pub fn set_capacity_bytes(&self, capacity_bytes: u64) {
        self.capacity_bytes.store(capacity_bytes, Relaxed);
        let shards = self.shards.len() as u64;
        (0..shards).for_each(|shard| self.shard(shard).set_capacity(capacity_bytes / shards));
    }

    /// The shard of a block by its key.
    fn shard(&self, key: u64) -> MutexGuard<'_, Queues> {
        let shard = &self.shards[key as usize % self.shards.len()];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cached blocks of one open file. Dropping it removes them.
pub(crate) struct CachedFile<T: CacheableBlock> {
    cache: Arc<BlockCache>,
    /// Distinguishes the files of a cache: the high bits of its blocks' keys.
    number: u64,
    blocks: usize,
    slots: OnceLock<Arc<Slots<T>>>,
    /// Calls of [`admits`](Self::admits) while the cache was full.
    refused: AtomicU64,
}

impl<T: CacheableBlock> CachedFile<T> {
    /// A file of `blocks` blocks, of which none is cached.
    pub(crate) fn new(cache: Arc<BlockCache>, blocks: usize) -> Self {
        let number = cache.next_file.fetch_add(1, Relaxed);
        CachedFile { cache, number, blocks, slots: OnceLock::new(), refused: AtomicU64::new(0) }
    }

    /// Where block `i` is in memory if it is cached, to prefetch it; null if it is not. Takes no
    /// reference, so the block may be gone. Cost: one load.
    #[inline]
    pub(crate) fn address(&self, i: usize) -> *const T {
        let address = self.slots.get().and_then(|slots| slots.addresses.get(i));
        address.map_or(std::ptr::null(), |address| address.load(Relaxed).cast_const())
    }

    /// Block `i` if it is cached. Cost of a hit: about 20 ns.
    #[inline]
    pub(crate) fn get(&self, i: usize) -> Option<CacheRef<T>> {
        let block = self.get_cached(i);
        if block.is_none() {
            self.cache.misses.increment();
        }
        block
    }

    /// As [`get`](Self::get), without counting a miss.
    #[inline]
    pub(crate) fn get_cached(&self, i: usize) -> Option<CacheRef<T>> {
        let slots = self.slots.get()?;
        let block = slots.blocks[i].load();
        if block.is_none() {
            return None;
        }
        slots.states[i].count_use();
        self.cache.hits.increment();
        Some(CacheRef(block))
    }

    /// The number of blocks of the file.
    pub(crate) fn blocks(&self) -> usize {
        self.blocks
    }

    /// Whether block `i`, of `bytes` bytes, should be cached, for callers that can do without.
    /// Never at the first call: many blocks are read once before their file is removed. Then while
    /// there is space, else at every few calls, so that blocks in frequent use are cached in the
    /// end.
    pub(crate) fn admits(&self, i: usize, bytes: usize) -> bool {
        let slots = self.slots.get_or_init(|| Arc::new(Slots::new(self.blocks)));
        if !slots.states[i].was_used() {
            slots.states[i].count_use();
            return false;
        }
        self.cache.shard(self.key(i)).has_space(bytes as u64 + ENTRY_BYTES)
            || self.refused.fetch_add(1, Relaxed).is_multiple_of(ADMISSION_INTERVAL)
    }

    /// Caches block `i`, unless another thread has done so.
    pub(crate) fn insert(&self, i: usize, block: Arc<T>) {
        let bytes = weight(&*block);
        if bytes > self.cache.capacity_bytes() / self.cache.shards.len() as u64 {
            return;
        }
        let slots = self.slots.get_or_init(|| Arc::new(Slots::new(self.blocks)));
        let mut shard = self.cache.shard(self.key(i));
        if slots.blocks[i].load().is_none() {
            slots.addresses[i].store(Arc::as_ptr(&block).cast_mut(), Relaxed);
            slots.blocks[i].store(Some(block));
            let weak: Weak<Slots<T>> = Arc::downgrade(slots);
            let entry = Entry { slots: weak, index: i, key: self.key(i) };
            shard.insert(entry, &slots.states[i], bytes);
        }
    }

    /// Removes all blocks from the cache. Cost: a load per block of the file.
    pub(crate) fn clear(&self) {
        let Some(slots) = self.slots.get() else { return };
        for i in (0..self.blocks).filter(|&i| slots.blocks[i].load().is_some()) {
            self.cache.shard(self.key(i)).remove(&**slots, i);
        }
    }

    fn key(&self, i: usize) -> u64 {
        (self.number << 32).wrapping_add(i as u64)
    }
}

impl<T: CacheableBlock> Drop for CachedFile<T> {
    fn drop(&mut self) {
        self.clear();
    }
}

fn weight(block: &impl CacheableBlock) -> u64 {
    block.memory_bytes() as u64 + ENTRY_BYTES
}

/// The cached blocks of a file by their numbers.
struct Slots<T> {
    blocks: Box<[ArcSwapOption<T>]>,
    /// Not in the blocks, so that a hit does not read these.
    states: Box<[BlockState]>,
    /// For prefetches alone: see [`CachedFile::address`].
    addresses: Box<[AtomicPtr<T>]>,
}

impl<T> Slots<T> {
    fn new(blocks: usize) -> Self {
        Slots {
            blocks: (0..blocks).map(|_| ArcSwapOption::empty()).collect(),
            states: (0..blocks).map(|_| BlockState::default()).collect(),
            addresses: (0..blocks).map(|_| AtomicPtr::default()).collect(),
        }
    }
}

impl<T: CacheableBlock> policy::Slots for Slots<T> {
    fn state(&self, index: usize) -> Option<(&BlockState, u64)> {
        let block = self.blocks[index].load();
        block.as_ref().map(|block| (&self.states[index], weight(&**block)))
    }

    fn clear(&self, index: usize) {
        self.addresses[index].store(std::ptr::null_mut(), Relaxed);
        self.blocks[index].store(None);
    }
}

/// A block of the cache, or one that was not cached. It stays valid when it is evicted.
#[derive(Debug)]
pub(crate) struct CacheRef<T>(Guard<Option<Arc<T>>>);

impl<T> CacheRef<T> {
    /// The block with a reference count, for long use: a thread has few places for blocks without.
    pub(crate) fn into_arc(self) -> Arc<T> {
        Guard::into_inner(self.0).expect("made of a block")
    }
}

impl<T> From<Arc<T>> for CacheRef<T> {
    fn from(block: Arc<T>) -> Self {
        CacheRef(Guard::from_inner(Some(block)))
    }
}

impl<T> Deref for CacheRef<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.0.as_ref().expect("made of a block")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestBlock {
        number: usize,
    }

    impl CacheableBlock for TestBlock {
        fn memory_bytes(&self) -> usize {
            1000
        }
    }

    fn insert(file: &CachedFile<TestBlock>, number: usize) {
        file.insert(number, Arc::new(TestBlock { number }));
    }

    fn cached(file: &CachedFile<TestBlock>) -> Vec<usize> {
        let block = |i: usize| file.slots.get().and_then(|slots| slots.blocks[i].load_full());
        let is_cached = |&i: &usize| {
            let block = block(i);
            let address = block.as_ref().map_or(std::ptr::null(), Arc::as_ptr);
            assert_eq!(file.address(i), address);
            block.is_some_and(|block| block.number == i)
        };
        (0..file.blocks).filter(is_cached).collect()
    }

    fn cache(blocks: u64) -> Arc<BlockCache> {
        Arc::new(BlockCache::new(blocks * (1000 + ENTRY_BYTES)))
    }

    #[test]
    fn blocks_are_evicted_beyond_the_capacity() {
        let cache = cache(10);
        let file = CachedFile::<TestBlock>::new(cache.clone(), 1000);
        (0..1000).for_each(|i| insert(&file, i));
        assert_eq!(cached(&file).len(), 10);
        assert_eq!(cache.resident_bytes(), cache.capacity_bytes());
        drop(file);
        assert_eq!(cache.resident_bytes(), 0);
    }

    #[test]
    fn used_blocks_survive_a_scan() {
        let cache = cache(100);
        let file = CachedFile::<TestBlock>::new(cache, 10_000);
        for i in 0..50 {
            insert(&file, i);
            assert!(file.get(i).is_some());
        }
        (50..10_000).for_each(|i| insert(&file, i));
        let cached = cached(&file);
        assert!((0..50).all(|i| cached.contains(&i)), "{cached:?}");
    }

    #[test]
    fn block_that_is_inserted_again_soon_is_kept() {
        let file = CachedFile::<TestBlock>::new(cache(100), 1000);
        (0..150).for_each(|i| insert(&file, i));
        let evicted = (0..150).find(|i| !cached(&file).contains(i)).unwrap();
        insert(&file, evicted);
        (150..500).for_each(|i| insert(&file, i));
        assert!(cached(&file).contains(&evicted));
    }

    #[test]
    fn borrowed_block_outlives_its_eviction_and_its_file() {
        let file = CachedFile::<TestBlock>::new(cache(1), 10);
        insert(&file, 3);
        let block = CacheRef(file.slots.get().unwrap().blocks[3].load());
        insert(&file, 4);
        assert_eq!(cached(&file), [4]);
        drop(file);
        assert_eq!(block.number, 3);
        assert_eq!(Arc::strong_count(&block.into_arc()), 1);
    }

    #[test]
    fn entries_of_closed_files_do_not_accumulate() {
        let cache = cache(1000);
        for _ in 0..1000 {
            let file = CachedFile::<TestBlock>::new(cache.clone(), 10);
            (0..10).for_each(|i| insert(&file, i));
        }
        assert!(cache.shard(0).entries() < 200);
        assert_eq!(cache.resident_bytes(), 0);
    }

    #[test]
    fn concurrent_use_keeps_the_capacity_and_the_blocks() {
        let cache = cache(50);
        let file = CachedFile::<TestBlock>::new(cache.clone(), 200);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let file = &file;
                scope.spawn(move || {
                    for step in 0..20_000usize {
                        let i = (step * 7919 + thread * step) % 200;
                        match file.get(i) {
                            Some(block) => assert_eq!(block.number, i),
                            None => insert(file, i),
                        }
                        if step % 5000 == 0 {
                            file.clear();
                        }
                    }
                });
            }
        });
        assert!(cache.resident_bytes() <= cache.capacity_bytes());
        assert_eq!(cached(&file).len() as u64, cache.resident_bytes() / (1000 + ENTRY_BYTES));
        file.clear();
        assert_eq!(cache.resident_bytes(), 0);
    }
}

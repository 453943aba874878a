//! Caches: their capacity, and what is in use. Each database has a block cache of its own of this
//! size; the usage of a cache is that of all databases with it that are open for writing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use shim::boundary::Pointer;
use store::Engine;

use crate::exports::exports;
use crate::scalars::{HasScalars, Plain};

/// A cache. Clones share it.
#[derive(Debug, Clone)]
pub struct Cache(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    capacity: AtomicU64,
    /// The tables of the databases that were opened with it.
    users: Mutex<Vec<Weak<dyn Engine>>>,
}

impl Cache {
    /// A cache of a capacity in bytes.
    pub fn new(capacity: u64) -> Self {
        Cache(Arc::new(Shared { capacity: capacity.into(), users: Mutex::default() }))
    }

    fn create(capacity: u64) -> Pointer<Cache> {
        Pointer::new(Cache::new(capacity))
    }

    /// The capacity in bytes, at least 1.
    pub fn capacity(&self) -> u64 {
        self.0.capacity.load(Ordering::Relaxed).max(1)
    }

    /// Counts the block cache of a table as a part of this one, as long as the table is open.
    pub fn add_user(&self, table: &Arc<dyn Engine>) {
        let mut users = self.0.users.lock();
        users.retain(|user| user.strong_count() > 0);
        users.push(Arc::downgrade(table));
    }

    /// The bytes in the block caches of the databases that use it.
    fn usage(&self) -> u64 {
        let users: Vec<_> = self.0.users.lock().iter().filter_map(Weak::upgrade).collect();
        let usage = |user: &Arc<dyn Engine>| user.stats().memory.get("block_cache").copied();
        users.iter().filter_map(usage).sum()
    }
}

exports! {
    /// A cache.
    fn rocksdb_cache_create_lru(capacity: usize) -> Pointer<Cache> {
        Cache::create(capacity as u64)
    }

    /// A cache.
    fn rocksdb_cache_create_lru_with_strict_capacity_limit(capacity: usize) -> Pointer<Cache> {
        Cache::create(capacity as u64)
    }

    /// A cache.
    fn rocksdb_cache_create_lru_opts(options: &Plain) -> Pointer<Cache> {
        Cache::create(options.scalars().get("capacity").unwrap_or(0))
    }

    /// A cache.
    fn rocksdb_cache_create_hyper_clock(capacity: usize, _entry_charge: usize) -> Pointer<Cache> {
        Cache::create(capacity as u64)
    }

    /// A cache.
    fn rocksdb_cache_create_hyper_clock_opts(options: &Plain) -> Pointer<Cache> {
        Cache::create(options.scalars().get("capacity").unwrap_or(0))
    }

    /// Options of a cache.
    fn rocksdb_hyper_clock_cache_options_create(
        capacity: usize, entry_charge: usize
    ) -> Pointer<Plain> {
        let mut options = Plain::default();
        options.scalars_mut().set("capacity", capacity);
        options.scalars_mut().set("estimated_entry_charge", entry_charge);
        Pointer::new(options)
    }

    /// Frees options.
    fn rocksdb_hyper_clock_cache_options_destroy(options: Option<Box<Plain>>) {
        drop(options)
    }

    /// Frees a cache.
    fn rocksdb_cache_destroy(cache: Option<Box<Cache>>) {
        drop(cache)
    }

    /// The capacity, for databases that are opened later.
    fn rocksdb_cache_set_capacity(cache: &Cache, capacity: usize) {
        cache.0.capacity.store(capacity as u64, Ordering::Relaxed)
    }

    /// The capacity.
    fn rocksdb_cache_get_capacity(cache: &Cache) -> usize {
        cache.0.capacity.load(Ordering::Relaxed) as usize
    }

    /// The bytes in the caches of the databases with it that are open for writing.
    fn rocksdb_cache_get_usage(cache: &Cache) -> usize {
        cache.usage() as usize
    }

    /// 0: what a read uses is copied.
    fn rocksdb_cache_get_pinned_usage(_cache: &Cache) -> usize {
        0
    }

    /// 0: the caches do not count it.
    fn rocksdb_cache_get_table_address_count(_cache: &Cache) -> usize {
        0
    }

    /// 0: the caches do not count it.
    fn rocksdb_cache_get_occupancy_count(_cache: &Cache) -> usize {
        0
    }

    /// Does nothing.
    fn rocksdb_cache_disown_data(_cache: &Cache) {}
}

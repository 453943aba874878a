//! Caches: their capacity. Each database has a block cache of its own of this size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use shim::boundary::Pointer;

use crate::exports::exports;
use crate::scalars::{HasScalars, Plain};

/// A cache.
#[derive(Debug, Clone)]
pub struct Cache(Arc<AtomicU64>);

impl Cache {
    fn create(capacity: u64) -> Pointer<Cache> {
        Pointer::new(Cache(Arc::new(AtomicU64::new(capacity))))
    }

    /// The capacity in bytes, at least 1.
    pub fn capacity(&self) -> u64 {
        self.0.load(Ordering::Relaxed).max(1)
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
        cache.0.store(capacity as u64, Ordering::Relaxed)
    }

    /// The capacity.
    fn rocksdb_cache_get_capacity(cache: &Cache) -> usize {
        cache.0.load(Ordering::Relaxed) as usize
    }

    /// 0: the databases have caches of their own, see the property `rocksdb.block-cache-usage`.
    fn rocksdb_cache_get_usage(_cache: &Cache) -> usize {
        0
    }

    /// 0, as rocksdb_cache_get_usage().
    fn rocksdb_cache_get_pinned_usage(_cache: &Cache) -> usize {
        0
    }

    /// 0, as rocksdb_cache_get_usage().
    fn rocksdb_cache_get_table_address_count(_cache: &Cache) -> usize {
        0
    }

    /// 0, as rocksdb_cache_get_usage().
    fn rocksdb_cache_get_occupancy_count(_cache: &Cache) -> usize {
        0
    }

    /// Does nothing.
    fn rocksdb_cache_disown_data(_cache: &Cache) {}
}

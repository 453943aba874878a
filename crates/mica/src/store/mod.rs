//! The store: partitions behind a big-reader lock.
//!
//! | module | contents |
//! | --- | --- |
//! | `burst` | pipelined execution of request bursts |
//! | `batch` | atomic batches |
//! | `all_items` | iteration, verification and removal of all items; sizes and counters |
//!
//! Invariant: a request holds the lock shared; a change of the access mode, and an operation that
//! needs all partitions unchanged, holds it exclusively.
//!
//! Source: Lim, thesis, sections 5.3.1 and 5.3.3.

mod all_items;
mod batch;
mod burst;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::Relaxed};

use siltstone_engine::{Clock, Error, Result, Timestamp};
use siltstone_runtime::Env;
use siltstone_structures::hash::hash64_seeded;

use crate::brlock::BigReaderLock;
use crate::counters::Counts;
use crate::keyhash;
use crate::options::{Mode, Options};
use crate::partition::Partition;
use crate::partition::cache_mode::CachePartition;
use crate::partition::store_mode::StorePartition;
use crate::version::Access;

/// Slots of the big-reader lock; more threads share them.
const LOCK_SLOTS: usize = 32;

/// An in-memory store. Thread-safe.
pub struct Store {
    pub(crate) options: Options,
    clock: Arc<dyn Clock>,
    hash_seed: u64,
    partition_bits: u32,
    max_value: usize,
    access: AtomicU8,
    lock: BigReaderLock<Counts>,
    memory: Partitions,
}

enum Partitions {
    Cache(Vec<Partition<CachePartition>>),
    Store(Vec<Partition<StorePartition>>),
}

/// Evaluates an expression for the partitions of either mode.
macro_rules! for_either_mode {
    ($store:expr, $partitions:ident => $do:expr) => {
        match &$store.memory {
            Partitions::Cache($partitions) => $do,
            Partitions::Store($partitions) => $do,
        }
    };
}

pub(crate) use for_either_mode;

impl Store {
    /// Creates an empty store.
    ///
    /// # Errors
    /// [`Error::Io`] if the memory cannot be mapped; [`Error::InvalidOptions`] if mirrored mapping
    /// is requested but unavailable.
    pub fn new(env: &Env, options: Options) -> Result<Self> {
        let layout = options.layout();
        let map_error = |e: std::io::Error| match options.mapping {
            crate::Mapping::Mirrored => Error::invalid_option(
                "mapping",
                format!("mirrored mapping is unavailable here ({e}); use mapping=auto"),
            ),
            _ => Error::io("map", format!("{} bytes of memory", options.memory_bytes), &e),
        };
        let numbers = 0..options.partitions;
        let memory = match options.mode {
            Mode::Cache => Partitions::Cache(
                numbers
                    .map(|_| {
                        let (mapping, bits) = (options.mapping, options.offset_bits);
                        CachePartition::new(
                            layout.words,
                            layout.buckets,
                            mapping,
                            bits,
                            options.eviction,
                        )
                    })
                    .map(|memory| memory.map(Partition::new))
                    .collect::<Result<_, _>>()
                    .map_err(map_error)?,
            ),
            Mode::Store => Partitions::Store(
                numbers
                    .map(|_| StorePartition::new(layout.words, layout.buckets, layout.spare))
                    .map(|memory| memory.map(Partition::new))
                    .collect::<Result<_, _>>()
                    .map_err(map_error)?,
            ),
        };
        Ok(Store {
            clock: env.clock.clone(),
            // The seed is secret, so that nobody can choose keys of one bucket.
            hash_seed: options.hash_seed.unwrap_or_else(|| RandomState::new().hash_one(env.seed)),
            partition_bits: options.partitions.trailing_zeros(),
            max_value: options.max_value_bytes(),
            access: AtomicU8::new(options.access as u8),
            lock: BigReaderLock::new(LOCK_SLOTS),
            memory,
            options,
        })
    }

    /// The keyhash, which requests contain. Cost: about 2 ns for a short key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        hash64_seeded(key, self.hash_seed)
    }

    /// The seed of [`hash`](Store::hash), for clients that hash their keys themselves (XXH3-64).
    pub fn hash_seed(&self) -> u64 {
        self.hash_seed
    }

    /// The options of this store.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Number of partitions.
    pub fn partitions(&self) -> usize {
        1 << self.partition_bits
    }

    /// The partition of a keyhash: its leading bits.
    #[inline]
    pub fn partition_of(&self, hash: u64) -> usize {
        keyhash::partition(hash, self.partition_bits)
    }

    /// The largest value, in bytes.
    pub fn max_value_bytes(&self) -> usize {
        self.max_value
    }

    /// Whether items have CAS versions.
    pub fn has_cas(&self) -> bool {
        self.options.cas
    }

    /// The current access mode.
    #[inline]
    pub fn access(&self) -> Access {
        match self.access.load(Relaxed) {
            0 => Access::Erew,
            1 => Access::Crew,
            _ => Access::Crcw,
        }
    }

    /// Changes the access mode. Waits for running bursts and blocks others meanwhile.
    pub fn set_access(&self, access: Access) {
        let _guard = self.lock.exclusive();
        self.access.store(access as u8, Relaxed);
    }

    /// The current time of the store's clock.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// A number for this thread: it selects a slot of the big-reader lock.
fn thread_number() -> usize {
    thread_local! {
        static NUMBER: usize = {
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            NEXT.fetch_add(1, Relaxed)
        };
    }
    NUMBER.with(|number| *number)
}

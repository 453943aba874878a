//! Locks that make a read followed by a write of one key atomic, on engines without transactions.
//!
//! Keys are hashed to 64 stripes. A write holds the stripes of its keys shared, so writes run side
//! by side; an update holds the stripe of its key exclusively, between its read and its write.
//! Reads take no lock.
//!
//! Stripes are locked in ascending order, and the holder of one exclusively waits for no other, so
//! there is no deadlock. Cost per write of one key: a hash and an uncontended shared lock.

use std::hash::{BuildHasher, RandomState};

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::WriteBatch;

/// One bit of a word per stripe.
const STRIPES: usize = 64;

/// The locks of one table.
pub(super) struct KeyLocks {
    stripes: [RwLock<()>; STRIPES],
    hasher: RandomState,
}

impl Default for KeyLocks {
    fn default() -> Self {
        KeyLocks { stripes: std::array::from_fn(|_| RwLock::new(())), hasher: RandomState::new() }
    }
}

/// The shared stripes of a write: the first of them inline, for writes of one key.
pub(crate) struct SharedGuard<'l>(Option<RwLockReadGuard<'l, ()>>, Vec<RwLockReadGuard<'l, ()>>);

impl KeyLocks {
    /// Waits until no update of a key of `batch` is in progress, and keeps others from starting.
    pub(super) fn share(&self, batch: &WriteBatch) -> SharedGuard<'_> {
        self.share_stripes(batch.iter().fold(0, |stripes, op| stripes | 1 << self.stripe(op.key())))
    }

    /// As [`share`](Self::share), for a write of every key.
    pub(super) fn share_all(&self) -> SharedGuard<'_> {
        self.share_stripes(u64::MAX)
    }

    /// Waits until no write of `key` is in progress, and keeps others from starting.
    pub(super) fn lock(&self, key: &[u8]) -> RwLockWriteGuard<'_, ()> {
        self.stripes[self.stripe(key)].write()
    }

    /// Waits until no write is in progress, and keeps others from starting.
    pub(super) fn lock_all(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.stripes.iter().map(RwLock::write).collect()
    }

    fn share_stripes(&self, stripes: u64) -> SharedGuard<'_> {
        let mut shared = SharedGuard(None, Vec::new());
        for (index, stripe) in self.stripes.iter().enumerate() {
            if stripes & 1 << index == 0 {
                continue;
            }
            match shared.0 {
                None => shared.0 = Some(stripe.read()),
                Some(_) => shared.1.push(stripe.read()),
            }
        }
        shared
    }

    fn stripe(&self, key: &[u8]) -> usize {
        self.hasher.hash_one(key) as usize % STRIPES
    }
}

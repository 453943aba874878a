//! The memtable: the newest writes, in memory.
//!
//! A concurrent skip list by key. The trie itself is not versioned; the memtable is, so that a batch
//! becomes visible at once and a cursor stands at one moment.
//!
//! Invariant: every write of a memtable is in a log from `first_log` on.
//!
//! Source: LSM-trie paper, section 2.1.

use std::sync::Arc;

use siltstone_engine::Op;
use siltstone_structures::{NewVersion, SkipList, Version};

use crate::htable::Found;
use crate::item::Item;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_EXPIRING: u8 = 2;

/// The writes of one stretch of the log.
pub(crate) struct Memtable {
    /// The oldest log that holds writes of this memtable.
    pub(crate) first_log: u64,
    list: Arc<SkipList>,
}

impl Memtable {
    pub(crate) fn new(first_log: u64, seed: u64) -> Self {
        Memtable { first_log, list: Arc::new(SkipList::new(seed)) }
    }

    pub(crate) fn add(&self, sequence: u64, op: Op<'_>) {
        let (kind, expires_at, value) = match op {
            Op::Delete { .. } => (DELETE, 0, &[][..]),
            Op::Put { value, expires_at: None, .. } => (PUT, 0, value),
            Op::Put { value, expires_at: Some(at), .. } => (PUT_EXPIRING, at, value),
        };
        let version = NewVersion { sequence, kind, expires_at, position: 0, value };
        self.list.insert(op.key(), version);
    }

    /// The newest item of `key` that is not newer than `at`.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<Found> {
        self.list.get(key, at).map(|version| Found::of(&item(key, &version)))
    }

    /// Whether there is an item of `key` that is not newer than `at`.
    pub(crate) fn has(&self, key: &[u8], at: u64) -> bool {
        self.list.get(key, at).is_some()
    }

    /// The newest item of every key that is not newer than `at`, in key order.
    pub(crate) fn items(&self, at: u64) -> impl Iterator<Item = Item<'_>> {
        self.list.iter().filter_map(move |entry| {
            entry.version_at(at).map(|version| item(entry.key(), &version))
        })
    }

    /// The newest sequence number in it; 0 if it is empty. Costs a walk.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.list.iter().map(|entry| entry.newest().sequence).max().unwrap_or(0)
    }

    pub(crate) fn keys(&self) -> u64 {
        self.list.keys() as u64
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.keys() == 0
    }

    /// Resident memory.
    pub(crate) fn bytes(&self) -> u64 {
        self.list.memory_bytes() as u64
    }
}

fn item<'a>(key: &'a [u8], version: &Version<'a>) -> Item<'a> {
    let value = (version.kind != DELETE).then_some(version.value);
    let expires_at = (version.kind == PUT_EXPIRING).then_some(version.expires_at);
    Item { key, value, expires_at }
}

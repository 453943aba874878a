//! The memtable: the newest writes, in memory, found by the hash of their keys.
//!
//! ```text
//!   hash of the key ─ 6 bits ─▶ shard: hash table ─▶ record of the newest write ─▶ the one before ─▶ …
//!   record := before:u32  kind:u8  sequence:u64  expires_at:u64  key_len:u32  value_len:u32
//!             key  value                                                          integers LE
//! ```
//!
//! The trie keeps no order, so nor does its memtable: a write touches a shard's table and its end,
//! where a skip list walks some twenty nodes. A memtable begins with the room that the one before
//! needed, or a third of a write would be copying and hashing anew as it grows. The trie itself is not
//! versioned; the memtable is, so that a batch becomes visible at once and a cursor stands at one moment.
//! One writer adds; a reader takes a shard's lock, never over I/O, and waits at most for one insertion. A
//! full memtable has no writer, and its flush reads it in place ([`Frozen`]).
//!
//! Invariant: every write of a memtable is in a log from `first_log` on.
//!
//! Source: ours; LSM-trie paper, section 2.1, has LevelDB's skip list.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashTable;
use parking_lot::{RwLock, RwLockReadGuard};
use siltstone_engine::Op;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::htable::{Found, le32, le64};
use crate::item::Item;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_EXPIRING: u8 = 2;

const SHARD_BITS: u32 = 6;
/// Shards of a memtable.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
/// No write before.
const NONE: u32 = u32::MAX;
const HEADER: usize = 4 + 1 + 8 + 8 + 4 + 4;

/// The writes of one stretch of the log.
pub(crate) struct Memtable {
    /// The oldest log that holds writes of this memtable.
    pub(crate) first_log: u64,
    seed: u64,
    shards: Vec<RwLock<Shard>>,
    bytes: AtomicU64,
    keys: AtomicU64,
    last_sequence: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// Where the newest record of each key begins.
    newest: HashTable<u32>,
    records: Vec<u8>,
}

/// What a key costs in a shard's table: a slot has four bytes and one of hash, and up to half of the slots are free.
const SLOT_BYTES: u64 = 8;

/// A record, read.
struct Record<'a> {
    before: u32,
    sequence: u64,
    item: Item<'a>,
}

impl Shard {
    fn record(&self, at: u32) -> Record<'_> {
        let bytes = &self.records[at as usize..];
        let word = |at: usize| le32(&bytes[at..]);
        let long = |at: usize| le64(&bytes[at..]);
        let (kind, key_len, value_len) = (bytes[4], word(21) as usize, word(25) as usize);
        let (key, rest) = bytes[HEADER..].split_at(key_len);
        let item = Item {
            key,
            value: (kind != DELETE).then(|| &rest[..value_len]),
            expires_at: (kind == PUT_EXPIRING).then(|| long(13)),
        };
        Record { before: word(0), sequence: long(5), item }
    }

    fn key(&self, at: u32) -> &[u8] {
        self.record(at).item.key
    }

    /// The newest write of a key that is not newer than `at`, from the record `newest` back.
    fn item_at(&self, mut newest: u32, at: u64) -> Option<Item<'_>> {
        while newest != NONE {
            let record = self.record(newest);
            if record.sequence <= at {
                return Some(record.item);
            }
            newest = record.before;
        }
        None
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.newest.find(hash, |&at| self.key(at) == key).copied()
    }

    fn bytes(&self) -> u64 {
        self.records.len() as u64 + self.newest.len() as u64 * SLOT_BYTES
    }

    /// An empty one with room for what this one has, and a little more.
    fn like(&self) -> Shard {
        let room = |len: usize| len + len / 16;
        Shard {
            newest: HashTable::with_capacity(room(self.newest.len())),
            records: Vec::with_capacity(room(self.records.len())),
        }
    }
}

/// A memtable that nothing is added to any more, to be read in place.
pub(crate) struct Frozen<'a> {
    shards: Vec<RwLockReadGuard<'a, Shard>>,
}

/// Where the newest item of a key stands in a frozen memtable.
pub(crate) type Spot = (u32, u32);

impl Frozen<'_> {
    /// The newest item of every key, in no order.
    pub(crate) fn items(&self) -> impl Iterator<Item = (Spot, Item<'_>)> {
        (0..).zip(&self.shards).flat_map(|(number, shard)| {
            shard.newest.iter().map(move |&at| ((number, at), shard.record(at).item))
        })
    }

    /// The item there.
    pub(crate) fn item(&self, (shard, at): Spot) -> Item<'_> {
        self.shards[shard as usize].record(at).item
    }
}

impl Memtable {
    /// An empty one whose writes are in this log and later ones. All memtables of a table have one seed,
    /// over all openings: a walk that is taken up again stands in a shard by it.
    pub(crate) fn new(first_log: u64, seed: u64) -> Self {
        Memtable::of(first_log, seed, (0..SHARDS).map(|_| Shard::default()))
    }

    /// An empty one that is to take as much as `before` did.
    pub(crate) fn like(before: &Memtable, first_log: u64) -> Self {
        Memtable::of(first_log, before.seed, before.shards.iter().map(|shard| shard.read().like()))
    }

    fn of(first_log: u64, seed: u64, shards: impl Iterator<Item = Shard>) -> Self {
        Memtable {
            first_log,
            seed,
            shards: shards.map(RwLock::new).collect(),
            bytes: AtomicU64::new(0),
            keys: AtomicU64::new(0),
            last_sequence: AtomicU64::new(0),
        }
    }

    fn hash(&self, key: &[u8]) -> (u64, &RwLock<Shard>) {
        let hash = xxh3_64_with_seed(key, self.seed);
        (hash, &self.shards[shard_of(hash)])
    }

    /// The shard of a key.
    pub(crate) fn shard(&self, key: &[u8]) -> usize {
        shard_of(xxh3_64_with_seed(key, self.seed))
    }

    /// Adds a write; only one thread at a time does.
    pub(crate) fn add(&self, sequence: u64, op: Op<'_>) {
        let (kind, expires_at, value) = match op {
            Op::Delete { .. } => (DELETE, 0, &[][..]),
            Op::Put { value, expires_at: None, .. } => (PUT, 0, value),
            Op::Put { value, expires_at: Some(at), .. } => (PUT_EXPIRING, at, value),
        };
        let key = op.key();
        let (hash, shard) = self.hash(key);
        let mut shard = shard.write();
        let bytes = shard.bytes();
        let Shard { newest, records } = &mut *shard;
        let at = records.len() as u32;
        let stored = |at: u32| {
            let len = le32(&records[at as usize + 21..]) as usize;
            &records[at as usize + HEADER..][..len]
        };
        let seed = self.seed;
        let slot =
            newest.entry(hash, |&at| stored(at) == key, |&at| xxh3_64_with_seed(stored(at), seed));
        let mut before = NONE;
        slot.and_modify(|slot| before = std::mem::replace(slot, at)).or_insert_with(|| {
            self.keys.fetch_add(1, Relaxed);
            at
        });
        records.reserve(HEADER + key.len() + value.len());
        let mut header = [0; HEADER];
        header[..4].copy_from_slice(&before.to_le_bytes());
        header[4] = kind;
        header[5..13].copy_from_slice(&sequence.to_le_bytes());
        header[13..21].copy_from_slice(&expires_at.to_le_bytes());
        header[21..25].copy_from_slice(&(key.len() as u32).to_le_bytes());
        header[25..].copy_from_slice(&(value.len() as u32).to_le_bytes());
        records.extend_from_slice(&header);
        records.extend_from_slice(key);
        records.extend_from_slice(value);
        self.bytes.fetch_add(shard.bytes() - bytes, Relaxed);
        self.last_sequence.fetch_max(sequence, Relaxed);
    }

    /// The newest item of `key` that is not newer than `at`.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<Found> {
        let (hash, shard) = self.hash(key);
        let shard = shard.read();
        let newest = shard.find(hash, key)?;
        shard.item_at(newest, at).map(|item| Found::of(&item))
    }

    /// Whether there is an item of `key` that is not newer than `at`.
    pub(crate) fn has(&self, key: &[u8], at: u64) -> bool {
        let (hash, shard) = self.hash(key);
        let shard = shard.read();
        shard.find(hash, key).is_some_and(|newest| shard.item_at(newest, at).is_some())
    }

    /// To be read in place. Whoever adds to it meanwhile waits.
    pub(crate) fn freeze(&self) -> Frozen<'_> {
        Frozen { shards: self.shards.iter().map(RwLock::read).collect() }
    }

    /// Shows the newest item of every key of a shard that is not newer than `at`, in no order. The shard is
    /// locked meanwhile: `look` is quick, and asks no memtable.
    pub(crate) fn each_of(&self, shard: usize, at: u64, mut look: impl FnMut(Item<'_>)) {
        let shard = self.shards[shard].read();
        for &newest in &shard.newest {
            shard.item_at(newest, at).into_iter().for_each(&mut look);
        }
    }

    /// The newest sequence number in it; 0 if it is empty.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Relaxed)
    }

    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys() == 0
    }

    /// Memory that its writes take, without what was reserved for more.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// The table in a shard takes its own bits from the other end.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_every_version_found_at_its_moment() {
        let memtable = Memtable::new(1, 7);
        let mut sequence = 0;
        for round in 0..3u8 {
            for n in 0..2000u32 {
                sequence += 1;
                let (key, value) = (n.to_le_bytes(), vec![round; n as usize % 50]);
                let op = match (n + u32::from(round)) % 5 {
                    0 => Op::Delete { key: &key },
                    1 => Op::Put { key: &key, value: &value, expires_at: Some(9) },
                    _ => Op::Put { key: &key, value: &value, expires_at: None },
                };
                memtable.add(sequence, op);
            }
        }
        let expected = |n: u32, round: u8| {
            let value = vec![round; n as usize % 50];
            match (n + u32::from(round)) % 5 {
                0 => Found { value: None, expires_at: None },
                1 => Found { value: Some(value), expires_at: Some(9) },
                _ => Found { value: Some(value), expires_at: None },
            }
        };
        for n in 0..2000u32 {
            let key = n.to_le_bytes();
            assert_eq!(memtable.get(&key, u64::from(n)), None);
            assert!(!memtable.has(&key, u64::from(n)));
            for round in 0..3 {
                let at = u64::from(n) + 1 + 2000 * u64::from(round);
                assert_eq!(memtable.get(&key, at), Some(expected(n, round)));
                assert!(memtable.has(&key, at));
            }
        }
        assert_eq!(memtable.get(b"other", u64::MAX), None);
        let mut shown = 0;
        let number = |item: &Item<'_>| u32::from_le_bytes(item.key.try_into().unwrap());
        for shard in 0..SHARDS {
            memtable.each_of(shard, 4000, |item| {
                assert_eq!(Found::of(&item), expected(number(&item), 1));
                shown += 1;
            });
        }
        let frozen = memtable.freeze();
        for (spot, item) in frozen.items() {
            assert_eq!(Found::of(&item), expected(number(&item), 2));
            assert_eq!(frozen.item(spot), item);
        }
        assert_eq!(frozen.items().count(), 2000);
        drop(frozen);
        assert_eq!((shown, memtable.keys(), memtable.last_sequence()), (2000, 2000, 6000));
        let really: u64 = memtable.shards.iter().map(|shard| shard.read().bytes()).sum();
        assert_eq!(memtable.bytes(), really);
        // The next one has room for as much, and nothing in it.
        let next = Memtable::like(&memtable, 2);
        assert_eq!((next.bytes(), next.keys(), next.first_log), (0, 0, 2));
        for (shard, before) in next.shards.iter().zip(&memtable.shards) {
            assert!(shard.read().records.capacity() >= before.read().records.len());
            assert!(shard.read().newest.capacity() >= before.read().newest.len());
        }
    }
}

//! The memtable: the newest writes, in memory, in hash tables.
//!
//! ```text
//!   hash of the key ─ 6 bits ─▶ shard: hash table ─▶ newest record ─▶ previous record ─▶ …
//!   record := previous:u32  kind:u8  sequence:u64  expires_at:u64  key_len:u32  value_len:u32
//!             key  value                                                          integers LE
//! ```
//!
//! The trie is unordered, and so is its memtable: a write touches the hash table and the end of a
//! shard, where a skip list visits about twenty nodes. A memtable starts with the capacity that the
//! previous one needed; otherwise a third of the write time would be copying and rehashing. The
//! trie is not versioned. The memtable is, so that batches are atomic and a cursor has a fixed
//! sequence number. There is one writer. A reader locks a shard, never during I/O, and waits for
//! one insertion at most. A full memtable has no writer, and its flush reads it in place
//! ([`FrozenMemtable`]).
//!
//! Invariant: every write of a memtable is in a log from `first_log` on.
//!
//! Source: LSM-trie paper, section 2.1, which has LevelDB's skip list.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hashbrown::HashTable;
use parking_lot::{RwLock, RwLockReadGuard};
use siltstone_engine::Op;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::htable::{LookupResult, le32, le64};
use crate::item::Item;

const DELETE: u8 = 0;
const PUT: u8 = 1;
const PUT_EXPIRING: u8 = 2;

const SHARD_BITS: u32 = 6;
/// The number of shards of a memtable.
pub(crate) const SHARDS: usize = 1 << SHARD_BITS;
/// No previous record.
const NONE: u32 = u32::MAX;
const RECORD_HEADER_BYTES: usize = 4 + 1 + 8 + 8 + 4 + 4;

/// The writes of one section of the log.
pub struct Memtable {
    /// The oldest log with writes of this memtable.
    pub(crate) first_log: u64,
    seed: u64,
    shards: Vec<RwLock<Shard>>,
    bytes: AtomicU64,
    keys: AtomicU64,
    last_sequence: AtomicU64,
}

#[derive(Default)]
struct Shard {
    /// The offset of the newest record of each key.
    newest: HashTable<u32>,
    records: Vec<u8>,
}

/// The memory of a key in the hash table: a slot of 4 bytes and a hash byte, with up to half
/// unused.
const SLOT_BYTES: u64 = 8;

/// A decoded record.
struct Record<'a> {
    previous: u32,
    sequence: u64,
    item: Item<'a>,
}

impl Shard {
    fn record(&self, at: u32) -> Record<'_> {
        let bytes = &self.records[at as usize..];
        let word = |at: usize| le32(&bytes[at..]);
        let long = |at: usize| le64(&bytes[at..]);
        let (kind, key_len, value_len) = (bytes[4], word(21) as usize, word(25) as usize);
        let (key, rest) = bytes[RECORD_HEADER_BYTES..].split_at(key_len);
        let item = Item {
            key,
            value: (kind != DELETE).then(|| &rest[..value_len]),
            expires_at: (kind == PUT_EXPIRING).then(|| long(13)),
        };
        Record { previous: word(0), sequence: long(5), item }
    }

    fn key(&self, at: u32) -> &[u8] {
        self.record(at).item.key
    }

    /// The newest item of a key up to the sequence number `at`, from the record `newest` backwards.
    fn item_at(&self, mut newest: u32, at: u64) -> Option<Item<'_>> {
        while newest != NONE {
            let record = self.record(newest);
            if record.sequence <= at {
                return Some(record.item);
            }
            newest = record.previous;
        }
        None
    }

    fn find(&self, hash: u64, key: &[u8]) -> Option<u32> {
        self.newest.find(hash, |&at| self.key(at) == key).copied()
    }

    fn bytes(&self) -> u64 {
        self.records.len() as u64 + self.newest.len() as u64 * SLOT_BYTES
    }

    /// An empty shard with the capacity for the content of this one, and a little more.
    fn with_same_capacity(&self) -> Shard {
        let capacity = |len: usize| len + len / 16;
        Shard {
            newest: HashTable::with_capacity(capacity(self.newest.len())),
            records: Vec::with_capacity(capacity(self.records.len())),
        }
    }
}

/// A memtable without a writer, read in place.
pub(crate) struct FrozenMemtable<'a> {
    shards: Vec<RwLockReadGuard<'a, Shard>>,
}

/// The shard and the record of the newest item of a key.
pub(crate) type ItemPosition = (u32, u32);

impl FrozenMemtable<'_> {
    /// The newest item of every key, unordered.
    pub(crate) fn items(&self) -> impl Iterator<Item = (ItemPosition, Item<'_>)> {
        (0..).zip(&self.shards).flat_map(|(number, shard)| {
            shard.newest.iter().map(move |&at| ((number, at), shard.record(at).item))
        })
    }

    /// The item at a position.
    pub(crate) fn item(&self, (shard, at): ItemPosition) -> Item<'_> {
        self.shards[shard as usize].record(at).item
    }
}

impl Memtable {
    /// An empty memtable for the writes of this log and later ones. All memtables of a table have
    /// the same seed, across opens: the position of a resumed cursor includes a shard.
    pub(crate) fn new(first_log: u64, seed: u64) -> Self {
        Memtable::of(first_log, seed, (0..SHARDS).map(|_| Shard::default()))
    }

    /// An empty memtable with the capacity for the content of `previous`.
    pub(crate) fn with_capacity_of(previous: &Memtable, first_log: u64) -> Self {
        Memtable::of(
            first_log,
            previous.seed,
            previous.shards.iter().map(|shard| shard.read().with_same_capacity()),
        )
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

    /// Adds a write, from a single thread.
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
            &records[at as usize + RECORD_HEADER_BYTES..][..len]
        };
        let seed = self.seed;
        let slot =
            newest.entry(hash, |&at| stored(at) == key, |&at| xxh3_64_with_seed(stored(at), seed));
        let mut previous = NONE;
        slot.and_modify(|slot| previous = std::mem::replace(slot, at)).or_insert_with(|| {
            self.keys.fetch_add(1, Relaxed);
            at
        });
        records.reserve(RECORD_HEADER_BYTES + key.len() + value.len());
        let mut header = [0; RECORD_HEADER_BYTES];
        header[..4].copy_from_slice(&previous.to_le_bytes());
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

    /// The newest item of `key` up to the sequence number `at`.
    pub(crate) fn get(&self, key: &[u8], at: u64) -> Option<LookupResult> {
        let (hash, shard) = self.hash(key);
        let shard = shard.read();
        let newest = shard.find(hash, key)?;
        shard.item_at(newest, at).map(|item| LookupResult::of(&item))
    }

    /// Whether there is an item of `key` up to the sequence number `at`.
    pub(crate) fn contains(&self, key: &[u8], at: u64) -> bool {
        let (hash, shard) = self.hash(key);
        let shard = shard.read();
        shard.find(hash, key).is_some_and(|newest| shard.item_at(newest, at).is_some())
    }

    /// Locks the memtable for reading in place; writers wait.
    pub(crate) fn freeze(&self) -> FrozenMemtable<'_> {
        FrozenMemtable { shards: self.shards.iter().map(RwLock::read).collect() }
    }

    /// Visits the newest item up to the sequence number `at` of every key of a shard, unordered.
    /// The shard is locked: `visit` must be quick and not access a memtable.
    pub(crate) fn for_each_in_shard(&self, shard: usize, at: u64, mut visit: impl FnMut(Item<'_>)) {
        let shard = self.shards[shard].read();
        for &newest in &shard.newest {
            shard.item_at(newest, at).into_iter().for_each(&mut visit);
        }
    }

    /// The newest sequence number; 0 if it is empty.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence.load(Relaxed)
    }

    pub(crate) fn keys(&self) -> u64 {
        self.keys.load(Relaxed)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keys() == 0
    }

    /// The memory of its writes in bytes, without unused capacity.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }
}

/// Uses other bits than the hash table of the shard.
fn shard_of(hash: u64) -> usize {
    (hash >> 32) as usize % SHARDS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_is_found_at_its_sequence_number() {
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
                0 => LookupResult { value: None, expires_at: None },
                1 => LookupResult { value: Some(value), expires_at: Some(9) },
                _ => LookupResult { value: Some(value), expires_at: None },
            }
        };
        for n in 0..2000u32 {
            let key = n.to_le_bytes();
            assert_eq!(memtable.get(&key, u64::from(n)), None);
            assert!(!memtable.contains(&key, u64::from(n)));
            for round in 0..3 {
                let at = u64::from(n) + 1 + 2000 * u64::from(round);
                assert_eq!(memtable.get(&key, at), Some(expected(n, round)));
                assert!(memtable.contains(&key, at));
            }
        }
        assert_eq!(memtable.get(b"other", u64::MAX), None);
        let mut visited = 0;
        let number = |item: &Item<'_>| u32::from_le_bytes(item.key.try_into().unwrap());
        for shard in 0..SHARDS {
            memtable.for_each_in_shard(shard, 4000, |item| {
                assert_eq!(LookupResult::of(&item), expected(number(&item), 1));
                visited += 1;
            });
        }
        let frozen = memtable.freeze();
        for (position, item) in frozen.items() {
            assert_eq!(LookupResult::of(&item), expected(number(&item), 2));
            assert_eq!(frozen.item(position), item);
        }
        assert_eq!(frozen.items().count(), 2000);
        drop(frozen);
        assert_eq!((visited, memtable.keys(), memtable.last_sequence()), (2000, 2000, 6000));
        let expected_bytes: u64 = memtable.shards.iter().map(|shard| shard.read().bytes()).sum();
        assert_eq!(memtable.bytes(), expected_bytes);
        // The next memtable has the same capacity, and is empty.
        let next = Memtable::with_capacity_of(&memtable, 2);
        assert_eq!((next.bytes(), next.keys(), next.first_log), (0, 0, 2));
        for (shard, previous) in next.shards.iter().zip(&memtable.shards) {
            assert!(shard.read().records.capacity() >= previous.read().records.len());
            assert!(shard.read().newest.capacity() >= previous.read().newest.len());
        }
    }
}

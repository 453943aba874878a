//! Keys that are written again and again: what their chains need not hold twice.
//!
//! A key that is put while its last version still heads its chain can take that version's place in the chain: the
//! new version's next pointer is the old one's, its prior pointer the old one. The chain stays as long as the
//! bucket has keys, not versions. It takes the old version's next pointer, without reading it, and the certainty
//! that it is the same key's: so keys stand here in full, the latest written in each set.
//!
//! ```text
//!   set = hash mod sets     4 ways, the last written first
//!   way = key 16 bytes and its length, place u32, next u32     longer keys are not kept
//! ```
//!
//! Invariant: an entry's place is that of its key's newest version, and next is that version's next pointer.
//!
//! Source: ours, in the manner of the mapping translation cache (SkimpyFTL, section 3.2).

use crate::location::{Location, NONE};
use crate::record::Record;

const WAYS: usize = 4;
const KEY_BYTES: usize = 16;

#[derive(Clone, Copy)]
struct Way {
    key: [u8; KEY_BYTES],
    /// 0: none is kept.
    length: u8,
    at: Location,
    next: Location,
}

const EMPTY: Way = Way { key: [0; KEY_BYTES], length: 0, at: NONE, next: NONE };

pub(crate) struct Hot {
    ways: Vec<Way>,
}

impl Hot {
    pub(crate) fn new(keys: u64) -> Self {
        Hot { ways: vec![EMPTY; keys.div_ceil(WAYS as u64).max(1) as usize * WAYS] }
    }

    fn set(&mut self, hash: u64) -> &mut [Way] {
        let sets = (self.ways.len() / WAYS) as u64;
        let start = (hash % sets) as usize * WAYS;
        &mut self.ways[start..start + WAYS]
    }

    fn find(&mut self, hash: u64, key: &[u8]) -> Option<usize> {
        let is_it = |way: &Way| {
            usize::from(way.length) == key.len() && way.key.get(..key.len()) == Some(key)
        };
        self.set(hash).iter().position(is_it)
    }

    /// What the version at `head` leads to, if it is the key's newest. Of one that is pending the record
    /// itself knows better: what it leads to may have been programmed meanwhile.
    pub(crate) fn next_of(&mut self, record: &Record, head: Location) -> Option<Location> {
        let way = self.find(record.hash, &record.key)?;
        let way = self.set(record.hash)[way];
        (way.at == head && head != NONE).then_some(way.next)
    }

    /// Notes a key's newest version.
    pub(crate) fn put(&mut self, record: &Record, at: Location) {
        if record.key.len() > KEY_BYTES {
            return;
        }
        let way = self.find(record.hash, &record.key).unwrap_or(WAYS - 1);
        let mut key = [0; KEY_BYTES];
        key[..record.key.len()].copy_from_slice(&record.key);
        let set = self.set(record.hash);
        set[way] = Way { key, length: record.key.len() as u8, at, next: record.next() };
        set[..=way].rotate_right(1);
    }

    /// A pending version was programmed.
    pub(crate) fn placed(&mut self, record: &Record, from: Location, to: Location) {
        if let Some(way) = self.find(record.hash, &record.key) {
            let way = &mut self.set(record.hash)[way];
            if way.at == from {
                (way.at, way.next) = (to, record.next());
            }
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &[u8]) {
        if let Some(way) = self.find(hash, key) {
            self.set(hash)[way] = EMPTY;
        }
    }

    pub(crate) fn memory_bytes(&self) -> u64 {
        (self.ways.capacity() * size_of::<Way>()) as u64
    }
}

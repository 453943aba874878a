//! A cache of single records for collection.
//!
//! ```text
//!   a page that was read   │ a3 │ b7 │ c1 │ d2 │ …      for bucket a
//!   cached                        b7   c1               newest versions of b and c; d2 is hidden
//! ```
//!
//! A page takes the memory of all its records, and few of them are needed again. So single records
//! are cached. It is known which bucket needs each record, and when: buckets are collected in the
//! order of their stamps. If memory is short, the records that are needed last are evicted, which
//! is optimal.
//!
//! Invariant: a record equals its copy on the page; one whose block was erased since is not
//! returned.
//!
//! Source: Belady, "A study of replacement algorithms", 1966 (the eviction order).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::location::Location;
use crate::record::Record;

/// Records by location.
#[derive(Default)]
pub(crate) struct RecordCache {
    records: BTreeMap<Location, CachedRecord>,
    turn: u64,
    bytes: usize,
}

struct CachedRecord {
    bucket: u32,
    /// The erase count of its block.
    erases: u64,
    /// The order of insertion.
    turn: u64,
    /// The encoded record.
    record: Box<[u8]>,
}

impl CachedRecord {
    fn memory_bytes(&self) -> usize {
        size_of::<(Location, CachedRecord)>() + self.record.len()
    }
}

impl RecordCache {
    /// Inserts a record of a bucket, with the erase count of its block.
    pub(crate) fn insert(&mut self, at: Location, erases: u64, bucket: u32, record: &[u8]) {
        self.turn += 1;
        let cached = CachedRecord { bucket, erases, turn: self.turn, record: record.into() };
        self.bytes += cached.memory_bytes();
        if let Some(before) = self.records.insert(at, cached) {
            self.bytes -= before.memory_bytes();
        }
    }

    /// Whether the record at a location is cached for this erase count of its block.
    pub(crate) fn contains(&self, at: Location, erases: u64) -> bool {
        self.records.get(&at).is_some_and(|cached| cached.erases == erases)
    }

    /// The record at a location, for this erase count of its block.
    pub(crate) fn get(&self, at: Location, erases: u64) -> Option<Record> {
        let cached = self.records.get(&at).filter(|cached| cached.erases == erases)?;
        Record::decode(&cached.record).map(|(record, _)| record)
    }

    /// Evicts records down to `max_bytes`, those first whose bucket is due last.
    pub(crate) fn trim(&mut self, max_bytes: usize, wait: impl Fn(u32) -> u8) {
        if self.bytes <= max_bytes {
            return;
        }
        let of = |(at, cached): (&Location, &CachedRecord)| (wait(cached.bucket), cached.turn, *at);
        let mut order: Vec<_> = self.records.iter().map(of).collect();
        order.sort_unstable_by_key(|it| Reverse(*it));
        for (_, _, at) in order {
            if self.bytes <= max_bytes {
                break;
            }
            if let Some(evicted) = self.records.remove(&at) {
                self.bytes -= evicted.memory_bytes();
            }
        }
    }

    /// The bucket and the order of insertion of each record.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.records.values().map(|cached| (cached.bucket, cached.turn))
    }

    /// Bytes of memory of the records.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::location::Placement;
    use crate::record::Content;

    fn encoded(timestamp: u64) -> Vec<u8> {
        let value = Content::Value(vec![7; 400]);
        let record = Record::new(timestamp, crate::keys::hash(b"k"), b"k".to_vec(), value);
        let mut bytes = Vec::new();
        record.encode(record.marks, &Placement::default(), &mut bytes);
        bytes
    }

    #[test]
    fn record_is_valid_until_its_block_is_erased() {
        let mut cache = RecordCache::default();
        cache.insert(40, 2, 5, &encoded(11));
        assert!(cache.contains(40, 2) && !cache.contains(40, 3) && !cache.contains(41, 2));
        let record = cache.get(40, 2).unwrap();
        assert_eq!((record.timestamp, record.key.as_slice()), (11, b"k".as_slice()));
        assert!(cache.get(40, 3).is_none() && cache.get(41, 2).is_none());
        // A record of the erased block replaces it.
        cache.insert(40, 3, 6, &encoded(12));
        assert_eq!(cache.get(40, 3).unwrap().timestamp, 12);
        assert_eq!(cache.buckets().collect::<Vec<_>>(), [(6, 2)]);
    }

    #[test]
    fn records_needed_last_are_evicted_first() {
        let mut cache = RecordCache::default();
        for at in 0..6 {
            cache.insert(at, 0, at, &encoded(u64::from(at)));
        }
        let each = cache.memory_bytes() as usize / 6;
        let wait = |bucket: u32| [3, 200, 1, 9, 0, 1][bucket as usize];
        let left =
            |cache: &RecordCache| cache.buckets().map(|(bucket, _)| bucket).collect::<Vec<_>>();
        cache.trim(6 * each, wait);
        assert_eq!(left(&cache).len(), 6, "all fit");
        cache.trim(4 * each, wait);
        assert_eq!(left(&cache), [0, 2, 4, 5]);
        // Of two that are due at the same time the later one is evicted.
        cache.trim(2 * each + each / 2, wait);
        assert_eq!(left(&cache), [2, 4]);
        assert_eq!(cache.memory_bytes() as usize, 2 * each);
        cache.insert(2, 0, 2, &encoded(2));
        assert_eq!(cache.memory_bytes() as usize, 2 * each, "a replaced record takes no more");
    }
}

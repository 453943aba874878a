//! Records of pages that were read, kept until they are needed.
//!
//! ```text
//!   a page at hand   │ a3 │ b7 │ c1 │ d2 │ …      read for a3
//!   held                    b7   c1               b's and c's newest versions; d2 is hidden
//! ```
//!
//! A page takes the memory of all its records, and few of them are wanted once more. So it is those that are kept. Who
//! needs each, and when, is known: a bucket goes when its stamp comes. Where there is no room for all, those that are
//! needed last go, which no order of use could do better (Belady, 1966).
//!
//! Invariant: a record is as it lies in its page; one whose block was erased since is not used.
//!
//! Source: ours.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::location::Location;
use crate::record::Record;

/// Records by their place.
#[derive(Default)]
pub(crate) struct Held {
    records: BTreeMap<Location, Kept>,
    turn: u64,
    bytes: usize,
}

struct Kept {
    bucket: u32,
    /// How often its block had been erased.
    erases: u64,
    /// Which one it was to come.
    turn: u64,
    /// As in its page.
    record: Box<[u8]>,
}

impl Kept {
    fn memory_bytes(&self) -> usize {
        size_of::<(Location, Kept)>() + self.record.len()
    }
}

impl Held {
    /// Keeps a record of a bucket that was read when its block had been erased so often.
    pub(crate) fn hold(&mut self, at: Location, erases: u64, bucket: u32, record: &[u8]) {
        self.turn += 1;
        let kept = Kept { bucket, erases, turn: self.turn, record: record.into() };
        self.bytes += kept.memory_bytes();
        if let Some(before) = self.records.insert(at, kept) {
            self.bytes -= before.memory_bytes();
        }
    }

    /// Whether the record at a place is kept, where its block has been erased so often.
    pub(crate) fn has(&self, at: Location, erases: u64) -> bool {
        self.records.get(&at).is_some_and(|kept| kept.erases == erases)
    }

    /// The record.
    pub(crate) fn get(&self, at: Location, erases: u64) -> Option<Record> {
        let kept = self.records.get(&at).filter(|kept| kept.erases == erases)?;
        Record::decode(&kept.record).map(|(record, _)| record)
    }

    /// Lets records go until so many bytes are left, those first whose bucket has longest to wait.
    pub(crate) fn trim(&mut self, most_bytes: usize, wait: impl Fn(u32) -> u8) {
        if self.bytes <= most_bytes {
            return;
        }
        let of = |(at, kept): (&Location, &Kept)| (wait(kept.bucket), kept.turn, *at);
        let mut order: Vec<_> = self.records.iter().map(of).collect();
        order.sort_unstable_by_key(|it| Reverse(*it));
        for (_, _, at) in order {
            if self.bytes <= most_bytes {
                break;
            }
            if let Some(gone) = self.records.remove(&at) {
                self.bytes -= gone.memory_bytes();
            }
        }
    }

    /// Of each record its bucket, and which one it was to come.
    pub(crate) fn buckets(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.records.values().map(|kept| (kept.bucket, kept.turn))
    }

    /// Bytes of memory that they take.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pending::Placed;
    use crate::record::Content;

    fn encoded(timestamp: u64) -> Vec<u8> {
        let value = Content::Value(vec![7; 400]);
        let record = Record::new(timestamp, crate::keys::hash(b"k"), b"k".to_vec(), value);
        let mut bytes = Vec::new();
        record.encode(record.marks, &Placed::default(), &mut bytes);
        bytes
    }

    #[test]
    fn a_record_is_as_it_was_as_long_as_its_block_was_not_erased() {
        let mut held = Held::default();
        held.hold(40, 2, 5, &encoded(11));
        assert!(held.has(40, 2) && !held.has(40, 3) && !held.has(41, 2));
        let record = held.get(40, 2).unwrap();
        assert_eq!((record.timestamp, record.key.as_slice()), (11, b"k".as_slice()));
        assert!(held.get(40, 3).is_none() && held.get(41, 2).is_none());
        // What is there after the erase takes its place.
        held.hold(40, 3, 6, &encoded(12));
        assert_eq!(held.get(40, 3).unwrap().timestamp, 12);
        assert_eq!(held.buckets().collect::<Vec<_>>(), [(6, 2)]);
    }

    #[test]
    fn who_is_needed_last_makes_room() {
        let mut held = Held::default();
        for at in 0..6 {
            held.hold(at, 0, at, &encoded(u64::from(at)));
        }
        let each = held.memory_bytes() as usize / 6;
        let wait = |bucket: u32| [3, 200, 1, 9, 0, 1][bucket as usize];
        let left = |held: &Held| held.buckets().map(|(bucket, _)| bucket).collect::<Vec<_>>();
        held.trim(6 * each, wait);
        assert_eq!(left(&held).len(), 6, "there is room for all");
        held.trim(4 * each, wait);
        assert_eq!(left(&held), [0, 2, 4, 5]);
        // Of two that wait as long the one that came later goes.
        held.trim(2 * each + each / 2, wait);
        assert_eq!(left(&held), [2, 4]);
        assert_eq!(held.memory_bytes() as usize, 2 * each);
        held.hold(2, 0, 2, &encoded(2));
        assert_eq!(held.memory_bytes() as usize, 2 * each, "the same once more");
    }
}

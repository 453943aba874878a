//! The versions in memory: of each hash a list of entries, the newest first.
//!
//! ```text
//!   heads    hash of a key ─▶ its newest version ─▶ the previous one ─▶ …
//!   entry    20 bytes: location u32, timestamp u64, the previous version u32, flags u32
//! ```
//!
//! Entries lie in one vector, and a version names the previous one by its number there. The numbers
//! of removed entries are used again.
//!
//! Invariants: the versions of a hash have different timestamps and are sorted by them. A number
//! from [`Index::find`] or [`Index::versions`] is valid while the caller holds the lock of the map.

use std::collections::{BTreeMap, HashMap};

use crate::location::{Location, NONE};

/// Flag: the tail has reached the version, and there was nothing older.
pub(super) const LAST_OF_KEY: u32 = 1;

/// A version; all fields have 32 bits, so that it takes 20 bytes.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    pub(super) at: Location,
    timestamp: [u32; 2],
    pub(super) prior: u32,
    pub(super) flags: u32,
}

impl Entry {
    /// The time of its write.
    pub(super) fn timestamp(&self) -> u64 {
        u64::from(self.timestamp[0]) | (u64::from(self.timestamp[1]) << 32)
    }
}

/// The versions by hash, and the pages and batches that replay ignores.
#[derive(Default)]
pub(super) struct Index {
    /// By hash: the entry number of its newest version.
    pub(super) heads: BTreeMap<u64, u32>,
    pub(super) entries: Vec<Entry>,
    /// Numbers of removed entries.
    pub(super) free: Vec<u32>,
    /// By epoch: its pages from this number on were cut off.
    pub(super) cuts: HashMap<u32, u64>,
    /// Timestamps of abandoned batches, each with a page number above those of its pages.
    pub(super) abandoned: BTreeMap<u64, u64>,
}

impl Index {
    /// The versions of a hash, the newest first, with their entry numbers.
    pub(super) fn versions(&self, hash: u64) -> impl Iterator<Item = (u32, Entry)> + '_ {
        let mut next = self.heads.get(&hash).copied().unwrap_or(NONE);
        std::iter::from_fn(move || {
            let number = next;
            let entry = *self.entries.get(number as usize)?;
            next = entry.prior;
            Some((number, entry))
        })
    }

    /// The entry number of a version.
    pub(super) fn find(&self, hash: u64, timestamp: u64) -> Option<u32> {
        let mut versions = self.versions(hash);
        versions.find(|(_, entry)| entry.timestamp() == timestamp).map(|(number, _)| number)
    }

    /// Inserts a version in the order of timestamps, or updates its location.
    pub(super) fn insert(&mut self, hash: u64, timestamp: u64, at: Location) {
        if let Some(number) = self.find(hash, timestamp) {
            self.entries[number as usize].at = at;
            return;
        }
        let younger = self.versions(hash).take_while(|(_, entry)| entry.timestamp() > timestamp);
        let after = younger.last().map(|(number, _)| number);
        let prior = match after {
            Some(after) => self.entries[after as usize].prior,
            None => self.heads.get(&hash).copied().unwrap_or(NONE),
        };
        let timestamp = [timestamp as u32, (timestamp >> 32) as u32];
        let entry = Entry { at, timestamp, prior, flags: 0 };
        let number = match self.free.pop() {
            Some(number) => {
                self.entries[number as usize] = entry;
                number
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        match after {
            Some(after) => self.entries[after as usize].prior = number,
            None => drop(self.heads.insert(hash, number)),
        }
    }

    /// Removes the version with this entry number, which has this hash.
    pub(super) fn remove(&mut self, hash: u64, number: u32) {
        let after = self.versions(hash).find(|(_, entry)| entry.prior == number);
        let prior = self.entries[number as usize].prior;
        match after {
            Some((after, _)) => self.entries[after as usize].prior = prior,
            None if prior == NONE => drop(self.heads.remove(&hash)),
            None => drop(self.heads.insert(hash, prior)),
        }
        self.free.push(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_takes_20_bytes_and_versions_are_ordered() {
        assert_eq!(size_of::<Entry>(), 20);
        let mut index = Index::default();
        for timestamp in [5, 1, 9, 3, 7] {
            index.insert(1, timestamp, timestamp as u32);
        }
        let list = |index: &Index| index.versions(1).map(|it| it.1.timestamp()).collect::<Vec<_>>();
        assert_eq!(list(&index), [9, 7, 5, 3, 1]);
        for (gone, left) in [(9, vec![7, 5, 3, 1]), (3, vec![7, 5, 1]), (1, vec![7, 5])] {
            let number = index.find(1, gone).unwrap();
            index.remove(1, number);
            assert_eq!(list(&index), left);
        }
        index.insert(1, 7, 99);
        assert_eq!(index.versions(1).map(|it| it.1.at).collect::<Vec<_>>(), [99, 5]);
    }
}

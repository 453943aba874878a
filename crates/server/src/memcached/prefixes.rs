//! What is counted for each prefix of keys, after `stats detail on`.
//!
//! A key's prefix is what stands before its first `:`; a key without one is not counted. While
//! counting is off, a command pays for one look at a flag.
//!
//! Invariant: there are at most [`MAX_PREFIXES`]; a prefix beyond that is not counted.
//!
//! Source: memcached's `doc/protocol.txt`; the form of the dump is memcached 1.6.18's.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::resp::Replies;
use crate::resp::number::Digits;

/// A client chooses its keys, so memory must not depend on how many prefixes they have.
const MAX_PREFIXES: usize = 10_000;
const DELIMITER: u8 = b':';

/// What is done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Hit,
    Miss,
    Set,
    Delete,
}

#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// The prefixes.
#[derive(Default)]
pub(super) struct Prefixes {
    is_on: AtomicBool,
    counts: Mutex<BTreeMap<Vec<u8>, Counts>>,
}

impl Prefixes {
    /// Switches counting on or off; what was counted stays.
    pub(super) fn switch(&self, is_on: bool) {
        self.is_on.store(is_on, Relaxed);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Relaxed)
    }

    pub(super) fn clear(&self) {
        self.counts.lock().clear();
    }

    #[inline]
    pub(super) fn note(&self, key: &[u8], access: Access) {
        if self.is_on() {
            self.count(key, access);
        }
    }

    #[cold]
    fn count(&self, key: &[u8], access: Access) {
        let Some(len) = key.iter().position(|byte| *byte == DELIMITER) else { return };
        let prefix = &key[..len];
        let mut all = self.counts.lock();
        if !all.contains_key(prefix) {
            if all.len() == MAX_PREFIXES {
                return;
            }
            all.insert(prefix.to_vec(), Counts::default());
        }
        let Some(counts) = all.get_mut(prefix) else { return };
        match access {
            Access::Hit => (counts.gets, counts.hits) = (counts.gets + 1, counts.hits + 1),
            Access::Miss => counts.gets += 1,
            Access::Set => counts.sets += 1,
            Access::Delete => counts.deletes += 1,
        }
    }

    /// Answers `stats detail dump`.
    pub(super) fn dump(&self, replies: &mut Replies) {
        for (prefix, counts) in self.counts.lock().iter() {
            replies.raw(b"PREFIX ");
            replies.raw(prefix);
            let Counts { gets, hits, sets, deletes } = *counts;
            for (name, count) in [("get", gets), ("hit", hits), ("set", sets), ("del", deletes)] {
                for part in [b" ", name.as_bytes(), b" ", Digits::unsigned(count).as_bytes()] {
                    replies.raw(part);
                }
            }
            replies.raw(b"\r\n");
        }
        replies.raw(b"END\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn note_counts_by_prefix_while_it_is_on() {
        let prefixes = Prefixes::default();
        prefixes.note(b"a:1", Access::Set);
        prefixes.switch(true);
        for access in [Access::Set, Access::Hit, Access::Miss, Access::Delete] {
            prefixes.note(b"a:1", access);
            prefixes.note(b"none", access);
        }
        let mut replies = Replies::new(1 << 20);
        prefixes.dump(&mut replies);
        assert_eq!(replies.unsent(), b"PREFIX a get 2 hit 1 set 1 del 1\r\nEND\r\n");
    }

    #[test]
    fn note_keeps_its_memory_whatever_keys_come() {
        let prefixes = Prefixes::default();
        prefixes.switch(true);
        for number in 0..MAX_PREFIXES + 100 {
            prefixes.note(format!("p{number}:x").as_bytes(), Access::Set);
        }
        assert_eq!(prefixes.counts.lock().len(), MAX_PREFIXES);
        prefixes.clear();
        assert!(prefixes.counts.lock().is_empty());
    }
}

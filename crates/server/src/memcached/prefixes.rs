//! Counters per key prefix, after `stats detail on`.
//!
//! A key's prefix ends before its first `:`; a key without one is not counted. While disabled, the
//! cost per command is one atomic load.
//!
//! Invariant: there are up to [`MAX_PREFIXES`]; further prefixes are not counted.
//!
//! Source: memcached's `doc/protocol.txt`; format of the dump as in memcached 1.6.18.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;

use crate::resp::Replies;
use crate::resp::number::Digits;

/// Clients choose the keys, so the number of prefixes must be bounded.
const MAX_PREFIXES: usize = 10_000;
const DELIMITER: u8 = b':';

/// Type of access to a key.
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

/// Counters per prefix.
#[derive(Default)]
pub(super) struct Prefixes {
    is_enabled: AtomicBool,
    counts: Mutex<BTreeMap<Vec<u8>, Counts>>,
}

impl Prefixes {
    /// Enables or disables counting; existing counts stay.
    pub(super) fn set_enabled(&self, is_enabled: bool) {
        self.is_enabled.store(is_enabled, Relaxed);
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.is_enabled.load(Relaxed)
    }

    pub(super) fn clear(&self) {
        self.counts.lock().clear();
    }

    #[inline]
    pub(super) fn record(&self, key: &[u8], access: Access) {
        if self.is_enabled() {
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

    /// Writes the response to `stats detail dump`.
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
    fn accesses_are_counted_per_prefix_while_enabled() {
        let prefixes = Prefixes::default();
        prefixes.record(b"a:1", Access::Set);
        prefixes.set_enabled(true);
        for access in [Access::Set, Access::Hit, Access::Miss, Access::Delete] {
            prefixes.record(b"a:1", access);
            prefixes.record(b"none", access);
        }
        let mut replies = Replies::new(1 << 20);
        prefixes.dump(&mut replies);
        assert_eq!(replies.unsent(), b"PREFIX a get 2 hit 1 set 1 del 1\r\nEND\r\n");
    }

    #[test]
    fn number_of_prefixes_is_bounded() {
        let prefixes = Prefixes::default();
        prefixes.set_enabled(true);
        for number in 0..MAX_PREFIXES + 100 {
            prefixes.record(format!("p{number}:x").as_bytes(), Access::Set);
        }
        assert_eq!(prefixes.counts.lock().len(), MAX_PREFIXES);
        prefixes.clear();
        assert!(prefixes.counts.lock().is_empty());
    }
}

//! Which watched keys have been written.
//!
//! A key is counted while at least one client watches it: its version goes up with each write. A
//! client remembers the version that it saw; EXEC compares. Keys that no one watches cost a writer
//! one load of a counter.
//!
//! Invariant: [`Watches::add`], [`Watches::touch`] and the write that it stands for happen under
//! the key's lock, so no write falls between a client's look and its WATCH.
//!
//! Source: the documentation of Redis's WATCH; keys that expire count as touched as in Redis 6.0.9
//! and later (the overlay of EXEC compares existence).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// The watched keys of one table.
#[derive(Default)]
pub(crate) struct Watches {
    /// How many keys are watched.
    active: AtomicUsize,
    keys: Mutex<HashMap<Vec<u8>, Watched>>,
}

#[derive(Default)]
struct Watched {
    version: u64,
    watchers: usize,
}

impl Watches {
    /// Begins to count a key; its version as of now.
    pub(crate) fn add(&self, key: &[u8]) -> u64 {
        let mut keys = self.keys.lock();
        let watched = keys.entry(key.to_vec()).or_default();
        watched.watchers += 1;
        let version = watched.version;
        self.active.store(keys.len(), Ordering::Release);
        version
    }

    /// Ends what [`add`](Self::add) began.
    pub(crate) fn remove(&self, key: &[u8]) {
        let mut keys = self.keys.lock();
        if let Some(watched) = keys.get_mut(key) {
            watched.watchers -= 1;
            if watched.watchers == 0 {
                keys.remove(key);
            }
        }
        self.active.store(keys.len(), Ordering::Release);
    }

    /// The version of a key that is watched.
    pub(crate) fn version(&self, key: &[u8]) -> u64 {
        self.keys.lock().get(key).map_or(0, |watched| watched.version)
    }

    /// The keys that are watched.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.keys.lock().keys().cloned().collect()
    }

    /// Notes writes of `keys`.
    #[inline]
    pub(crate) fn touch<'k>(&self, touched: impl Iterator<Item = &'k [u8]>) {
        if self.active.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut keys = self.keys.lock();
        for key in touched {
            if let Some(watched) = keys.get_mut(key) {
                watched.version += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_while_it_is_watched() {
        let watches = Watches::default();
        let key = b"k";
        watches.touch([&key[..]].into_iter());
        assert_eq!(watches.add(key), 0);
        watches.touch([&key[..], b"other"].into_iter());
        assert_eq!(watches.add(key), 1);
        watches.remove(key);
        assert_eq!(watches.version(key), 1);
        watches.remove(key);
        assert_eq!(watches.active.load(Ordering::Relaxed), 0);
    }
}

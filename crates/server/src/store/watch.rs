//! Watched keys (WATCH).
//!
//! A key has a version while at least one client watches it; each write increments it. A client
//! stores the version at WATCH, and EXEC compares. Without any watched key a write costs one atomic
//! load.
//!
//! Invariant: [`Watches::add`], [`Watches::touch`] and the corresponding write happen under the
//! key's lock, so no write falls between a client's check and its WATCH.
//!
//! Source: the documentation of Redis's WATCH; expired keys count as modified as in Redis 6.0.9 and
//! later (EXEC compares existence).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Watched keys of one table.
#[derive(Default)]
pub(crate) struct Watches {
    /// Number of watched keys.
    active: AtomicUsize,
    keys: Mutex<HashMap<Vec<u8>, WatchState>>,
}

#[derive(Default)]
struct WatchState {
    version: u64,
    watchers: usize,
}

impl Watches {
    /// Watches a key, and returns its version.
    pub(crate) fn add(&self, key: &[u8]) -> u64 {
        let mut keys = self.keys.lock();
        let watched = keys.entry(key.to_vec()).or_default();
        watched.watchers += 1;
        let version = watched.version;
        self.active.store(keys.len(), Ordering::Release);
        version
    }

    /// Ends one watch.
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

    /// Version of a watched key.
    pub(crate) fn version(&self, key: &[u8]) -> u64 {
        self.keys.lock().get(key).map_or(0, |watched| watched.version)
    }

    /// Number of watched keys.
    pub(crate) fn len(&self) -> usize {
        self.active.load(Ordering::Acquire)
    }

    /// All watched keys.
    pub(crate) fn keys(&self) -> Vec<Vec<u8>> {
        self.keys.lock().keys().cloned().collect()
    }

    /// Records writes of `keys`.
    #[inline]
    pub(crate) fn touch<K: AsRef<[u8]>>(&self, touched: impl Iterator<Item = K>) {
        if self.active.load(Ordering::Acquire) == 0 {
            return;
        }
        let mut keys = self.keys.lock();
        for key in touched {
            if let Some(watched) = keys.get_mut(key.as_ref()) {
                watched.version += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_increase_while_a_key_is_watched() {
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

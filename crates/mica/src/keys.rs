//! Incremental key iteration, one bucket at a time, concurrent with other operations.
//!
//! ```text
//! partition 0              partition 1
//! │ 0 │ 1 │ 2 │ … │ n-1 │  │ n │ n+1 │ …       buckets, numbered across partitions
//!           └── its keys are copied atomically, then those of the next bucket
//! ```
//!
//! An item never changes its bucket. So a key that exists during the whole iteration is returned
//! exactly once, a key that is added or removed meanwhile at most once, and the iteration can be
//! resumed from a bucket number alone: the guarantees of Redis's SCAN. Memory: the keys of one
//! bucket. A cursor, which is a snapshot, has to copy everything.

use crate::store::Store;

/// Average number of keys in a window of buckets.
const WINDOW_KEYS: u64 = 8;
/// Maximum number of keys sampled in a window; more are rare, and the excess is never drawn.
const MAX_WINDOW_KEYS: u64 = 64;
/// Windows drawn before falling back to the first key. One draw in eight succeeds.
const MAX_DRAWS: usize = 256;

impl Store {
    /// Iterates over keys concurrently with other operations, from a bucket number returned by
    /// [`Keys::place`] on; 0 is the first.
    pub fn keys(&self, bucket: u64) -> Keys<'_> {
        Keys { store: self, next: bucket, keys: Vec::new(), returned: 0 }
    }

    /// A random key, uniformly distributed; `None` if there is none. Buckets are grouped into
    /// windows of equal length, which depends on the number of keys. Rejection sampling: a window
    /// and a position in it are drawn, and rejected if the window has fewer keys. `below(n)`
    /// returns a random number below `n`.
    pub fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
        let (buckets, items) = (self.bucket_count(), self.items().max(1));
        let length = (WINDOW_KEYS * buckets / items).clamp(1, buckets);
        let mut window = Vec::new();
        for _ in 0..MAX_DRAWS {
            let first = length * below(buckets.div_ceil(length));
            window.clear();
            for place in first..(first + length).min(buckets) {
                self.keys_in_bucket(place, |key| window.push(key));
            }
            // With a single window no draw needs to be rejected.
            let among = if length == buckets { window.len() as u64 } else { MAX_WINDOW_KEYS };
            let at = below(among.max(1)) as usize;
            if at < window.len() {
                return Some(window.swap_remove(at));
            }
            if length == buckets {
                return None;
            }
        }
        let mut keys = self.keys(0);
        keys.advance().then(|| keys.key().to_vec())
    }
}

/// A key iterator, initially before the first key.
pub struct Keys<'s> {
    store: &'s Store,
    /// The bucket after the one read last.
    next: u64,
    /// The keys of the bucket read last.
    keys: Vec<Vec<u8>>,
    /// Number of these keys already returned.
    returned: usize,
}

impl Keys<'_> {
    /// Moves to the next key; returns whether there is one.
    pub fn advance(&mut self) -> bool {
        while self.returned >= self.keys.len() {
            (self.returned, self.next) = (0, self.next.saturating_add(1));
            self.keys.clear();
            if !self.store.keys_in_bucket(self.next - 1, |key| self.keys.push(key)) {
                return false;
            }
        }
        self.returned += 1;
        true
    }

    /// The current key.
    ///
    /// # Panics
    /// If there is no current key.
    pub fn key(&self) -> &[u8] {
        &self.keys[self.returned - 1]
    }

    /// The bucket from which to resume after this key; `None` within a bucket.
    pub fn place(&self) -> Option<u64> {
        (self.returned == self.keys.len()).then_some(self.next)
    }
}

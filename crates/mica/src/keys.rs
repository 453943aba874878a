//! A walk over keys, a bucket at a time, beside everything else that goes on.
//!
//! ```text
//! partition 0              partition 1
//! │ 0 │ 1 │ 2 │ … │ n-1 │  │ n │ n+1 │ …       places: main buckets with their chains, counted through
//!           └── its keys are copied at one moment, then those of the next
//! ```
//!
//! An item stays in its bucket as long as it is there. So a key that is there throughout a walk is met exactly
//! once, one that comes or goes meanwhile may be met or not, and a walk can be taken up again at a place by
//! somebody who knows nothing but its number. It takes the memory of one bucket's keys; a cursor, which shows all
//! as of one moment, has to copy everything.
//!
//! Source: ours; Redis's SCAN promises the same.

use crate::store::Store;

/// How many keys a window of buckets is to have on average.
const WINDOW_KEYS: u64 = 8;
/// A window hardly has more keys than this; of one that has, some are not drawn by chance.
const MAX_WINDOW_KEYS: u64 = 64;
/// Windows that are drawn before the first key behind one has to do: one in eight succeeds.
const MAX_DRAWS: usize = 256;

impl Store {
    /// A key drawn by chance; `None` if there is none. The buckets are cut into windows of equal
    /// length, the longer the fewer keys there are. A window is drawn, and a place in it, in vain
    /// if it has fewer keys than that: so each key is as likely as any other. `below` draws a
    /// number below the given one.
    pub fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Option<Vec<u8>> {
        let (places, items) = (self.places(), self.items().max(1));
        let length = (WINDOW_KEYS * places / items).clamp(1, places);
        let mut window = Vec::new();
        for _ in 0..MAX_DRAWS {
            let first = length * below(places.div_ceil(length));
            window.clear();
            for place in first..(first + length).min(places) {
                self.keys_at(place, |key| window.push(key));
            }
            // One window is all there is: nothing need be drawn in vain.
            let among = if length == places { window.len() as u64 } else { MAX_WINDOW_KEYS };
            let at = below(among.max(1)) as usize;
            if at < window.len() {
                return Some(window.swap_remove(at));
            }
            if length == places {
                return None;
            }
        }
        let mut keys = self.keys(0);
        keys.advance().then(|| keys.key().to_vec())
    }
}

/// A walk over keys, which begins before the first.
pub struct Keys<'s> {
    store: &'s Store,
    /// Behind the bucket that was read last.
    next: u64,
    /// The keys of that bucket.
    keys: Vec<Vec<u8>>,
    /// How many of them were given.
    given: usize,
}

impl<'s> Keys<'s> {
    /// A walk from a place on; 0 is the first.
    pub(crate) fn of(store: &'s Store, place: u64) -> Self {
        Keys { store, next: place, keys: Vec::new(), given: 0 }
    }

    /// Goes to the next key; whether there is one.
    pub fn advance(&mut self) -> bool {
        while self.given >= self.keys.len() {
            (self.given, self.next) = (0, self.next.saturating_add(1));
            self.keys.clear();
            if !self.store.keys_at(self.next - 1, |key| self.keys.push(key)) {
                return false;
            }
        }
        self.given += 1;
        true
    }

    /// The key.
    ///
    /// # Panics
    /// If the walk stands on none.
    pub fn key(&self) -> &[u8] {
        &self.keys[self.given - 1]
    }

    /// Where a walk goes on behind this key; `None` if there are others in its bucket.
    pub fn place(&self) -> Option<u64> {
        (self.given == self.keys.len()).then_some(self.next)
    }
}

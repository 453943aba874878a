//! Number of keys, and of keys that expire, for INFO.
//!
//! Only `mica` maintains these numbers; elsewhere each write would need a lookup. So INFO counts up
//! to [`MAX_COUNTED_KEYS`], which takes milliseconds and is exact for smaller tables. For larger
//! ones it reports the engine's estimate, and extrapolates the expiring keys from those counted.
//! With collections, whose elements the estimate would count, it reports those counted.
//!
//! Invariant: the cost is bounded, independent of the table's size.

use siltstone_engine::{Result, Timestamp};
use siltstone_mica::{Action, Request};

use crate::store::Database;

/// Maximum number of keys counted.
pub(super) const MAX_COUNTED_KEYS: u64 = 10_000;

/// Key counts of a table.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Keyspace {
    pub(super) keys: u64,
    /// Keys with an expiry.
    pub(super) expires: u64,
    /// Average time to live of these, in milliseconds.
    pub(super) average_ttl: u64,
    /// Whether all keys were counted.
    pub(super) is_exact: bool,
}

impl Keyspace {
    /// Current key counts of a table.
    pub(super) fn of(database: &Database, now: Timestamp) -> Result<Self> {
        let mut count = Count::default();
        let is_exact = match &database.mica {
            Some(store) => {
                let mut keys = store.keys(0);
                loop {
                    if count.keys == MAX_COUNTED_KEYS {
                        break false;
                    }
                    if !keys.advance() {
                        break true;
                    }
                    let (hash, key) = (store.hash(keys.key()), keys.key());
                    let answer = store.one(&Request { hash, key, action: Action::Get }, &mut ());
                    count.add(answer.meta.expires_at, now);
                }
            }
            None => {
                let mut cursor = database.iter()?;
                cursor.skip_values();
                let mut is_valid = cursor.first()?;
                while is_valid && count.keys < MAX_COUNTED_KEYS {
                    count.add(cursor.expires_at(), now);
                    is_valid = cursor.next()?;
                }
                !is_valid
            }
        };
        let average_ttl = count.ttl_sum / u128::from(count.expires.max(1));
        let mut keyspace = Keyspace {
            keys: count.keys,
            expires: count.expires,
            average_ttl: u64::try_from(average_ttl).unwrap_or(u64::MAX),
            is_exact,
        };
        if !is_exact && let Some(estimate) = database.keys_estimate() {
            keyspace.keys = estimate.max(count.keys);
            let expires = u128::from(keyspace.keys) * u128::from(count.expires);
            keyspace.expires = u64::try_from(expires / u128::from(count.keys)).unwrap_or(u64::MAX);
        }
        Ok(keyspace)
    }
}

#[derive(Default)]
struct Count {
    keys: u64,
    expires: u64,
    ttl_sum: u128,
}

impl Count {
    fn add(&mut self, expires_at: Option<Timestamp>, now: Timestamp) {
        self.keys += 1;
        if let Some(at) = expires_at {
            self.expires += 1;
            self.ttl_sum += u128::from(at.saturating_sub(now));
        }
    }
}

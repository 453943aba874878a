//! The last row of a user's key that was read from a table under the lock of the key.
//!
//! Commands of a group often use one collection. Its metadata are read once then, unless they
//! change: writes of the group lie above this cache.
//!
//! Invariant: the cache is forgotten before the locks that the row was read under are released.

use siltstone_engine::{Result, Timestamp};

/// A row, or its absence.
#[derive(Debug, Default)]
pub(crate) struct RowCache {
    is_filled: bool,
    key: Vec<u8>,
    is_there: bool,
    value: Vec<u8>,
    expires_at: Option<Timestamp>,
}

/// Values from this size on are not kept.
const MAX_VALUE_BYTES: usize = 4 << 10;

impl RowCache {
    /// Lends the row of a key to `visit`, from the cache or by `read`, and returns whether there is
    /// one.
    pub(crate) fn lookup(
        &mut self,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
        read: impl FnOnce(&mut dyn FnMut(&[u8], Option<Timestamp>)) -> Result<bool>,
    ) -> Result<bool> {
        if !self.is_filled || self.key != key {
            self.forget();
            let mut is_large = false;
            let RowCache { value, expires_at, .. } = self;
            let is_there = read(&mut |found, at| {
                is_large = found.len() >= MAX_VALUE_BYTES;
                match is_large {
                    true => visit(found, at),
                    false => {
                        value.clear();
                        value.extend_from_slice(found);
                        *expires_at = at;
                    }
                }
            })?;
            if is_large {
                return Ok(true);
            }
            self.key.clear();
            self.key.extend_from_slice(key);
            (self.is_filled, self.is_there) = (true, is_there);
        }
        if self.is_there {
            visit(&self.value, self.expires_at);
        }
        Ok(self.is_there)
    }

    /// Forgets the row.
    pub(crate) fn forget(&mut self) {
        self.is_filled = false;
    }
}

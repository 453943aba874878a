//! A cursor over the user keys of a table: without reserved rows, escaped keys decoded.
//!
//! Reserved rows are adjacent, so they are skipped by one seek, however many there are.

use siltstone_engine::{Cursor, Result, forward_cursor};

use crate::layout::{AFTER_RESERVED, FIRST_RESERVED, stored_key, user_key};
use crate::rows::Order;

/// A cursor over user keys.
pub struct UserKeys {
    rows: Box<dyn Cursor>,
    /// The decoded key under the cursor, if it is escaped.
    decoded: Option<Vec<u8>>,
}

impl UserKeys {
    /// Wraps a cursor over all rows of an ordered table.
    pub fn new(rows: Box<dyn Cursor>) -> Self {
        UserKeys { rows, decoded: None }
    }

    /// Leaves the reserved rows, if the cursor is on one, and decodes the key.
    fn skip_reserved(&mut self, mut is_valid: bool, order: Order) -> Result<bool> {
        if is_valid && user_key(self.rows.key()).is_none() {
            is_valid = match order {
                Order::Ascending => self.rows.seek(&AFTER_RESERVED)?,
                Order::Descending => self.rows.seek_back(&FIRST_RESERVED)?,
            };
        }
        self.decoded = match is_valid {
            true => user_key(self.rows.key()).filter(|key| **key != *self.rows.key()),
            false => None,
        }
        .map(std::borrow::Cow::into_owned);
        Ok(is_valid)
    }
}

impl Cursor for UserKeys {
    forward_cursor!(rows except key);

    fn first(&mut self) -> Result<bool> {
        let is_valid = self.rows.first()?;
        self.skip_reserved(is_valid, Order::Ascending)
    }

    fn last(&mut self) -> Result<bool> {
        let is_valid = self.rows.last()?;
        self.skip_reserved(is_valid, Order::Descending)
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        let is_valid = self.rows.seek(&stored_key(key))?;
        self.skip_reserved(is_valid, Order::Ascending)
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        let is_valid = self.rows.seek_back(&stored_key(key))?;
        self.skip_reserved(is_valid, Order::Descending)
    }

    fn next(&mut self) -> Result<bool> {
        let is_valid = self.rows.next()?;
        self.skip_reserved(is_valid, Order::Ascending)
    }

    fn prev(&mut self) -> Result<bool> {
        let is_valid = self.rows.prev()?;
        self.skip_reserved(is_valid, Order::Descending)
    }

    fn key(&self) -> &[u8] {
        self.decoded.as_deref().unwrap_or_else(|| self.rows.key())
    }
}

impl std::fmt::Debug for UserKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UserKeys").field("decoded", &self.decoded).finish_non_exhaustive()
    }
}

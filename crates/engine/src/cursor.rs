//! Walking a table in engine order.

use crate::{Result, Timestamp};

/// A position in a table, seen as of the moment the cursor was made.
///
/// A new cursor stands nowhere ([`valid`](Cursor::valid) is false) until it is placed by
/// [`first`](Cursor::first), [`last`](Cursor::last), [`seek`](Cursor::seek) or
/// [`seek_back`](Cursor::seek_back). It never shows deleted or expired entries, and concurrent
/// writes, flushes and compactions don't disturb it. An unordered engine walks forward only; the
/// other moves answer [`Error::Unsupported`](crate::Error::Unsupported).
///
/// After an error the cursor stands nowhere and may be placed anew.
pub trait Cursor: Send {
    /// Moves to the first entry. `true` if there is one.
    fn first(&mut self) -> Result<bool>;

    /// Moves to the last entry.
    fn last(&mut self) -> Result<bool>;

    /// Moves to the first entry whose key is not less than `key`.
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Moves to the last entry whose key is not greater than `key`.
    fn seek_back(&mut self, key: &[u8]) -> Result<bool>;

    /// Moves to the next entry; the cursor must be [`valid`](Cursor::valid).
    fn next(&mut self) -> Result<bool>;

    /// Moves to the entry before; the cursor must be [`valid`](Cursor::valid).
    fn prev(&mut self) -> Result<bool>;

    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;

    /// The key under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn key(&self) -> &[u8];

    /// The value under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn value(&self) -> &[u8];

    /// When the entry under the cursor expires.
    fn expires_at(&self) -> Option<Timestamp>;
}

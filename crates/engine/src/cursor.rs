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

    /// Where the cursor stands, for [`resume`](Cursor::resume) of any later cursor of the table; it
    /// must be [`valid`](Cursor::valid). The key in ordered engines; elsewhere bytes for the engine
    /// alone, of about a key's length.
    fn position(&self) -> Vec<u8> {
        self.key().to_vec()
    }

    /// Moves to the first entry behind a position, which need not be there any more. From
    /// [`first`](Cursor::first) over as many resumed cursors as it takes to the end, every key is shown
    /// that is there all the time: once in ordered engines, at least once in others (more often only
    /// if it was written or its store rewritten meanwhile), and none that was never there.
    ///
    /// # Errors
    /// `Unsupported` by an unordered engine whose walk cannot be taken up again; `Invalid` for bytes
    /// that are no position of this table.
    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        let is_there = self.seek(position)?;
        if is_there && self.key() == position { self.next() } else { Ok(is_there) }
    }

    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;

    /// The key under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn key(&self) -> &[u8];

    /// The value under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn value(&self) -> &[u8];

    /// When the entry under the cursor expires.
    fn expires_at(&self) -> Option<Timestamp>;
}

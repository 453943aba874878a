//! Iteration over a table in engine order.
//!
//! A [`Cursor`] moves in both directions in the order of keys. An unordered engine implements
//! [`ForwardCursor`]; [`Forward`] adapts it to a cursor that rejects the other moves.

use crate::{Error, Result, Timestamp};

/// A position in a table. It sees the table as of the moment when the cursor was created.
///
/// A new cursor is on no entry ([`valid`](Cursor::valid) is false) until it is positioned by
/// [`first`](Cursor::first), [`last`](Cursor::last), [`seek`](Cursor::seek) or
/// [`seek_back`](Cursor::seek_back). It never returns deleted or expired entries, and concurrent
/// writes, flushes and compactions do not affect it. The cursor of an unordered engine only moves
/// forward; the other moves return [`Error::Unsupported`].
///
/// Every move returns whether the cursor is on an entry afterwards. It may fail with `Io` or
/// `Corruption` from a file that it reads, and with `Closed`. After an error the cursor is on no
/// entry and can be positioned again.
pub trait Cursor: Send {
    /// Moves to the first entry.
    ///
    /// # Errors
    /// Those of all moves, see above.
    fn first(&mut self) -> Result<bool>;

    /// Moves to the last entry.
    ///
    /// # Errors
    /// Those of all moves; `Unsupported` by an unordered engine.
    fn last(&mut self) -> Result<bool>;

    /// Moves to the first entry whose key is not less than `key`.
    ///
    /// # Errors
    /// As [`last`](Cursor::last).
    fn seek(&mut self, key: &[u8]) -> Result<bool>;

    /// Moves to the last entry whose key is not greater than `key`.
    ///
    /// # Errors
    /// As [`last`](Cursor::last).
    fn seek_back(&mut self, key: &[u8]) -> Result<bool>;

    /// Moves to the next entry.
    ///
    /// # Errors
    /// Those of all moves; `Invalid` if the cursor is not [`valid`](Cursor::valid).
    fn next(&mut self) -> Result<bool>;

    /// Moves to the previous entry.
    ///
    /// # Errors
    /// As [`next`](Cursor::next); `Unsupported` by an unordered engine.
    fn prev(&mut self) -> Result<bool>;

    /// The cursor's position, for [`resume`](Cursor::resume) of any later cursor of the table; it
    /// must be [`valid`](Cursor::valid). In ordered engines this is the key; in others it is an
    /// opaque string of about the key's length.
    fn position(&self) -> Vec<u8> {
        self.key().to_vec()
    }

    /// Moves to the first entry after a position. The entry of the position may no longer exist. A
    /// resumed cursor sees the table as of its own creation, like any other cursor.
    ///
    /// A scan from [`first`](Cursor::first) over as many resumed cursors as it takes returns every
    /// key that exists throughout the scan: once in ordered engines, at least once in others (more
    /// often only if the key was written or its file rewritten meanwhile). A key whose entry
    /// expires during the scan does not exist throughout, even if it is written again.
    ///
    /// # Errors
    /// Those of all moves; `Unsupported` by an unordered engine whose scans cannot be resumed;
    /// `Invalid` for bytes that are not a position of this table.
    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        let is_there = self.seek(position)?;
        if is_there && self.key() == position { self.next() } else { Ok(is_there) }
    }

    /// From the next move on, the caller does not need values: [`value`](Cursor::value) may return
    /// an empty slice where a value would need a further read. Keys and expiries are unaffected.
    fn skip_values(&mut self) {}

    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;

    /// The key under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn key(&self) -> &[u8];

    /// The value under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn value(&self) -> &[u8];

    /// When the entry under the cursor expires.
    fn expires_at(&self) -> Option<Timestamp>;
}

/// The cursor of an unordered engine. Its methods return and fail as those of [`Cursor`].
pub trait ForwardCursor: Send {
    /// The engine's name.
    fn engine(&self) -> &'static str;

    /// Moves to the first entry. `true` if there is one.
    fn first(&mut self) -> Result<bool>;

    /// Moves to the next entry. Called only if the cursor is on an entry.
    fn advance(&mut self) -> Result<bool>;

    /// The cursor's position.
    fn position(&self) -> Vec<u8> {
        self.key().to_vec()
    }

    /// Moves to the first entry after a position.
    fn resume(&mut self, _position: &[u8]) -> Result<bool> {
        let operation = "resuming a scan";
        Err(Error::Unsupported { engine: self.engine(), operation })
    }

    /// Whether the cursor is on an entry.
    fn valid(&self) -> bool;

    /// The key under the cursor.
    fn key(&self) -> &[u8];

    /// The value under the cursor.
    fn value(&self) -> &[u8];

    /// When the entry under the cursor expires.
    fn expires_at(&self) -> Option<Timestamp>;
}

/// Adapts a [`ForwardCursor`] to [`Cursor`]; moves that need an order return `Unsupported`.
pub struct Forward<C> {
    inner: C,
    /// The last move failed, so the cursor is on no entry.
    has_failed: bool,
}

impl<C: ForwardCursor> Forward<C> {
    /// Wraps a cursor that is not positioned yet.
    pub fn new(inner: C) -> Self {
        Forward { inner, has_failed: false }
    }

    fn unsupported(&mut self, operation: &'static str) -> Result<bool> {
        self.record(Err(Error::Unsupported { engine: self.inner.engine(), operation }))
    }

    fn record(&mut self, outcome: Result<bool>) -> Result<bool> {
        self.has_failed = outcome.is_err();
        outcome
    }
}

impl<C: ForwardCursor> Cursor for Forward<C> {
    fn first(&mut self) -> Result<bool> {
        let outcome = self.inner.first();
        self.record(outcome)
    }

    fn last(&mut self) -> Result<bool> {
        self.unsupported("iterating from the end")
    }

    fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        self.unsupported("seeking by key order")
    }

    fn seek_back(&mut self, _key: &[u8]) -> Result<bool> {
        self.unsupported("seeking by key order")
    }

    fn next(&mut self) -> Result<bool> {
        let outcome = match self.valid() {
            true => self.inner.advance(),
            false => Err(Error::Invalid("the cursor is on no entry: position it first".into())),
        };
        self.record(outcome)
    }

    fn prev(&mut self) -> Result<bool> {
        self.unsupported("iterating backwards")
    }

    fn position(&self) -> Vec<u8> {
        self.inner.position()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        let outcome = self.inner.resume(position);
        self.record(outcome)
    }

    fn valid(&self) -> bool {
        !self.has_failed && self.inner.valid()
    }

    fn key(&self) -> &[u8] {
        self.inner.key()
    }

    fn value(&self) -> &[u8] {
        self.inner.value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.inner.expires_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three entries, the last of which cannot be read.
    struct ThreeEntries(usize);

    impl ForwardCursor for ThreeEntries {
        fn engine(&self) -> &'static str {
            "three"
        }

        fn first(&mut self) -> Result<bool> {
            self.0 = 1;
            Ok(true)
        }

        fn advance(&mut self) -> Result<bool> {
            self.0 += 1;
            if self.0 == 3 { Err(Error::Closed) } else { Ok(true) }
        }

        fn valid(&self) -> bool {
            self.0 > 0
        }

        fn key(&self) -> &[u8] {
            b"key"
        }

        fn value(&self) -> &[u8] {
            b""
        }

        fn expires_at(&self) -> Option<Timestamp> {
            None
        }
    }

    #[test]
    fn forward_cursor_rejects_ordered_moves_and_is_invalid_after_an_error() {
        let mut cursor = Forward::new(ThreeEntries(0));
        assert!(matches!(cursor.next(), Err(Error::Invalid(_))));
        type Move = fn(&mut Forward<ThreeEntries>) -> Result<bool>;
        let moves: [Move; 6] = [
            |c| c.last(),
            |c| c.seek(b"k"),
            |c| c.seek_back(b"k"),
            |c| c.prev(),
            |c| c.resume(b"k"),
            |c| c.next().and_then(|_| c.next()),
        ];
        for step in moves {
            assert!(cursor.first().unwrap() && cursor.valid());
            match step(&mut cursor) {
                Err(Error::Unsupported { engine, .. }) => assert_eq!(engine, "three"),
                other => assert!(matches!(other, Err(Error::Closed)), "{other:?}"),
            }
            assert!(!cursor.valid());
        }
    }
}

//! Walking a table in engine order.
//!
//! A [`Cursor`] goes wherever an order of keys leads. An engine without one has a
//! [`ForwardCursor`], which only goes on, and [`Forward`] makes a cursor of it that refuses all else.

use crate::{Error, Result, Timestamp};

/// A position in a table, seen as of the moment the cursor was made.
///
/// A new cursor stands nowhere ([`valid`](Cursor::valid) is false) until it is placed by
/// [`first`](Cursor::first), [`last`](Cursor::last), [`seek`](Cursor::seek) or
/// [`seek_back`](Cursor::seek_back). It never shows deleted or expired entries, and concurrent
/// writes, flushes and compactions don't disturb it. An unordered engine walks forward only; the
/// other moves answer [`Error::Unsupported`].
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

    /// Moves to the first entry behind a position, which need not be there any more. A resumed cursor is
    /// like any other: what it shows is there at the moment when it was made, with the value of that moment,
    /// whatever it was when the walk was begun. From [`first`](Cursor::first) over as many resumed
    /// cursors as it takes to the end, every key is shown that is there all the time: once in ordered
    /// engines, at least once in others (more often only if it was written or its store rewritten
    /// meanwhile). An entry whose expiry passes is not there all the time, though its key be written anew.
    ///
    /// # Errors
    /// `Unsupported` by an unordered engine whose walk cannot be taken up again; `Invalid` for bytes
    /// that are no position of this table.
    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        let is_there = self.seek(position)?;
        if is_there && self.key() == position { self.next() } else { Ok(is_there) }
    }

    /// From the next move on values are not wanted: [`value`](Cursor::value) may return nothing in
    /// place of one that would have to be read from elsewhere. Keys and expiries are what they
    /// were.
    fn skip_values(&mut self) {}

    /// Whether the cursor stands on an entry.
    fn valid(&self) -> bool;

    /// The key under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn key(&self) -> &[u8];

    /// The value under the cursor. Panics if it is not [`valid`](Cursor::valid).
    fn value(&self) -> &[u8];

    /// When the entry under the cursor expires.
    fn expires_at(&self) -> Option<Timestamp>;
}

/// What a cursor of an engine without an order of keys does: as those methods of [`Cursor`].
pub trait ForwardCursor: Send {
    /// The engine's name.
    fn engine(&self) -> &'static str;

    /// Moves to the first entry. `true` if there is one.
    fn first(&mut self) -> Result<bool>;

    /// Moves to the next entry; only asked for where the walk stands on one.
    fn advance(&mut self) -> Result<bool>;

    /// Where the walk stands.
    fn position(&self) -> Vec<u8> {
        self.key().to_vec()
    }

    /// Moves to the first entry behind a position.
    fn resume(&mut self, _position: &[u8]) -> Result<bool> {
        let operation = "taking up a walk again";
        Err(Error::Unsupported { engine: self.engine(), operation })
    }

    /// Whether the walk stands on an entry.
    fn valid(&self) -> bool;

    /// The key there.
    fn key(&self) -> &[u8];

    /// The value there.
    fn value(&self) -> &[u8];

    /// When the entry there expires.
    fn expires_at(&self) -> Option<Timestamp>;
}

/// A [`ForwardCursor`] as a cursor: moves that want an order are refused.
pub struct Forward<W> {
    walk: W,
    /// The last move failed, so it stands nowhere.
    has_failed: bool,
}

impl<W: ForwardCursor> Forward<W> {
    /// Around a walk that stands nowhere yet.
    pub fn new(walk: W) -> Self {
        Forward { walk, has_failed: false }
    }

    fn unsupported(&mut self, operation: &'static str) -> Result<bool> {
        self.moved(Err(Error::Unsupported { engine: self.walk.engine(), operation }))
    }

    fn moved(&mut self, outcome: Result<bool>) -> Result<bool> {
        self.has_failed = outcome.is_err();
        outcome
    }
}

impl<W: ForwardCursor> Cursor for Forward<W> {
    fn first(&mut self) -> Result<bool> {
        let outcome = self.walk.first();
        self.moved(outcome)
    }

    fn last(&mut self) -> Result<bool> {
        self.unsupported("walking from the end")
    }

    fn seek(&mut self, _key: &[u8]) -> Result<bool> {
        self.unsupported("seeking by key order")
    }

    fn seek_back(&mut self, _key: &[u8]) -> Result<bool> {
        self.unsupported("seeking by key order")
    }

    fn next(&mut self) -> Result<bool> {
        let outcome = match self.valid() {
            true => self.walk.advance(),
            false => Err(Error::Invalid("the cursor stands on no entry: place it first".into())),
        };
        self.moved(outcome)
    }

    fn prev(&mut self) -> Result<bool> {
        self.unsupported("walking back")
    }

    fn position(&self) -> Vec<u8> {
        self.walk.position()
    }

    fn resume(&mut self, position: &[u8]) -> Result<bool> {
        let outcome = self.walk.resume(position);
        self.moved(outcome)
    }

    fn valid(&self) -> bool {
        !self.has_failed && self.walk.valid()
    }

    fn key(&self) -> &[u8] {
        self.walk.key()
    }

    fn value(&self) -> &[u8] {
        self.walk.value()
    }

    fn expires_at(&self) -> Option<Timestamp> {
        self.walk.expires_at()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three entries, the last of which cannot be read.
    struct Three(usize);

    impl ForwardCursor for Three {
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
    fn a_forward_cursor_refuses_by_name_and_stands_nowhere_after_an_error() {
        let mut cursor = Forward::new(Three(0));
        assert!(matches!(cursor.next(), Err(Error::Invalid(_))));
        type Move = fn(&mut Forward<Three>) -> Result<bool>;
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

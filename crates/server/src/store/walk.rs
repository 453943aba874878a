//! Keys in engine order, a transaction's own writes included.
//!
//! A walk merges the engine's cursor with the overlay of the transaction that is running, if one
//! is. Outside of transactions it is the cursor alone. Where the engine has no order, what the
//! transaction wrote comes last, all of it.
//!
//! A walk can be taken up again behind the last key that it gave: by the position of the engine's
//! cursor there, or, in an ordered engine, by the key.
//!
//! An engine's cursor shows one moment. `mica` can do that by a copy only, of all keys and values, which a client
//! must not be able to ask for: its own walk over keys is taken instead, and stands between buckets.

use std::iter::Peekable;

use siltstone_engine::{Cursor, Entry, Result, Timestamp};
use siltstone_mica::Keys;

use super::{Database, Overlay};

/// Where a walk begins.
pub(crate) enum Start {
    /// At the first key that is not less; without an order, or if it is empty, at the first of all.
    Key(Vec<u8>),
    /// Behind where another walk stood.
    Position(Vec<u8>),
}

/// The written keys of a transaction, in order.
type Written<'a> = Peekable<Box<dyn Iterator<Item = (&'a [u8], Option<&'a Entry>)> + 'a>>;

/// The engine's side of a walk.
enum Source<'a> {
    Cursor(Box<dyn Cursor>),
    Keys(Keys<'a>),
}

impl<'a> Source<'a> {
    /// A walk that begins there, and whether there is a key.
    fn begin(database: &'a Database, start: &Start) -> Result<(Self, bool)> {
        if let Some(store) = &database.mica {
            let place = match start {
                Start::Key(_) => 0,
                Start::Position(place) => {
                    place.first_chunk().map_or(0, |at| u64::from_le_bytes(*at))
                }
            };
            let mut keys = store.keys(place);
            let is_there = keys.advance();
            return Ok((Source::Keys(keys), is_there));
        }
        let is_ordered = database.engine.capabilities().ordered;
        let mut cursor = database.engine.iter()?;
        cursor.skip_values();
        let is_there = match start {
            Start::Key(key) if is_ordered && !key.is_empty() => cursor.seek(key)?,
            Start::Key(_) => cursor.first()?,
            Start::Position(position) => cursor.resume(position)?,
        };
        Ok((Source::Cursor(cursor), is_there))
    }

    fn next(&mut self) -> Result<bool> {
        match self {
            Source::Cursor(cursor) => cursor.next(),
            Source::Keys(keys) => Ok(keys.advance()),
        }
    }

    fn key(&self) -> &[u8] {
        match self {
            Source::Cursor(cursor) => cursor.key(),
            Source::Keys(keys) => keys.key(),
        }
    }

    /// Where a walk goes on behind the key; `None` if it cannot just there.
    fn position(&self) -> Option<Vec<u8>> {
        match self {
            Source::Cursor(cursor) => Some(cursor.position()),
            Source::Keys(keys) => Some(keys.place()?.to_le_bytes().to_vec()),
        }
    }
}

/// A walk that stands still, and holds nothing but what it needs to go on.
pub(crate) enum Parked {
    Cursor(Box<dyn Cursor>),
    /// A place between two buckets.
    Place(u64),
}

/// A walk over a table.
pub(crate) struct Walk<'a> {
    source: Source<'a>,
    stored: Stored,
    is_ordered: bool,
    overlay: Option<&'a Overlay>,
    written: Written<'a>,
    now: Timestamp,
    key: Vec<u8>,
}

/// How the engine's side stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stored {
    /// On an entry that has not been given.
    Next,
    /// On the one that was given last.
    Given,
    /// At the end.
    Ended,
}

impl Stored {
    fn next(is_there: bool) -> Self {
        if is_there { Stored::Next } else { Stored::Ended }
    }
}

impl<'a> Walk<'a> {
    pub(crate) fn new(
        database: &'a Database,
        overlay: Option<&'a Overlay>,
        start: &Start,
        now: Timestamp,
    ) -> Result<Self> {
        let is_ordered = database.engine.capabilities().ordered;
        let (source, is_there) = Source::begin(database, start)?;
        // Where the transaction removed all keys, nothing that is stored shows.
        let is_there = is_there && !overlay.is_some_and(Overlay::is_cleared);
        let first: &[u8] = match start {
            Start::Key(key) if is_ordered => key,
            // The least key that is greater.
            Start::Position(key) if is_ordered => &[key, &[0][..]].concat(),
            _ => &[],
        };
        let written: Box<dyn Iterator<Item = _>> = match overlay {
            Some(overlay) => Box::new(overlay.from(first)),
            None => Box::new(std::iter::empty()),
        };
        Ok(Walk {
            source,
            stored: Stored::next(is_there),
            is_ordered,
            overlay,
            written: written.peekable(),
            now,
            key: Vec::new(),
        })
    }

    /// Whether the walk can stand still behind the key that was given last: if not, more keys have
    /// to be given before. It cannot in a transaction.
    pub(crate) fn can_park(&self) -> bool {
        let is_between_buckets = match &self.source {
            Source::Cursor(_) => true,
            Source::Keys(keys) => keys.place().is_some(),
        };
        is_between_buckets && self.stored == Stored::Given && self.overlay.is_none()
    }

    /// Lets the walk stand still, if it [can](Self::can_park).
    pub(crate) fn park(self) -> Option<Parked> {
        match self.source {
            Source::Cursor(cursor) => Some(Parked::Cursor(cursor)),
            Source::Keys(keys) => keys.place().map(Parked::Place),
        }
    }

    /// Goes on with a walk of this table that stands still.
    pub(crate) fn resume(database: &'a Database, parked: Parked, now: Timestamp) -> Result<Self> {
        let start = match parked {
            Parked::Place(place) => Start::Position(place.to_le_bytes().to_vec()),
            Parked::Cursor(cursor) => {
                return Ok(Walk {
                    source: Source::Cursor(cursor),
                    stored: Stored::Given,
                    is_ordered: database.engine.capabilities().ordered,
                    overlay: None,
                    written: (Box::new(std::iter::empty()) as Box<dyn Iterator<Item = _>>)
                        .peekable(),
                    now,
                    key: Vec::new(),
                });
            }
        };
        Self::new(database, None, &start, now)
    }

    /// Whether keys come in order.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Where a walk goes on behind the key that was given last. `None` if that cannot be told, and more keys
    /// have to be given before: in an engine without an order those of a transaction, or of a bucket of `mica`.
    pub(crate) fn position(&self) -> Option<Vec<u8>> {
        match self.stored {
            _ if self.is_ordered => Some(self.key.clone()),
            Stored::Given => self.source.position(),
            Stored::Next | Stored::Ended => None,
        }
    }

    /// The next key; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            if self.stored == Stored::Given {
                self.stored = Stored::next(self.source.next()?);
            }
            let has_stored = self.stored == Stored::Next;
            // Without an order, what the transaction wrote comes last.
            let comes_now =
                |key: &[u8]| !has_stored || (self.is_ordered && key <= self.source.key());
            let written = self.written.peek().copied().filter(|(key, _)| comes_now(key));
            let Some((key, entry)) = written else {
                if !has_stored {
                    return Ok(None);
                }
                self.stored = Stored::Given;
                // What the transaction wrote hides what is stored.
                let stored = self.source.key();
                if self.overlay.is_some_and(|overlay| overlay.get(stored).is_some()) {
                    continue;
                }
                self.key.clear();
                self.key.extend_from_slice(stored);
                return Ok(Some(&self.key));
            };
            self.written.next();
            if entry.is_some_and(|entry| !entry.is_expired(self.now)) {
                self.key.clear();
                self.key.extend_from_slice(key);
                return Ok(Some(&self.key));
            }
        }
    }
}

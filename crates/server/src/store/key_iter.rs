//! Iteration over keys in engine order, including a transaction's own writes.
//!
//! Merges the engine's cursor with the overlay of the running transaction, if there is one. In an
//! unordered engine the transaction's keys come last.
//!
//! An iteration can be continued after the last key returned: by the cursor's position or, in an
//! ordered engine, by the key.
//!
//! An engine's cursor shows one point in time. `mica` implements that by copying all keys and
//! values, which clients must not trigger, so its key iterator is used instead, which can pause
//! between buckets.

use std::borrow::Cow;
use std::iter::Peekable;

use siltstone_engine::{Cursor, Entry, Result, Timestamp};
use siltstone_mica::Keys;

use super::{Database, Overlay};

/// Start of an iteration.
pub(crate) enum Start {
    /// The first key that is not less; the first of all if it is empty or the engine is unordered.
    Key(Vec<u8>),
    /// After the position of an earlier iteration.
    Position(Vec<u8>),
}

/// Keys written by a transaction, in order.
type OverlayKeys<'a> = Peekable<Box<dyn Iterator<Item = OverlayKey<'a>> + 'a>>;
type OverlayKey<'a> = (Cow<'a, [u8]>, Option<&'a Entry>);

/// The engine's side of an iteration.
enum Source<'a> {
    Cursor(Box<dyn Cursor>),
    Keys(Keys<'a>),
}

impl<'a> Source<'a> {
    /// Positions at `start`, and returns whether there is a key.
    fn begin(database: &'a Database, start: &Start) -> Result<(Self, bool)> {
        if let Some(store) = &database.mica {
            let position = match start {
                Start::Key(_) => 0,
                Start::Position(position) => {
                    position.first_chunk().map_or(0, |at| u64::from_le_bytes(*at))
                }
            };
            let mut keys = store.keys(position);
            let is_valid = keys.advance();
            return Ok((Source::Keys(keys), is_valid));
        }
        let is_ordered = database.engine.capabilities().ordered;
        let mut cursor = database.iter()?;
        cursor.skip_values();
        let is_valid = match start {
            Start::Key(key) if is_ordered && !key.is_empty() => cursor.seek(key)?,
            Start::Key(_) => cursor.first()?,
            Start::Position(position) => cursor.resume(position)?,
        };
        Ok((Source::Cursor(cursor), is_valid))
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

    /// Position after the current key; `None` inside a bucket.
    fn position(&self) -> Option<Vec<u8>> {
        match self {
            Source::Cursor(cursor) => Some(cursor.position()),
            Source::Keys(keys) => Some(keys.place()?.to_le_bytes().to_vec()),
        }
    }
}

/// A paused iteration.
pub(crate) enum PausedIter {
    Cursor(Box<dyn Cursor>),
    /// A position between two buckets.
    Position(u64),
}

/// Iteration over the keys of a table.
pub(crate) struct KeyIter<'a> {
    database: &'a Database,
    source: Source<'a>,
    engine_state: EngineState,
    is_ordered: bool,
    overlay: Option<&'a Overlay>,
    overlay_keys: OverlayKeys<'a>,
    now: Timestamp,
    key: Vec<u8>,
}

/// State of the engine's side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EngineState {
    /// On an entry that was not returned yet.
    Unread,
    /// On the entry that was returned last.
    Returned,
    /// At the end.
    Ended,
}

impl EngineState {
    fn next(is_valid: bool) -> Self {
        if is_valid { EngineState::Unread } else { EngineState::Ended }
    }
}

impl<'a> KeyIter<'a> {
    pub(crate) fn new(
        database: &'a Database,
        overlay: Option<&'a Overlay>,
        start: &Start,
        now: Timestamp,
    ) -> Result<Self> {
        let is_ordered = database.engine.capabilities().ordered;
        let (source, is_valid) = Source::begin(database, start)?;
        // If the transaction removed all keys, nothing stored is visible.
        let is_valid = is_valid && !overlay.is_some_and(Overlay::is_cleared);
        let first: &[u8] = match start {
            Start::Key(key) if is_ordered => key,
            // The smallest greater key.
            Start::Position(key) if is_ordered => &[key, &[0][..]].concat(),
            _ => &[],
        };
        let overlay_keys: Box<dyn Iterator<Item = _>> = match overlay {
            Some(overlay) => Box::new(
                overlay
                    .from(&database.stored_key(first))
                    .filter_map(|(key, entry)| Some((database.user_key(key)?, entry))),
            ),
            None => Box::new(std::iter::empty()),
        };
        Ok(KeyIter {
            database,
            source,
            engine_state: EngineState::next(is_valid),
            is_ordered,
            overlay,
            overlay_keys: overlay_keys.peekable(),
            now,
            key: Vec::new(),
        })
    }

    /// Whether the iteration can pause after the last key returned; if not, more keys must be read
    /// first. Not possible in a transaction.
    pub(crate) fn can_pause(&self) -> bool {
        let is_between_buckets = match &self.source {
            Source::Cursor(_) => true,
            Source::Keys(keys) => keys.place().is_some(),
        };
        is_between_buckets && self.engine_state == EngineState::Returned && self.overlay.is_none()
    }

    /// Pauses the iteration, if it [can](Self::can_pause).
    pub(crate) fn pause(self) -> Option<PausedIter> {
        match self.source {
            Source::Cursor(cursor) => Some(PausedIter::Cursor(cursor)),
            Source::Keys(keys) => keys.place().map(PausedIter::Position),
        }
    }

    /// Continues a paused iteration of this table.
    pub(crate) fn resume(
        database: &'a Database,
        paused: PausedIter,
        now: Timestamp,
    ) -> Result<Self> {
        let start = match paused {
            PausedIter::Position(position) => Start::Position(position.to_le_bytes().to_vec()),
            PausedIter::Cursor(cursor) => {
                return Ok(KeyIter {
                    database,
                    source: Source::Cursor(cursor),
                    engine_state: EngineState::Returned,
                    is_ordered: database.engine.capabilities().ordered,
                    overlay: None,
                    overlay_keys: (Box::new(std::iter::empty())
                        as Box<dyn Iterator<Item = OverlayKey<'a>>>)
                        .peekable(),
                    now,
                    key: Vec::new(),
                });
            }
        };
        Self::new(database, None, &start, now)
    }

    /// Whether keys are returned in key order.
    pub(crate) fn is_ordered(&self) -> bool {
        self.is_ordered
    }

    /// Position after the last key returned. `None` if more keys must be read first: in an
    /// unordered engine those of a transaction, or of the rest of a `mica` bucket.
    pub(crate) fn position(&self) -> Option<Vec<u8>> {
        match self.engine_state {
            _ if self.is_ordered => Some(self.key.clone()),
            EngineState::Returned => self.source.position(),
            EngineState::Unread | EngineState::Ended => None,
        }
    }

    /// The next key; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            if self.engine_state == EngineState::Returned {
                self.engine_state = EngineState::next(self.source.next()?);
            }
            let has_stored = self.engine_state == EngineState::Unread;
            // In an unordered engine the transaction's keys come last.
            let is_next = |key: &[u8]| !has_stored || (self.is_ordered && key <= self.source.key());
            let Some((key, entry)) = self.overlay_keys.next_if(|(key, _)| is_next(key)) else {
                if !has_stored {
                    return Ok(None);
                }
                self.engine_state = EngineState::Returned;
                // The transaction's writes hide what is stored.
                let stored = self.source.key();
                let is_hidden =
                    |overlay: &Overlay| overlay.get(&self.database.stored_key(stored)).is_some();
                if self.overlay.is_some_and(is_hidden) {
                    continue;
                }
                self.key.clear();
                self.key.extend_from_slice(stored);
                return Ok(Some(&self.key));
            };
            if entry.is_some_and(|entry| !entry.is_expired(self.now)) {
                self.key.clear();
                self.key.extend_from_slice(&key);
                return Ok(Some(&self.key));
            }
        }
    }
}

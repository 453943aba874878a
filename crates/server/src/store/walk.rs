//! Keys in order, a transaction's own writes included.
//!
//! A walk merges the engine's cursor with the overlay of the transaction that is running, if one
//! is. Outside of transactions it is the cursor alone.
//!
//! Engines without an order can be walked from the start only; what they answer to a seek is passed
//! on.

use std::iter::Peekable;

use siltstone_engine::{Cursor, Engine, Entry, Result, Timestamp};

use super::Overlay;

/// The written keys of a transaction, in order.
type Written<'a> = Peekable<Box<dyn Iterator<Item = (&'a [u8], Option<&'a Entry>)> + 'a>>;

/// A position in a table.
pub(crate) struct Walk<'a> {
    cursor: Box<dyn Cursor>,
    written: Written<'a>,
    /// The engine's side stands on an entry that has not been given.
    has_stored: bool,
    now: Timestamp,
    key: Vec<u8>,
}

impl<'a> Walk<'a> {
    /// Begins at the first key that is not less than `from` (the first of all, if that is empty).
    pub(crate) fn new(
        engine: &dyn Engine,
        overlay: Option<&'a Overlay>,
        from: &[u8],
        now: Timestamp,
    ) -> Result<Self> {
        let mut cursor = engine.iter()?;
        let has_stored = if from.is_empty() { cursor.first()? } else { cursor.seek(from)? };
        let written: Box<dyn Iterator<Item = _>> = match overlay {
            Some(overlay) => Box::new(overlay.from(from)),
            None => Box::new(std::iter::empty()),
        };
        Ok(Walk { cursor, written: written.peekable(), has_stored, now, key: Vec::new() })
    }

    /// The next key; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let written = self.written.peek().copied();
            let Some((key, entry)) =
                written.filter(|(key, _)| !self.has_stored || *key <= self.cursor.key())
            else {
                if !self.has_stored {
                    return Ok(None);
                }
                self.key.clear();
                self.key.extend_from_slice(self.cursor.key());
                self.has_stored = self.cursor.next()?;
                return Ok(Some(&self.key));
            };
            // What the transaction wrote hides what is stored.
            if self.has_stored && self.cursor.key() == key {
                self.has_stored = self.cursor.next()?;
            }
            self.written.next();
            if entry.is_some_and(|entry| !entry.is_expired(self.now)) {
                self.key.clear();
                self.key.extend_from_slice(key);
                return Ok(Some(&self.key));
            }
        }
    }
}

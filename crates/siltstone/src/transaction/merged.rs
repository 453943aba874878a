//! A range of the engine with a transaction's own writes laid over it, walked both ways.
//!
//! ```text
//!   engine, as of the snapshot    a   c   d       g
//!   overlay                           c'  d✗  f
//!   walked                        a   c'      f   g
//! ```
//!
//! Forwards the engine's cursor stands on the first entry that is not before the current key, backwards
//! on the last that is not behind it; a change of direction places it anew. The overlay is looked up at
//! each step. How far the walk came is told to the read set.
//!
//! Invariant: what the walk shows is the range as of the snapshot with all of the overlay in it, and
//! every key that could have changed what was shown is covered in the read set.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Cursor, Entry, KeyRange, Result, Timestamp};

use super::overlay::Overlay;
use super::reads::RangeRead;

/// The cursor. It shows the overlay as it was when the cursor was made.
pub(super) struct Merged {
    stored: Box<dyn Cursor>,
    overlay: Arc<Overlay>,
    range: KeyRange,
    read: Arc<Mutex<RangeRead>>,
    now: Timestamp,
    stands: Stands,
    /// Which way `stored` is placed.
    way: Option<Way>,
    key: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stands {
    Nowhere,
    OnStored,
    OnWritten,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Forwards,
    Backwards,
}

impl Merged {
    pub(super) fn new(
        stored: Box<dyn Cursor>,
        overlay: Arc<Overlay>,
        range: KeyRange,
        read: Arc<Mutex<RangeRead>>,
        now: Timestamp,
    ) -> Self {
        Merged {
            stored,
            overlay,
            range,
            read,
            now,
            stands: Stands::Nowhere,
            way: None,
            key: Vec::new(),
        }
    }

    fn shows(&self, entry: Option<&Entry>) -> bool {
        entry.is_some_and(|entry| !entry.is_expired(self.now))
    }

    /// Goes to the first entry from `start` on; `stored` stands on its own first such entry.
    fn settle(&mut self, start: Bound<Vec<u8>>) -> Result<bool> {
        let mut start = start;
        loop {
            let from = start.as_ref().map(Vec::as_slice);
            let written = self.overlay.first_from(from);
            let written = written.filter(|(key, _)| self.range.is_before_end(key));
            let is_stored = self.stored.valid();
            let Some((key, entry)) =
                written.filter(|(key, _)| !is_stored || *key <= self.stored.key())
            else {
                return Ok(self.stand_on_stored(Way::Forwards));
            };
            if self.shows(entry) {
                self.key = key.to_vec();
                return Ok(self.stand_on_written(Way::Forwards));
            }
            // Deleted by the transaction: so is what is stored under the key.
            if is_stored && self.stored.key() == key {
                self.stored.next()?;
            }
            start = Bound::Excluded(key.to_vec());
        }
    }

    /// The same backwards.
    fn settle_back(&mut self, end: Bound<Vec<u8>>) -> Result<bool> {
        let mut end = end;
        loop {
            let to = end.as_ref().map(Vec::as_slice);
            let written = self.overlay.last_to(to);
            let written = written.filter(|(key, _)| self.range.is_after_start(key));
            let is_stored = self.stored.valid();
            let Some((key, entry)) =
                written.filter(|(key, _)| !is_stored || *key >= self.stored.key())
            else {
                return Ok(self.stand_on_stored(Way::Backwards));
            };
            if self.shows(entry) {
                self.key = key.to_vec();
                return Ok(self.stand_on_written(Way::Backwards));
            }
            if is_stored && self.stored.key() == key {
                self.stored.prev()?;
            }
            end = Bound::Excluded(key.to_vec());
        }
    }

    fn stand_on_stored(&mut self, way: Way) -> bool {
        if !self.stored.valid() {
            self.stands = Stands::Nowhere;
            self.read.lock().cover_all();
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(self.stored.key());
        self.stands = Stands::OnStored;
        self.cover(way);
        true
    }

    fn stand_on_written(&mut self, way: Way) -> bool {
        self.stands = Stands::OnWritten;
        self.cover(way);
        true
    }

    fn cover(&self, way: Way) {
        let mut read = self.read.lock();
        match way {
            Way::Forwards => read.cover_to(&self.key),
            Way::Backwards => read.cover_back_to(&self.key),
        }
    }

    /// Places `stored` and the marks of the state for a new walk.
    fn place(
        &mut self,
        way: Way,
        place: impl FnOnce(&mut dyn Cursor) -> Result<bool>,
    ) -> Result<()> {
        self.stands = Stands::Nowhere;
        self.way = None;
        place(self.stored.as_mut())?;
        self.way = Some(way);
        Ok(())
    }
}

impl Cursor for Merged {
    fn first(&mut self) -> Result<bool> {
        self.place(Way::Forwards, |stored| stored.first())?;
        self.settle(self.range.start.clone())
    }

    fn last(&mut self) -> Result<bool> {
        self.place(Way::Backwards, |stored| stored.last())?;
        self.settle_back(self.range.end.clone())
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_after_start(key) {
            return self.first();
        }
        self.place(Way::Forwards, |stored| stored.seek(key))?;
        self.settle(Bound::Included(key.to_vec()))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_before_end(key) {
            return self.last();
        }
        self.place(Way::Backwards, |stored| stored.seek_back(key))?;
        self.settle_back(Bound::Included(key.to_vec()))
    }

    fn next(&mut self) -> Result<bool> {
        let key = std::mem::take(&mut self.key);
        if self.way != Some(Way::Forwards) {
            self.place(Way::Forwards, |stored| stored.seek(&key))?;
        }
        self.stands = Stands::Nowhere;
        if self.stored.valid() && self.stored.key() == key {
            self.stored.next()?;
        }
        self.settle(Bound::Excluded(key))
    }

    fn prev(&mut self) -> Result<bool> {
        let key = std::mem::take(&mut self.key);
        if self.way != Some(Way::Backwards) {
            self.place(Way::Backwards, |stored| stored.seek_back(&key))?;
        }
        self.stands = Stands::Nowhere;
        if self.stored.valid() && self.stored.key() == key {
            self.stored.prev()?;
        }
        self.settle_back(Bound::Excluded(key))
    }

    fn valid(&self) -> bool {
        self.stands != Stands::Nowhere
    }

    fn key(&self) -> &[u8] {
        assert!(self.valid(), "the cursor stands nowhere");
        &self.key
    }

    fn value(&self) -> &[u8] {
        match self.stands {
            Stands::OnStored => self.stored.value(),
            _ => self.written().map_or(&[], |entry| &entry.value),
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        match self.stands {
            Stands::OnStored => self.stored.expires_at(),
            _ => self.written().and_then(|entry| entry.expires_at),
        }
    }
}

impl Merged {
    /// The transaction's own entry under the cursor.
    fn written(&self) -> Option<&Entry> {
        self.overlay.get(self.key()).flatten()
    }
}

//! A cursor over a range of the engine merged with a transaction's own writes, in both directions.
//!
//! ```text
//!   engine, as of the snapshot    a   c   d       g   h
//!   overlay                           c'  d✗  f       h+1
//!   merged                        a   c'      f   g   h merged with 1
//! ```
//!
//! Forwards the engine's cursor is on its first entry at or after the current key, backwards on its
//! last at or before it; a change of direction seeks again. The overlay is searched at each step.
//! The engine's cursor seeks over ranges that the overlay deletes.
//! Each step records in the read set how far the scan came.
//!
//! Invariant: the cursor returns the range as of the snapshot with the whole overlay merged in, and
//! the read set covers every key that could have changed what it returned.

use std::ops::Bound;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Cursor, Entry, KeyRange, MergeOperator, Result, Timestamp};

use super::overlay::{Overlay, Written, merged};
use super::read_set::RangeRead;

/// The cursor. It shows the overlay as of its creation.
pub(super) struct MergedCursor {
    stored: Box<dyn Cursor>,
    overlay: Arc<Overlay>,
    range: KeyRange,
    read: Arc<Mutex<RangeRead>>,
    now: Timestamp,
    /// For operands in the overlay.
    operator: Option<Arc<dyn MergeOperator>>,
    position: Position,
    /// The direction in which `stored` is positioned.
    direction: Option<Direction>,
    key: Vec<u8>,
    /// The value at `OnMerged`.
    merged: Vec<u8>,
    skips_values: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Position {
    Invalid,
    OnStored,
    OnWritten,
    /// On operands, whether or not the key is stored.
    OnMerged,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forwards,
    Backwards,
}

impl MergedCursor {
    pub(super) fn new(
        stored: Box<dyn Cursor>,
        overlay: Arc<Overlay>,
        range: KeyRange,
        read: Arc<Mutex<RangeRead>>,
        now: Timestamp,
        operator: Option<Arc<dyn MergeOperator>>,
    ) -> Self {
        MergedCursor {
            stored,
            overlay,
            range,
            read,
            now,
            operator,
            position: Position::Invalid,
            direction: None,
            key: Vec::new(),
            merged: Vec::new(),
            skips_values: false,
        }
    }

    /// Where the cursor is on a written key, with its merged value, if that is not deleted.
    fn visible(&self, key: &[u8], written: Written<'_>) -> Result<Option<(Position, Vec<u8>)>> {
        let operands: &[Vec<u8>] = match written {
            Written::Value(entry) => {
                let is_visible = entry.is_some_and(|entry| !entry.is_expired(self.now));
                return Ok(is_visible.then(|| (Position::OnWritten, Vec::new())));
            }
            Written::Operands(_) if self.skips_values => &[],
            Written::Operands(operands) => operands,
        };
        if operands.is_empty() {
            return Ok(Some((Position::OnMerged, Vec::new())));
        }
        let is_stored = self.stored.valid() && self.stored.key() == key;
        let value = is_stored.then(|| self.stored.value());
        let merged = merged(self.operator.as_deref(), key, value, operands)?;
        Ok(Some((Position::OnMerged, merged)))
    }

    /// Moves to the first entry from `start` on. `stored` is on its own first such entry.
    fn move_to_first_from(&mut self, start: Bound<Vec<u8>>) -> Result<bool> {
        let mut start = start;
        loop {
            self.skip_deleted(Direction::Forwards)?;
            let from = start.as_ref().map(Vec::as_slice);
            let written = self.overlay.first_from(from);
            let written = written.filter(|(key, _)| self.range.is_before_end(key));
            let is_stored = self.stored.valid();
            let Some((key, written)) =
                written.filter(|(key, _)| !is_stored || *key <= self.stored.key())
            else {
                return Ok(self.move_to_stored(Direction::Forwards));
            };
            if let Some((position, merged)) = self.visible(key, written)? {
                self.key = key.to_vec();
                return Ok(self.move_to_written(Direction::Forwards, position, merged));
            }
            // Deleted by the transaction, and with it the stored entry of the key.
            if is_stored && self.stored.key() == key {
                self.stored.next()?;
            }
            start = Bound::Excluded(key.to_vec());
        }
    }

    /// Moves to the last entry up to `end`.
    fn move_to_last_to(&mut self, end: Bound<Vec<u8>>) -> Result<bool> {
        let mut end = end;
        loop {
            self.skip_deleted(Direction::Backwards)?;
            let to = end.as_ref().map(Vec::as_slice);
            let written = self.overlay.last_to(to);
            let written = written.filter(|(key, _)| self.range.is_after_start(key));
            let is_stored = self.stored.valid();
            let Some((key, written)) =
                written.filter(|(key, _)| !is_stored || *key >= self.stored.key())
            else {
                return Ok(self.move_to_stored(Direction::Backwards));
            };
            if let Some((position, merged)) = self.visible(key, written)? {
                self.key = key.to_vec();
                return Ok(self.move_to_written(Direction::Backwards, position, merged));
            }
            if is_stored && self.stored.key() == key {
                self.stored.prev()?;
            }
            end = Bound::Excluded(key.to_vec());
        }
    }

    /// Moves `stored` out of a range that the overlay deletes.
    fn skip_deleted(&mut self, direction: Direction) -> Result<()> {
        while self.stored.valid()
            && let Some((start, end)) = self.overlay.deleted_range_of(self.stored.key())
        {
            match (direction, end) {
                (Direction::Forwards, Some(end)) => _ = self.stored.seek(end)?,
                // Behind the last entry.
                (Direction::Forwards, None) => {
                    self.stored.last()?;
                    self.stored.next()?;
                }
                (Direction::Backwards, _) => {
                    if self.stored.seek_back(start)? && self.stored.key() == start {
                        self.stored.prev()?;
                    }
                }
            }
        }
        Ok(())
    }

    fn move_to_stored(&mut self, direction: Direction) -> bool {
        if !self.stored.valid() {
            self.position = Position::Invalid;
            self.read.lock().cover_all();
            return false;
        }
        self.key.clear();
        self.key.extend_from_slice(self.stored.key());
        self.position = Position::OnStored;
        self.read.lock().note_expiry(self.stored.expires_at());
        self.cover(direction);
        true
    }

    fn move_to_written(&mut self, direction: Direction, at: Position, merged: Vec<u8>) -> bool {
        self.position = at;
        self.merged = merged;
        self.cover(direction);
        true
    }

    fn cover(&self, direction: Direction) {
        let mut read = self.read.lock();
        match direction {
            Direction::Forwards => read.cover_to(&self.key),
            Direction::Backwards => read.cover_back_to(&self.key),
        }
    }

    /// Positions `stored` for a scan in `direction`.
    fn position_stored(
        &mut self,
        direction: Direction,
        seek: impl FnOnce(&mut dyn Cursor) -> Result<bool>,
    ) -> Result<()> {
        self.position = Position::Invalid;
        self.direction = None;
        seek(self.stored.as_mut())?;
        self.direction = Some(direction);
        Ok(())
    }
}

impl Cursor for MergedCursor {
    fn first(&mut self) -> Result<bool> {
        self.position_stored(Direction::Forwards, |stored| stored.first())?;
        self.move_to_first_from(self.range.start.clone())
    }

    fn last(&mut self) -> Result<bool> {
        self.position_stored(Direction::Backwards, |stored| stored.last())?;
        self.move_to_last_to(self.range.end.clone())
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_after_start(key) {
            return self.first();
        }
        self.position_stored(Direction::Forwards, |stored| stored.seek(key))?;
        self.move_to_first_from(Bound::Included(key.to_vec()))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if !self.range.is_before_end(key) {
            return self.last();
        }
        self.position_stored(Direction::Backwards, |stored| stored.seek_back(key))?;
        self.move_to_last_to(Bound::Included(key.to_vec()))
    }

    fn next(&mut self) -> Result<bool> {
        let key = std::mem::take(&mut self.key);
        if self.direction != Some(Direction::Forwards) {
            self.position_stored(Direction::Forwards, |stored| stored.seek(&key))?;
        }
        self.position = Position::Invalid;
        if self.stored.valid() && self.stored.key() == key {
            self.stored.next()?;
        }
        self.move_to_first_from(Bound::Excluded(key))
    }

    fn prev(&mut self) -> Result<bool> {
        let key = std::mem::take(&mut self.key);
        if self.direction != Some(Direction::Backwards) {
            self.position_stored(Direction::Backwards, |stored| stored.seek_back(&key))?;
        }
        self.position = Position::Invalid;
        if self.stored.valid() && self.stored.key() == key {
            self.stored.prev()?;
        }
        self.move_to_last_to(Bound::Excluded(key))
    }

    fn skip_values(&mut self) {
        self.skips_values = true;
        self.stored.skip_values();
    }

    fn valid(&self) -> bool {
        self.position != Position::Invalid
    }

    fn key(&self) -> &[u8] {
        assert!(self.valid(), "the cursor is on no entry");
        &self.key
    }

    fn value(&self) -> &[u8] {
        match self.position {
            Position::OnStored => self.stored.value(),
            Position::OnMerged => &self.merged,
            _ => self.written().map_or(&[], |entry| &entry.value),
        }
    }

    fn expires_at(&self) -> Option<Timestamp> {
        match self.position {
            Position::OnStored => self.stored.expires_at(),
            _ => self.written().and_then(|entry| entry.expires_at),
        }
    }
}

impl MergedCursor {
    /// The transaction's own entry at the cursor.
    fn written(&self) -> Option<&Entry> {
        self.overlay.get(self.key()).flatten()
    }
}

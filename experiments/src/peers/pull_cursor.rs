//! An adapter from double-ended iterators to cursors.
//!
//! A move in the direction of the previous one pulls the next entry; any other move starts a new
//! range at the target.

use std::ops::Bound;

use siltstone_engine::Result;

use super::store::{CursorMove, StoreCursor};

/// Entries of a range, from both ends.
pub(super) type Entries = Box<dyn DoubleEndedIterator<Item = Result<(Vec<u8>, Vec<u8>)>> + Send>;

/// A consistent view of a store.
pub(super) trait RangeView: Send {
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Entries>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

pub(super) struct PullCursor<R> {
    view: R,
    entries: Option<(Direction, Entries)>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: RangeView> PullCursor<R> {
    pub(super) fn new(view: R) -> Self {
        PullCursor { view, entries: None, key: Vec::new(), value: Vec::new() }
    }

    fn pull(&mut self) -> Result<bool> {
        let entry = match &mut self.entries {
            Some((Direction::Forward, entries)) => entries.next(),
            Some((Direction::Backward, entries)) => entries.next_back(),
            None => None,
        };
        let Some(entry) = entry else { return Ok(false) };
        (self.key, self.value) = entry?;
        Ok(true)
    }

    /// Starts a range in a direction, from an entry at or after the bound.
    fn start(&mut self, direction: Direction, from: Bound<&[u8]>) -> Result<bool> {
        let entries = match direction {
            Direction::Forward => self.view.range(from, Bound::Unbounded)?,
            Direction::Backward => self.view.range(Bound::Unbounded, from)?,
        };
        self.entries = Some((direction, entries));
        self.pull()
    }

    fn advance(&mut self, direction: Direction) -> Result<bool> {
        if self.entries.as_ref().is_some_and(|(current, _)| *current == direction) {
            return self.pull();
        }
        let key = std::mem::take(&mut self.key);
        self.start(direction, Bound::Excluded(&key))
    }
}

impl<R: RangeView> StoreCursor for PullCursor<R> {
    fn move_to(&mut self, step: CursorMove<'_>) -> Result<bool> {
        match step {
            CursorMove::First => self.start(Direction::Forward, Bound::Unbounded),
            CursorMove::Last => self.start(Direction::Backward, Bound::Unbounded),
            CursorMove::Seek(key) => self.start(Direction::Forward, Bound::Included(key)),
            CursorMove::SeekBack(key) => self.start(Direction::Backward, Bound::Included(key)),
            CursorMove::Next => self.advance(Direction::Forward),
            CursorMove::Prev => self.advance(Direction::Backward),
        }
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> &[u8] {
        &self.value
    }
}

//! Ordered iteration in both directions, as a Rust iterator.

use siltstone_engine::{Cursor, Entry, Result};

/// The entries of a table as of the creation of the iterator. `rev()` iterates backwards on engines
/// that support it. The iterator ends after an error.
pub struct Iter {
    cursor: Box<dyn Cursor>,
    front: Option<Vec<u8>>,
    back: Option<Vec<u8>>,
    last_move: Move,
    done: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Move {
    None,
    Forward,
    Backward,
}

impl Iter {
    pub(crate) fn new(cursor: Box<dyn Cursor>) -> Self {
        Iter { cursor, front: None, back: None, last_move: Move::None, done: false }
    }

    /// Moves one entry in `direction`. After a change of direction the cursor is at the other end,
    /// so it seeks the last key that this end returned.
    fn step(&mut self, direction: Move) -> Result<Option<(Vec<u8>, Entry)>> {
        let found = match (direction, self.last_move == direction) {
            (Move::Forward, true) => self.cursor.next()?,
            (Move::Forward, false) => match &self.front {
                None => self.cursor.first()?,
                Some(key) => self.cursor.seek(key)? && self.cursor.next()?,
            },
            (_, true) => self.cursor.prev()?,
            (_, false) => match &self.back {
                None => self.cursor.last()?,
                Some(key) => self.cursor.seek_back(key)? && self.cursor.prev()?,
            },
        };
        self.last_move = direction;
        if !found {
            return Ok(None);
        }
        let key = self.cursor.key().to_vec();
        // The ends meet: an entry that the other end returned is not returned again.
        let ends_met = match direction {
            Move::Forward => self.back.as_ref().is_some_and(|back| key >= *back),
            _ => self.front.as_ref().is_some_and(|front| key <= *front),
        };
        if ends_met {
            return Ok(None);
        }
        let value = self.cursor.value().to_vec();
        let entry = Entry { value, expires_at: self.cursor.expires_at() };
        let end = if direction == Move::Forward { &mut self.front } else { &mut self.back };
        end.get_or_insert_default().clone_from(&key);
        Ok(Some((key, entry)))
    }

    fn advance(&mut self, direction: Move) -> Option<Result<(Vec<u8>, Entry)>> {
        if self.done {
            return None;
        }
        let item = self.step(direction).transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.advance(Move::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.advance(Move::Backward)
    }
}

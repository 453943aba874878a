//! Walking keys in order, forwards and backwards, as a Rust iterator.

use siltstone_engine::{Cursor, Entry, Result};

/// Entries of a table as of the moment the iterator was made. From both ends: `rev()` walks
/// backwards where the engine can. After an error it ends.
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

    /// One step in `direction`. When the direction changes the cursor stands at the other end, so
    /// it is placed anew beside the last key that this end gave.
    fn step(&mut self, direction: Move) -> Result<Option<(Vec<u8>, Entry)>> {
        let there = match (direction, self.last_move == direction) {
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
        if !there {
            return Ok(None);
        }
        let key = self.cursor.key().to_vec();
        // The ends meet: what the other end has given is not given again.
        let met = match direction {
            Move::Forward => self.back.as_ref().is_some_and(|back| key >= *back),
            _ => self.front.as_ref().is_some_and(|front| key <= *front),
        };
        if met {
            return Ok(None);
        }
        let value = self.cursor.value().to_vec();
        let entry = Entry { value, expires_at: self.cursor.expires_at() };
        let end = if direction == Move::Forward { &mut self.front } else { &mut self.back };
        end.get_or_insert_default().clone_from(&key);
        Ok(Some((key, entry)))
    }

    fn give(&mut self, direction: Move) -> Option<Result<(Vec<u8>, Entry)>> {
        if self.done {
            return None;
        }
        let given = self.step(direction).transpose();
        self.done = !matches!(given, Some(Ok(_)));
        given
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.give(Move::Forward)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.give(Move::Backward)
    }
}

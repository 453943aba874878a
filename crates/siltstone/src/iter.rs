//! Ordered iteration in both directions, as Rust iterators over entries and over keys.

use std::fmt;

use siltstone_engine::{Cursor, Entry, Result};

use crate::read::entry_at;

/// The entries of a table as of the creation of the iterator. `rev()` iterates backwards on engines
/// that support it. The iterator ends after an error. Each entry is copied; a
/// [`Cursor`](crate::Cursor) lends them instead.
pub struct Iter(Ends);

/// The keys of a table as of the creation of the iterator, in the same order as [`Iter`]. The
/// iterator ends after an error.
///
/// ```
/// # use siltstone::{Db, DbOptions};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// # let table = db.table_or_create("t", "lsm", &Default::default())?;
/// table.put(b"a", b"a large value")?;
/// table.put(b"b", b"another one")?;
/// let keys: Result<Vec<_>, _> = table.keys()?.rev().collect();
/// assert_eq!(keys?, [b"b", b"a"]);
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Keys(Ends);

/// A cursor that is read from both ends.
struct Ends {
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

impl Ends {
    fn new(cursor: Box<dyn Cursor>) -> Self {
        Ends { cursor, front: None, back: None, last_move: Move::None, done: false }
    }

    /// Moves one entry in `direction`. After a change of direction the cursor is at the other end,
    /// so it seeks the last key that this end returned.
    fn step(&mut self, direction: Move) -> Result<bool> {
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
            return Ok(false);
        }
        let key = self.cursor.key();
        // The ends meet: an entry that the other end returned is not returned again.
        let ends_met = match direction {
            Move::Forward => self.back.as_ref().is_some_and(|back| key >= back.as_slice()),
            _ => self.front.as_ref().is_some_and(|front| key <= front.as_slice()),
        };
        if ends_met {
            return Ok(false);
        }
        let end = if direction == Move::Forward { &mut self.front } else { &mut self.back };
        let end = end.get_or_insert_default();
        end.clear();
        end.extend_from_slice(key);
        Ok(true)
    }

    fn advance<T>(
        &mut self,
        direction: Move,
        read: impl FnOnce(&dyn Cursor) -> T,
    ) -> Option<Result<T>> {
        if self.done {
            return None;
        }
        let item = match self.step(direction) {
            Ok(true) => Some(Ok(read(self.cursor.as_ref()))),
            Ok(false) => None,
            Err(error) => Some(Err(error)),
        };
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

fn key_and_entry(cursor: &dyn Cursor) -> (Vec<u8>, Entry) {
    (cursor.key().to_vec(), entry_at(cursor))
}

fn key(cursor: &dyn Cursor) -> Vec<u8> {
    cursor.key().to_vec()
}

impl Iter {
    pub(crate) fn new(cursor: Box<dyn Cursor>) -> Self {
        Iter(Ends::new(cursor))
    }
}

impl Keys {
    pub(crate) fn new(mut cursor: Box<dyn Cursor>) -> Self {
        cursor.skip_values();
        Keys(Ends::new(cursor))
    }
}

impl Iterator for Iter {
    type Item = Result<(Vec<u8>, Entry)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance(Move::Forward, key_and_entry)
    }
}

impl DoubleEndedIterator for Iter {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.advance(Move::Backward, key_and_entry)
    }
}

impl Iterator for Keys {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.advance(Move::Forward, key)
    }
}

impl DoubleEndedIterator for Keys {
    fn next_back(&mut self) -> Option<Self::Item> {
        self.0.advance(Move::Backward, key)
    }
}

impl fmt::Debug for Iter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("Iter", f)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt("Keys", f)
    }
}

impl Ends {
    /// The keys that both ends have reached, as text.
    fn fmt(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |key: &Option<Vec<u8>>| key.as_ref().map(|key| key.escape_ascii().to_string());
        f.debug_struct(name)
            .field("front", &text(&self.front))
            .field("back", &text(&self.back))
            .field("is_done", &self.done)
            .finish()
    }
}

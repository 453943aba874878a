//! A cursor whose position is checked after each move.
//!
//! The model of a cursor is a list of expected entries and a position in it. The cursor may skip
//! entries that may be missing (see the uncertain expiry of the [oracle](crate::oracle)), and no
//! other.
//!
//! Invariant: after a move that found nothing, and before the first seek, a cursor is not valid,
//! and a step returns [`Error::Invalid`].

use siltstone_engine::{Cursor, Entry, Error};

use crate::oracle::{ExpectedEntry, show, show_entry};

/// One move of a cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Move {
    /// [`Cursor::first`].
    First,
    /// [`Cursor::last`].
    Last,
    /// [`Cursor::seek`].
    Seek(Vec<u8>),
    /// [`Cursor::seek_back`].
    SeekBack(Vec<u8>),
    /// [`Cursor::next`].
    Next,
    /// [`Cursor::prev`].
    Prev,
}

/// Why a step failed.
#[derive(Debug, Clone)]
pub enum CheckError {
    /// The engine returned an error.
    Engine(Error),
    /// The engine's result is wrong.
    Mismatch(String),
}

impl From<Error> for CheckError {
    fn from(error: Error) -> Self {
        CheckError::Engine(error)
    }
}

impl std::fmt::Display for CheckError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CheckError::Engine(error) => write!(f, "unexpected error: {error}"),
            CheckError::Mismatch(what) => f.write_str(what),
        }
    }
}

/// A cursor and its expected entries.
pub struct CheckedCursor {
    cursor: Box<dyn Cursor>,
    expected: Vec<(Vec<u8>, Entry, bool)>,
    at: Option<usize>,
}

impl CheckedCursor {
    /// Wraps a cursor that was just created.
    pub fn new(cursor: Box<dyn Cursor>, expected: &[ExpectedEntry<'_>]) -> Self {
        let own = |e: &ExpectedEntry<'_>| (e.key.to_vec(), e.entry.clone(), e.certain);
        CheckedCursor { cursor, expected: expected.iter().map(own).collect(), at: None }
    }

    /// Allows every expiring entry to be missing, for a cursor that outlives a change of the clock.
    pub fn allow_expiry(&mut self) {
        for (_, entry, certain) in &mut self.expected {
            *certain &= entry.expires_at.is_none();
        }
    }

    /// Moves the cursor and checks its position. Returns its key, if it is on an entry.
    ///
    /// # Errors
    /// The engine's, or a mismatch.
    pub fn step(&mut self, step: &Move) -> Result<Option<&[u8]>, CheckError> {
        let (from, forward) = match (step, self.at) {
            (Move::First, _) => (0, true),
            (Move::Last, _) => (self.expected.len(), false),
            (Move::Seek(key), _) => (self.expected.partition_point(|e| e.0 < *key), true),
            (Move::SeekBack(key), _) => (self.expected.partition_point(|e| e.0 <= *key), false),
            (Move::Next, Some(at)) => (at + 1, true),
            (Move::Prev, Some(at)) => (at, false),
            (Move::Next | Move::Prev, None) => return self.step_without_position(step),
        };
        let moved = self.move_cursor(step);
        self.at = None;
        let is_valid = moved?;
        if is_valid != self.cursor.valid() {
            return Err(wrong(step, format!("returned {is_valid}, but valid() is {}", !is_valid)));
        }
        let candidates: Vec<usize> = match forward {
            true => (from..self.expected.len()).collect(),
            false => (0..from).rev().collect(),
        };
        self.at = self.find_position(step, &candidates, is_valid)?;
        Ok(self.at.map(|at| self.expected[at].0.as_slice()))
    }

    /// Finds which of the candidates the cursor is on.
    fn find_position(
        &self,
        step: &Move,
        candidates: &[usize],
        is_valid: bool,
    ) -> Result<Option<usize>, CheckError> {
        for &at in candidates {
            let (key, entry, certain) = &self.expected[at];
            if is_valid && self.cursor.key() == key {
                let value = self.cursor.value().to_vec();
                let found = Entry { value, expires_at: self.cursor.expires_at() };
                if found != *entry {
                    let (should, is) = (show_entry(Some(entry)), show_entry(Some(&found)));
                    let what = format!("key {} should be {should} and is {is}", show(key));
                    return Err(wrong(step, what));
                }
                return Ok(Some(at));
            }
            if *certain {
                let is = if is_valid { show(self.cursor.key()) } else { "on no entry".to_owned() };
                let what = format!("the cursor should be on {} and is {is}", show(key));
                return Err(wrong(step, what));
            }
        }
        match is_valid {
            false => Ok(None),
            true => {
                let key = show(self.cursor.key());
                Err(wrong(step, format!("the cursor should be at the end and is on {key}")))
            }
        }
    }

    fn step_without_position(&mut self, step: &Move) -> Result<Option<&[u8]>, CheckError> {
        match self.move_cursor(step) {
            Err(Error::Invalid(_)) if !self.cursor.valid() => Ok(None),
            Err(other) if !matches!(other, Error::Invalid(_)) => Err(other.into()),
            other => Err(wrong(step, format!("without a position it returned {other:?}"))),
        }
    }

    fn move_cursor(&mut self, step: &Move) -> siltstone_engine::Result<bool> {
        match step {
            Move::First => self.cursor.first(),
            Move::Last => self.cursor.last(),
            Move::Seek(key) => self.cursor.seek(key),
            Move::SeekBack(key) => self.cursor.seek_back(key),
            Move::Next => self.cursor.next(),
            Move::Prev => self.cursor.prev(),
        }
    }
}

fn wrong(step: &Move, what: String) -> CheckError {
    CheckError::Mismatch(format!("{step:?}: {what}"))
}

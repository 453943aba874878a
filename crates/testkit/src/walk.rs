//! Does a cursor stand where it should, after each move?
//!
//! The model of a cursor is a list of expected entries and a place in it. Entries that may be
//! missing (see the grey zone of the [oracle](crate::oracle)) may be stepped over; any other must
//! not.
//!
//! Invariant: after a move that found nothing, and before the first placement, a cursor is not
//! valid, and stepping it is [`Error::Invalid`].
//!
//! Source: ours.

use siltstone_engine::{Cursor, Entry, Error};

use crate::oracle::{Expected, show, show_entry};

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

/// Why a step did not go as it should.
#[derive(Debug, Clone)]
pub enum Wrong {
    /// The engine answered with an error.
    Fault(Error),
    /// The engine's answer is wrong.
    Answer(String),
}

impl From<Error> for Wrong {
    fn from(error: Error) -> Self {
        Wrong::Fault(error)
    }
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Wrong::Fault(error) => write!(f, "unexpected error: {error}"),
            Wrong::Answer(what) => f.write_str(what),
        }
    }
}

/// A cursor and what it should show.
pub struct Walker {
    cursor: Box<dyn Cursor>,
    expected: Vec<(Vec<u8>, Entry, bool)>,
    at: Option<usize>,
}

impl Walker {
    /// A cursor that was just opened.
    pub fn new(cursor: Box<dyn Cursor>, expected: &[Expected<'_>]) -> Self {
        let own = |e: &Expected<'_>| (e.key.to_vec(), e.entry.clone(), e.certain);
        Walker { cursor, expected: expected.iter().map(own).collect(), at: None }
    }

    /// For a cursor that outlives the setting of the clock: what expires may go or come.
    pub fn doubt_what_expires(&mut self) {
        for (_, entry, certain) in &mut self.expected {
            *certain &= entry.expires_at.is_none();
        }
    }

    /// Moves the cursor and checks where it stands. The key it stands on, if on any.
    ///
    /// # Errors
    /// The engine's, or what is wrong.
    pub fn step(&mut self, step: &Move) -> Result<Option<&[u8]>, Wrong> {
        let (from, forward) = match (step, self.at) {
            (Move::First, _) => (0, true),
            (Move::Last, _) => (self.expected.len(), false),
            (Move::Seek(key), _) => (self.expected.partition_point(|e| e.0 < *key), true),
            (Move::SeekBack(key), _) => (self.expected.partition_point(|e| e.0 <= *key), false),
            (Move::Next, Some(at)) => (at + 1, true),
            (Move::Prev, Some(at)) => (at, false),
            (Move::Next | Move::Prev, None) => return self.step_from_nowhere(step),
        };
        let moved = self.cursor_step(step);
        self.at = None;
        let there = moved?;
        if there != self.cursor.valid() {
            return Err(wrong(step, format!("answered {there}, and valid() is {}", !there)));
        }
        let candidates: Vec<usize> = match forward {
            true => (from..self.expected.len()).collect(),
            false => (0..from).rev().collect(),
        };
        self.at = self.land(step, &candidates, there)?;
        Ok(self.at.map(|at| self.expected[at].0.as_slice()))
    }

    /// Of the entries in the way, which one the cursor stands on.
    fn land(&self, step: &Move, way: &[usize], there: bool) -> Result<Option<usize>, Wrong> {
        for &at in way {
            let (key, entry, certain) = &self.expected[at];
            if there && self.cursor.key() == key {
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
                let stands = if there { show(self.cursor.key()) } else { "nowhere".to_owned() };
                let what = format!("the cursor should stand on {} and is {stands}", show(key));
                return Err(wrong(step, what));
            }
        }
        match there {
            false => Ok(None),
            true => {
                let key = show(self.cursor.key());
                Err(wrong(step, format!("the cursor should be at the end and is on {key}")))
            }
        }
    }

    fn step_from_nowhere(&mut self, step: &Move) -> Result<Option<&[u8]>, Wrong> {
        match self.cursor_step(step) {
            Err(Error::Invalid(_)) if !self.cursor.valid() => Ok(None),
            Err(other) if !matches!(other, Error::Invalid(_)) => Err(other.into()),
            other => Err(wrong(step, format!("from nowhere it answered {other:?}"))),
        }
    }

    fn cursor_step(&mut self, step: &Move) -> siltstone_engine::Result<bool> {
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

fn wrong(step: &Move, what: String) -> Wrong {
    Wrong::Answer(format!("{step:?}: {what}"))
}

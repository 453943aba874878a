//! Walks over stores whose iterators are pulled from either end of a range.
//!
//! A step that goes on in the direction of the last one pulls the next entry; every other makes a range
//! that begins where it is to stand.
//!
//! Source: ours.

use std::ops::Bound;

use siltstone_engine::Result;

use super::store::{Step, Walk};

/// Entries of a range, from either end.
pub(super) type Entries = Box<dyn DoubleEndedIterator<Item = Result<(Vec<u8>, Vec<u8>)>> + Send>;

/// One state of a store.
pub(super) trait Ranges: Send {
    fn range(&self, lower: Bound<&[u8]>, upper: Bound<&[u8]>) -> Result<Entries>;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Towards {
    Last,
    First,
}

pub(super) struct Pulled<R> {
    ranges: R,
    entries: Option<(Towards, Entries)>,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl<R: Ranges> Pulled<R> {
    pub(super) fn new(ranges: R) -> Self {
        Pulled { ranges, entries: None, key: Vec::new(), value: Vec::new() }
    }

    fn pull(&mut self) -> Result<bool> {
        let entry = match &mut self.entries {
            Some((Towards::Last, entries)) => entries.next(),
            Some((Towards::First, entries)) => entries.next_back(),
            None => None,
        };
        let Some(entry) = entry else { return Ok(false) };
        (self.key, self.value) = entry?;
        Ok(true)
    }

    /// Goes towards one end, from an entry at or behind the bound on.
    fn begin(&mut self, towards: Towards, from: Bound<&[u8]>) -> Result<bool> {
        let entries = match towards {
            Towards::Last => self.ranges.range(from, Bound::Unbounded)?,
            Towards::First => self.ranges.range(Bound::Unbounded, from)?,
        };
        self.entries = Some((towards, entries));
        self.pull()
    }

    fn go_on(&mut self, towards: Towards) -> Result<bool> {
        if self.entries.as_ref().is_some_and(|(present, _)| *present == towards) {
            return self.pull();
        }
        let key = std::mem::take(&mut self.key);
        self.begin(towards, Bound::Excluded(&key))
    }
}

impl<R: Ranges> Walk for Pulled<R> {
    fn go(&mut self, step: Step<'_>) -> Result<bool> {
        match step {
            Step::First => self.begin(Towards::Last, Bound::Unbounded),
            Step::Last => self.begin(Towards::First, Bound::Unbounded),
            Step::Seek(key) => self.begin(Towards::Last, Bound::Included(key)),
            Step::SeekBack(key) => self.begin(Towards::First, Bound::Included(key)),
            Step::Next => self.go_on(Towards::Last),
            Step::Prev => self.go_on(Towards::First),
        }
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn value(&self) -> &[u8] {
        &self.value
    }
}

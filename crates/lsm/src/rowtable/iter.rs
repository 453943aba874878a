//! Walking a row: its live versions by key ascending, then sequence descending.
//!
//! The same moves as a level's iterator has, so that a merge takes both. What the iterator stands on
//! is read and checked when it gets there; a key or a value that lies on one page is shown in place,
//! one that crosses pages is copied.
//!
//! Invariant: while valid, the parts shown are those of the live version at the position, checked.
//!
//! Source: ours.

use std::borrow::Cow;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_table::Kind;

use super::item::Item;
use super::probe::Tally;
use super::search::Place;
use super::table::RowTable;

/// An iterator over the live versions of one row, which it holds on to.
pub(crate) struct RowIter {
    row: Arc<RowTable>,
    purpose: Purpose,
    /// At or past the row's length: nowhere.
    position: usize,
    item: Option<Item>,
    key: Part,
    value: Part,
}

/// Bytes shown: where they are, or a copy.
enum Part {
    InPlace { address: u64, len: usize },
    Copied(Vec<u8>),
}

impl RowIter {
    /// An iterator that stands nowhere yet.
    pub(crate) fn new(row: Arc<RowTable>, purpose: Purpose) -> Self {
        let nothing = || Part::Copied(Vec::new());
        let position = row.len();
        RowIter { row, purpose, position, item: None, key: nothing(), value: nothing() }
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.stand(0)
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.stand(self.row.len().wrapping_sub(1))
    }

    /// To the first version at or after (`key`, `sequence`) in run order.
    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let place = self.find(key)?;
        self.land(place, key, sequence)
    }

    /// To the last version at or before (`key`, `sequence`) in run order.
    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let place = self.find(key)?;
        self.land_back(place, key, sequence)
    }

    /// To the next version; the iterator must be valid.
    pub(crate) fn next(&mut self) -> Result<()> {
        self.stand(self.position.saturating_add(1))
    }

    /// To the version before; the iterator must be valid.
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.stand(self.position.wrapping_sub(1))
    }

    pub(crate) fn valid(&self) -> bool {
        self.item.is_some()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.show(&self.key)
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.here().sequence
    }

    pub(crate) fn kind(&self) -> Kind {
        self.here().kind
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.here().expires_at
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.show(&self.value)
    }

    pub(crate) fn row(&self) -> &Arc<RowTable> {
        &self.row
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// As `seek`, the key's place being known.
    pub(super) fn land(&mut self, place: Place, key: &[u8], sequence: u64) -> Result<()> {
        self.stand(place.position)?;
        while place.is_equal && self.valid() && self.key() == key && self.sequence() > sequence {
            self.next()?;
        }
        Ok(())
    }

    /// As `seek_back`, the key's place being known.
    pub(super) fn land_back(&mut self, place: Place, key: &[u8], sequence: u64) -> Result<()> {
        self.land(place, key, sequence)?;
        let is_it =
            place.is_equal && self.valid() && self.sequence() == sequence && self.key() == key;
        match is_it {
            true => Ok(()),
            false => self.prev(),
        }
    }

    fn find(&self, key: &[u8]) -> Result<Place> {
        let mut tally = Tally::default();
        let place = self.row.lower_bound(key, 0..self.row.len(), &mut tally);
        self.row.note_read(&tally, self.purpose);
        place
    }

    /// Reads what is at a position; past either end the iterator stands nowhere.
    fn stand(&mut self, position: usize) -> Result<()> {
        self.item = None;
        // One before the first wraps round, to past the last.
        self.position = position.min(self.row.len());
        if self.position == self.row.len() {
            return Ok(());
        }
        let mut tally = Tally::default();
        let (item, head) = self.row.item(self.row.index(position), &mut tally)?;
        let value = self.row.value(&item, &mut tally)?;
        let key_address = item.value_address() - item.key_len as u64;
        self.key = match &head {
            Cow::Borrowed(_) if item.key_len > 0 => {
                Part::InPlace { address: key_address, len: item.key_len }
            }
            head => Part::Copied(item.key_in(head).to_vec()),
        };
        self.value = match value {
            Cow::Borrowed(value) if !value.is_empty() => {
                Part::InPlace { address: item.value_address(), len: value.len() }
            }
            value => Part::Copied(value.into_owned()),
        };
        self.item = Some(item);
        self.row.note_read(&tally, self.purpose);
        Ok(())
    }

    fn here(&self) -> &Item {
        self.item.as_ref().expect("the caller checked that the iterator is valid")
    }

    fn show<'a>(&'a self, part: &'a Part) -> &'a [u8] {
        match part {
            Part::InPlace { address, len } => self.row.in_place(*address, *len),
            Part::Copied(bytes) => bytes,
        }
    }
}

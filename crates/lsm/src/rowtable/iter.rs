//! Iterates over the live versions of a row, by key ascending, then sequence descending.
//!
//! The current entry is read and verified by the move to it. A key or a value on one page is
//! borrowed from the page; one that crosses pages is copied.
//!
//! Invariant: while valid, the current key and value are those of the live version at the position,
//! verified.

use std::borrow::Cow;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_table::Kind;

use super::item::Item;
use super::search::KeyPosition;
use super::search_stats::SearchStats;
use super::table::RowTable;

/// An iterator over the live versions of one row, which it keeps alive.
pub(crate) struct RowTableIter {
    row: Arc<RowTable>,
    purpose: Purpose,
    /// The row's length or more: invalid.
    position: usize,
    item: Option<Item>,
    key: EntryPart,
    value: EntryPart,
}

/// A key or a value: borrowed from a page, or a copy.
enum EntryPart {
    InPlace { address: u64, len: usize },
    Copied(Vec<u8>),
}

impl RowTableIter {
    /// An iterator that is invalid until its first move.
    pub(crate) fn new(row: Arc<RowTable>, purpose: Purpose) -> Self {
        let nothing = || EntryPart::Copied(Vec::new());
        let position = row.len();
        RowTableIter { row, purpose, position, item: None, key: nothing(), value: nothing() }
    }

    pub(crate) fn first(&mut self) -> Result<()> {
        self.move_to(0)
    }

    pub(crate) fn last(&mut self) -> Result<()> {
        self.move_to(self.row.len().wrapping_sub(1))
    }

    /// Moves to the first version at or after (`key`, `sequence`) in run order.
    pub(crate) fn seek(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let position = self.find(key)?;
        self.seek_from(position, key, sequence)
    }

    /// Moves to the last version at or before (`key`, `sequence`) in run order.
    pub(crate) fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<()> {
        let position = self.find(key)?;
        self.seek_back_from(position, key, sequence)
    }

    /// Moves to the next version; the iterator must be valid.
    pub(crate) fn next(&mut self) -> Result<()> {
        self.move_to(self.position.saturating_add(1))
    }

    /// Moves to the previous version; the iterator must be valid.
    pub(crate) fn prev(&mut self) -> Result<()> {
        self.move_to(self.position.wrapping_sub(1))
    }

    pub(crate) fn valid(&self) -> bool {
        self.item.is_some()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.bytes_of(&self.key)
    }

    pub(crate) fn max_sequence(&self) -> u64 {
        self.row.sequences().1
    }

    pub(crate) fn sequence(&self) -> u64 {
        self.current().sequence
    }

    pub(crate) fn kind(&self) -> Kind {
        self.current().kind
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.current().expires_at
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.bytes_of(&self.value)
    }

    pub(crate) fn row(&self) -> &Arc<RowTable> {
        &self.row
    }

    pub(super) fn purpose(&self) -> Purpose {
        self.purpose
    }

    /// As `seek`, with the known position of the key.
    pub(super) fn seek_from(
        &mut self,
        position: KeyPosition,
        key: &[u8],
        sequence: u64,
    ) -> Result<()> {
        self.move_to(position.position)?;
        while position.is_exact && self.valid() && self.key() == key && self.sequence() > sequence {
            self.next()?;
        }
        Ok(())
    }

    /// As `seek_back`, with the known position of the key.
    pub(super) fn seek_back_from(
        &mut self,
        position: KeyPosition,
        key: &[u8],
        sequence: u64,
    ) -> Result<()> {
        self.seek_from(position, key, sequence)?;
        let is_match =
            position.is_exact && self.valid() && self.sequence() == sequence && self.key() == key;
        match is_match {
            true => Ok(()),
            false => self.prev(),
        }
    }

    fn find(&self, key: &[u8]) -> Result<KeyPosition> {
        let mut stats = SearchStats::default();
        let position = self.row.lower_bound(key, 0..self.row.len(), &mut stats);
        self.row.note_read(&stats, self.purpose);
        position
    }

    /// Reads the entry at a position; past either end the iterator is invalid.
    fn move_to(&mut self, position: usize) -> Result<()> {
        self.item = None;
        // The position before the first wraps around to one past the last.
        self.position = position.min(self.row.len());
        if self.position == self.row.len() {
            return Ok(());
        }
        let mut stats = SearchStats::default();
        let (item, head) = self.row.item(self.row.index(position), &mut stats)?;
        let value = self.row.value(&item, &mut stats)?;
        let key_address = item.value_address() - item.key_len as u64;
        self.key = match &head {
            Cow::Borrowed(_) if item.key_len > 0 => {
                EntryPart::InPlace { address: key_address, len: item.key_len }
            }
            head => EntryPart::Copied(item.key_in(head).to_vec()),
        };
        self.value = match value {
            Cow::Borrowed(value) if !value.is_empty() => {
                EntryPart::InPlace { address: item.value_address(), len: value.len() }
            }
            value => EntryPart::Copied(value.into_owned()),
        };
        self.item = Some(item);
        self.row.note_read(&stats, self.purpose);
        Ok(())
    }

    fn current(&self) -> &Item {
        self.item.as_ref().expect("the caller checked that the iterator is valid")
    }

    fn bytes_of<'a>(&'a self, part: &'a EntryPart) -> &'a [u8] {
        match part {
            EntryPart::InPlace { address, len } => self.row.in_place(*address, *len),
            EntryPart::Copied(bytes) => bytes,
        }
    }
}

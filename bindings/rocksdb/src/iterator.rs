//! Iterators over a database, and over a database with an overlay.
//!
//! With an overlay there are two sources, and the iterator is on the nearer of their entries:
//!
//! ```text
//!   forwards    base: first entry at or after the position   overlay: likewise   the lower key
//!   backwards   base: last entry at or before it             overlay: likewise   the higher key
//!   both on one key: the change of the overlay applies to the value of the base; deleted: go on
//! ```
//!
//! A cursor moves by one step as long as the direction is the same, and seeks when it changes.

use std::ffi::c_char;
use std::mem::MaybeUninit;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::Arc;

use shim::boundary::{Pointer, address, quietly};
use store::{Cursor, KeyRange};

use crate::callbacks::PrefixExtractor;
use crate::database::Database;
use crate::exports::{array, exports};
use crate::failure::Failure;
use crate::families::{Families, Handle};
use crate::layout;
use crate::overlay::{Change, Overlay};
use crate::read_options::ReadOptions;
use crate::scalars::HasScalars;

/// Where an iterator can move to.
#[derive(Debug, Clone, Copy)]
enum Move<'k> {
    First,
    Last,
    Seek(&'k [u8]),
    SeekBack(&'k [u8]),
    Next,
    Prev,
}

/// A copy of a key of the store and its value.
type Entry = (Vec<u8>, Vec<u8>);

/// An iterator.
#[derive(Debug)]
pub struct Iterator {
    database: Database,
    family: u32,
    range: KeyRange,
    /// `None` after an error of its creation.
    cursor: Option<Cursor>,
    overlay: Option<Arc<Overlay>>,
    /// The entry under an iterator with an overlay.
    merged: Option<Entry>,
    is_forward: bool,
    /// Sees later writes at each seek.
    is_tailing: bool,
    /// Ends where the prefix of the key of a seek ends.
    extractor: Option<Arc<PrefixExtractor>>,
    prefix: Option<Vec<u8>>,
    error: Option<Failure>,
}

impl Iterator {
    /// An iterator over a column family. An error is that of each move.
    pub fn new(database: &Database, options: &ReadOptions, family: u32) -> Self {
        let range = options.range(family);
        let cursor = database.families.check(family);
        let cursor = cursor.and_then(|()| options.cursor(database, &range));
        let same_prefix = options.scalars().is_set("prefix_same_as_start");
        let extractor = match same_prefix {
            true => database.families.prefix_of(family),
            false => None,
        };
        let (cursor, error) = match cursor {
            Ok(cursor) => (Some(cursor), None),
            Err(error) => (None, Some(error)),
        };
        Iterator {
            database: database.clone(),
            family,
            range,
            cursor,
            overlay: None,
            merged: None,
            is_forward: true,
            is_tailing: options.scalars().is_set("tailing") && options.snapshot.is_none(),
            extractor,
            prefix: None,
            error,
        }
    }

    /// The same with an overlay.
    pub fn with_overlay(self, overlay: Arc<Overlay>) -> Self {
        Iterator { overlay: Some(overlay), merged: None, ..self }
    }

    /// Replaces what the iterator shows by the present.
    fn refresh(&mut self) -> Result<(), Failure> {
        let bounds = (self.range.start.clone(), self.range.end.clone());
        self.cursor = Some(self.database.table().cursor_range(bounds)?);
        self.merged = None;
        self.error = None;
        Ok(())
    }

    /// Replaces what a tailing iterator shows by the present, before it moves. A step needs its
    /// place again. Returns whether the iterator still has to move: if its entry was removed
    /// meanwhile, the place is that of the step already.
    fn refresh_for(&mut self, to: Move<'_>) -> Result<bool, Failure> {
        let merged = self.merged.take();
        let key = match (&merged, &self.cursor) {
            (Some((key, _)), _) => Some(key.clone()),
            (None, cursor) => cursor.as_ref().and_then(Cursor::entry).map(|it| it.key.to_vec()),
        };
        self.refresh()?;
        let (Some(key), Some(cursor)) = (key, &mut self.cursor) else { return Ok(true) };
        let found = match to {
            Move::Next => cursor.seek(&key)?,
            Move::Prev => cursor.seek_back(&key)?,
            _ => return Ok(true),
        };
        let is_there = found.is_some_and(|entry| entry.key == key);
        if self.overlay.is_some() {
            // The step goes past the key in both sources.
            (self.merged, self.is_forward) = (merged, matches!(to, Move::Next));
            return Ok(true);
        }
        Ok(is_there)
    }

    /// The key and the value under the iterator.
    fn entry(&self) -> Option<(&[u8], &[u8])> {
        let (key, value) = match &self.overlay {
            Some(_) => self.merged.as_ref().map(|(key, value)| (&key[..], &value[..]))?,
            None => self.cursor.as_ref()?.entry().map(|entry| (entry.key, entry.value))?,
        };
        let (_, key) = layout::split(key)?;
        if self.error.is_some() {
            return None;
        }
        match (&self.prefix, &self.extractor) {
            (Some(prefix), Some(extractor)) if extractor.prefix(key) != Some(prefix) => None,
            _ => Some((key, value)),
        }
    }

    fn go(&mut self, to: Move<'_>) {
        let target = match to {
            Move::Seek(key) | Move::SeekBack(key) => Some(layout::entry_key(self.family, key)),
            _ => None,
        };
        let is_step = matches!(to, Move::Next | Move::Prev);
        if is_step && self.entry().is_none() {
            return;
        }
        if self.is_tailing {
            match self.refresh_for(to) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    self.error = Some(error);
                    return;
                }
            }
        }
        if let Some(extractor) = &self.extractor
            && !is_step
        {
            let prefix = match to {
                Move::Seek(key) | Move::SeekBack(key) => extractor.prefix(key),
                _ => None,
            };
            self.prefix = prefix.map(<[u8]>::to_vec);
        }
        let target = target.as_deref();
        let moved = quietly(|| Some(self.go_to(to, target)));
        let internal = || Err(Failure::invalid("internal error of an iterator"));
        self.error = moved.unwrap_or_else(internal).err();
        // Without a key to seek, the prefix is that of the first entry.
        if let (Move::First | Move::Last, Some(extractor)) = (to, self.extractor.clone()) {
            let prefix = self.entry().and_then(|(key, _)| extractor.prefix(key));
            self.prefix = prefix.map(<[u8]>::to_vec);
        }
    }

    fn go_to(&mut self, to: Move<'_>, target: Option<&[u8]>) -> Result<(), Failure> {
        let Some(cursor) = &mut self.cursor else {
            return Err(self.error.clone().unwrap_or_else(|| Failure::invalid("no iterator")));
        };
        let target = target.unwrap_or_default();
        let Some(overlay) = self.overlay.clone() else {
            match to {
                Move::First => cursor.first()?,
                Move::Last => cursor.last()?,
                Move::Seek(_) => cursor.seek(target)?,
                Move::SeekBack(_) => cursor.seek_back(target)?,
                Move::Next => cursor.next()?,
                Move::Prev => cursor.prev()?,
            };
            return Ok(());
        };
        let range = &self.range;
        let was_forward = self.is_forward;
        let mut at = match (to, self.merged.take()) {
            (Move::First, _) => {
                cursor.first()?;
                Position { bound: range.start.clone(), is_forward: true }
            }
            (Move::Last, _) => {
                cursor.last()?;
                Position { bound: range.end.clone(), is_forward: false }
            }
            (Move::Seek(_), _) => {
                cursor.seek(target)?;
                let key = target.to_vec();
                let bound =
                    if range.is_after_start(&key) { Included(key) } else { range.start.clone() };
                Position { bound, is_forward: true }
            }
            (Move::SeekBack(_), _) => {
                cursor.seek_back(target)?;
                let key = target.to_vec();
                let bound =
                    if range.is_before_end(&key) { Included(key) } else { range.end.clone() };
                Position { bound, is_forward: false }
            }
            (Move::Next, Some((key, _))) => {
                if !was_forward {
                    cursor.seek(&key)?;
                }
                if cursor.entry().is_some_and(|entry| entry.key == key) {
                    cursor.next()?;
                }
                Position { bound: Excluded(key), is_forward: true }
            }
            (Move::Prev, Some((key, _))) => {
                if was_forward {
                    cursor.seek_back(&key)?;
                }
                if cursor.entry().is_some_and(|entry| entry.key == key) {
                    cursor.prev()?;
                }
                Position { bound: Excluded(key), is_forward: false }
            }
            (Move::Next | Move::Prev, None) => return Ok(()),
        };
        self.is_forward = at.is_forward;
        self.merged = at.settle(cursor, &overlay, range, &self.database.families)?;
        Ok(())
    }
}

/// Where the two sources are to be joined.
struct Position {
    /// The overlay's part begins here. The cursor is on its own first entry.
    bound: std::ops::Bound<Vec<u8>>,
    is_forward: bool,
}

impl Position {
    /// The nearest entry that is not deleted.
    fn settle(
        &mut self,
        cursor: &mut Cursor,
        overlay: &Overlay,
        range: &KeyRange,
        families: &Families,
    ) -> Result<Option<Entry>, Failure> {
        loop {
            let change = self.change(overlay, range);
            let stored = cursor.entry();
            let order = match (stored, change) {
                (None, None) => return Ok(None),
                (Some(_), None) => std::cmp::Ordering::Less,
                (None, Some(_)) => std::cmp::Ordering::Greater,
                (Some(stored), Some((key, _))) if self.is_forward => stored.key.cmp(key),
                (Some(stored), Some((key, _))) => key.as_slice().cmp(stored.key),
            };
            if let (Some(stored), true) = (stored, order.is_lt()) {
                return Ok(Some((stored.key.to_vec(), stored.value.to_vec())));
            }
            let Some((key, change)) = change else { return Ok(None) };
            let stored = stored.filter(|_| order.is_eq());
            let value = change.resolve(families, key, stored.map(|entry| entry.value))?;
            if let Some(value) = value {
                return Ok(Some((key.clone(), value)));
            }
            // Deleted: both go past the key.
            if stored.is_some() {
                if self.is_forward {
                    cursor.next()?
                } else {
                    cursor.prev()?
                };
            }
            self.bound = Excluded(key.clone());
        }
    }

    /// The nearest change.
    fn change<'o>(
        &self,
        overlay: &'o Overlay,
        range: &KeyRange,
    ) -> Option<(&'o Vec<u8>, &'o Change)> {
        let found = match self.is_forward {
            true => overlay.range::<Vec<u8>, _>((self.bound.as_ref(), Unbounded)).next(),
            false => overlay.range::<Vec<u8>, _>((Unbounded, self.bound.as_ref())).next_back(),
        };
        found.filter(|(key, _)| range.contains(key))
    }
}

/// A string that is lent, by value.
#[repr(C)]
#[derive(Debug)]
pub struct Slice {
    data: *const c_char,
    size: usize,
}

impl Default for Slice {
    fn default() -> Self {
        Slice { data: std::ptr::null(), size: 0 }
    }
}

impl Slice {
    fn of(bytes: Option<&[u8]>) -> Self {
        bytes.map_or_else(Slice::default, |bytes| Slice { data: address(bytes), size: bytes.len() })
    }

    /// The bytes of the caller.
    ///
    /// # Safety
    /// They are `size` bytes at `data`, or none.
    pub unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: by the contract of this function.
        unsafe { shim::boundary::bytes(self.data, self.size) }
    }
}

fn lend(bytes: Option<&[u8]>, len: &mut MaybeUninit<usize>) -> Pointer<c_char> {
    let slice = Slice::of(bytes);
    len.write(slice.size);
    Pointer(slice.data.cast_mut())
}

exports! {
    /// An iterator over a column family as of now, or at the snapshot of the options. It is on no
    /// entry. Destroy it before the database is closed.
    fn rocksdb_create_iterator | rocksdb_create_iterator_cf(
        db: &Database, options: &ReadOptions, ?family,
    ) -> Pointer<Iterator> {
        Pointer::new(Iterator::new(db, options, family.id))
    }

    /// As rocksdb_create_iterator().
    fn rocksdb_transactiondb_create_iterator | rocksdb_transactiondb_create_iterator_cf(
        db: &Database, options: &ReadOptions, ?family,
    ) -> Pointer<Iterator> {
        Pointer::new(Iterator::new(db, options, family.id))
    }

    /// Iterators over several column families, as of one moment.
    fn rocksdb_create_iterators(
        db: &Database, options: &ReadOptions, families: *const *const Handle,
        iterators: *mut *mut Iterator, size: usize; err
    ) {
        let mut at_once = options.clone();
        if at_once.snapshot.is_none() {
            at_once.snapshot = Some(db.table().snapshot()?);
        }
        let families = unsafe { array(families, size) };
        for (at, family) in families.iter().enumerate() {
            let iterator = Iterator::new(db, &at_once, unsafe { (**family).id });
            unsafe { iterators.add(at).write(Pointer::new(iterator).0) };
        }
        Ok(())
    }

    /// Frees an iterator.
    fn rocksdb_iter_destroy(iterator: Option<Box<Iterator>>) {
        drop(iterator)
    }

    /// Whether the iterator is on an entry.
    fn rocksdb_iter_valid(iterator: &Iterator) -> u8 {
        iterator.entry().is_some().into()
    }

    /// Moves to the first entry.
    fn rocksdb_iter_seek_to_first(iterator: &mut Iterator) {
        iterator.go(Move::First)
    }

    /// Moves to the last entry.
    fn rocksdb_iter_seek_to_last(iterator: &mut Iterator) {
        iterator.go(Move::Last)
    }

    /// Moves to the first entry whose key is not less.
    fn rocksdb_iter_seek(iterator: &mut Iterator, key: bytes) {
        iterator.go(Move::Seek(key))
    }

    /// Moves to the last entry whose key is not greater.
    fn rocksdb_iter_seek_for_prev(iterator: &mut Iterator, key: bytes) {
        iterator.go(Move::SeekBack(key))
    }

    /// Moves to the next entry. Does nothing if the iterator is on no entry.
    fn rocksdb_iter_next(iterator: &mut Iterator) {
        iterator.go(Move::Next)
    }

    /// Moves to the previous entry. Does nothing if the iterator is on no entry.
    fn rocksdb_iter_prev(iterator: &mut Iterator) {
        iterator.go(Move::Prev)
    }

    /// The key under the iterator, until the next move. NULL if it is on no entry.
    fn rocksdb_iter_key(iterator: &Iterator, len: &mut MaybeUninit<usize>) -> Pointer<c_char> {
        lend(iterator.entry().map(|entry| entry.0), len)
    }

    /// The value under the iterator, until the next move. NULL if it is on no entry.
    fn rocksdb_iter_value(iterator: &Iterator, len: &mut MaybeUninit<usize>) -> Pointer<c_char> {
        lend(iterator.entry().map(|entry| entry.1), len)
    }

    /// There are no timestamps of the program.
    fn rocksdb_iter_timestamp(
        _iterator: &Iterator, len: &mut MaybeUninit<usize>
    ) -> Pointer<c_char> {
        lend(Some(b""), len)
    }

    /// The key under the iterator.
    fn rocksdb_iter_key_slice(iterator: &Iterator) -> Slice {
        Slice::of(iterator.entry().map(|entry| entry.0))
    }

    /// The value under the iterator.
    fn rocksdb_iter_value_slice(iterator: &Iterator) -> Slice {
        Slice::of(iterator.entry().map(|entry| entry.1))
    }

    /// There are no timestamps of the program.
    fn rocksdb_iter_timestamp_slice(_iterator: &Iterator) -> Slice {
        Slice::of(Some(b""))
    }

    /// The error of the last move.
    fn rocksdb_iter_get_error(iterator: &Iterator; err) {
        iterator.error.clone().map_or(Ok(()), Err)
    }

    /// Shows the present. The iterator is on no entry.
    fn rocksdb_iter_refresh(iterator: &mut Iterator; err) {
        iterator.refresh()
    }
}

//! The contents of all databases, by number.
//!
//! A content is added when a table has moved to another engine, and none is removed, so that a
//! reference to one stays valid without a lock. What an old content holds after its table is closed
//! is released with the server: memtables and caches, or the memory of a `mica` table.

use std::sync::OnceLock;

use parking_lot::Mutex;

use super::database::Content;

/// How many tables can move while the server runs: a slot costs about 200 bytes.
const MAX_MOVES: usize = 256;

/// Contents, of which more can be added.
pub(super) struct Contents {
    slots: Box<[OnceLock<Content>]>,
    /// The number of filled slots.
    len: Mutex<usize>,
}

impl Contents {
    pub(super) fn of(contents: Vec<Content>) -> Self {
        let len = contents.len();
        let empty = std::iter::repeat_with(OnceLock::new).take(MAX_MOVES);
        let slots = contents.into_iter().map(OnceLock::from).chain(empty).collect();
        Contents { slots, len: Mutex::new(len) }
    }

    /// The content with a number that [`add`](Self::add) has returned, or below the first length.
    #[inline]
    pub(super) fn get(&self, number: usize) -> &Content {
        self.slots[number].get().expect("numbers are those of filled slots")
    }

    /// Whether [`add`](Self::add) would succeed.
    pub(super) fn has_room(&self) -> bool {
        *self.len.lock() < self.slots.len()
    }

    /// Adds a content, and returns its number; `None` without room.
    pub(super) fn add(&self, content: Content) -> Option<usize> {
        let mut len = self.len.lock();
        self.slots.get(*len)?.set(content).ok()?;
        *len += 1;
        Some(*len - 1)
    }
}

//! A cursor for users: it lends keys and values instead of copying them.

use std::fmt;

use siltstone_engine::{Result, Timestamp};

/// A position among the entries of a table, as of the creation of the cursor. Each move lends the
/// entry that it reaches until the next move, so a scan copies nothing.
///
/// A new cursor is before the first and after the last entry: [`next`](Cursor::next) moves to the
/// first one, [`prev`](Cursor::prev) to the last one. A move that returns `None` has left the
/// range; further moves in any direction return `None` until the cursor is positioned again. On
/// unordered engines only [`first`](Cursor::first) and [`next`](Cursor::next) work.
///
/// ```
/// # use siltstone::{Db, DbOptions};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
/// # let table = db.table_or_create("t", "lsm", &Default::default())?;
/// table.put(b"a", b"one")?;
/// table.put(b"b", b"three")?;
/// let (mut bytes, mut cursor) = (0, table.cursor()?);
/// while let Some(entry) = cursor.next()? {
///     bytes += entry.value.len();
/// }
/// assert_eq!(bytes, 8);
/// assert_eq!(cursor.seek(b"aa")?.map(|entry| entry.key), Some(&b"b"[..]));
/// # Ok::<(), siltstone::Error>(())
/// ```
pub struct Cursor {
    inner: Box<dyn siltstone_engine::Cursor>,
    is_new: bool,
}

/// An entry that a [`Cursor`] lends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EntryRef<'c> {
    /// The key.
    pub key: &'c [u8],
    /// The value; empty after [`Cursor::skip_values`].
    pub value: &'c [u8],
    /// When the entry expires, in milliseconds since 1970.
    pub expires_at: Option<Timestamp>,
}

impl Cursor {
    pub(crate) fn new(inner: Box<dyn siltstone_engine::Cursor>) -> Self {
        Cursor { inner, is_new: true }
    }

    /// From the next move on, values may be empty where reading them would cost more.
    pub fn skip_values(&mut self) {
        self.inner.skip_values();
    }

    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Unsupported` for a move that needs an order on an unordered engine; `Expired` of a snapshot
    /// or transaction; I/O errors and corruption. The cursor can be positioned again.
    pub fn first(&mut self) -> Result<Option<EntryRef<'_>>> {
        self.go(|inner| inner.first())
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn last(&mut self) -> Result<Option<EntryRef<'_>>> {
        self.go(|inner| inner.last())
    }

    /// Moves to the first entry whose key is not less than `key`.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn seek(&mut self, key: &[u8]) -> Result<Option<EntryRef<'_>>> {
        self.go(|inner| inner.seek(key))
    }

    /// Moves to the last entry whose key is not greater than `key`.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn seek_back(&mut self, key: &[u8]) -> Result<Option<EntryRef<'_>>> {
        self.go(|inner| inner.seek_back(key))
    }

    /// Moves to the next entry; from a new cursor, to the first.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    pub fn next(&mut self) -> Result<Option<EntryRef<'_>>> {
        match (self.is_new, self.inner.valid()) {
            (true, _) => self.first(),
            (false, true) => self.go(|inner| inner.next()),
            (false, false) => Ok(None),
        }
    }

    /// Moves to the previous entry; from a new cursor, to the last.
    ///
    /// # Errors
    /// Those of [`first`](Self::first).
    pub fn prev(&mut self) -> Result<Option<EntryRef<'_>>> {
        match (self.is_new, self.inner.valid()) {
            (true, _) => self.last(),
            (false, true) => self.go(|inner| inner.prev()),
            (false, false) => Ok(None),
        }
    }

    /// The entry under the cursor.
    pub fn entry(&self) -> Option<EntryRef<'_>> {
        let inner = &self.inner;
        inner.valid().then(|| EntryRef {
            key: inner.key(),
            value: inner.value(),
            expires_at: inner.expires_at(),
        })
    }

    fn go(
        &mut self,
        step: impl FnOnce(&mut dyn siltstone_engine::Cursor) -> Result<bool>,
    ) -> Result<Option<EntryRef<'_>>> {
        self.is_new = false;
        step(self.inner.as_mut())?;
        Ok(self.entry())
    }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = self.entry().map(|entry| entry.key.escape_ascii().to_string());
        f.debug_struct("Cursor").field("key", &key).finish_non_exhaustive()
    }
}

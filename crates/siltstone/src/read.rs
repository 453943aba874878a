//! The reads that [`Table`](crate::Table), [`Snapshot`](crate::Snapshot) and
//! [`Transaction`](crate::Transaction) have in common.
//!
//! Each of them implements [`Reads`], four ways to reach the engine; the macro `read_methods` adds
//! the public methods over these, so that all three have the same ones under the same names.

use siltstone_engine::{Cursor, Engine, Entry, KeyRange, Result, Timestamp};

/// Access to entries: now, at a snapshot, or in a transaction.
pub(crate) trait Reads {
    /// The engine of the table.
    fn engine(&self) -> &dyn Engine;

    /// The entry of `key`.
    fn entry(&self, key: &[u8]) -> Result<Option<Entry>>;

    /// Lends the value of `key` to `visit`, and returns whether there is one.
    fn lend(&self, key: &[u8], visit: &mut dyn FnMut(&[u8], Option<Timestamp>)) -> Result<bool>;

    /// The entries of `keys`, which ascend.
    fn entries(&self, keys: &[&[u8]]) -> Result<Vec<Option<Entry>>>;

    /// A cursor over a range, or over everything in engine order.
    fn scan(&self, range: KeyRange) -> Result<Box<dyn Cursor>>;
}

/// The entries of `keys` in their order; the engine gets them sorted.
pub(crate) fn multi_get<R: Reads>(
    source: &R,
    keys: &[impl AsRef<[u8]>],
) -> Result<Vec<Option<Vec<u8>>>> {
    let mut order: Vec<usize> = (0..keys.len()).collect();
    order.sort_by(|&a, &b| keys[a].as_ref().cmp(keys[b].as_ref()));
    let sorted: Vec<&[u8]> = order.iter().map(|&index| keys[index].as_ref()).collect();
    let mut values = vec![None; keys.len()];
    for (index, entry) in order.into_iter().zip(source.entries(&sorted)?) {
        values[index] = entry.map(|entry| entry.value);
    }
    Ok(values)
}

/// The first entry by key, or the last.
pub(crate) fn end<R: Reads>(source: &R, last: bool) -> Result<Option<(Vec<u8>, Entry)>> {
    if !source.engine().capabilities().ordered {
        return Err(source
            .engine()
            .unsupported("the first and last key, as its keys have no order"));
    }
    let mut cursor = source.scan(KeyRange::all())?;
    let is_there = if last { cursor.last()? } else { cursor.first()? };
    Ok(is_there.then(|| (cursor.key().to_vec(), entry_at(cursor.as_ref()))))
}

/// The number of keys in a range.
pub(crate) fn count<R: Reads>(source: &R) -> Result<u64> {
    let mut cursor = source.scan(KeyRange::all())?;
    cursor.skip_values();
    let (mut count, mut is_there) = (0, cursor.first()?);
    while is_there {
        count += 1;
        is_there = cursor.next()?;
    }
    Ok(count)
}

/// Whether there is no key.
pub(crate) fn is_empty<R: Reads>(source: &R) -> Result<bool> {
    let mut cursor = source.scan(KeyRange::all())?;
    cursor.skip_values();
    Ok(!cursor.first()?)
}

/// A copy of the entry under a cursor.
pub(crate) fn entry_at(cursor: &dyn Cursor) -> Entry {
    Entry { value: cursor.value().to_vec(), expires_at: cursor.expires_at() }
}

/// Defines the reads of a type that implements [`Reads`].
macro_rules! read_methods {
    () => {
        /// The value of `key`.
        ///
        /// # Errors
        /// `TooLarge` for a key that is too long; `Io` and `Corruption` from a file that is read.
        pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
            Ok(Reads::entry(self, key)?.map(|entry| entry.value))
        }

        /// The value of `key` and when it expires.
        ///
        /// # Errors
        /// Those of [`get`](Self::get).
        pub fn get_entry(&self, key: &[u8]) -> Result<Option<Entry>> {
            Reads::entry(self, key)
        }

        /// Replaces the content of `value` by the value of `key`, and returns whether there is one;
        /// without one, `value` is empty. A loop over many keys reuses one buffer. `lsm` copies the
        /// bytes once, from its memtable or block cache.
        ///
        /// ```
        /// # use siltstone::{Db, DbOptions};
        /// # let scratch = tempfile::tempdir().unwrap();
        /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
        /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
        /// table.put(b"a", b"1")?;
        /// let mut value = Vec::new();
        /// assert!(table.get_into(b"a", &mut value)? && value == b"1");
        /// assert!(!table.get_into(b"b", &mut value)? && value.is_empty());
        /// # Ok::<(), siltstone::Error>(())
        /// ```
        ///
        /// # Errors
        /// Those of [`get`](Self::get); `value` is empty then.
        pub fn get_into(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
            value.clear();
            Reads::lend(self, key, &mut |bytes, _| value.extend_from_slice(bytes))
        }

        /// Lends the value of `key` to `read`, and returns what `read` returns; `None` if there is
        /// no value. `lsm` lends the bytes in its memtable or block cache without a copy. `read`
        /// must not use the store: locks of the engine may be held.
        ///
        /// ```
        /// # use siltstone::{Db, DbOptions};
        /// # let scratch = tempfile::tempdir().unwrap();
        /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
        /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
        /// table.put(b"page", &[7; 4096])?;
        /// let sum = table.get_with(b"page", |value| value.iter().map(|&byte| byte as u32).sum())?;
        /// assert_eq!(sum, Some(7u32 * 4096));
        /// # Ok::<(), siltstone::Error>(())
        /// ```
        ///
        /// # Errors
        /// Those of [`get`](Self::get).
        pub fn get_with<R>(&self, key: &[u8], read: impl FnOnce(&[u8]) -> R) -> Result<Option<R>> {
            let (mut read, mut result) = (Some(read), None);
            Reads::lend(self, key, &mut |value, _| result = read.take().map(|read| read(value)))?;
            Ok(result)
        }

        /// Whether `key` has a value. Costs a [`get`](Self::get) without the copy of the value.
        ///
        /// # Errors
        /// Those of [`get`](Self::get).
        pub fn contains_key(&self, key: &[u8]) -> Result<bool> {
            Reads::lend(self, key, &mut |_, _| ())
        }

        /// The values of `keys`, in their order. The keys are sorted once, and are read in
        /// ascending order. On `lsm`, and at a snapshot or in a transaction, all values are of one
        /// moment; on the other engines each value is of its own moment during the call.
        ///
        /// ```
        /// # use siltstone::{Db, DbOptions};
        /// # let scratch = tempfile::tempdir().unwrap();
        /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
        /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
        /// table.put(b"a", b"1")?;
        /// table.put(b"c", b"3")?;
        /// let values = table.multi_get(&["c", "b", "a"])?;
        /// assert_eq!(values, [Some(b"3".to_vec()), None, Some(b"1".to_vec())]);
        /// # Ok::<(), siltstone::Error>(())
        /// ```
        ///
        /// # Errors
        /// Those of [`get`](Self::get), for any of the keys.
        pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Result<Vec<Option<Vec<u8>>>> {
            crate::read::multi_get(self, keys)
        }

        /// Every entry, in engine order (by key, where the engine is ordered).
        ///
        /// # Errors
        /// I/O errors and corruption, here or from the iterator.
        pub fn iter(&self) -> Result<Iter> {
            Ok(Iter::new(Reads::scan(self, KeyRange::all())?))
        }

        /// The entries of a range of keys, in order. Ordered engines only.
        ///
        /// ```
        /// # use siltstone::{Db, DbOptions, Error};
        /// # let scratch = tempfile::tempdir().unwrap();
        /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
        /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
        /// for day in ["2026-01-30", "2026-01-31", "2026-02-01"] {
        ///     table.put(day.as_bytes(), b"")?;
        /// }
        /// let january = table.range("2026-01".."2026-02")?;
        /// assert_eq!(january.count(), 2);
        /// let newest_first = table.range("2026".."2027")?.rev();
        /// assert_eq!(newest_first.count(), 3);
        /// assert!(matches!(table.range("2027".."2026"), Err(Error::Invalid(_))));
        /// # Ok::<(), siltstone::Error>(())
        /// ```
        ///
        /// # Errors
        /// `Invalid` for a range that starts after its end, `Unsupported` by unordered engines;
        /// those of [`iter`](Self::iter).
        pub fn range<K: AsRef<[u8]>>(&self, range: impl std::ops::RangeBounds<K>) -> Result<Iter> {
            Ok(Iter::new(Reads::scan(self, KeyRange::new(range))?))
        }

        /// The entries whose keys start with `prefix`, in order. Ordered engines only.
        ///
        /// # Errors
        /// Those of [`range`](Self::range).
        pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Iter> {
            Ok(Iter::new(Reads::scan(self, KeyRange::prefix(prefix.as_ref()))?))
        }

        /// Every key, in the order of [`iter`](Self::iter). Values are not copied, and `lsm` does
        /// not read those that are still in its log.
        ///
        /// # Errors
        /// Those of [`iter`](Self::iter).
        pub fn keys(&self) -> Result<Keys> {
            Ok(Keys::new(Reads::scan(self, KeyRange::all())?))
        }

        /// The keys of a range, in order. Ordered engines only.
        ///
        /// # Errors
        /// Those of [`range`](Self::range).
        pub fn keys_range<K: AsRef<[u8]>>(
            &self,
            range: impl std::ops::RangeBounds<K>,
        ) -> Result<Keys> {
            Ok(Keys::new(Reads::scan(self, KeyRange::new(range))?))
        }

        /// The keys that start with `prefix`, in order. Ordered engines only.
        ///
        /// # Errors
        /// Those of [`range`](Self::range).
        pub fn keys_prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Keys> {
            Ok(Keys::new(Reads::scan(self, KeyRange::prefix(prefix.as_ref()))?))
        }

        /// A cursor over every entry, which lends keys and values instead of copying them.
        ///
        /// # Errors
        /// Those of [`iter`](Self::iter).
        pub fn cursor(&self) -> Result<Cursor> {
            Ok(Cursor::new(Reads::scan(self, KeyRange::all())?))
        }

        /// A cursor over a range of keys. Ordered engines only.
        ///
        /// # Errors
        /// Those of [`range`](Self::range).
        pub fn cursor_range<K: AsRef<[u8]>>(
            &self,
            range: impl std::ops::RangeBounds<K>,
        ) -> Result<Cursor> {
            Ok(Cursor::new(Reads::scan(self, KeyRange::new(range))?))
        }

        /// The entry with the least key. Ordered engines only.
        ///
        /// Cost: a seek, and a step over each deleted entry below the key that compaction has not
        /// removed yet.
        ///
        /// # Errors
        /// `Unsupported` by unordered engines; those of [`iter`](Self::iter).
        pub fn first(&self) -> Result<Option<(Vec<u8>, Entry)>> {
            crate::read::end(self, false)
        }

        /// The entry with the greatest key. Cost and errors as of [`first`](Self::first).
        ///
        /// # Errors
        /// Those of [`first`](Self::first).
        pub fn last(&self) -> Result<Option<(Vec<u8>, Entry)>> {
            crate::read::end(self, true)
        }

        /// The number of keys, counted by a scan of all keys: its cost grows with their number.
        ///
        /// # Errors
        /// Those of [`iter`](Self::iter).
        pub fn len(&self) -> Result<u64> {
            crate::read::count(self)
        }

        /// Whether there is no key. Costs as much as finding the first key.
        ///
        /// # Errors
        /// Those of [`iter`](Self::iter).
        pub fn is_empty(&self) -> Result<bool> {
            crate::read::is_empty(self)
        }
    };
}

pub(crate) use read_methods;

//! Rows of the first group that have a kind and a name, and that each node puts in force once it
//! has applied them: libraries of functions ([`super::function_rows`]) and users
//! ([`super::user_rows`]). The group's log and snapshots carry them to all nodes.
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe kind name
//! value := version:u8  content
// ANCHOR_END: layout
//! ```
//!
//! The version is 1. A row of a newer version has no content for this reader, and earlier programs
//! ignore kinds that they do not know.
//!
//! ```text
//!   applied rows ─▶ GroupTable::write ─▶ note: names ─▶ follow: reads these rows
//!   another table, by a snapshot ─────────────────────▶ follow: reads all rows
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use siltstone_engine::{Engine, KeyRange, Result, WriteBatch};

const VERSION: u8 = 1;

/// Contents by name; `None` for rows that are not there or of a newer version.
pub(crate) type Rows = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// The rows that the caller of [`NamedRows::follow`] has to read.
pub(crate) enum Unseen {
    Some(BTreeSet<Vec<u8>>),
    All,
}

/// The rows of one kind at a node.
pub(crate) struct NamedRows {
    /// Keys of the rows, before the name.
    prefix: &'static [u8],
    is_pending: AtomicBool,
    /// Names of applied rows that nobody has followed yet.
    names: Mutex<BTreeSet<Vec<u8>>>,
    /// The table of which all other rows were followed.
    seen: Mutex<Option<Weak<dyn Engine>>>,
}

/// The key of a row.
pub(crate) fn key(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    [prefix, name].concat()
}

/// Adds a row to the batch.
pub(crate) fn put(batch: &mut WriteBatch, prefix: &[u8], name: &[u8], content: &[u8]) {
    batch.put(&key(prefix, name), &[&[VERSION], content].concat());
}

/// Adds the removal of a row.
pub(crate) fn remove(batch: &mut WriteBatch, prefix: &[u8], name: &[u8]) {
    batch.delete(&key(prefix, name));
}

/// Reads the row with a name.
pub(crate) fn read(table: &dyn Engine, prefix: &[u8], name: &[u8]) -> Result<Option<Vec<u8>>> {
    Ok(table.get(&key(prefix, name))?.and_then(|entry| content(&entry.value)))
}

/// Reads all rows of a kind.
pub(crate) fn read_all(table: &dyn Engine, prefix: &[u8]) -> Result<Rows> {
    let mut rows = Rows::new();
    let mut cursor = table.range(KeyRange::prefix(prefix), None)?;
    let mut is_there = cursor.first()?;
    while is_there {
        rows.insert(cursor.key()[prefix.len()..].to_vec(), content(cursor.value()));
        is_there = cursor.next()?;
    }
    Ok(rows)
}

fn content(value: &[u8]) -> Option<Vec<u8>> {
    Some(value.strip_prefix(&[VERSION])?.to_vec())
}

impl NamedRows {
    pub(crate) fn new(prefix: &'static [u8]) -> Self {
        NamedRows {
            prefix,
            is_pending: AtomicBool::new(false),
            names: Mutex::default(),
            seen: Mutex::default(),
        }
    }

    /// Notes that a row with this key was applied, if it is one of these. Returns whether it is.
    pub(crate) fn note(&self, key: &[u8]) -> bool {
        let Some(name) = key.strip_prefix(self.prefix) else { return false };
        self.names.lock().insert(name.to_vec());
        self.is_pending.store(true, Ordering::Release);
        true
    }

    /// Calls `apply` with what has changed in a node's table since the last call: with all rows, if
    /// it is another table than before. If that fails, all rows are read again at the next call.
    /// One thread at a time. Cost if nothing has changed: an uncontended lock.
    ///
    /// # Errors
    /// Those of `apply`.
    pub(crate) fn follow(
        &self,
        table: &Arc<dyn Engine>,
        apply: impl FnOnce(Unseen) -> Result<()>,
    ) -> Result<()> {
        let mut seen = self.seen.lock();
        let is_same = |of: &Weak<dyn Engine>| std::ptr::addr_eq(of.as_ptr(), Arc::as_ptr(table));
        let is_same = seen.as_ref().is_some_and(is_same);
        // The flag first: what is noted meanwhile is read now or later.
        let is_pending = self.is_pending.swap(false, Ordering::AcqRel);
        let names =
            if is_pending { std::mem::take(&mut *self.names.lock()) } else { BTreeSet::new() };
        let unseen = match (is_same, names.is_empty()) {
            (true, true) => return Ok(()),
            (true, false) => Unseen::Some(names),
            (false, _) => Unseen::All,
        };
        let applied = apply(unseen);
        *seen = applied.is_ok().then(|| Arc::downgrade(table));
        applied
    }

    /// Reads rows.
    pub(crate) fn read(&self, table: &dyn Engine, which: Unseen) -> Result<Rows> {
        match which {
            Unseen::All => read_all(table, self.prefix),
            Unseen::Some(names) => {
                let row = |name: Vec<u8>| Ok((name.clone(), read(table, self.prefix, &name)?));
                names.into_iter().map(row).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use siltstone_engine::{Durability, Error};
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;

    const KIND: &[u8] = b"\xff\xc0\xfekind";

    fn table() -> Arc<dyn Engine> {
        let options = BTreeMap::new();
        siltstone::engines::open("lsm", Arc::new(Ram::new()), &Env::system(1), &options).unwrap()
    }

    fn rows<const N: usize>(expected: [(&str, Option<&str>); N]) -> Rows {
        let row = |(name, content): (&str, Option<&str>)| {
            (name.as_bytes().to_vec(), content.map(|content| content.as_bytes().to_vec()))
        };
        expected.map(row).into()
    }

    #[test]
    fn rows_round_trip_and_those_of_other_versions_have_no_content() {
        let (table, mut batch) = (table(), WriteBatch::new());
        put(&mut batch, KIND, b"b", b"two");
        put(&mut batch, KIND, b"a", b"");
        put(&mut batch, KIND, b"gone", b"x");
        remove(&mut batch, KIND, b"gone");
        batch.put(b"\xff\xc0\xfekindnewer", b"\x02x").put(b"\xff\xc0\xfekine", b"\x01x");
        table.write(&batch, Durability::Buffered).unwrap();
        let all = rows([("a", Some("")), ("b", Some("two")), ("newer", None)]);
        assert_eq!(read_all(table.as_ref(), KIND).unwrap(), all);
        let some = ["b", "gone"].map(|name| name.as_bytes().to_vec()).into();
        let found = NamedRows::new(KIND).read(table.as_ref(), Unseen::Some(some)).unwrap();
        assert_eq!(found, rows([("b", Some("two")), ("gone", None)]));
    }

    /// The names that are to be read; none: all.
    fn take(named: &NamedRows, table: &Arc<dyn Engine>) -> Option<Vec<String>> {
        let mut taken = None;
        let apply = |unseen| {
            taken = Some(match unseen {
                Unseen::All => Vec::new(),
                Unseen::Some(names) => {
                    names.into_iter().map(|name| String::from_utf8(name).unwrap()).collect()
                }
            });
            Ok(())
        };
        named.follow(table, apply).unwrap();
        taken
    }

    #[test]
    fn what_was_applied_is_read_once_and_all_of_another_table_or_after_a_failure() {
        let (one, two, named) = (table(), table(), NamedRows::new(KIND));
        assert_eq!(take(&named, &one), Some(vec![]));
        assert_eq!(take(&named, &one), None);
        let mut batch = WriteBatch::new();
        put(&mut batch, KIND, b"a", b"x");
        remove(&mut batch, KIND, b"b");
        assert!(batch.iter().all(|op| named.note(op.key())));
        assert!(!named.note(b"\xff\xc0\xfeother"));
        assert_eq!(take(&named, &one), Some(vec!["a".into(), "b".into()]));
        assert_eq!(take(&named, &one), None);
        assert_eq!(take(&named, &two), Some(vec![]));
        named.note(b"\xff\xc0\xfekinda");
        assert!(named.follow(&two, |_| Err(Error::Closed)).is_err());
        assert_eq!(take(&named, &two), Some(vec![]));
    }
}

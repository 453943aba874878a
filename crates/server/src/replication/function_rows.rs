//! The libraries of functions of a replicated table, in rows of the first group: so its log and
//! snapshots carry them to all nodes.
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "function" name     of the library, in lower case
//! value := version:u8  code
// ANCHOR_END: layout
//! ```
//!
//! The version is 1. A reader ignores rows of a newer version; earlier programs ignore all of them.
//!
//! The leader of the group writes rows as commands write keys. Each node notes which rows it has
//! applied ([`FunctionChanges`]), and its worker then puts the libraries in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use siltstone_engine::{Engine, KeyRange, Result, WriteBatch};

/// Keys of the rows, before the name.
pub(crate) const FUNCTION_PREFIX: &[u8] = b"\xff\xc0\xfefunction";
const VERSION: u8 = 1;

/// Adds a row to the batch.
pub(crate) fn put(batch: &mut WriteBatch, name: &str, code: &[u8]) {
    batch.put(&key(name), &[&[VERSION], code].concat());
}

/// Adds the removal of a row.
pub(crate) fn remove(batch: &mut WriteBatch, name: &str) {
    batch.delete(&key(name));
}

/// The code of some libraries, `None` for those that are not there.
pub(crate) fn read(
    table: &dyn Engine,
    names: BTreeSet<String>,
) -> Result<BTreeMap<String, Option<Vec<u8>>>> {
    let row = |name: String| {
        let entry = table.get(&key(&name))?;
        Ok((name, entry.and_then(|entry| code(&entry.value))))
    };
    names.into_iter().map(row).collect()
}

/// The code of all libraries.
pub(crate) fn read_all(table: &dyn Engine) -> Result<BTreeMap<String, Option<Vec<u8>>>> {
    let mut rows = BTreeMap::new();
    let mut cursor = table.range(KeyRange::prefix(FUNCTION_PREFIX), None)?;
    let mut is_there = cursor.first()?;
    while is_there {
        if let Some(name) = name_of(cursor.key()) {
            rows.insert(name, code(cursor.value()));
        }
        is_there = cursor.next()?;
    }
    Ok(rows)
}

fn key(name: &str) -> Vec<u8> {
    [FUNCTION_PREFIX, name.as_bytes()].concat()
}

fn name_of(key: &[u8]) -> Option<String> {
    String::from_utf8(key.strip_prefix(FUNCTION_PREFIX)?.to_vec()).ok()
}

fn code(value: &[u8]) -> Option<Vec<u8>> {
    Some(value.strip_prefix(&[VERSION])?.to_vec())
}

/// The rows that the worker of a node has not seen yet.
#[derive(Default)]
pub(crate) struct FunctionChanges {
    is_pending: AtomicBool,
    names: Mutex<BTreeSet<String>>,
    /// The table of which the worker has seen all other rows.
    seen: Mutex<Option<Weak<dyn Engine>>>,
}

/// What the worker has to read.
pub(crate) enum Unseen {
    Nothing,
    Some(BTreeSet<String>),
    All,
}

impl FunctionChanges {
    /// Notes that a row with this key was applied.
    pub(crate) fn note(&self, key: &[u8]) {
        if let Some(name) = name_of(key) {
            self.names.lock().insert(name);
            self.is_pending.store(true, Ordering::Release);
        }
    }

    /// Has the worker read all rows.
    pub(crate) fn forget(&self) {
        *self.seen.lock() = None;
    }

    /// Takes what the worker has to read of a node's table: all of it, if it is another one than
    /// before. Cost if there is nothing: an uncontended lock.
    pub(crate) fn take(&self, table: &Arc<dyn Engine>) -> Unseen {
        let mut seen = self.seen.lock();
        let is_same = |of: &Weak<dyn Engine>| std::ptr::addr_eq(of.as_ptr(), Arc::as_ptr(table));
        let is_same = seen.as_ref().is_some_and(is_same);
        // The flag first: what is noted meanwhile is read now or later.
        let is_pending = self.is_pending.swap(false, Ordering::AcqRel);
        let names =
            if is_pending { std::mem::take(&mut *self.names.lock()) } else { BTreeSet::new() };
        match (is_same, names.is_empty()) {
            (true, true) => Unseen::Nothing,
            (true, false) => Unseen::Some(names),
            (false, _) => {
                *seen = Some(Arc::downgrade(table));
                Unseen::All
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use siltstone_engine::Durability;
    use siltstone_runtime::Env;
    use siltstone_vfs::Ram;

    use super::*;

    fn table() -> Arc<dyn Engine> {
        let options = BTreeMap::new();
        siltstone::engines::open("lsm", Arc::new(Ram::new()), &Env::system(1), &options).unwrap()
    }

    #[test]
    fn rows_round_trip_and_those_of_other_versions_are_ignored() {
        let (table, mut batch) = (table(), WriteBatch::new());
        put(&mut batch, "b", b"two");
        put(&mut batch, "a", b"");
        put(&mut batch, "gone", b"x");
        remove(&mut batch, "gone");
        batch.put(b"\xff\xc0\xfefunctionnewer", b"\x02x").put(b"\xff\xc0\xfefunctioo", b"\x01x");
        table.write(&batch, Durability::Buffered).unwrap();
        let all = [("a", Some("")), ("b", Some("two")), ("newer", None)]
            .map(|(name, code)| (name.to_owned(), code.map(|code| code.as_bytes().to_vec())));
        assert_eq!(read_all(table.as_ref()).unwrap(), all.into());
        let some = ["b", "gone"].map(str::to_owned).into();
        let found = [("b", Some(b"two".to_vec())), ("gone", None)]
            .map(|(name, code)| (name.to_owned(), code));
        assert_eq!(read(table.as_ref(), some).unwrap(), found.into());
    }

    #[test]
    fn worker_reads_what_was_applied_and_all_of_another_table() {
        let (one, two, changes) = (table(), table(), FunctionChanges::default());
        assert!(matches!(changes.take(&one), Unseen::All));
        assert!(matches!(changes.take(&one), Unseen::Nothing));
        let mut batch = WriteBatch::new();
        put(&mut batch, "a", b"x");
        remove(&mut batch, "b");
        batch.iter().for_each(|op| changes.note(op.key()));
        let Unseen::Some(names) = changes.take(&one) else { panic!("nothing is to be read") };
        assert_eq!(names, ["a", "b"].map(str::to_owned).into());
        assert!(matches!(changes.take(&one), Unseen::Nothing));
        assert!(matches!(changes.take(&two), Unseen::All));
        changes.forget();
        assert!(matches!(changes.take(&two), Unseen::All));
    }
}

//! The limits of the contract: valid and invalid inputs at each limit, and that a refused call
//! changes nothing.
//!
//! Checked: limits on keys and values; a batch with one invalid operation is refused
//! atomically; a closed engine returns `Closed`; another table's snapshot is refused; an operation
//! that the engine lacks returns [`Error::Unsupported`] with the engine and the operation; an
//! inverted range is refused; `multi_get` and `lookup` return what `get` does.

use std::ops::Bound;
use std::sync::Arc;

use siltstone_engine::{
    Durability, Engine, Entry, Error, KeyRange, MAX_KEY_BYTES, ManualClock, Result, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::history::EPOCH;
use crate::{CheckError, CheckResult, EngineUnderTest, Scale, session};

/// Value limits above this are not tested, for lack of memory.
const MAX_TESTED_VALUE_BYTES: usize = 64 << 20;

/// Checks the limits with every option set.
///
/// # Errors
/// The limit that is not kept.
pub fn limits(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    for option_set in scale.option_sets(tested.option_set_count()) {
        let trial = Trial { tested, option_set };
        let checks: [(&str, Check<'_>); 7] = [
            ("keys", Trial::keys),
            ("values", Trial::values),
            ("invalid batches", Trial::invalid_batches),
            ("close", Trial::close),
            ("snapshots", Trial::snapshots),
            ("cursors", Trial::cursors),
            ("point reads", Trial::point_reads),
        ];
        for (name, check) in checks {
            crate::histories::catch_panics(|| check(&trial)).map_err(|what| {
                format!("{} option set {option_set}, {name}: {what}", tested.name())
            })?;
        }
    }
    Ok("all limits are kept".to_owned())
}

type Check<'t> = fn(&Trial<'t>) -> Result<(), CheckError>;

struct Trial<'s> {
    tested: &'s dyn EngineUnderTest,
    option_set: u32,
}

impl Trial<'_> {
    fn open_on(&self, vfs: Arc<dyn Vfs>) -> Result<Box<dyn Engine>> {
        let env = Env::replayable(Arc::new(ManualClock::at(EPOCH)), 0);
        self.tested.open(vfs, env, self.option_set)
    }

    fn open(&self) -> Result<Box<dyn Engine>> {
        self.open_on(Arc::new(Ram::new()))
    }

    fn keys(&self) -> Result<(), CheckError> {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let engine = self.open_on(vfs.clone())?;
        let (max, over) = (vec![7; MAX_KEY_BYTES], vec![7; MAX_KEY_BYTES + 1]);
        put(engine.as_ref(), b"", b"")?;
        put(engine.as_ref(), &[0], b"zero")?;
        put(engine.as_ref(), &max, b"large")?;
        let is_too_large = |error: &Error| {
            matches!(error, Error::TooLarge { what: "key", size, limit }
                if (*size, *limit) == (MAX_KEY_BYTES as u64 + 1, MAX_KEY_BYTES as u64))
        };
        holds(engine.get(b"")?.is_some_and(|e| e.value.is_empty()), "the empty key is stored")?;
        refused("a write to a long key", put(engine.as_ref(), &over, b"v"), is_too_large)?;
        refused("a get of a long key", engine.get(&over), is_too_large)?;
        engine.flush()?;
        let found = match self.tested.capabilities().durable {
            true => {
                engine.close()?;
                session::contents(self.open_on(vfs)?.as_ref())?
            }
            false => session::contents(engine.as_ref())?,
        };
        let keys: Vec<_> = found.keys().map(Vec::len).collect();
        holds(keys == [0, 1, MAX_KEY_BYTES], "the shortest and the longest key are stored")
    }

    fn values(&self) -> Result<(), CheckError> {
        let engine = self.open()?;
        let limit = self.tested.capabilities().max_value_bytes;
        holds(engine.capabilities() == self.tested.capabilities(), "capabilities are as declared")?;
        // An engine with a limit beyond the test's memory gets a large value instead.
        let large = vec![9; limit.min(1 << 20)];
        put(engine.as_ref(), b"k", &large)?;
        engine.flush()?;
        holds(engine.get(b"k")?.is_some_and(|e| e.value == large), "a large value is stored")?;
        if limit < MAX_TESTED_VALUE_BYTES {
            let over = put(engine.as_ref(), b"k", &vec![8; limit + 1]);
            refused("a value over the limit", over, |error| {
                matches!(error, Error::TooLarge { what: "value", size, limit: reported }
                    if (*size, *reported) == (limit as u64 + 1, limit as u64))
            })?;
            holds(engine.get(b"k")?.is_some_and(|e| e.value == large), "the old value stays")?;
        }
        Ok(())
    }

    fn invalid_batches(&self) -> Result<(), CheckError> {
        let engine = self.open()?;
        put(engine.as_ref(), b"a", b"1")?;
        let long = vec![1; MAX_KEY_BYTES + 1];
        let mut batch = WriteBatch::new();
        batch.put(b"a", b"2").put(&long, b"v").delete(b"a").put(b"", b"3");
        let written = engine.write(&batch, Durability::Synced);
        refused("a batch with one invalid key", written, |_| true)?;
        let found = session::contents(engine.as_ref())?;
        let same = found.len() == 1 && found.get(&b"a"[..]).is_some_and(|e| e.value == b"1");
        holds(same, "a refused batch changes nothing")?;
        engine.write(&WriteBatch::new(), Durability::Buffered)?;
        engine.write(&WriteBatch::new(), Durability::Synced)?;
        holds(session::contents(engine.as_ref())?.len() == 1, "an empty batch changes nothing")
    }

    fn close(&self) -> Result<(), CheckError> {
        let engine = self.open()?;
        put(engine.as_ref(), b"a", b"1")?;
        engine.close()?;
        let closed = |error: &Error| matches!(error, Error::Closed);
        refused("get after close", engine.get(b"a"), closed)?;
        refused("multi_get after close", engine.multi_get(&[b"a"], None), closed)?;
        refused("lookup after close", engine.lookup(b"a", None, &mut |_, _| ()), closed)?;
        refused("expiry after close", engine.expiry(b"a", None), closed)?;
        refused("write after close", put(engine.as_ref(), b"a", b"2"), closed)?;
        refused("sync after close", engine.sync(), closed)?;
        refused("flush after close", engine.flush(), closed)?;
        refused("maintain after close", engine.maintain(), closed)?;
        refused("iter after close", engine.iter().map(drop), closed)?;
        refused("verify after close", engine.verify(&mut |_, _| ()).map(drop), closed)?;
        let copy = engine.checkpoint(&mut crate::sink::VfsSink::new(Arc::new(Ram::new())));
        refused("checkpoint after close", copy, closed)?;
        if self.tested.capabilities().versioned {
            refused("snapshot after close", engine.snapshot(), closed)?;
        }
        // A second close is valid; so is dropping a closed engine.
        Ok(engine.close()?)
    }

    fn snapshots(&self) -> Result<(), CheckError> {
        let (engine, other) = (self.open()?, self.open()?);
        if !self.tested.capabilities().versioned {
            return self.unsupported("snapshots", engine.snapshot().map(drop));
        }
        put(engine.as_ref(), b"a", b"1")?;
        put(other.as_ref(), b"a", b"2")?;
        let (own, other_table) = (engine.snapshot()?, other.snapshot()?);
        let invalid = |error: &Error| matches!(error, Error::Invalid(_));
        refused("another table's snapshot", engine.get_at(b"a", &other_table), invalid)?;
        if self.tested.capabilities().ordered {
            let scan = engine.range(KeyRange::all(), Some(&other_table)).map(drop);
            refused("another table's snapshot", scan, invalid)?;
        }
        put(engine.as_ref(), b"a", b"3")?;
        let seen = engine.get_at(b"a", &own.clone())?;
        holds(seen.is_some_and(|e| e.value == b"1"), "a snapshot does not change")
    }

    fn cursors(&self) -> Result<(), CheckError> {
        let engine = self.open()?;
        let invalid = |error: &Error| matches!(error, Error::Invalid(_));
        let mut cursor = engine.iter()?;
        holds(!cursor.valid(), "a new cursor is not valid")?;
        holds(!cursor.first()? && !cursor.valid(), "an empty table has no first entry")?;
        refused("next without a position", cursor.next(), invalid)?;
        put(engine.as_ref(), b"a", b"1")?;
        holds(!cursor.first()?, "a cursor does not show writes after its creation")?;
        if !self.tested.capabilities().ordered {
            let mut cursor = engine.iter()?;
            self.unsupported("last", cursor.last().map(drop))?;
            self.unsupported("seek", cursor.seek(b"a").map(drop))?;
            self.unsupported("seek_back", cursor.seek_back(b"a").map(drop))?;
            self.unsupported("range", engine.range(KeyRange::all(), None).map(drop))?;
            return self.inverted_ranges(engine.as_ref());
        }
        let mut cursor = engine.range(KeyRange::all(), None)?;
        refused("prev without a position", cursor.prev(), invalid)?;
        holds(cursor.first()? && !cursor.next()? && !cursor.valid(), "one entry, then the end")?;
        refused("prev after the end", cursor.prev(), invalid)?;
        self.inverted_ranges(engine.as_ref())
    }

    /// Inverted ranges are refused with both bounds named, also at snapshots and by unordered
    /// engines; a range from a key to itself is valid.
    fn inverted_ranges(&self, engine: &dyn Engine) -> Result<(), CheckError> {
        let key = |name: &[u8]| name.to_vec();
        let names_both = |error: &Error| {
            let text = error.to_string();
            matches!(error, Error::Invalid(_)) && text.contains("'yy'") && text.contains("'xx'")
        };
        let is_versioned = self.tested.capabilities().versioned;
        let point = is_versioned.then(|| engine.snapshot()).transpose()?;
        for at in [None, point.as_ref()] {
            for inverted in [
                KeyRange::new(key(b"yy")..key(b"xx")),
                KeyRange::new(key(b"yy")..=key(b"xx")),
                KeyRange { start: Bound::Excluded(key(b"yy")), end: Bound::Included(key(b"xx")) },
                KeyRange { start: Bound::Excluded(key(b"yy")), end: Bound::Excluded(key(b"xx")) },
            ] {
                let scan = engine.range(inverted, at).map(drop);
                refused("an inverted range", scan, names_both)?;
            }
            if !self.tested.capabilities().ordered {
                continue;
            }
            for end in [Bound::Included(key(b"a")), Bound::Excluded(key(b"a"))] {
                let range = KeyRange { start: Bound::Excluded(key(b"a")), end };
                let mut cursor = engine.range(range, at)?;
                holds(!cursor.first()? && !cursor.last()?, "a range after its only key is empty")?;
            }
        }
        Ok(())
    }

    /// Point reads in all forms return what `get` does, each key for itself and in any order.
    fn point_reads(&self) -> Result<(), CheckError> {
        let engine = self.open()?;
        put(engine.as_ref(), b"flushed", b"1")?;
        put(engine.as_ref(), b"deleted", b"2")?;
        engine.flush()?;
        let mut batch = WriteBatch::new();
        batch.delete(b"deleted").put_until(b"expired", b"3", EPOCH).put(b"empty", b"");
        batch.put_until(b"expires", b"4", EPOCH + 1);
        engine.write(&batch, Durability::Buffered)?;
        let is_versioned = self.tested.capabilities().versioned;
        let point = is_versioned.then(|| engine.snapshot()).transpose()?;
        put(engine.as_ref(), b"flushed", b"newer")?;
        let keys: [&[u8]; 7] =
            [b"flushed", b"none", b"expires", b"flushed", b"deleted", b"empty", b"expired"];
        for at in [None, point.as_ref()] {
            let entries = engine.multi_get(&keys, at)?;
            holds(entries.len() == keys.len(), "multi_get returns a result per key")?;
            for (key, entry) in keys.iter().zip(entries) {
                let got = match at {
                    Some(at) => engine.get_at(key, at)?,
                    None => engine.get(key)?,
                };
                holds(entry == got, "multi_get returns what get does")?;
                let mut lent = None;
                let is_there = engine.lookup(key, at, &mut |value, expires_at| {
                    lent = Some(Entry { value: value.to_vec(), expires_at });
                })?;
                holds(lent == got, "lookup lends what get returns")?;
                holds(is_there == got.is_some(), "lookup says whether there is a value")?;
                let expiry = got.map(|entry| entry.expires_at);
                holds(engine.expiry(key, at)? == expiry, "expiry is that of what get returns")?;
            }
        }
        let found = engine.multi_get(&keys, None)?.iter().flatten().count();
        holds(found == 4, "multi_get finds the live keys")?;
        holds(engine.multi_get(&[], None)?.is_empty(), "multi_get of no keys returns nothing")?;
        let mut visited = 0;
        engine.multi_lookup(&keys, None, &mut |_| {
            visited += 1;
            visited < 3
        })?;
        holds(visited == 3, "multi_lookup ends once the visitor is done")?;
        let too_long = vec![b'k'; MAX_KEY_BYTES + 1];
        let is_too_large = |error: &Error| matches!(error, Error::TooLarge { .. });
        let many = engine.multi_get(&[b"a", &too_long], None);
        refused("multi_get of a key that is too long", many, is_too_large)?;
        let one = engine.lookup(&too_long, None, &mut |_, _| ());
        refused("lookup of a key that is too long", one, is_too_large)?;
        refused("expiry of a key that is too long", engine.expiry(&too_long, None), is_too_large)
    }

    fn unsupported(&self, what: &str, result: Result<()>) -> Result<(), CheckError> {
        let name = self.tested.name();
        let is_typed = |error: &Error| {
            matches!(error, Error::Unsupported { engine, operation }
                if *engine == name && !operation.is_empty())
        };
        refused(what, result, is_typed)
    }
}

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) -> Result<()> {
    let mut batch = WriteBatch::new();
    batch.put(key, value);
    engine.write(&batch, Durability::Buffered)
}

fn refused<T>(
    what: &str,
    result: Result<T>,
    is_expected: impl FnOnce(&Error) -> bool,
) -> Result<(), CheckError> {
    match result {
        Err(error) if is_expected(&error) => Ok(()),
        Err(error) => {
            Err(CheckError::Mismatch(format!("{what} is refused with the wrong error: {error}")))
        }
        Ok(_) => Err(CheckError::Mismatch(format!("{what} is not refused"))),
    }
}

fn holds(holds: bool, what: &str) -> Result<(), CheckError> {
    if holds { Ok(()) } else { Err(CheckError::Mismatch(format!("not true: {what}"))) }
}

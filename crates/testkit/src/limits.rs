//! The edges of the contract: what is just allowed, what is refused, and that a refusal changes
//! nothing.
//!
//! Promise checked: limits on keys and values; a batch with one bad operation is refused whole;
//! a closed engine says so; another table's snapshot is refused; what an engine lacks is
//! [`Error::Unsupported`] and names both engine and operation.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{
    Durability, Engine, Error, KeyRange, MAX_KEY_BYTES, ManualClock, Result, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::{Ram, Vfs};

use crate::history::EPOCH;
use crate::{Scale, Subject, Verdict, Wrong, session};

/// Values larger than this are not made in tests: the limit above it is not tested.
const LARGEST_TESTED: usize = 64 << 20;

/// Checks the edges of every variant.
///
/// # Errors
/// Which edge does not hold.
pub fn limits(subject: &dyn Subject, scale: &Scale) -> Verdict {
    for variant in scale.variants(subject.variants()) {
        let trial = Trial { subject, variant };
        let checks: [(&str, Check<'_>); 6] = [
            ("keys", Trial::keys),
            ("values", Trial::values),
            ("refused batches", Trial::refused_batches),
            ("closing", Trial::closing),
            ("snapshots", Trial::snapshots),
            ("cursors", Trial::cursors),
        ];
        for (name, check) in checks {
            crate::histories::guarded(|| check(&trial))
                .map_err(|what| format!("{} variant {variant}, {name}: {what}", subject.name()))?;
        }
    }
    Ok("all edges hold".to_owned())
}

type Check<'t> = fn(&Trial<'t>) -> Result<(), Wrong>;

struct Trial<'s> {
    subject: &'s dyn Subject,
    variant: u32,
}

impl Trial<'_> {
    fn open_on(&self, vfs: Arc<dyn Vfs>) -> Result<Box<dyn Engine>> {
        let env = Env::replayable(Arc::new(ManualClock::at(EPOCH)), 0);
        self.subject.open(vfs, env, self.variant)
    }

    fn open(&self) -> Result<Box<dyn Engine>> {
        self.open_on(Arc::new(Ram::new()))
    }

    fn keys(&self) -> Result<(), Wrong> {
        let vfs: Arc<dyn Vfs> = Arc::new(Ram::new());
        let engine = self.open_on(vfs.clone())?;
        let (largest, over) = (vec![7; MAX_KEY_BYTES], vec![7; MAX_KEY_BYTES + 1]);
        put(engine.as_ref(), &[0], b"")?;
        put(engine.as_ref(), &largest, b"large")?;
        let is_too_large = |error: &Error| matches!(error, Error::TooLarge { what: "key", .. });
        let is_empty = |error: &Error| matches!(error, Error::EmptyKey);
        refused("a write to an empty key", put(engine.as_ref(), b"", b"v"), is_empty)?;
        refused("a get of an empty key", engine.get(b""), is_empty)?;
        refused("a write to a long key", put(engine.as_ref(), &over, b"v"), is_too_large)?;
        refused("a get of a long key", engine.get(&over), is_too_large)?;
        engine.flush()?;
        let found = match self.subject.capabilities().durable {
            true => {
                engine.close()?;
                session::contents(self.open_on(vfs)?.as_ref())?
            }
            false => session::contents(engine.as_ref())?,
        };
        let keys: Vec<_> = found.keys().map(Vec::len).collect();
        holds(keys == [1, MAX_KEY_BYTES], "the shortest and the longest key are kept")
    }

    fn values(&self) -> Result<(), Wrong> {
        let engine = self.open()?;
        let limit = self.subject.capabilities().max_value_bytes;
        holds(engine.capabilities() == self.subject.capabilities(), "capabilities are as told")?;
        // An engine whose limit is out of a test's reach is asked for something large instead.
        let large = vec![9; limit.min(1 << 20)];
        put(engine.as_ref(), b"k", &large)?;
        engine.flush()?;
        holds(engine.get(b"k")?.is_some_and(|e| e.value == large), "a large value is kept")?;
        if limit < LARGEST_TESTED {
            let over = put(engine.as_ref(), b"k", &vec![8; limit + 1]);
            refused("a value over the limit", over, |error| {
                matches!(error, Error::TooLarge { what: "value", size, limit: told }
                    if (*size, *told) == (limit as u64 + 1, limit as u64))
            })?;
            holds(engine.get(b"k")?.is_some_and(|e| e.value == large), "the old value stays")?;
        }
        Ok(())
    }

    fn refused_batches(&self) -> Result<(), Wrong> {
        let engine = self.open()?;
        put(engine.as_ref(), b"a", b"1")?;
        let long = vec![1; MAX_KEY_BYTES + 1];
        for bad in [&b""[..], &long] {
            let mut batch = WriteBatch::new();
            batch.put(b"a", b"2").put(bad, b"v").delete(b"a").put(b"b", b"3");
            let written = engine.write(&batch, Durability::Synced);
            refused("a batch with one bad key", written, |_| true)?;
            let found = session::contents(engine.as_ref())?;
            let same = found.len() == 1 && found.get(&b"a"[..]).is_some_and(|e| e.value == b"1");
            holds(same, "a refused batch changes nothing")?;
        }
        engine.write(&WriteBatch::new(), Durability::Buffered)?;
        engine.write(&WriteBatch::new(), Durability::Synced)?;
        holds(session::contents(engine.as_ref())?.len() == 1, "an empty batch changes nothing")
    }

    fn closing(&self) -> Result<(), Wrong> {
        let engine = self.open()?;
        put(engine.as_ref(), b"a", b"1")?;
        engine.close()?;
        let closed = |error: &Error| matches!(error, Error::Closed);
        refused("get after close", engine.get(b"a"), closed)?;
        refused("write after close", put(engine.as_ref(), b"a", b"2"), closed)?;
        refused("sync after close", engine.sync(), closed)?;
        refused("flush after close", engine.flush(), closed)?;
        refused("maintain after close", engine.maintain(), closed)?;
        refused("iter after close", engine.iter().map(drop), closed)?;
        refused("verify after close", engine.verify(&mut |_, _| ()).map(drop), closed)?;
        let copy = engine.checkpoint(&mut crate::sink::MediaSink::new(Arc::new(Ram::new())));
        refused("checkpoint after close", copy, closed)?;
        if self.subject.capabilities().versioned {
            refused("snapshot after close", engine.snapshot(), closed)?;
        }
        // Closing twice is no mistake; nor is dropping what was closed.
        Ok(engine.close()?)
    }

    fn snapshots(&self) -> Result<(), Wrong> {
        let (engine, other) = (self.open()?, self.open()?);
        if !self.subject.capabilities().versioned {
            return self.unsupported("snapshots", engine.snapshot().map(drop));
        }
        put(engine.as_ref(), b"a", b"1")?;
        put(other.as_ref(), b"a", b"2")?;
        let (own, foreign) = (engine.snapshot()?, other.snapshot()?);
        let invalid = |error: &Error| matches!(error, Error::Invalid(_));
        refused("another table's snapshot", engine.get_at(b"a", &foreign), invalid)?;
        if self.subject.capabilities().ordered {
            let walk = engine.range(KeyRange::all(), Some(&foreign)).map(drop);
            refused("another table's snapshot", walk, invalid)?;
        }
        put(engine.as_ref(), b"a", b"3")?;
        let seen = engine.get_at(b"a", &own.clone())?;
        holds(seen.is_some_and(|e| e.value == b"1"), "a snapshot stays as it was")
    }

    fn cursors(&self) -> Result<(), Wrong> {
        let engine = self.open()?;
        let invalid = |error: &Error| matches!(error, Error::Invalid(_));
        let mut cursor = engine.iter()?;
        holds(!cursor.valid(), "a new cursor stands nowhere")?;
        holds(!cursor.first()? && !cursor.valid(), "an empty table has no first entry")?;
        refused("next from nowhere", cursor.next(), invalid)?;
        put(engine.as_ref(), b"a", b"1")?;
        holds(!cursor.first()?, "a cursor does not see what was written after it was made")?;
        if !self.subject.capabilities().ordered {
            let mut cursor = engine.iter()?;
            self.unsupported("last", cursor.last().map(drop))?;
            self.unsupported("seek", cursor.seek(b"a").map(drop))?;
            self.unsupported("seek_back", cursor.seek_back(b"a").map(drop))?;
            return self.unsupported("range", engine.range(KeyRange::all(), None).map(drop));
        }
        let mut cursor = engine.range(KeyRange::all(), None)?;
        refused("prev from nowhere", cursor.prev(), invalid)?;
        holds(cursor.first()? && !cursor.next()? && !cursor.valid(), "one entry, then the end")?;
        refused("prev from behind the end", cursor.prev(), invalid)?;
        let none = KeyRange::new(&b"b"[..]..&b"a"[..]);
        // An inverted range holds nothing, or is refused.
        match engine.range(none, None) {
            Err(error) => holds(invalid(&error), "an inverted range is Invalid"),
            Ok(mut cursor) => holds(!cursor.first()? && !cursor.last()?, "it holds nothing"),
        }
    }

    fn unsupported(&self, what: &str, result: Result<()>) -> Result<(), Wrong> {
        let name = self.subject.name();
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
    rightly: impl FnOnce(&Error) -> bool,
) -> Result<(), Wrong> {
    match result {
        Err(error) if rightly(&error) => Ok(()),
        Err(error) => Err(Wrong::Answer(format!("{what} is refused in the wrong words: {error}"))),
        Ok(_) => Err(Wrong::Answer(format!("{what} is not refused"))),
    }
}

fn holds(holds: bool, what: &str) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(Wrong::Answer(format!("this does not hold: {what}"))) }
}

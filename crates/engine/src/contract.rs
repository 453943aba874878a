//! What an engine promises.
//!
//! One [`Engine`] is one table's worth of keys on one medium. The store above gives it a
//! directory of its own, so two engines never share a file. The promises, in short:
//!
//! * **Order of truth.** A write that returned under [`Durability::Synced`] survives a power cut;
//!   one that returned under [`Durability::Buffered`] survives the death of the process. What is
//!   recovered is a prefix of the write order, and a batch is wholly there or wholly not.
//! * **Corruption.** Every byte read is covered by a checksum. A mismatch is
//!   [`Error::Corruption`], never a wrong answer or a missing key.
//! * **Bad input** is refused whole, before anything has changed.
//! * **After a failed write or sync** the outcome of that write is unknown until the engine is
//!   opened anew; the engine refuses further writes
//!   ([`Error::ReadOnly`]) and reads on. Disk full is gentler: nothing
//!   was written, and writes work again when there is space.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;

use crate::{Cursor, Entry, Error, Result, Stats, Timestamp, WriteBatch};

/// A storage engine: one ordered or unordered map from keys to entries.
pub trait Engine: Send + Sync {
    /// The engine's name as it stands on the command line, e.g. `lsm`.
    fn name(&self) -> &'static str;

    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// The newest entry of `key`; `None` if it is missing, deleted or expired.
    fn get(&self, key: &[u8]) -> Result<Option<Entry>>;

    /// The entry of `key` as of `at`. Versioned engines only.
    fn get_at(&self, _key: &[u8], _at: &ReadPoint) -> Result<Option<Entry>> {
        Err(self.unsupported("reads at a snapshot"))
    }

    /// Applies `batch` whole. An empty batch does nothing (with [`Durability::Synced`] it makes
    /// earlier writes durable, like [`sync`](Engine::sync)).
    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()>;

    /// Removes every key, durably. What is written before it is removed; what is written after it
    /// has returned stays; a write beside it comes before or after. Snapshots that were taken
    /// before still show what was there.
    ///
    /// An engine that says nothing else walks over the keys and removes them in batches: each is
    /// applied whole, a write beside it may come between two of them, and a power cut or a fault
    /// may leave some keys. One with a way of its own removes all keys at one moment or none, at a
    /// cost that hardly grows with their number, and says so.
    fn clear(&self) -> Result<()> {
        crate::clear::delete_all(self)
    }

    /// Makes every write that has returned durable against a power cut.
    fn sync(&self) -> Result<()>;

    /// All entries in engine order, as of now.
    fn iter(&self) -> Result<Box<dyn Cursor>>;

    /// The entries of `range` in key order, as of `at` or now. Ordered engines only.
    fn range(&self, _range: KeyRange, _at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        Err(self.unsupported("range scans"))
    }

    /// A key drawn by chance; `None` if there is none. `below` draws a number below the one that it
    /// is given, which is not 0. An engine that says nothing else draws from the first thousand
    /// keys in its order; one with a way of its own makes every key about as likely as any other,
    /// at a cost that hardly grows with their number, and says so.
    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        crate::sample::random_of_first(self, below)
    }

    /// A point to read at: what was written before it stays readable, unchanged, until it is
    /// dropped. Versioned engines only.
    fn snapshot(&self) -> Result<ReadPoint> {
        Err(self.unsupported("snapshots"))
    }

    /// A point to read at as of `time`, in milliseconds since 1970: it sees the writes of that
    /// millisecond and of those before, and stays readable until it is dropped. Engines that keep
    /// history only.
    ///
    /// # Errors
    /// `BelowWatermark`: history doesn't reach back so far. `Invalid`: the time is in the future.
    fn at(&self, _time: Timestamp) -> Result<ReadPoint> {
        Err(self.unsupported("reads at a time in the past"))
    }

    /// Moves what is only in memory and log into its on-media home, durably.
    fn flush(&self) -> Result<()>;

    /// Runs background work (flushes, compactions, conversions) until none is due. An engine that collects
    /// garbage as it writes brings its space back to what is wanted of it.
    fn maintain(&self) -> Result<()>;

    /// Writes a consistent copy of the table, as of now, into `sink`. The copy opens as a table.
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()>;

    /// Reads every byte of every file and checks it; `progress` hears bytes done and in total.
    /// Damage is reported, not returned as an error; errors are failures to read at all.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport>;

    /// Counters and sizes, in the words of [`Stats`].
    fn stats(&self) -> Stats;

    /// What was damaged or missing when it was read, and was made again from what is there: for people,
    /// a line each. Nothing is lost by it.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What keeps the engine from going on as it should just now, for people: background work that
    /// fails and is tried again, or why it is read-only. `None` while all is well.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// What is behind the engine's face, for callers that know it and want what this contract does
    /// not have: `mica` gives its store. `None` where there is nothing of the kind.
    fn behind(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Finishes background work, makes everything durable and refuses further use. Dropping an
    /// engine without closing it loses nothing that was promised. `ReadOnly` where an earlier fault
    /// has made the engine read-only: it is closed, and not everything may be durable.
    fn close(&self) -> Result<()>;

    /// The typed answer to an operation that this engine does not have.
    fn unsupported(&self, operation: &'static str) -> Error {
        Error::Unsupported { engine: self.name(), operation }
    }
}

/// What an engine can do, for callers that choose or refuse by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Keys have an order: `range`, and cursors that seek and go back.
    pub ordered: bool,
    /// Synced writes survive power cuts. Where this is false nothing survives the process: the table
    /// is empty whenever it is opened, `sync` and `flush` have nothing to do, and there are no
    /// checkpoints.
    pub durable: bool,
    /// `snapshot` and `get_at` work.
    pub versioned: bool,
    /// Garbage is collected as it is written: no background work is left behind, and [`maintain`](Engine::maintain)
    /// does what nobody owed.
    pub incremental_gc: bool,
    /// The largest value in bytes.
    pub max_value_bytes: usize,
}

/// When a write may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When the operating system has it: survives the death of the process, not a power cut.
    #[default]
    Buffered,
    /// When the medium has it: survives a power cut.
    Synced,
}

/// A range of keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRange {
    /// The lower end.
    pub start: Bound<Vec<u8>>,
    /// The upper end.
    pub end: Bound<Vec<u8>>,
}

impl KeyRange {
    /// Every key.
    pub fn all() -> Self {
        KeyRange { start: Bound::Unbounded, end: Bound::Unbounded }
    }

    /// The keys that start with `prefix`.
    pub fn prefix(prefix: &[u8]) -> Self {
        // The first key after all that start with the prefix: drop trailing 0xff, add one.
        let mut end = prefix.to_vec();
        while end.pop_if(|byte| *byte == 0xff).is_some() {}
        let end = match end.last_mut() {
            None => Bound::Unbounded,
            Some(byte) => {
                *byte += 1;
                Bound::Excluded(end)
            }
        };
        KeyRange { start: Bound::Included(prefix.to_vec()), end }
    }

    /// Any range of byte strings.
    pub fn new<K: AsRef<[u8]>>(range: impl std::ops::RangeBounds<K>) -> Self {
        let own = |bound: Bound<&K>| bound.map(|key| key.as_ref().to_vec());
        KeyRange { start: own(range.start_bound()), end: own(range.end_bound()) }
    }

    /// Whether `key` lies above the lower end.
    pub fn is_after_start(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start.as_slice(),
            Bound::Excluded(start) => key > start.as_slice(),
        }
    }

    /// Whether `key` lies below the upper end.
    pub fn is_before_end(&self, key: &[u8]) -> bool {
        match &self.end {
            Bound::Unbounded => true,
            Bound::Included(end) => key <= end.as_slice(),
            Bound::Excluded(end) => key < end.as_slice(),
        }
    }

    /// Whether `key` is in the range.
    pub fn contains(&self, key: &[u8]) -> bool {
        self.is_after_start(key) && self.is_before_end(key)
    }
}

/// A moment to read at. Clones share it; the engine may forget the moment when the last is gone.
#[derive(Clone)]
pub struct ReadPoint {
    sequence: u64,
    hold: Arc<dyn Any + Send + Sync>,
}

impl ReadPoint {
    /// For engines: a point at `sequence` whose `hold` keeps the versions it needs alive.
    pub fn new(sequence: u64, hold: Arc<dyn Any + Send + Sync>) -> Self {
        ReadPoint { sequence, hold }
    }

    /// The sequence number up to which writes are seen.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// For engines: what they gave, to check that the point is their own.
    pub fn hold(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.hold
    }
}

impl std::fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadPoint").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// Where a checkpoint goes: a directory, a network stream, ….
///
/// An engine gives its files one after the other: either the sink takes an immutable file by
/// reference ([`link`](CheckpointSink::link)), or the engine streams it.
pub trait CheckpointSink {
    /// Takes the immutable file `name` of the engine's medium without copying, if it can.
    fn link(&mut self, _name: &str) -> Result<bool> {
        Ok(false)
    }

    /// Begins the file `name`.
    fn create(&mut self, name: &str) -> Result<()>;

    /// Appends to the file begun last.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Ends the file begun last and makes it durable.
    fn finish(&mut self) -> Result<()>;
}

/// What [`Engine::verify`] found.
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// Entries seen, all versions counted.
    pub entries: u64,
    /// What does not hold.
    pub damage: Vec<Damage>,
}

impl VerifyReport {
    /// Adds what the check of a file found: its bytes and entries, or damage.
    ///
    /// # Errors
    /// Other errors are failures to check.
    pub fn note(&mut self, checked: Result<(u64, u64)>) -> Result<()> {
        match checked {
            Ok((bytes, entries)) => {
                self.bytes += bytes;
                self.entries += entries;
            }
            Err(Error::Corruption { file, offset, reason }) => {
                self.damage.push(Damage { file, offset, reason });
            }
            Err(other) => return Err(other),
        }
        self.files += 1;
        Ok(())
    }

    /// Whether everything holds.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

/// One place that does not hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it, in bytes.
    pub offset: u64,
    /// What does not hold.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_range_holds_just_the_keys_with_the_prefix() {
        for prefix in [&b"a"[..], b"a\xff", b"\xff\xff", b""] {
            let range = KeyRange::prefix(prefix);
            for key in [
                &b""[..],
                b"a",
                b"a\xff",
                b"a\xff\xff",
                b"b",
                b"\xff",
                b"\xff\xff",
                b"\xff\xff\xff",
            ] {
                assert_eq!(range.contains(key), key.starts_with(prefix), "{prefix:?} {key:?}");
            }
        }
    }
}

//! The [`Engine`] trait and its guarantees.
//!
//! One [`Engine`] stores the keys of one table in a directory of its own, so two engines never
//! share a file.
//!
//! * **Durability and order.** A write that returned under [`Durability::Synced`] survives a power
//!   cut; one that returned under [`Durability::Buffered`] survives a process crash. Recovery
//!   restores a prefix of the write order, and each batch completely or not at all.
//! * **Corruption.** Every byte read is covered by a checksum. A mismatch is
//!   [`Error::Corruption`], never a wrong answer or a missing key.
//! * **Invalid input** is rejected before anything has changed.
//! * **After a failed write or sync** the outcome of that write is unknown until the engine is
//!   reopened. The engine rejects further writes ([`Error::ReadOnly`]) and still serves reads.
//!   After a full disk nothing was written, and writes succeed again when there is space.

use std::any::Any;
use std::ops::Bound;
use std::sync::Arc;

use serde::Serialize;

use crate::{Cursor, Entry, Error, Result, Stats, Timestamp, WriteBatch};

/// A storage engine: an ordered or unordered map from keys to entries.
pub trait Engine: Send + Sync {
    /// The engine's name on the command line, e.g. `lsm`.
    fn name(&self) -> &'static str;

    /// What this engine can do.
    fn capabilities(&self) -> Capabilities;

    /// The newest entry of `key`; `None` if it is missing, deleted or expired.
    fn get(&self, key: &[u8]) -> Result<Option<Entry>>;

    /// The entry of `key` as of `at`. Versioned engines only.
    fn get_at(&self, _key: &[u8], _at: &ReadPoint) -> Result<Option<Entry>> {
        Err(self.unsupported("reads at a snapshot"))
    }

    /// Applies `batch` atomically. An empty batch does nothing (with [`Durability::Synced`] it
    /// makes
    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()>;

    /// Deletes every key, durably. Earlier writes are deleted, writes after the return stay, and a
    /// concurrent write is ordered before or after. Snapshots taken before still see the keys.
    ///
    /// The default iterates over the keys and deletes them in batches: each batch is atomic,
    /// concurrent writes may be ordered between two batches, and a power cut or an error may leave
    /// some keys. An engine that overrides it deletes all keys atomically, at a cost that hardly
    /// grows with their number, and documents so.
    fn clear(&self) -> Result<()> {
        crate::clear::delete_all(self)
    }

    /// Makes every write that has returned durable.
    fn sync(&self) -> Result<()>;

    /// All entries in engine order, as of now.
    fn iter(&self) -> Result<Box<dyn Cursor>>;

    /// The entries of `range` in key order, as of `at` or now. Ordered engines only.
    fn range(&self, _range: KeyRange, _at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        Err(self.unsupported("range scans"))
    }

    /// A random key; `None` if there is none. `below` draws a number below its argument, which is
    /// not 0. The default draws from the first thousand keys in engine order. An engine that
    /// overrides it returns every key with about the same probability, at a cost that hardly grows
    /// with their number, and documents so.
    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        crate::sample::random_of_first(self, below)
    }

    /// A snapshot: it sees the writes that returned before, and stays readable until it is dropped.
    /// Versioned engines only.
    fn snapshot(&self) -> Result<ReadPoint> {
        Err(self.unsupported("snapshots"))
    }

    /// A snapshot as of `time`, in milliseconds since 1970: it sees the writes of that millisecond
    /// and of earlier ones, and stays readable until it is dropped. Engines with history only.
    ///
    /// # Errors
    /// `BelowWatermark`: history does not reach back that far. `Invalid`: the time is in the
    /// future.
    fn at(&self, _time: Timestamp) -> Result<ReadPoint> {
        Err(self.unsupported("reads at a time in the past"))
    }

    /// Writes buffered data (memtables, write buffers) to its final files, durably.
    fn flush(&self) -> Result<()>;

    /// Runs background work (flushes, compactions, conversions) until none is due. An engine with
    /// incremental garbage collection collects until its space amplification is at its target.
    fn maintain(&self) -> Result<()>;

    /// Writes a consistent copy of the table, as of now, into `sink`. The copy opens as a table.
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()>;

    /// Reads and checks every byte of every file; `progress` receives bytes done and in total.
    /// Damage is in the report and is not an error; an error means that a file could not be read.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport>;

    /// Counters and sizes.
    fn stats(&self) -> Stats;

    /// Damaged or missing auxiliary data that was rebuilt when it was read: one line of text per
    /// case. Nothing is lost.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// Why the engine is degraded, as text: background work fails and is retried, or the engine is
    /// read-only. `None` if all is well.
    fn trouble(&self) -> Option<String> {
        None
    }

    /// The concrete implementation, for callers that downcast it to use more than this contract:
    /// `mica` returns its store. `None` if there is none.
    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Finishes background work, makes everything durable and rejects further use. Dropping an
    /// engine without closing it loses nothing that was guaranteed. Returns `ReadOnly` if an
    /// earlier error has made the engine read-only: it is closed, and some writes may not be
    /// durable.
    fn close(&self) -> Result<()>;

    /// The error for an operation that this engine does not have.
    fn unsupported(&self, operation: &'static str) -> Error {
        Error::Unsupported { engine: self.name(), operation }
    }
}

/// What an engine supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Capabilities {
    /// Keys have an order: `range`, and cursors that seek and move backwards.
    pub ordered: bool,
    /// Synced writes survive power cuts. If false, nothing survives the process: the table is empty
    /// whenever it is opened, `sync` and `flush` do nothing, and there are no checkpoints.
    pub durable: bool,
    /// `snapshot` and `get_at` work.
    pub versioned: bool,
    /// Garbage is collected by the writes themselves, not by background jobs;
    /// [`maintain`](Engine::maintain) collects more than the writes need.
    pub incremental_gc: bool,
    /// The largest value in bytes.
    pub max_value_bytes: usize,
}

/// When a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Durability {
    /// When the operating system has the data: it survives a process crash, not a power cut.
    #[default]
    Buffered,
    /// When the device has the data: it survives a power cut.
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

    /// Whether `key` is above the lower end.
    pub fn is_after_start(&self, key: &[u8]) -> bool {
        match &self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start.as_slice(),
            Bound::Excluded(start) => key > start.as_slice(),
        }
    }

    /// Whether `key` is below the upper end.
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

/// A snapshot. Clones share it; the engine releases its versions when the last clone is dropped.
#[derive(Clone)]
pub struct ReadPoint {
    sequence: u64,
    hold: Arc<dyn Any + Send + Sync>,
}

impl ReadPoint {
    /// For engines: a snapshot at `sequence`; `hold` is the guard that retains its versions.
    pub fn new(sequence: u64, hold: Arc<dyn Any + Send + Sync>) -> Self {
        ReadPoint { sequence, hold }
    }

    /// The sequence number up to which writes are seen.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// For engines: the guard, to check that the snapshot is their own.
    pub fn guard(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.hold
    }
}

impl std::fmt::Debug for ReadPoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadPoint").field("sequence", &self.sequence).finish_non_exhaustive()
    }
}

/// The destination of a checkpoint: a directory, a network stream, ….
///
/// An engine passes its files one by one. The sink either takes an immutable file by reference
/// ([`link`](CheckpointSink::link)), or the engine streams it.
pub trait CheckpointSink {
    /// Links the immutable file `name` of the engine's directory without copying, if possible.
    fn link(&mut self, _name: &str) -> Result<bool> {
        Ok(false)
    }

    /// Begins the file `name`.
    fn create(&mut self, name: &str) -> Result<()>;

    /// Appends to the current file.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Completes the current file and makes it durable.
    fn finish(&mut self) -> Result<()>;
}

/// The result of [`Engine::verify`].
#[derive(Debug, Clone, Default, Serialize)]
pub struct VerifyReport {
    /// Files read.
    pub files: u64,
    /// Bytes read and checked.
    pub bytes: u64,
    /// Entries read, counting all versions.
    pub entries: u64,
    /// The damage found.
    pub damage: Vec<Damage>,
}

impl VerifyReport {
    /// Records the result of checking one file: its bytes and entries, or its damage.
    ///
    /// # Errors
    /// Any error other than `Corruption`: the file could not be checked.
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

    /// Whether no damage was found.
    pub fn is_sound(&self) -> bool {
        self.damage.is_empty()
    }
}

/// One damaged place in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The offset in bytes.
    pub offset: u64,
    /// What is wrong.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_range_contains_exactly_the_keys_with_the_prefix() {
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

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
//!
//! Every operation returns [`Error::Closed`] after [`Engine::close`]; the methods below do not
//! repeat that.

use std::any::Any;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "serde")]
use serde::Serialize;

use std::time::{Duration, Instant};

use crate::{
    ChangeCursor, ChangeOptions, CompactionFilter, Cursor, Entry, Error, IngestOptions, KeyRange,
    MergeOperator, PreparedIngestion, PreparedPart, Result, Stats, Timestamp, VerifyReport,
    WriteBatch,
};

/// A lookup that takes this long has waited for a device. A lookup in memory takes some
/// microseconds, a read from a fast device fifty and more.
pub const DEVICE_READ: Duration = Duration::from_micros(20);

/// Receives what a lookup of a key has found: the value and when it expires. Returns whether to go
/// on with the next key.
pub type VisitKeys<'a> = dyn FnMut(Option<(&[u8], Option<Timestamp>)>) -> bool + 'a;

/// The keys whose reads are started together.
const KEYS_AHEAD: usize = 128;

/// [`Engine::multi_lookup`] by `lookup`s of one key after the other, each of which lends what it
/// finds and returns whether there is anything. Once one has taken as long as [`DEVICE_READ`],
/// `begin_reads` gets the next keys, whose lookups then wait less.
///
/// # Errors
/// The first one of `lookup`.
pub fn lookup_each(
    keys: &[&[u8]],
    visit: &mut VisitKeys<'_>,
    lookup: impl Fn(&[u8], &mut dyn FnMut(&[u8], Option<Timestamp>)) -> Result<bool>,
    begin_reads: impl Fn(&[&[u8]]),
) -> Result<()> {
    // The reads of the keys before this one have been started.
    let mut started = 0;
    for (i, key) in keys.iter().enumerate() {
        let began = (i >= started).then(Instant::now);
        let mut goes_on = true;
        let mut lend = |value: &[u8], expires_at| goes_on = visit(Some((value, expires_at)));
        if !lookup(key, &mut lend)? {
            goes_on = visit(None);
        }
        if !goes_on {
            break;
        }
        if began.is_some_and(|began| began.elapsed() >= DEVICE_READ) {
            let ahead = &keys[i + 1..keys.len().min(i + 1 + KEYS_AHEAD)];
            begin_reads(ahead);
            started = i + 1 + ahead.len();
        }
    }
    Ok(())
}

/// A storage engine: an ordered or unordered map from keys to entries.
pub trait Engine: Send + Sync {
    /// The engine's name on the command line, e.g. `lsm`.
    fn name(&self) -> &'static str;

    /// The optional operations and guarantees of this engine.
    fn capabilities(&self) -> Capabilities;

    /// The newest entry of `key`; `None` if it is missing, deleted or expired.
    ///
    /// # Errors
    /// `Io` and `Corruption` from a file that the lookup reads.
    fn get(&self, key: &[u8]) -> Result<Option<Entry>>;

    /// The entry of `key` as of `at`. Versioned engines only.
    ///
    /// # Errors
    /// As [`get`](Self::get); `Invalid` for a snapshot of another table; `Unsupported`.
    fn get_at(&self, _key: &[u8], _at: &ReadPoint) -> Result<Option<Entry>> {
        Err(self.unsupported("reads at a snapshot"))
    }

    /// Calls `visit` once with the value of `key` and when it expires, as of `at` or now, and
    /// returns whether there is one. `visit` must not call the engine. The default copies the
    /// value; an engine that overrides it lends a value that it has in memory.
    ///
    /// # Errors
    /// Those of [`get`](Engine::get) and [`get_at`](Engine::get_at).
    fn lookup(
        &self,
        key: &[u8],
        at: Option<&ReadPoint>,
        visit: &mut dyn FnMut(&[u8], Option<Timestamp>),
    ) -> Result<bool> {
        let found = match at {
            Some(at) => self.get_at(key, at)?,
            None => self.get(key)?,
        };
        if let Some(entry) = &found {
            visit(&entry.value, entry.expires_at);
        }
        Ok(found.is_some())
    }

    /// When the entry of `key` expires, as of `at` or now: `Some(None)` if never, `None` if there
    /// is no entry. The default looks the entry up; an engine that overrides it does not read a
    /// value that lies elsewhere.
    ///
    /// # Errors
    /// Those of [`lookup`](Engine::lookup).
    fn expiry(&self, key: &[u8], at: Option<&ReadPoint>) -> Result<Option<Option<Timestamp>>> {
        let mut found = None;
        self.lookup(key, at, &mut |_, expires_at| found = Some(expires_at))?;
        Ok(found)
    }

    /// Passes what is found for each of `keys`, in their order, to `visit`, as of `at` or now,
    /// until that returns false. `visit` must not call the engine. The default looks one key up
    /// after the other, each as of its own moment; reads from a device overlap if the engine has
    /// [`begin_reads`](Engine::begin_reads). An engine that overrides it reads all keys as of one
    /// moment and documents so. Ascending keys are the fastest.
    ///
    /// # Errors
    /// Those of [`lookup`](Engine::lookup), for any of the keys.
    fn multi_lookup(
        &self,
        keys: &[&[u8]],
        at: Option<&ReadPoint>,
        visit: &mut VisitKeys<'_>,
    ) -> Result<()> {
        let lookup =
            |key: &[u8], lend: &mut dyn FnMut(&[u8], Option<Timestamp>)| self.lookup(key, at, lend);
        lookup_each(keys, visit, lookup, |keys| self.begin_reads(keys))
    }

    /// The entries of `keys`, in their order: see [`multi_lookup`](Engine::multi_lookup).
    ///
    /// # Errors
    /// The same.
    fn multi_get(&self, keys: &[&[u8]], at: Option<&ReadPoint>) -> Result<Vec<Option<Entry>>> {
        let mut entries = Vec::with_capacity(keys.len());
        self.multi_lookup(keys, at, &mut |found| {
            let entry =
                |(value, expires_at): (&[u8], _)| Entry { value: value.to_vec(), expires_at };
            entries.push(found.map(entry));
            true
        })?;
        Ok(entries)
    }

    /// Starts the reads of the newest entries of `keys` from a device, so that lookups that follow
    /// wait less. A hint, for a caller whose lookups take as long as [`DEVICE_READ`]. Cost: a
    /// search of filters and indexes per key. The default does nothing.
    fn begin_reads(&self, _keys: &[&[u8]]) {}

    /// Applies `batch` atomically. An empty batch does nothing; with [`Durability::Synced`] it
    /// makes every earlier write durable.
    ///
    /// May block while background work is behind.
    ///
    /// # Errors
    /// `TooLarge`, `Invalid` for an inverted range, `Unsupported` for range deletions by engines
    /// without them, or an `Io` error of a full disk: nothing was written. `ReadOnly` after an
    /// earlier failure. After any other `Io` error the outcome is unknown until the engine is
    /// reopened.
    fn write(&self, batch: &WriteBatch, durability: Durability) -> Result<()>;

    /// Whether a buffered write of `batch` would have to wait now: for background work, or for
    /// another writer. A hint: the next write of another thread may change it. Never waits itself.
    /// Engines that cannot tell return true.
    fn must_wait(&self, _batch: &WriteBatch) -> bool {
        true
    }

    /// Locks the table for writing, for its part of a batch over several tables; see
    /// [`part`](crate::part). An empty batch has no part: it locks the table alone.
    ///
    /// Returns `None`, and locks nothing, if the batch would have to wait for background work: that
    /// may in turn wait for other tables that the caller has locked. With `may_wait` it waits.
    ///
    /// # Errors
    /// `Unsupported` by engines that cannot take part; `TooLarge`, `ReadOnly`; those of the
    /// background work. Nothing has changed then.
    fn prepare<'a>(
        &'a self,
        _batch: &'a WriteBatch,
        _may_wait: bool,
    ) -> Result<Option<Box<dyn PreparedPart + 'a>>> {
        Err(self.unsupported("batches, snapshots and transactions over several tables"))
    }

    /// Deletes every key, durably. Earlier writes are deleted, writes after the return stay, and a
    /// concurrent write is ordered before or after. Snapshots taken before still see the keys.
    ///
    /// The default iterates over the keys and deletes them in batches: each batch is atomic,
    /// concurrent writes may be ordered between two batches, and a power cut or an error may leave
    /// some keys. An engine that overrides it deletes all keys atomically, at a cost that hardly
    /// grows with their number, and documents so.
    ///
    /// # Errors
    /// As [`write`](Self::write).
    fn clear(&self) -> Result<()> {
        crate::clear::delete_all(self.iter()?, |batch, durability| self.write(batch, durability))
    }

    /// Makes every write that has returned durable.
    ///
    /// # Errors
    /// `Io`: it is unknown which of these writes are durable, and the engine is read-only from then
    /// on. `ReadOnly` after an earlier failure.
    fn sync(&self) -> Result<()>;

    /// All entries in engine order, as of now.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn iter(&self) -> Result<Box<dyn Cursor>>;

    /// The entries of `range` in key order, as of `at` or now. Ordered engines only.
    ///
    /// # Errors
    /// As [`get_at`](Self::get_at). `Invalid` for an inverted range ([`KeyRange::check`]), by every
    /// engine.
    fn range(&self, range: KeyRange, _at: Option<&ReadPoint>) -> Result<Box<dyn Cursor>> {
        range.check()?;
        Err(self.unsupported("range scans"))
    }

    /// A random key; `None` if there is none. `below` draws a number below its argument, which is
    /// not 0. The default draws from the first thousand keys in engine order. An engine that
    /// overrides it returns every key with about the same probability, at a cost that hardly grows
    /// with their number, and documents so.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    fn random_key(&self, below: &mut dyn FnMut(u64) -> u64) -> Result<Option<Vec<u8>>> {
        crate::sample::random_of_first(self.iter()?, below)
    }

    /// A snapshot: it sees the writes that returned before, and stays readable until it is dropped.
    /// Versioned engines only.
    ///
    /// # Errors
    /// `Unsupported` by other engines.
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

    /// Writes buffered data (memtables, write buffers) to its final files, durably. Blocks until
    /// that is done.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    fn flush(&self) -> Result<()>;

    /// Runs background work (flushes, compactions, conversions) until none is due. An engine with
    /// incremental garbage collection collects until its space amplification is at its target.
    ///
    /// # Errors
    /// Those of the background work: `Io`, `Corruption`; `ReadOnly` after an earlier failure.
    fn maintain(&self) -> Result<()>;

    /// Moves everything in `range` that was written before the call to the deepest level that has
    /// keys in the range, and drops what nobody reads: overwritten and deleted versions that no
    /// snapshot sees, tombstones, expired entries, and rows that the compaction filter drops.
    /// Blocks until that is done, beside writers and background work. Flushes first if memory has
    /// keys of the range. A crash meanwhile leaves the same content.
    ///
    /// Cost: the range is read and written about once per level; up to as much temporary space.
    /// Useful after many deletions, and before a read-only phase; background compactions do the
    /// rest by themselves. Only for engines whose files have ranges of keys.
    ///
    /// # Errors
    /// `Invalid` for an inverted range; `Unsupported`; those of [`maintain`](Self::maintain). What
    /// was compacted before an error stays so.
    fn compact_range(&self, range: &KeyRange) -> Result<()> {
        range.check()?;
        Err(self.unsupported("compaction of a range of keys"))
    }

    /// Sets the filter that drops obsolete rows in compactions, or none. It applies to compactions
    /// that begin later, and is not stored: set it after every open. Engines with compaction
    /// filters only.
    ///
    /// # Errors
    /// `Unsupported` by other engines.
    fn set_compaction_filter(&self, _filter: Option<Arc<dyn CompactionFilter>>) -> Result<()> {
        Err(self.unsupported("compaction filters"))
    }

    /// Prepares the ingestion of sorted files that the engine's writer of such files has made:
    /// links or copies them into the table's directory and checks them. Nothing of them is visible
    /// before [`PreparedIngestion::commit`]; dropping the result removes the links and copies. A
    /// relative path is within the table's directory. Engines with such files only.
    ///
    /// # Errors
    /// `Unsupported` by other engines; `Invalid` for files of another kind, and for files with
    /// overlapping ranges of keys; `Corruption` in a file; `Io`. Nothing has changed then.
    fn prepare_ingestion<'a>(
        &'a self,
        _files: &[&Path],
        _options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        Err(self.unsupported("ingestion of sorted files"))
    }

    /// Checks what [`write`](Self::write) checks in a batch before it changes anything, as far as
    /// that depends on the batch alone.
    ///
    /// # Errors
    /// Those of `write`.
    fn check_write(&self, batch: &WriteBatch) -> Result<()> {
        batch.check(self.capabilities().max_value_bytes)
    }

    /// Sets the operator that merges operands into values, or none. Its name is stored with the
    /// first one, and another name is refused from then on; the built-in operators are set by their
    /// stored names when the table is opened, others must be set after every open. A table with an
    /// operator takes no entries that expire. Engines with [merges](Capabilities::merge) only.
    ///
    /// The first time, a table that is not empty is scanned for entries that expire.
    ///
    /// # Errors
    /// `Unsupported` by other engines; `Invalid` for an operator of another name, and for a table
    /// with entries that expire; `Io`.
    fn set_merge_operator(&self, _operator: Option<Arc<dyn MergeOperator>>) -> Result<()> {
        Err(self.unsupported("merges"))
    }

    /// The operator in force; `None` by engines without merges.
    fn merge_operator(&self) -> Option<Arc<dyn MergeOperator>> {
        None
    }

    /// Changes options while the table is open: `changes` has values by name, of options whose
    /// change is [`OptionChange::Live`](crate::OptionChange::Live). All of them are in force when
    /// this returns, or none. They are not stored: the caller gives them at the next open. Does not
    /// wait for background work.
    ///
    /// # Errors
    /// `InvalidOptions` with all mistakes, also for an option that does not change while the table
    /// is open; `Unsupported` by engines without such options.
    fn set_options(&self, _changes: &BTreeMap<String, String>) -> Result<()> {
        Err(self.unsupported("options that change while the table is open"))
    }

    /// A feed of the table's changes. Engines with a [feed](Capabilities::change_feed) only.
    ///
    /// # Errors
    /// `ChangesUnavailable` if the log does not reach back that far, or the table has not got that
    /// far; `Unsupported` by other engines; `Corruption` and `Io` from the log.
    fn changes(&self, _options: ChangeOptions) -> Result<Box<dyn ChangeCursor>> {
        Err(self.unsupported("a change feed"))
    }

    /// Writes a consistent copy of the table, as of now, into `sink`. The copy opens as a table.
    ///
    /// # Errors
    /// As [`flush`](Self::flush), and those of the sink. The sink then has an incomplete copy.
    fn checkpoint(&self, sink: &mut dyn CheckpointSink) -> Result<()>;

    /// Reads and checks every byte of every file; `progress` receives bytes done and in total.
    /// Damage is in the report and is not an error.
    ///
    /// # Errors
    /// `Io`: a file could not be read.
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

    /// Whether the engine is still open. Cost: a load. The default says yes.
    ///
    /// # Errors
    /// `Closed` after [`close`](Self::close).
    fn check_open(&self) -> Result<()> {
        Ok(())
    }

    /// The concrete implementation, for callers that downcast it to use more than this contract:
    /// `mica` returns its store. `None` if there is none.
    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Finishes background work, makes everything durable and rejects further use. Dropping an
    /// engine without closing it loses nothing that was guaranteed.
    ///
    /// # Errors
    /// `ReadOnly` if an earlier error has made the engine read-only, and `Io`. The engine is closed
    /// in any case, and some writes may not be durable.
    fn close(&self) -> Result<()>;

    /// The error for an operation that this engine does not have.
    fn unsupported(&self, operation: &'static str) -> Error {
        Error::Unsupported { engine: self.name(), operation }
    }
}

/// What an engine supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
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
    /// Batches may have [range deletions](WriteBatch::delete_range).
    pub range_deletes: bool,
    /// Batches may have [merges](WriteBatch::merge), once a
    /// [merge operator](Engine::set_merge_operator) is set.
    pub merge: bool,
    /// [`changes`](Engine::changes) works.
    pub change_feed: bool,
    /// The largest value in bytes.
    pub max_value_bytes: usize,
}

/// When a write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Durability {
    /// When the operating system has the data: it survives a process crash, not a power cut.
    #[default]
    Buffered,
    /// When the device has the data: it survives a power cut.
    Synced,
}

/// A snapshot. Clones share it; the engine releases its versions when the last clone is dropped.
#[derive(Clone)]
pub struct ReadPoint {
    sequence: u64,
    guard: Arc<dyn Any + Send + Sync>,
}

impl ReadPoint {
    /// For engines: a snapshot at `sequence`; the engine keeps its versions until `guard` is
    /// dropped.
    pub fn new(sequence: u64, guard: Arc<dyn Any + Send + Sync>) -> Self {
        ReadPoint { sequence, guard }
    }

    /// The sequence number up to which writes are seen.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// For engines: the guard, to check that the snapshot is their own.
    pub fn guard(&self) -> &Arc<dyn Any + Send + Sync> {
        &self.guard
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
/// ([`link`](CheckpointSink::link)), or the engine streams it: `create`, any number of `write`s,
/// `finish`.
pub trait CheckpointSink {
    /// Links the immutable file `name` of the engine's directory without copying, if possible.
    /// `false`: the engine must stream it.
    ///
    /// # Errors
    /// `Io`.
    fn link(&mut self, _name: &str) -> Result<bool> {
        Ok(false)
    }

    /// Begins the file `name`.
    ///
    /// # Errors
    /// `Io`, also if the file exists.
    fn create(&mut self, name: &str) -> Result<()>;

    /// Appends to the current file.
    ///
    /// # Errors
    /// `Io`.
    fn write(&mut self, bytes: &[u8]) -> Result<()>;

    /// Appends zeros to the current file. They should take no space.
    ///
    /// # Errors
    /// `Io`.
    fn skip(&mut self, bytes: u64) -> Result<()>;

    /// Completes the current file and makes it durable.
    ///
    /// # Errors
    /// `Io`.
    fn finish(&mut self) -> Result<()>;
}

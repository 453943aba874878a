//! State of the collections of one table: the version counter and the format marker.
//!
//! # Upgrade
//! Tables written before collections existed may have user keys under the reserved prefix. The
//! marker distinguishes both: it is written in the batch of the first write that needs it, so a
//! table without it holds only user keys. [`Keyspace::open`] then moves those under the prefix to
//! their escaped place, together with the marker, in one batch; usually there are none, and
//! nothing is written. A program that is older than the format shows reserved rows as keys.
//!
//! The marker of a table from before there were streams is replaced in the batch of the next write
//! of reserved rows. A program of that time rejects the table from then on: it would take the
//! metadata of a stream for a string, and its compactions would drop the entries. For the same
//! reason the first hash with a field that expires replaces the marker of a table from before there
//! were any; other writes leave it.
//!
//! # Versions
//! A version is larger than that of every row in the table, and not below the milliseconds since
//! 1970 times 2^20. So it is new even if all rows of later versions were removed before a restart.
//!
//! # Dead rows
//! Removing a collection removes its metadata and its owner row. Its elements, and the owner rows
//! of collections that were overwritten or have expired, are dead: [`Keyspace::is_live`] finds the
//! owner, and the metadata at the owner's key no longer has the version. Compactions drop them
//! ([`DeadRows`]).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use siltstone::transaction::Overlay;
use siltstone_engine::{
    Durability, Engine, Entry, Error, KeyRange, Op, Result, Timestamp, WriteBatch,
};

use crate::dead_rows::DeadRows;
use crate::layout::{
    self, MARKER_KEY, MARKER_VALUE, OLD_MARKER_VALUE, PREFIX, STREAMS_MARKER_VALUE, owner_key,
    stored_key, version_of, versioned_rows,
};
use crate::metadata::Metadata;
use crate::rows::{EngineRows, Order, Rows};

/// Versions per millisecond since 1970.
const VERSIONS_PER_MS: u64 = 1 << 20;

/// From this many adjacent rows on an operation deletes them as a range. A deletion of a range
/// costs all readers of the table a search until compactions have dropped the rows, so there must
/// be few: elements of 100 bytes that fill a memtable of 32 MiB are deleted by at most 82 of them.
/// 4,095 deletions of single rows take less than 1 MiB in memory.
const MIN_RANGE_ROWS: u64 = 4096;

/// The format of a table without a marker.
const UNMARKED: u8 = 0;
/// The format with streams, which is enough for all but hashes with fields that expire.
const STREAMS: u8 = 2;
/// The format that is written.
const CURRENT: u8 = 3;

/// The format of a marker's value; `None`: of no format that is known.
fn format_of(marker: &[u8]) -> Option<u8> {
    let formats = [(OLD_MARKER_VALUE, 1), (STREAMS_MARKER_VALUE, STREAMS), (MARKER_VALUE, CURRENT)];
    formats.iter().find(|(value, _)| *value == marker).map(|(_, format)| *format)
}

/// Collections of one ordered table.
#[derive(Debug)]
pub struct Keyspace {
    /// The last version drawn.
    last_version: AtomicU64,
    /// The format of the table's marker; 0 without one.
    format: AtomicU8,
    /// A batch with a marker may be under way.
    is_marking: AtomicBool,
    /// From this many adjacent rows on they are deleted as a range.
    min_range_rows: u64,
}

impl Keyspace {
    /// Reads the state of a table, and upgrades it if necessary. Replaces the table's compaction
    /// filter by [`DeadRows`]. `now` is the time by the table's clock. Cost: four seeks.
    ///
    /// # Errors
    /// `Unsupported` by an engine without order; `Corruption` if the marker is of an unknown
    /// version; those of reads and, for an upgrade, of a synced write.
    pub fn open(engine: &dyn Engine, now: Timestamp) -> Result<Self> {
        if !engine.capabilities().ordered {
            return Err(engine.unsupported("collections, as its keys have no order"));
        }
        let rows = EngineRows::newest(engine);
        let marker = marker(&rows)?;
        let format = match (marker.as_deref().and_then(format_of), marker) {
            (Some(format), _) => format,
            (None, Some(value)) if value.starts_with(b"siltstone collections ") => {
                return Err(newer_format());
            }
            // Without the marker this is a user's key like the others.
            _ if upgrade(engine, &rows)? => CURRENT,
            _ => UNMARKED,
        };
        match engine.set_compaction_filter(Some(Arc::new(DeadRows))) {
            // An engine without compactions keeps dead rows.
            Ok(()) | Err(Error::Unsupported { .. }) => {}
            Err(error) => return Err(error),
        }
        Ok(Keyspace {
            last_version: AtomicU64::new(newest_version(&rows, now)?),
            format: AtomicU8::new(format),
            is_marking: AtomicBool::new(false),
            min_range_rows: default_min_range_rows(engine),
        })
    }

    /// Reads the state of a table that others write, too: a replicated one. It is never upgraded,
    /// since it is younger than collections, and its filter is set by whoever opens it. `now` is as
    /// for [`open`](Self::open).
    ///
    /// # Errors
    /// As from [`open`](Self::open).
    pub fn attach(engine: &dyn Engine, now: Timestamp) -> Result<Self> {
        let keyspace = Keyspace {
            last_version: AtomicU64::new(0),
            format: AtomicU8::new(UNMARKED),
            is_marking: AtomicBool::new(false),
            min_range_rows: default_min_range_rows(engine),
        };
        keyspace.reload(engine, now)?;
        Ok(keyspace)
    }

    /// Reads the state again, after others may have written. No write may be in progress.
    ///
    /// # Errors
    /// As from [`attach`](Self::attach).
    pub fn reload(&self, engine: &dyn Engine, now: Timestamp) -> Result<()> {
        let rows = EngineRows::newest(engine);
        let format = match marker(&rows)? {
            Some(value) => format_of(&value).ok_or_else(newer_format)?,
            None => UNMARKED,
        };
        self.format.store(format, Ordering::Release);
        self.last_version.fetch_max(newest_version(&rows, now)?, Ordering::Relaxed);
        Ok(())
    }

    /// Draws the version of a new collection.
    pub(crate) fn next_version(&self) -> u64 {
        self.last_version.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From how many adjacent rows on they are deleted as a range; the maximum if the table cannot.
    pub(crate) fn min_range_rows(&self) -> u64 {
        self.min_range_rows
    }

    /// With another number of adjacent rows from which on they are deleted as a range, for tests.
    /// The table must have range deletions.
    #[must_use]
    pub(crate) fn with_min_range_rows(mut self, rows: u64) -> Self {
        self.min_range_rows = rows;
        self
    }

    /// Whether the table may have reserved rows.
    pub fn has_reserved_rows(&self) -> bool {
        self.format() > UNMARKED
    }

    fn format(&self) -> u8 {
        self.format.load(Ordering::Acquire)
    }

    /// Adds the format marker to a batch of stored keys that needs it: `has_field_expiry` if it has
    /// the metadata of a hash of which fields expire. The caller reports the writes by
    /// [`record_write`](Self::record_write).
    pub(crate) fn add_marker(&self, batch: &mut WriteBatch, has_field_expiry: bool) {
        let needed = if has_field_expiry { CURRENT } else { STREAMS };
        if self.format() < needed && batch.iter().any(|op| op.key().starts_with(&PREFIX)) {
            self.is_marking.store(true, Ordering::Release);
            batch.put(&MARKER_KEY, MARKER_VALUE);
        }
    }

    /// Adds the format marker to a batch of stored keys that needs it, and has no hash of which
    /// fields expire. The caller reports the writes by [`record_write`](Self::record_write).
    pub fn mark_batch(&self, batch: &mut WriteBatch) {
        self.add_marker(batch, false);
    }

    /// Records that a batch was written, which may contain the marker.
    pub fn record_write(&self, batch: &WriteBatch) {
        if self.is_marking.load(Ordering::Acquire) && batch.iter().any(|op| op.key() == MARKER_KEY)
        {
            self.format.store(CURRENT, Ordering::Release);
            self.is_marking.store(false, Ordering::Release);
        }
    }

    /// Records that all rows were removed. No other write may be in progress.
    pub fn record_clear(&self) {
        self.format.store(UNMARKED, Ordering::Release);
    }

    /// Whether a row is a plain key or part of an existing collection. A row that is not live never
    /// becomes live again, so it can be dropped. All rows must be of one moment (a snapshot):
    /// otherwise a RENAME between the two lookups would look like a removal. Cost: up to two
    /// lookups, which are the same for all rows of a version.
    ///
    /// # Errors
    /// Those of the lookups.
    pub fn is_live(rows: &dyn Rows, stored: &[u8]) -> Result<bool> {
        match version_of(stored) {
            None => Ok(true),
            Some(version) => is_version_live(version, &|key| rows.row(key)),
        }
    }
}

fn default_min_range_rows(engine: &dyn Engine) -> u64 {
    if engine.capabilities().range_deletes { MIN_RANGE_ROWS } else { u64::MAX }
}

/// Whether a version is that of a collection, as [`Keyspace::is_live`].
pub(crate) fn is_version_live(
    version: u64,
    get: &dyn Fn(&[u8]) -> Result<Option<Entry>>,
) -> Result<bool> {
    let Some(owner) = get(&owner_key(version))? else { return Ok(false) };
    let entry = get(&stored_key(&owner.value))?;
    let metadata = entry.and_then(|entry| Metadata::decode(&entry.value));
    Ok(metadata.is_some_and(|metadata| metadata.version == version))
}

fn newer_format() -> Error {
    let reason =
        "the table has collections in a newer format; open it with a newer version of siltstone";
    Error::Invalid(reason.into())
}

/// A version that is not below those of all rows.
fn newest_version(rows: &EngineRows<'_>, now: Timestamp) -> Result<u64> {
    let mut newest = now.saturating_mul(VERSIONS_PER_MS);
    for range in versioned_rows() {
        rows.scan(&range, Order::Descending.keys_only(), &mut |row| {
            newest = newest.max(version_of(row.key).unwrap_or(0));
            false
        })?;
    }
    Ok(newest)
}

/// The value of the format marker. By a scan, as the table counts lookups for its user.
fn marker(rows: &EngineRows<'_>) -> Result<Option<Vec<u8>>> {
    let mut found = None;
    rows.scan(&KeyRange::prefix(&MARKER_KEY), Order::Ascending.into(), &mut |row| {
        found = (row.key == MARKER_KEY).then(|| row.value.to_vec());
        false
    })?;
    Ok(found)
}

/// Moves user keys under the reserved prefix to their escaped place. Returns whether there were
/// any: the marker is written with them.
fn upgrade(engine: &dyn Engine, rows: &EngineRows<'_>) -> Result<bool> {
    let mut old = Vec::new();
    rows.scan(&KeyRange::prefix(&PREFIX), Order::Ascending.keys_only(), &mut |row| {
        old.push(row.key.to_vec());
        true
    })?;
    if old.is_empty() {
        return Ok(false);
    }
    // In an overlay, since the new place of one key may be the old place of another.
    let mut writes = Overlay::default();
    let mut entries = Vec::new();
    for key in &old {
        entries.extend(engine.get(key)?.map(|entry| (key, entry)));
        writes.push(Op::Delete { key });
    }
    for (key, entry) in &entries {
        let stored = layout::stored_key(key);
        let (value, expires_at) = (&entry.value[..], entry.expires_at);
        writes.push(Op::Put { key: &stored, value, expires_at });
    }
    writes.push(Op::Put { key: &MARKER_KEY, value: MARKER_VALUE, expires_at: None });
    engine.write(&writes.to_batch(), Durability::Synced)?;
    Ok(true)
}

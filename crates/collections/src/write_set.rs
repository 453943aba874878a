//! Operations on collections, collected into one atomic batch.
//!
//! A [`WriteSet`] reads rows under its own writes. The types ([`Hash`](crate::Hash), …) open a
//! collection in it and change elements and metadata; [`WriteSet::take_batch`] returns all changes.
//! The caller holds the locks of the keys from the first read until the batch is written.
//!
//! A read of a hash may write, too: it takes fields that have expired out of the count
//! ([`crate::field_expiry`]). Such writes may be dropped if the batch has no others
//! ([`WriteSet::is_changed`]).

use siltstone_engine::clock::{self, StoppedClock};
use siltstone_engine::{Clock, Entry, Error, KeyRange, Op, Result, Timestamp, WriteBatch};

use crate::encoding_limits::EncodingLimits;
use crate::key_metadata::{KeyMetadata, NextMetadata};
use crate::keyspace::Keyspace;
use crate::layout::{elements_of, owner_key, stored_key};
use crate::metadata::{Kind, Metadata};
use crate::pending_rows::{PendingRows, WrittenRow};
use crate::rows::{LookupVisit, Order, OverlayRows, Row, Rows, Visit, Walk};
use crate::stored_value::StoredValue;

/// What is at a user's key: metadata, unless it is a plain value, and the expiry of the key.
type FoundMetadata = (Option<Metadata>, Option<Timestamp>);

/// Pending changes of a table.
pub struct WriteSet<'r> {
    rows: &'r dyn Rows,
    keyspace: &'r Keyspace,
    now: Timestamp,
    /// The table's clock, if it runs.
    clock: Option<&'r dyn Clock>,
    stopped: Option<StoppedClock>,
    limits: EncodingLimits,
    /// What the writes may take in memory.
    max_bytes: usize,
    writes: PendingRows,
    /// What the operation before it in its group has left, until another collection is changed.
    inherited: Option<&'r KeyMetadata>,
    /// The metadata that were changed last: they may change again. Those of the same key as
    /// `inherited`, which they replace, if there are both.
    last: Option<KeyMetadata>,
    /// It is followed by others, which need the metadata of collections that were only read, too.
    is_grouped: bool,
    /// The writes are more than what reads take out of counts.
    is_changed: bool,
    has_field_expiry: bool,
    /// See [`refuse_writes`](WriteSet::refuse_writes).
    refuses_writes: bool,
    was_refused: bool,
    expired: Vec<ExpiredFields>,
    lookups: Lookups,
}

/// Fields of a hash that have expired, and were taken out of its count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpiredFields {
    /// The key of the hash.
    pub key: Vec<u8>,
    /// Their number.
    pub count: u64,
    /// The hash had no others, so it is removed.
    pub is_removed: bool,
}

/// Collections that were opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Lookups {
    /// Lookups of existing keys.
    pub hits: u64,
    /// Lookups of missing keys.
    pub misses: u64,
}

impl<'r> WriteSet<'r> {
    /// No changes yet, over `rows`. `now` is the time by the table's clock, which stands still
    /// until the changes are written, unless it is passed to [`set_clock`](Self::set_clock).
    #[inline]
    pub fn new(rows: &'r dyn Rows, keyspace: &'r Keyspace, now: Timestamp) -> Self {
        WriteSet {
            rows,
            keyspace,
            now,
            clock: None,
            stopped: None,
            limits: EncodingLimits::DEFAULT,
            max_bytes: usize::MAX,
            writes: PendingRows::default(),
            inherited: None,
            last: None,
            is_grouped: false,
            is_changed: false,
            has_field_expiry: false,
            refuses_writes: false,
            was_refused: false,
            expired: Vec::new(),
            lookups: Lookups::default(),
        }
    }

    /// Sets the table's clock, which runs. It is stopped when a hash of which fields expire is
    /// opened; the caller then keeps it stopped until the changes are written
    /// ([`take_stopped_clock`](Self::take_stopped_clock)).
    pub fn set_clock(&mut self, clock: &'r dyn Clock) {
        self.clock = Some(clock);
    }

    /// Makes it a set without writes, for an operation that other reads of its keys run beside. An
    /// operation that has to take expired fields out of a count fails then; it must run again with
    /// a set that allows writes ([`was_refused`](Self::was_refused)).
    pub fn refuse_writes(&mut self) {
        self.refuses_writes = true;
    }

    /// Whether an operation failed, because it has to write.
    pub fn was_refused(&self) -> bool {
        self.was_refused
    }

    /// Checks that writes are allowed.
    pub(crate) fn check_writable(&mut self) -> Result<()> {
        self.was_refused |= self.refuses_writes;
        match self.refuses_writes {
            false => Ok(()),
            true => Err(Error::Invalid("a read has to write".into())),
        }
    }

    /// Whether there are no writes.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Makes it one of a group of operations, whose clock stands still, after one that has left
    /// `metadata`. It ends with [`take_group_batch`](Self::take_group_batch).
    pub fn join_group(&mut self, metadata: Option<&'r KeyMetadata>) {
        (self.inherited, self.is_grouped) = (metadata, true);
    }

    /// Stops the clock, and returns whether it ran: what was read before may have expired.
    pub(crate) fn stop_clock(&mut self) -> bool {
        let Some(clock) = self.clock.take().filter(|_| !self.is_grouped) else { return false };
        self.stopped = Some(clock::stop());
        self.now = clock.now().max(self.now);
        true
    }

    /// Keeps the clock stopped, if it is, until it is dropped.
    pub fn take_stopped_clock(&mut self) -> Option<StoppedClock> {
        self.stopped.take()
    }

    /// The time by the table's clock.
    pub(crate) fn now(&self) -> Timestamp {
        self.now
    }

    /// Sets other limits of compact collections than Redis's defaults.
    pub fn set_encoding_limits(&mut self, limits: EncodingLimits) {
        self.limits = limits;
    }

    pub(crate) fn encoding_limits(&self) -> &EncodingLimits {
        &self.limits
    }

    /// Sets a limit of the memory that the writes may take. Beyond it they are dropped, so the
    /// caller must not write the batch if [`exceeds_limit`](Self::exceeds_limit).
    pub fn set_limit(&mut self, bytes: usize) {
        self.max_bytes = bytes;
    }

    pub(crate) fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    /// Whether the writes take more memory than the limit. Each row counts with its bytes and
    /// [`ROW_OVERHEAD_BYTES`](crate::ROW_OVERHEAD_BYTES).
    pub fn exceeds_limit(&self) -> bool {
        self.writes.memory_bytes() > self.max_bytes
    }

    /// Uses the memory of a batch, which [`take_batch`](Self::take_batch) returns. There must be no
    /// writes yet.
    pub fn use_memory_of(&mut self, batch: WriteBatch) {
        self.writes = PendingRows::in_memory_of(batch);
    }

    /// What the writes have of a row, unless it has expired; `None` if nothing.
    fn written(&self, key: &[u8]) -> Option<WrittenRow<'_>> {
        let is_visible = |at: &Option<Timestamp>| at.is_none_or(|at| at > self.now);
        let written = self.writes.get(key)?;
        Some(written.filter(|(_, expires_at)| is_visible(expires_at)))
    }

    /// Lends the value of a row and its expiry to `visit`, and returns whether there is one.
    pub(crate) fn lookup(&self, key: &[u8], visit: &mut LookupVisit<'_>) -> Result<bool> {
        let Some(written) = self.written(key) else { return self.rows.lookup(key, visit) };
        if let Some((value, expires_at)) = written {
            visit(value, expires_at);
        }
        Ok(written.is_some())
    }

    /// When a row expires; `None` if there is no row.
    pub(crate) fn expiry(&self, key: &[u8]) -> Result<Option<Option<Timestamp>>> {
        let expiry = |written: WrittenRow<'_>| Ok(written.map(|(_, expires_at)| expires_at));
        self.written(key).map_or_else(|| self.rows.expiry(key), expiry)
    }

    /// A row as this write set writes it, if it does.
    pub(crate) fn pending_entry(&self, key: &[u8]) -> Option<Entry> {
        let (value, expires_at) = self.writes.get(key).flatten()?;
        Some(Entry { value: value.to_vec(), expires_at })
    }

    pub(crate) fn scan(&self, range: &KeyRange, walk: Walk, visit: &mut Visit<'_>) -> Result<()> {
        if self.writes.is_empty() {
            return self.rows.scan(range, walk, visit);
        }
        let writes = self.writes.ordered();
        OverlayRows { below: self.rows, writes, now: self.now }.scan(range, walk, visit)
    }

    /// Changes the metadata of a collection.
    pub(crate) fn save(&mut self, key: &[u8], metadata: Metadata, expires_at: Option<Timestamp>) {
        self.is_changed = true;
        self.keep(key, metadata, expires_at, true);
    }

    /// Keeps the metadata of a collection in memory, and writes those of another one.
    fn keep(
        &mut self,
        key: &[u8],
        metadata: Metadata,
        expires_at: Option<Timestamp>,
        is_unsaved: bool,
    ) {
        if let Some(last) = self.last.as_mut().filter(|last| *last.key == *key) {
            (last.metadata, last.expires_at) = (metadata, expires_at);
            last.is_unsaved |= is_unsaved;
            return;
        }
        if self.in_memory(key).is_none() {
            self.write_metadata();
        }
        let key = self.inherited.map_or_else(|| key.into(), |inherited| inherited.key.clone());
        self.last = Some(KeyMetadata { key, metadata, expires_at, is_unsaved });
    }

    /// The metadata of the collection at a key, if they are in memory.
    fn in_memory(&self, key: &[u8]) -> Option<&KeyMetadata> {
        self.last.as_ref().or(self.inherited).filter(|last| *last.key == *key)
    }

    /// Writes the row of unsaved metadata. None are in memory then.
    pub(crate) fn write_metadata(&mut self) {
        let (last, inherited) = (self.last.take(), self.inherited.take());
        if let Some(unsaved) = last.as_ref().or(inherited).filter(|last| last.is_unsaved) {
            self.push_metadata(unsaved);
        }
    }

    /// Removes the rows of a collection that has no elements any more.
    pub(crate) fn delete_collection(&mut self, key: &[u8], version: u64) {
        self.write_metadata();
        self.delete(&stored_key(key));
        self.delete(&owner_key(version));
    }

    /// The metadata of the collection at a user's key, and when the key expires. The metadata are
    /// `None` for a plain value.
    pub(crate) fn metadata(&self, key: &[u8]) -> Result<Option<FoundMetadata>> {
        if let Some(last) = self.in_memory(key) {
            let found = last.visible(self.now);
            return Ok(found.map(|(metadata, expires_at)| (Some(metadata), expires_at)));
        }
        let mut found = None;
        self.lookup(&stored_key(key), &mut |value, expires_at| {
            let metadata = Metadata::decode(value);
            let field_expiry = metadata.and_then(|metadata| metadata.field_expiry);
            found = Some((metadata, field_expiry.map_or(expires_at, |f| f.key_expires_at)));
        })?;
        Ok(found)
    }

    /// As [`metadata`](Self::metadata), for a collection that is opened: in a group, those of a
    /// collection stay in memory.
    pub(crate) fn open_metadata(&mut self, key: &[u8]) -> Result<Option<FoundMetadata>> {
        let found = self.metadata(key)?;
        if self.is_grouped
            && let Some((Some(metadata), expires_at)) = found
            && self.in_memory(key).is_none()
        {
            self.keep(key, metadata, expires_at, false);
        }
        Ok(found)
    }

    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], expires_at: Option<Timestamp>) {
        self.is_changed = true;
        self.push(Op::Put { key, value, expires_at });
    }

    pub(crate) fn delete(&mut self, key: &[u8]) {
        self.is_changed = true;
        self.push(Op::Delete { key });
    }

    /// Deletes the rows from `start` to before `end`. The table must have range deletions.
    pub(crate) fn delete_range(&mut self, start: &[u8], end: &[u8]) {
        self.is_changed = true;
        if !self.exceeds_limit() {
            self.writes.delete_range(start, end);
        }
    }

    /// Adds a write, unless the limit is exceeded.
    fn push(&mut self, op: Op<'_>) {
        if !self.exceeds_limit() {
            self.writes.push(op);
        }
    }

    /// Writes the metadata of a collection at a user's key.
    pub(crate) fn put_metadata(
        &mut self,
        key: &[u8],
        metadata: Metadata,
        expires_at: Option<Timestamp>,
    ) {
        self.is_changed = true;
        let key = key.into();
        self.push_metadata(&KeyMetadata { key, metadata, expires_at, is_unsaved: true });
    }

    fn push_metadata(&mut self, metadata: &KeyMetadata) {
        self.has_field_expiry |= metadata.metadata.field_expiry.is_some();
        let (value, expires_at) = metadata.row();
        self.push(Op::Put { key: &stored_key(&metadata.key), value: &value, expires_at });
    }

    /// Whether there are changes besides those that a read has made.
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Records what a read has changed: `was_changed` before it.
    pub(crate) fn record_expired(&mut self, was_changed: bool, expired: ExpiredFields) {
        self.is_changed = was_changed;
        if expired.count > 0 {
            self.expired.push(expired);
        }
    }

    /// The fields that were taken out of counts.
    pub fn take_expired(&mut self) -> Vec<ExpiredFields> {
        std::mem::take(&mut self.expired)
    }

    pub(crate) fn count_lookup(&mut self, is_hit: bool) {
        self.lookups.hits += u64::from(is_hit);
        self.lookups.misses += u64::from(!is_hit);
    }

    /// The collections that were opened so far.
    pub fn lookups(&self) -> Lookups {
        self.lookups
    }

    pub(crate) fn keyspace(&self) -> &'r Keyspace {
        self.keyspace
    }

    /// The value that is stored at a user's key.
    ///
    /// # Errors
    /// Those of reads.
    pub fn stored(&self, key: &[u8]) -> Result<Option<StoredValue>> {
        if let Some(last) = self.in_memory(key) {
            return Ok(last.stored(self.now));
        }
        let mut found = None;
        self.lookup(&stored_key(key), &mut |value, expires_at| {
            found = Some(StoredValue::new(Entry { value: value.to_vec(), expires_at }));
        })?;
        Ok(found)
    }

    /// Bytes of the keys and values of a collection's elements, extrapolated from the first
    /// `samples` rows, or exact if it is 0.
    ///
    /// # Errors
    /// Those of reads.
    pub fn element_bytes(&self, key: &[u8], samples: u64) -> Result<u64> {
        let Some(metadata) = self.stored(key)?.and_then(|stored| stored.metadata) else {
            return Ok(0);
        };
        let (mut rows, mut bytes) = (0u64, 0u64);
        self.scan(
            &elements_of(metadata.version),
            Order::Ascending.into(),
            &mut |Row { key, value, .. }| {
                rows += 1;
                bytes += (key.len() + value.len()) as u64;
                rows != samples
            },
        )?;
        // A member of a sorted set has two rows.
        let all = metadata.count * if metadata.kind == Kind::SortedSet { 2 } else { 1 };
        Ok(if rows == samples { bytes * all / rows.max(1) } else { bytes })
    }

    /// Bytes of keys and values written so far, besides metadata.
    pub fn bytes(&self) -> usize {
        self.writes.bytes()
    }

    /// All changes as one batch of stored keys, with the format marker if it is missing. The write
    /// set must not be used after it.
    pub fn take_batch(&mut self) -> WriteBatch {
        self.write_metadata();
        let mut batch = self.writes.take_batch();
        self.keyspace.add_marker(&mut batch, self.has_field_expiry);
        batch
    }

    /// As [`take_batch`](Self::take_batch), of an operation in a group: without the metadata that
    /// the next one may change.
    pub fn take_group_batch(&mut self) -> (WriteBatch, NextMetadata) {
        let next = match (self.last.take(), self.inherited) {
            (None, Some(_)) => NextMetadata::Same,
            (last, _) => NextMetadata::Other(last),
        };
        if let NextMetadata::Other(Some(last)) = &next {
            self.has_field_expiry |= last.metadata.field_expiry.is_some();
        }
        self.inherited = None;
        (self.take_batch(), next)
    }
}

impl std::fmt::Debug for WriteSet<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WriteSet").field("writes", &self.writes).finish_non_exhaustive()
    }
}

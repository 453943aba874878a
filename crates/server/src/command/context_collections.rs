//! Operations on collections as a command runs them: under locks, over the writes of its
//! transaction or group, and written as one batch.

use std::sync::atomic::Ordering::Relaxed;

use siltstone_collections::{ExpiredFields, KeyMetadata, Lookups, NextMetadata, Rows, WriteSet};
use siltstone_engine::WriteBatch;
use siltstone_engine::clock::StoppedClock;

use super::context::Context;
use super::failure::{self, Failure};
use crate::keyspace_events::of_expired_fields;
use crate::store::write_batcher::KeyEvent;

/// What an operation has changed.
struct Changes {
    batch: WriteBatch,
    /// The metadata that a group keeps.
    next: NextMetadata,
    is_changed: bool,
    expired: Vec<ExpiredFields>,
    /// Background work keeps fields and elements that have not expired until the write.
    stopped: Option<StoppedClock>,
}

impl Changes {
    fn take(writes: &mut WriteSet<'_>, is_grouped: bool) -> Self {
        let stopped = writes.take_stopped_clock();
        let (is_changed, expired) = (writes.is_changed(), writes.take_expired());
        let (batch, next) = match is_grouped {
            true => writes.take_group_batch(),
            false => (writes.take_batch(), NextMetadata::Same),
        };
        Changes { batch, next, is_changed, expired, stopped }
    }
}

impl Context<'_> {
    /// Runs an operation on collections of the selected table, and applies its writes as one batch;
    /// none if it fails. The caller holds the locks of the keys, also if it only reads: an
    /// operation reads several rows.
    pub(crate) fn collections<T>(
        &mut self,
        operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.collections_in(self.session.table, |writes, _| operation(writes))
    }

    /// Runs an operation that reads the collection at a key of the selected table, under its lock,
    /// which it shares with other reads. Counts a hit or miss and records the access time. An
    /// operation runs twice, and fails the first time, if it has to take expired fields out of a
    /// count.
    pub(crate) fn view<T>(
        &mut self,
        key: &[u8],
        mut operation: impl FnMut(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(_guard) = self.lock_shared(key)
            && let Some(result) = self.view_shared([key].into_iter(), &mut operation)?
        {
            return Ok(result);
        }
        let _guard = self.lock(key);
        self.view_locked([key].into_iter(), operation)
    }

    /// As [`view`](Self::view), for the collections at several keys.
    pub(crate) fn view_many<'k, T>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]> + Clone,
        mut operation: impl FnMut(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if let Some(_guard) = self.lock_many_shared(keys.clone())
            && let Some(result) = self.view_shared(keys.clone(), &mut operation)?
        {
            return Ok(result);
        }
        let _guard = self.lock_many(keys.clone());
        self.view_locked(keys, operation)
    }

    /// Runs an operation beside other reads; `None` if it has to write, and has done nothing.
    fn view_shared<'k, T>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        operation: &mut impl FnMut(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<Option<T>, Failure> {
        let viewed = self.with_write_set(self.session.table, |writes, _| {
            writes.refuse_writes();
            let result = operation(writes);
            debug_assert!(writes.is_empty(), "a read has written");
            let is_read = !writes.was_refused() && writes.is_empty();
            Ok(if is_read { Some((result?, writes.lookups())) } else { None })
        })?;
        let Some((result, lookups)) = viewed else { return Ok(None) };
        self.record_reads(keys, lookups);
        Ok(Some(result))
    }

    fn view_locked<'k, T>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (result, lookups) = self.collections(|writes| {
            let result = operation(writes)?;
            Ok((result, writes.lookups()))
        })?;
        self.record_reads(keys, lookups);
        Ok(result)
    }

    /// Counts the lookups of a command that has read collections, and records the access time.
    pub(crate) fn record_reads<'k>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        lookups: Lookups,
    ) {
        self.batcher.samples.hits += lookups.hits;
        self.batcher.samples.misses += lookups.misses;
        if !self.session.is_no_touch {
            keys.for_each(|key| self.record_access(self.session.table, key));
        }
    }

    /// Runs an operation that changes the collection at a key of the selected table, under its
    /// lock.
    pub(crate) fn change<T>(
        &mut self,
        key: &[u8],
        operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _guard = self.lock(key);
        self.collections(operation)
    }

    /// As [`change`](Self::change), for the collections at several keys.
    pub(crate) fn change_many<'k, T>(
        &mut self,
        keys: impl Iterator<Item = &'k [u8]>,
        operation: impl FnOnce(&mut WriteSet<'_>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let _guard = self.lock_many(keys);
        self.collections(operation)
    }

    /// As [`collections`](Self::collections), in any table. The operation also gets the rows of
    /// the selected table, to copy from.
    pub(crate) fn collections_in<T>(
        &mut self,
        table: usize,
        operation: impl FnOnce(&mut WriteSet<'_>, &dyn Rows) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let scratch = std::mem::take(&mut self.batcher.scratch);
        let is_grouped = self.group.is_some();
        let max_bytes = self.shared.options.max_request_bytes;
        let (result, changes) = self.with_write_set(table, |writes, rows| {
            writes.use_memory_of(scratch);
            let result = operation(writes, rows);
            if writes.exceeds_limit() {
                return Err(failure::too_many_rows(max_bytes));
            }
            Ok((result?, Changes::take(writes, is_grouped)))
        })?;
        let Changes { batch, next, is_changed, expired, stopped: _stopped } = changes;
        let written = self.write_collections(table, &batch, is_changed, expired);
        self.batcher.scratch = batch;
        written?;
        if let NextMetadata::Other(metadata) = next {
            if let Some(key) = metadata.as_ref().filter(|_| is_changed).map(KeyMetadata::key) {
                self.record_access(table, key);
            }
            if let Some(group) = &mut self.group {
                group.metadata = metadata;
            }
        }
        Ok(result)
    }

    /// Runs an operation on an empty write set over the rows of a table.
    fn with_write_set<T>(
        &self,
        table: usize,
        operation: impl FnOnce(&mut WriteSet<'_>, &dyn Rows) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let databases = &self.shared.databases;
        let keyspace = databases[table].keyspace.as_ref();
        let keyspace = keyspace.ok_or_else(|| failure::no_collections(&databases[table]))?;
        let target = self.rows_of(table);
        let selected = (table != self.session.table).then(|| self.rows_of(self.session.table));
        let mut writes = WriteSet::new(&target, keyspace, self.now());
        writes.set_clock(self.shared.clock(table));
        writes.set_encoding_limits(self.shared.settings.encodings.limits());
        writes.set_limit(self.shared.options.max_request_bytes);
        if let Some(group) = &self.group {
            writes.join_group(group.metadata.as_ref());
            if group.is_read_only {
                writes.refuse_writes();
            }
        }
        operation(&mut writes, selected.as_ref().unwrap_or(&target))
    }

    /// Writes what an operation on collections has changed. `is_changed`: there is more than what a
    /// read takes out of a count.
    fn write_collections(
        &mut self,
        table: usize,
        batch: &WriteBatch,
        is_changed: bool,
        expired: Vec<ExpiredFields>,
    ) -> Result<(), Failure> {
        if is_changed {
            self.note_expired_fields(table, expired);
            return Ok(self.write_rows(table, batch)?);
        }
        let may_write = !batch.is_empty() && self.shared.may_write(table);
        // The read does not fail if this does: the next one takes it out again.
        if may_write && self.write_unnoted_rows(table, batch).is_ok() {
            self.note_expired_fields(table, expired);
        }
        Ok(())
    }

    /// Counts fields that have expired, and names the events.
    fn note_expired_fields(&mut self, table: usize, expired: Vec<ExpiredFields>) {
        let has_events = self.shared.observers.has_events();
        for ExpiredFields { key, count, is_removed } in expired {
            self.shared.metrics.expired_fields.fetch_add(count, Relaxed);
            for (class, event) in of_expired_fields(is_removed).filter(|_| has_events) {
                self.batcher.events.push(KeyEvent { table, class, event, key: key.clone() });
            }
        }
    }
}

//! A table of a store that is open read-only.
//!
//! The engine below could write, to memory, through [`Overlay`](siltstone_vfs::Overlay). Since such
//! writes would be lost at close, they are refused here, with the remedy. Sync, flush and
//! maintenance do nothing.
//!
//! A removal of all keys and an ingestion are in the manifest before their record is in the log. A
//! reader beside the writer may see the store in between: its change feed ends before such a change
//! if it is the newest. If the record is never written, the feed reports the gap as soon as there
//! is a later change, or when the store is opened for writing.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{
    ChangeBatch, ChangeCursor, ChangeOptions, Durability, Engine, Error, IngestOptions, KeyRange,
    PreparedIngestion, Result, WriteBatch, forward_engine,
};

/// Forwards reads and refuses writes.
pub(crate) struct ReadOnly {
    engine: Arc<dyn Engine>,
    store: String,
}

impl ReadOnly {
    /// Wraps the engine of a table; `store` is the store's name, for errors.
    pub(crate) fn new(engine: Arc<dyn Engine>, store: String) -> Self {
        ReadOnly { engine, store }
    }
}

impl Engine for ReadOnly {
    forward_engine!(engine: name capabilities get get_at lookup expiry multi_lookup begin_reads);
    forward_engine!(engine: iter range random_key snapshot at merge_operator);
    forward_engine!(engine: checkpoint verify stats warnings trouble check_open close);

    fn write(&self, batch: &WriteBatch, _durability: Durability) -> Result<()> {
        if batch.is_empty() { Ok(()) } else { Err(refusal(&self.store)) }
    }

    fn changes(&self, options: ChangeOptions) -> Result<Box<dyn ChangeCursor>> {
        Ok(Box::new(ReadOnlyChanges {
            cursor: self.engine.changes(options)?,
            since: options.since,
        }))
    }

    fn clear(&self) -> Result<()> {
        Err(refusal(&self.store))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn maintain(&self) -> Result<()> {
        Ok(())
    }

    fn compact_range(&self, _range: &KeyRange) -> Result<()> {
        Err(refusal(&self.store))
    }

    fn prepare_ingestion<'a>(
        &'a self,
        _files: &[&Path],
        _options: IngestOptions,
    ) -> Result<Box<dyn PreparedIngestion + 'a>> {
        Err(refusal(&self.store))
    }

    fn as_any(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.engine.as_any()
    }
}

/// A change feed that ends before the newest change if its record is not in the log yet.
struct ReadOnlyChanges {
    cursor: Box<dyn ChangeCursor>,
    /// The sequence number of the last change that was returned, or where the feed began.
    since: u64,
}

impl ChangeCursor for ReadOnlyChanges {
    fn next(&mut self) -> Result<Option<ChangeBatch>> {
        match self.cursor.next() {
            Err(Error::ChangesUnavailable { newest, .. }) if newest == self.since + 1 => Ok(None),
            Ok(Some(change)) => {
                self.since = change.sequence;
                Ok(Some(change))
            }
            other => other,
        }
    }
}

/// The error of a change to the store.
pub(crate) fn refusal(store: &str) -> Error {
    Error::Refused {
        path: store.to_owned(),
        reason: "it is open read-only; open it without read_only to change it".to_owned(),
    }
}

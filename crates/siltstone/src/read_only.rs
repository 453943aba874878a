//! A table of a store that is open read-only.
//!
//! The engine below could write, to memory, through [`Overlay`](siltstone_vfs::Overlay). Since such
//! writes would be lost at close, they are refused here, with the remedy. Sync, flush and
//! maintenance do nothing.

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{
    Durability, Engine, Error, IngestOptions, KeyRange, PreparedIngestion, Result, WriteBatch,
    forward_engine,
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
    forward_engine!(engine: name capabilities get get_at lookup multi_get);
    forward_engine!(engine: iter range random_key snapshot at changes merge_operator);
    forward_engine!(engine: checkpoint verify stats warnings trouble check_open close);

    fn write(&self, batch: &WriteBatch, _durability: Durability) -> Result<()> {
        if batch.is_empty() { Ok(()) } else { Err(refusal(&self.store)) }
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

/// The error of a change to the store.
pub(crate) fn refusal(store: &str) -> Error {
    Error::Refused {
        path: store.to_owned(),
        reason: "it is open read-only; open it without read_only to change it".to_owned(),
    }
}

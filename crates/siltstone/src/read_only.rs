//! A table of a store that was opened for reading alone.
//!
//! The engine below could write: to memory, by [`Overlay`](siltstone_vfs::Overlay). A write that is lost at the
//! end is none, so it is refused here, with what to do; what only moves bytes on the medium has nothing to do.
//!
//! Source: ours.

use std::any::Any;
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Error, Result, WriteBatch, forward_engine};

/// Hands on what reads.
pub(crate) struct ReadOnly {
    engine: Arc<dyn Engine>,
    store: String,
}

impl ReadOnly {
    /// The engine of a table in the store of this name.
    pub(crate) fn new(engine: Arc<dyn Engine>, store: String) -> Self {
        ReadOnly { engine, store }
    }
}

impl Engine for ReadOnly {
    forward_engine!(engine: name capabilities get get_at iter range random_key snapshot at);
    forward_engine!(engine: checkpoint verify stats warnings trouble close);

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

    fn behind(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.engine.behind()
    }
}

/// What is said of a change of the store.
pub(crate) fn refusal(store: &str) -> Error {
    Error::Refused {
        path: store.to_owned(),
        reason: "it was opened for reading alone; open it without read_only to change it"
            .to_owned(),
    }
}

//! Deletion of every key, for engines without a faster way: iterate, and delete in batches.
//!
//! Invariant: memory use is bounded. Each batch is atomic, the deletion of all keys is not.

use crate::{Durability, Engine, Result, WriteBatch};

/// The log-form size in bytes at which a batch of deletions is written.
const BATCH_BYTES: usize = 1 << 20;

/// Deletes every key that a scan returns, durably. Concurrent writes may stay.
///
/// # Errors
/// Those of the engine; some keys may be deleted then.
pub fn delete_all<E: Engine + ?Sized>(engine: &E) -> Result<()> {
    let mut cursor = engine.iter()?;
    cursor.skip_values();
    let mut batch = WriteBatch::new();
    let mut is_there = cursor.first()?;
    while is_there {
        batch.delete(cursor.key());
        is_there = cursor.next()?;
        if batch.as_bytes().len() >= BATCH_BYTES {
            engine.write(&batch, Durability::Buffered)?;
            batch.clear();
        }
    }
    // An empty batch is a sync.
    engine.write(&batch, Durability::Synced)
}

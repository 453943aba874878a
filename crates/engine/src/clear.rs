//! Removing every key of an engine that has no quicker way: a walk, and a removal of each.
//!
//! Invariant: memory is bounded; each batch is applied whole, the removal of all is not atomic.

use crate::{Durability, Engine, Result, WriteBatch};

/// Removals of one batch, in bytes of its log form.
const BATCH_BYTES: usize = 1 << 20;

/// Removes each key that a walk shows, durably. What is written meanwhile may stay.
///
/// # Errors
/// The engine's; some keys may be gone then.
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

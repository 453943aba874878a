//! Deletion of every key, for engines without a faster way: iterate, and delete in batches.
//!
//! Invariant: memory use is bounded. Each batch is atomic, the deletion of all keys is not.

use crate::{Cursor, Durability, Result, WriteBatch};

/// The log-form size in bytes at which a batch of deletions is written.
const BATCH_BYTES: usize = 1 << 20;

/// Deletes every key that `cursor` returns, by batches passed to `write`. Concurrent writes may
/// stay.
///
/// # Errors
/// Those of the cursor and of `write`; some keys may be deleted then.
pub fn delete_all(
    mut cursor: Box<dyn Cursor>,
    write: impl Fn(&WriteBatch, Durability) -> Result<()>,
) -> Result<()> {
    cursor.skip_values();
    let mut batch = WriteBatch::new();
    let mut is_there = cursor.first()?;
    while is_there {
        batch.delete(cursor.key());
        is_there = cursor.next()?;
        if batch.as_bytes().len() >= BATCH_BYTES {
            write(&batch, Durability::Buffered)?;
            batch.clear();
        }
    }
    // With the last batch, so that a disk that is full for the sync refuses the batch, too. An
    // empty batch is a sync.
    write(&batch, Durability::Synced)
}

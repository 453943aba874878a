//! Locks several tables for writing.
//!
//! Tables are locked in the order that the caller gives, the same everywhere: that of their names.
//! None of them waits for its background work while others are locked, since that work may have to
//! wait for one of these.

use siltstone_engine::{Engine, PreparedPart, Result, WriteBatch};

/// The engine of a table, and its part of a batch: empty if it is to be locked alone.
pub(crate) type Target<'a> = (&'a dyn Engine, &'a WriteBatch);
/// Tables that are locked for writing until this is dropped.
pub(crate) type Locked<'a> = Vec<Box<dyn PreparedPart + 'a>>;

/// Locks all tables for writing, each with room for its part. May block while background work is
/// behind.
///
/// # Errors
/// Those of [`Engine::prepare`]. Nothing has changed then.
pub(crate) fn lock<'a>(targets: &[Target<'a>]) -> Result<Locked<'a>> {
    loop {
        if let Some(locked) = try_lock(targets)? {
            return Ok(locked);
        }
        wait_for_room(targets)?;
    }
}

/// As [`lock`]; `None` if background work of one of the tables is behind.
///
/// # Errors
/// The same.
pub(crate) fn try_lock<'a>(targets: &[Target<'a>]) -> Result<Option<Locked<'a>>> {
    targets.iter().map(|(engine, batch)| engine.prepare(batch, false)).collect()
}

/// Waits until there was room in each table.
///
/// # Errors
/// Those of [`Engine::prepare`].
pub(crate) fn wait_for_room(targets: &[Target<'_>]) -> Result<()> {
    targets.iter().try_for_each(|(engine, batch)| engine.prepare(batch, true).map(drop))
}

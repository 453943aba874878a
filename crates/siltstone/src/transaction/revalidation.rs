//! Value-based validation, for transactions that are older than the commit history: the
//! transaction's reads are repeated and compared.
//!
//! If every key and range that a transaction has read still has the same content at a later moment,
//! the transaction could have begun at that moment. So comparing contents is as good as knowing the
//! keys that were written, at the cost of reading twice what was read. A key that was overwritten
//! with an equal value, or changed and changed back, then does not conflict.
//!
//! Expiry hides an entry from both reads, and with it a write that came in between. So a
//! transaction that has read an entry which has expired since counts as in conflict.
//!
//! Source: value-based validation, as in NOrec (Dalessandro, Spear and Scott, PPoPP 2010); moving
//! the beginning forward, as in LSA (Riegel, Felber and Fetzer, DISC 2006).

use siltstone_engine::{Clock, Engine, Error, KeyRange, ReadPoint, Result};

use super::read_set::ReadSet;

/// Keys that are compared at once.
const KEYS_PER_COMPARISON: usize = 256;

/// Checks that everything in `reads` has the same content at `earlier` and at `later` (`None`:
/// now).
///
/// # Errors
/// [`Error::Conflict`] with a key that differs; errors of the engine.
pub(super) fn check_unchanged(
    engine: &dyn Engine,
    clock: &dyn Clock,
    reads: &ReadSet,
    earlier: &ReadPoint,
    later: Option<&ReadPoint>,
) -> Result<()> {
    let keys: Vec<&[u8]> = reads.keys().collect();
    for keys in keys.chunks(KEYS_PER_COMPARISON) {
        let before = engine.multi_get(keys, Some(earlier))?;
        let after = engine.multi_get(keys, later)?;
        if let Some(changed) = (0..keys.len()).find(|&index| before[index] != after[index]) {
            return Err(Error::Conflict { key: keys[changed].to_vec() });
        }
    }
    for range in reads.ranges() {
        check_range(engine, range, earlier, later)?;
    }
    // Last, since an entry may expire between two reads.
    if reads.earliest_expiry().is_some_and(|expires_at| expires_at <= clock.now()) {
        return Err(Error::Conflict { key: reads.any_key() });
    }
    Ok(())
}

fn check_range(
    engine: &dyn Engine,
    range: KeyRange,
    earlier: &ReadPoint,
    later: Option<&ReadPoint>,
) -> Result<()> {
    let mut before = engine.range(range.clone(), Some(earlier))?;
    let mut after = engine.range(range, later)?;
    let (mut in_before, mut in_after) = (before.first()?, after.first()?);
    while in_before || in_after {
        let is_same =
            || before.value() == after.value() && before.expires_at() == after.expires_at();
        // The key that only one of them has is the lesser one.
        let changed = match (in_before, in_after) {
            (true, false) => Some(&before),
            (false, true) => Some(&after),
            _ if before.key() < after.key() => Some(&before),
            _ if before.key() > after.key() => Some(&after),
            _ => (!is_same()).then_some(&after),
        };
        if let Some(cursor) = changed {
            return Err(Error::Conflict { key: cursor.key().to_vec() });
        }
        (in_before, in_after) = (before.next()?, after.next()?);
    }
    Ok(())
}

//! A random key, for engines without a faster way.
//!
//! Invariant: the cost is that of an iteration over `MAX_KEYS` keys.

use crate::{Cursor, Result};

/// The number of keys to draw from.
const MAX_KEYS: u64 = 1000;

/// One of the first keys of `cursor`, all with the same probability (reservoir sampling).
/// `below` draws a number below its argument.
///
/// # Errors
/// Those of the cursor.
pub fn random_of_first(
    mut cursor: Box<dyn Cursor>,
    below: &mut dyn FnMut(u64) -> u64,
) -> Result<Option<Vec<u8>>> {
    cursor.skip_values();
    let (mut is_there, mut visited, mut drawn) = (cursor.first()?, 0, None);
    while is_there && visited < MAX_KEYS {
        visited += 1;
        // The n-th key replaces the drawn one with probability 1/n.
        if below(visited) == 0 {
            drawn = Some(cursor.key().to_vec());
        }
        is_there = cursor.next()?;
    }
    Ok(drawn)
}

//! A key drawn by chance, for engines that have no quicker way.
//!
//! Invariant: the cost is that of a walk over `MAX_WALKED` keys.

use crate::{Engine, Result};

/// How many keys are looked at.
const MAX_WALKED: u64 = 1000;

/// One of the first keys in engine order, each as likely as any other. `below` draws a number below
/// the one that it is given.
///
/// # Errors
/// The engine's.
pub fn random_of_first<E: Engine + ?Sized>(
    engine: &E,
    below: &mut dyn FnMut(u64) -> u64,
) -> Result<Option<Vec<u8>>> {
    let mut cursor = engine.iter()?;
    cursor.skip_values();
    let (mut is_there, mut walked, mut drawn) = (cursor.first()?, 0, None);
    while is_there && walked < MAX_WALKED {
        walked += 1;
        // The n-th takes the place of the one before with a chance of one in n.
        if below(walked) == 0 {
            drawn = Some(cursor.key().to_vec());
        }
        is_there = cursor.next()?;
    }
    Ok(drawn)
}

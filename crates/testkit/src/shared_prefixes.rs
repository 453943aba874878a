//! Many keys with shared prefixes, and many cursors that pause while keys are inserted next to
//! them.
//!
//! ```text
//!   cursor opened, placed    keys inserted around it      moved: shows the state at its creation
//!        a   b ▲ c           a  aa  ab  b ▲ ba  bb  c      a   b   c ▲
//! ```
//!
//! The histories of the other checks have few keys, which fit into one node or block of most
//! indexes. Here indexes grow and split, also the node that a cursor is in, repeatedly.
//!
//! Checked: a cursor shows the state at its creation whatever happened meanwhile; each key
//! is found.

use std::sync::Arc;

use siltstone_engine::{Durability, KeyRange, WriteBatch};
use siltstone_vfs::Ram;

use crate::histories::catch_panics;
use crate::history::{EPOCH, Step};
use crate::keys::{self, KeyPool};
use crate::scale::Case;
use crate::{
    CheckError, CheckResult, CheckedCursor, EngineUnderTest, Move, Scale, Session, TestRng,
};

/// The maximum number of keys in the pool.
const KEYS: usize = 1000;
/// Batches written.
const BATCHES: usize = 300;
/// The maximum length of a value.
const MAX_VALUE_BYTES: usize = 48;
/// The maximum number of open cursors.
const MAX_CURSORS: usize = 50;

/// Writes keys with shared prefixes, and moves cursors among them.
///
/// # Errors
/// What is wrong, and how to repeat it.
pub fn shared_prefixes(tested: &dyn EngineUnderTest, scale: &Scale) -> CheckResult {
    let (mut tables, mut moves) = (0, 0);
    for case in scale.cases(scale.histories / 2, tested.option_set_count()) {
        moves += catch_panics(|| fill(tested, case)).map_err(|what| {
            let options = tested.describe(case.option_set);
            format!("{} ({options}): {what}\n{case}", tested.name())
        })?;
        tables += 1;
    }
    Ok(format!("{tables} tables with shared prefixes, {moves} moves of cursors"))
}

/// Fills one table; returns the number of cursor moves.
fn fill(tested: &dyn EngineUnderTest, case: Case) -> Result<u64, CheckError> {
    let mut rng = TestRng::of(case.seed, 6);
    let pool = KeyPool::with_shared_prefixes(&mut rng, KEYS);
    let mut session = Session::begin(tested, case.option_set, case.seed, Arc::new(Ram::new()))?;
    let is_ordered = tested.capabilities().ordered;
    let (mut cursors, mut moves) = (Vec::new(), 0);
    for _ in 0..BATCHES {
        session.step(&Step::Write(batch(&mut rng, &pool), Durability::Buffered))?;
        session.step(&Step::Get(pool.key(&mut rng)))?;
        if !is_ordered {
            continue;
        }
        if cursors.len() < MAX_CURSORS && rng.one_in(2) {
            let mut cursor = session.checked_cursor(&KeyRange::all(), None, EPOCH)?;
            if cursor.step(&Move::Seek(pool.key(&mut rng)))?.is_some() {
                cursors.push(cursor);
            }
        }
        if !cursors.is_empty() && rng.one_in(2) {
            let at = rng.index(cursors.len());
            let (steps, is_valid) = move_some(&mut rng, &mut cursors[at])?;
            moves += steps;
            if !is_valid {
                cursors.swap_remove(at);
            }
        }
    }
    // Open cursors would keep the table open.
    drop(cursors);
    for step in [Step::ReadAll, Step::Reopen, Step::ReadAll] {
        session.step(&step)?;
    }
    Ok(moves)
}

fn batch(rng: &mut TestRng, pool: &KeyPool) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + rng.index(8) {
        let key = pool.key(rng);
        match rng.one_in(8) {
            true => batch.delete(&key),
            false => batch.put(&key, &keys::value(rng, MAX_VALUE_BYTES)),
        };
    }
    batch
}

/// Moves a cursor up to four times; returns the number of moves, and whether it is still valid.
fn move_some(rng: &mut TestRng, cursor: &mut CheckedCursor) -> Result<(u64, bool), CheckError> {
    let direction = if rng.one_in(2) { Move::Next } else { Move::Prev };
    let count = 1 + rng.below(4);
    for made in 1..=count {
        if cursor.step(&direction)?.is_none() {
            return Ok((made, false));
        }
    }
    Ok((count, true))
}

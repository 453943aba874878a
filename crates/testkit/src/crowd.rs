//! Many keys that begin alike, and many cursors that stand still while others come between.
//!
//! ```text
//!   cursor made, placed      keys written next to it      moved: it shows the moment of its making
//!        a   b ▲ c           a  aa  ab  b ▲ ba  bb  c      a   b   c ▲
//! ```
//!
//! Histories of a few keys, which the other checks run, fit into a node or a block of most indexes. Here these grow and
//! split, also the piece that a cursor stands in, and again before it is moved.
//!
//! Promise checked: a cursor shows the moment of its making wherever it stood meanwhile; each key is found.
//!
//! Source: ours.

use std::sync::Arc;

use siltstone_engine::{Durability, KeyRange, WriteBatch};
use siltstone_vfs::Ram;

use crate::histories::guarded;
use crate::history::{EPOCH, Step};
use crate::keys::{self, KeyPool};
use crate::scale::Case;
use crate::{Dice, Move, Scale, Session, Subject, Verdict, Walker, Wrong};

/// Keys in the pool, at most.
const KEYS: usize = 1000;
/// Batches written.
const BATCHES: usize = 300;
/// Bytes of a value, at most.
const VALUE_BYTES: usize = 48;
/// Cursors at once.
const CURSORS: usize = 50;

/// Writes crowds of keys, and moves cursors among them.
///
/// # Errors
/// What is wrong, and how to repeat it.
pub fn crowds(subject: &dyn Subject, scale: &Scale) -> Verdict {
    let (mut crowds, mut moves) = (0, 0);
    for case in scale.cases(scale.histories / 2, subject.variants()) {
        moves += guarded(|| crowd(subject, case)).map_err(|what| {
            let options = subject.describe(case.variant);
            format!("{} ({options}): {what}\n{case}", subject.name())
        })?;
        crowds += 1;
    }
    Ok(format!("{crowds} crowds of keys, {moves} moves of cursors among them"))
}

/// One table, from empty to crowded; how often a cursor was moved.
fn crowd(subject: &dyn Subject, case: Case) -> Result<u64, Wrong> {
    let mut dice = Dice::of(case.seed, 6);
    let pool = KeyPool::crowd(&mut dice, KEYS);
    let mut session = Session::begin(subject, case.variant, case.seed, Arc::new(Ram::new()))?;
    let is_ordered = subject.capabilities().ordered;
    let (mut cursors, mut moves) = (Vec::new(), 0);
    for _ in 0..BATCHES {
        session.step(&Step::Write(batch(&mut dice, &pool), Durability::Buffered))?;
        session.step(&Step::Get(pool.key(&mut dice)))?;
        if !is_ordered {
            continue;
        }
        if cursors.len() < CURSORS && dice.one_in(2) {
            let mut cursor = session.walker(&KeyRange::all(), None, EPOCH)?;
            if cursor.step(&Move::Seek(pool.key(&mut dice)))?.is_some() {
                cursors.push(cursor);
            }
        }
        if !cursors.is_empty() && dice.one_in(2) {
            let at = dice.index(cursors.len());
            let (steps, is_somewhere) = stroll(&mut dice, &mut cursors[at])?;
            moves += steps;
            if !is_somewhere {
                cursors.swap_remove(at);
            }
        }
    }
    // A cursor keeps hold of the table.
    drop(cursors);
    for step in [Step::ReadAll, Step::Reopen, Step::ReadAll] {
        session.step(&step)?;
    }
    Ok(moves)
}

fn batch(dice: &mut Dice, pool: &KeyPool) -> WriteBatch {
    let mut batch = WriteBatch::new();
    for _ in 0..1 + dice.index(8) {
        let key = pool.key(dice);
        match dice.one_in(8) {
            true => batch.delete(&key),
            false => batch.put(&key, &keys::value(dice, VALUE_BYTES)),
        };
    }
    batch
}

/// A few moves from where the cursor stands; how many, and whether it stands on something after them.
fn stroll(dice: &mut Dice, cursor: &mut Walker) -> Result<(u64, bool), Wrong> {
    let direction = if dice.one_in(2) { Move::Next } else { Move::Prev };
    let most = 1 + dice.below(4);
    for made in 1..=most {
        if cursor.step(&direction)?.is_none() {
            return Ok((made, false));
        }
    }
    Ok((most, true))
}

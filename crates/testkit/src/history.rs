//! Random histories: what is done to an engine, step by step, as data.
//!
//! A history is drawn from a seed before anything runs, so that it can be run against several
//! engines, cut short, thinned out and printed. Steps name snapshots by number, modulo how many
//! there are, so that a step means something whatever others were dropped.
//!
//! Invariant: a history is a function of its seed and its [`Shape`].
//!
//! Source: ours.

use std::fmt;

use siltstone_engine::{Durability, KeyRange, Op, Timestamp, WriteBatch};

use crate::keys::{self, KeyPool};
use crate::oracle::show;
use crate::{Dice, Move};

/// When every history begins.
pub const EPOCH: Timestamp = 1_000_000;

/// One thing done to an engine.
#[derive(Debug, Clone)]
pub enum Step {
    /// Write a batch.
    Write(WriteBatch, Durability),
    /// Look up a key.
    Get(Vec<u8>),
    /// Look up a key at a snapshot.
    GetAt(Vec<u8>, usize),
    /// Walk over a range, at a snapshot or now.
    Walk(KeyRange, Option<usize>, Vec<Move>),
    /// Open a cursor and keep it.
    Hold(KeyRange, Option<usize>),
    /// Move the cursor that is kept.
    MoveHeld(Vec<Move>),
    /// Take a snapshot.
    Snapshot,
    /// Drop a snapshot.
    Release(usize),
    /// Read everything, in engine order.
    ReadAll,
    /// [`Engine::flush`](siltstone_engine::Engine::flush).
    Flush,
    /// [`Engine::maintain`](siltstone_engine::Engine::maintain).
    Maintain,
    /// [`Engine::sync`](siltstone_engine::Engine::sync).
    Sync,
    /// Close and open.
    Reopen,
    /// Drop without closing, as when the process dies, and open.
    Crash,
    /// Set the clock.
    Clock(Timestamp),
    /// Make a checkpoint, open it, and read everything from it.
    Checkpoint,
    /// [`Engine::verify`](siltstone_engine::Engine::verify).
    Verify,
    /// [`Engine::clear`](siltstone_engine::Engine::clear).
    Clear,
}

/// What a history is like.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many steps.
    pub steps: usize,
    /// Keys in the pool, at most.
    pub keys: usize,
    /// Bytes of a value, at most.
    pub value_bytes: usize,
    /// Writes and what moves them to the medium, with little reading between.
    pub mostly_writes: bool,
    /// The engine is closed or dropped, and opened again.
    pub reopens: bool,
    /// The clock goes back.
    pub clock_goes_back: bool,
}

impl Shape {
    /// A bit of everything.
    pub const EVERYTHING: Shape = Shape {
        steps: 250,
        keys: 30,
        value_bytes: 40 << 10,
        mostly_writes: false,
        reopens: true,
        clock_goes_back: true,
    };

    /// Writes, for runs that break off.
    pub const WRITES: Shape = Shape {
        steps: 90,
        keys: 24,
        value_bytes: 3 << 10,
        mostly_writes: true,
        reopens: true,
        clock_goes_back: false,
    };
}

/// Draws a history.
pub fn draw(seed: u64, shape: &Shape) -> Vec<Step> {
    let mut dice = Dice::of(seed, 1);
    let pool = KeyPool::draw(&mut dice, shape.keys);
    let mut author = Author { dice, pool, now: EPOCH, shape };
    (0..shape.steps).map(|_| author.step()).collect()
}

struct Author<'s> {
    dice: Dice,
    pool: KeyPool,
    now: Timestamp,
    shape: &'s Shape,
}

impl Author<'_> {
    fn step(&mut self) -> Step {
        let weights: &[u64] = match self.shape.mostly_writes {
            //       write get at walk hold move snap drop all flush maint sync reop crash clock chk vrf clr
            true => &[700, 20, 0, 10, 0, 0, 10, 10, 0, 35, 35, 60, 15, 15, 10, 0, 5, 15],
            false => &[450, 90, 50, 90, 25, 50, 35, 20, 25, 25, 25, 20, 15, 15, 35, 10, 10, 10],
        };
        let mut throw = self.dice.below(weights.iter().sum());
        let mut kind = 0;
        while throw >= weights[kind] {
            throw -= weights[kind];
            kind += 1;
        }
        match kind {
            0 => self.write(),
            1 => Step::Get(self.key()),
            2 => Step::GetAt(self.key(), self.number()),
            3 => Step::Walk(self.range(), self.snapshot(), self.moves()),
            4 => Step::Hold(self.range(), self.snapshot()),
            5 => self.move_held(),
            6 => Step::Snapshot,
            7 => Step::Release(self.number()),
            9 => Step::Flush,
            10 => Step::Maintain,
            11 => Step::Sync,
            12 if self.shape.reopens => Step::Reopen,
            13 if self.shape.reopens => Step::Crash,
            14 => self.clock(),
            15 => Step::Checkpoint,
            16 => Step::Verify,
            17 => Step::Clear,
            _ => Step::ReadAll,
        }
    }

    fn write(&mut self) -> Step {
        let durability = match self.dice.one_in(4) {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        let count = match self.dice.below(8) {
            0..5 => 1,
            5..7 => 2 + self.dice.index(4),
            _ => self.dice.index(24),
        };
        let mut batch = WriteBatch::new();
        for _ in 0..count {
            let key = self.key();
            match self.dice.below(8) {
                0..2 => batch.delete(&key),
                2 => {
                    let value = keys::value(&mut self.dice, self.shape.value_bytes);
                    batch.put_until(&key, &value, (self.now + self.dice.below(200)) - 50)
                }
                _ => batch.put(&key, &keys::value(&mut self.dice, self.shape.value_bytes)),
            };
        }
        Step::Write(batch, durability)
    }

    fn key(&mut self) -> Vec<u8> {
        self.pool.key(&mut self.dice)
    }

    fn number(&mut self) -> usize {
        self.dice.index(8)
    }

    fn snapshot(&mut self) -> Option<usize> {
        self.dice.one_in(3).then(|| self.number())
    }

    fn range(&mut self) -> KeyRange {
        if self.dice.one_in(3) {
            return KeyRange::all();
        }
        let (a, b) = (self.key(), self.key());
        match self.dice.below(5) {
            0 => KeyRange::prefix(&a[..a.len().div_ceil(2)]),
            1 => KeyRange::new(a..),
            2 => KeyRange::new(..=b),
            3 => KeyRange::new(a.clone().min(b.clone())..=a.max(b)),
            _ => KeyRange::new(a.clone().min(b.clone())..a.max(b)),
        }
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = 3 + self.dice.index(20);
        let mut runs_back = self.dice.one_in(2);
        let mut moves = Vec::with_capacity(count + 1);
        moves.push(self.placement());
        for _ in 0..count {
            if self.dice.one_in(4) {
                runs_back = !runs_back;
            }
            moves.push(match self.dice.below(8) {
                0 => self.placement(),
                _ if runs_back => Move::Prev,
                _ => Move::Next,
            });
        }
        moves
    }

    /// As often as not the cursor goes on from where it stood before what was written meanwhile.
    fn move_held(&mut self) -> Step {
        let mut moves = self.moves();
        if self.dice.one_in(2) {
            moves.remove(0);
        }
        Step::MoveHeld(moves)
    }

    fn placement(&mut self) -> Move {
        match self.dice.below(6) {
            0 => Move::First,
            1 => Move::Last,
            2..4 => Move::Seek(self.key()),
            _ => Move::SeekBack(self.key()),
        }
    }

    fn clock(&mut self) -> Step {
        let by = self.dice.below(120);
        self.now = match self.shape.clock_goes_back && self.dice.one_in(3) {
            true => self.now - by,
            false => self.now + by,
        };
        Step::Clock(self.now)
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Write(batch, durability) => {
                write!(f, "write {durability:?}")?;
                for op in batch.iter() {
                    match op {
                        Op::Delete { key } => write!(f, "  -{}", show(key))?,
                        Op::Put { key, value, expires_at } => {
                            write!(f, "  {}={}", show(key), show(value))?;
                            expires_at.map_or(Ok(()), |at| write!(f, " until {at}"))?;
                        }
                    }
                }
                Ok(())
            }
            Step::Get(key) => write!(f, "get {}", show(key)),
            Step::GetAt(key, number) => write!(f, "get {} at snapshot {number}", show(key)),
            other => write!(f, "{other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_one_history_with_every_kind_of_step() {
        let steps = draw(3, &Shape { steps: 3000, ..Shape::EVERYTHING });
        let again = draw(3, &Shape { steps: 3000, ..Shape::EVERYTHING });
        assert!(steps.iter().zip(&again).all(|(a, b)| format!("{a:?}") == format!("{b:?}")));
        let kinds: std::collections::HashSet<_> =
            steps.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 18);
    }
}

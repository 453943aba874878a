//! Random histories: the operations on an engine, step by step, as data.
//!
//! A history is generated from a seed before anything runs, so that it can be run against several
//! engines, truncated, shrunk and printed. Steps name snapshots by number, modulo their count, so
//! that a step stays valid when others are removed.
//!
//! Invariant: a history is a function of its seed and its [`HistoryShape`].

use std::collections::BTreeSet;
use std::fmt;

use siltstone_engine::{BatchOp, Durability, IngestMode, KeyRange, Op, Timestamp, WriteBatch};

use crate::keys::{self, KeyPool};
use crate::oracle::show;
use crate::{Move, TestRng};

/// The time at which every history begins.
pub const EPOCH: Timestamp = 1_000_000;

/// One in this many operations, on average, has a range deletion before it in its batch. The check
/// omits them for engines without range deletions.
const RANGE_DELETION_INTERVAL: u64 = 40;

/// The maximum length of an operand of a merge.
const MAX_OPERAND_BYTES: usize = 60;

/// One operation on an engine.
#[derive(Debug, Clone)]
pub enum Step {
    /// Write a batch. Sessions omit the operations that their engine does not take: see
    /// [`Session`](crate::Session).
    Write(WriteBatch, Durability),
    /// Get a key.
    Get(Vec<u8>),
    /// Get a key at a snapshot.
    GetAt(Vec<u8>, usize),
    /// Scan a range, at a snapshot or now.
    Scan(KeyRange, Option<usize>, Vec<Move>),
    /// Open a cursor and keep it open.
    OpenCursor(KeyRange, Option<usize>),
    /// Move the open cursor.
    MoveCursor(Vec<Move>),
    /// Take a snapshot.
    Snapshot,
    /// Release a snapshot.
    Release(usize),
    /// Read everything, in engine order.
    ReadAll,
    /// [`Engine::flush`](siltstone_engine::Engine::flush).
    Flush,
    /// [`Engine::maintain`](siltstone_engine::Engine::maintain).
    Maintain,
    /// [`Engine::compact_range`](siltstone_engine::Engine::compact_range); on unordered engines
    /// [`Engine::maintain`](siltstone_engine::Engine::maintain).
    Compact(KeyRange),
    /// [`Engine::sync`](siltstone_engine::Engine::sync).
    Sync,
    /// Close and open.
    Reopen,
    /// Drop without closing, as in a process crash, and open.
    Crash,
    /// Set the clock.
    Clock(Timestamp),
    /// Make a checkpoint, open it, and read everything from it.
    Checkpoint,
    /// [`Engine::verify`](siltstone_engine::Engine::verify).
    Verify,
    /// [`Engine::clear`](siltstone_engine::Engine::clear).
    Clear,
    /// Ingest sorted files with these operations: see
    /// [`Engine::prepare_ingestion`](siltstone_engine::Engine::prepare_ingestion). Sessions whose
    /// engine ingests none write them as one batch.
    Ingest(Vec<WriteBatch>, IngestMode),
}

/// Parameters of a history.
#[derive(Debug, Clone, Copy)]
pub struct HistoryShape {
    /// The number of steps.
    pub steps: usize,
    /// The maximum number of keys in the pool.
    pub keys: usize,
    /// The maximum length of a value.
    pub value_bytes: usize,
    /// Mostly writes, flushes and compactions, with few reads.
    pub mostly_writes: bool,
    /// The engine is reopened, with and without a close.
    pub reopens: bool,
    /// The clock goes back at times.
    pub clock_goes_back: bool,
}

impl HistoryShape {
    /// Every kind of step.
    pub const EVERYTHING: HistoryShape = HistoryShape {
        steps: 250,
        keys: 30,
        value_bytes: 40 << 10,
        mostly_writes: false,
        reopens: true,
        clock_goes_back: true,
    };

    /// Mostly writes, for runs that a power cut ends.
    pub const WRITES: HistoryShape = HistoryShape {
        steps: 90,
        keys: 24,
        value_bytes: 3 << 10,
        mostly_writes: true,
        reopens: true,
        clock_goes_back: false,
    };
}

/// Generates a history.
pub fn draw(seed: u64, shape: &HistoryShape) -> Vec<Step> {
    let mut rng = TestRng::of(seed, 1);
    let pool = KeyPool::draw(&mut rng, shape.keys);
    let mut generator = Generator { rng, pool, now: EPOCH, shape };
    (0..shape.steps).map(|_| generator.step()).collect()
}

struct Generator<'s> {
    rng: TestRng,
    pool: KeyPool,
    now: Timestamp,
    shape: &'s HistoryShape,
}

impl Generator<'_> {
    fn step(&mut self) -> Step {
        let weights: &[u64] = match self.shape.mostly_writes {
            // write get at scan open move snap drop all flush maint sync reop crash clock chk vrf
            // clr cmp ing
            true => &[700, 20, 0, 10, 0, 0, 10, 10, 0, 35, 35, 60, 15, 15, 10, 0, 5, 15, 20, 20],
            false => {
                &[450, 90, 50, 90, 25, 50, 35, 20, 25, 25, 25, 20, 15, 15, 35, 10, 10, 10, 15, 15]
            }
        };
        let mut draw = self.rng.below(weights.iter().sum());
        let mut kind = 0;
        while draw >= weights[kind] {
            draw -= weights[kind];
            kind += 1;
        }
        match kind {
            0 => self.write(),
            1 => Step::Get(self.key()),
            2 => Step::GetAt(self.key(), self.number()),
            3 => Step::Scan(self.range(), self.snapshot(), self.moves()),
            4 => Step::OpenCursor(self.range(), self.snapshot()),
            5 => self.move_cursor(),
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
            18 => Step::Compact(self.range()),
            19 => self.ingest(),
            _ => Step::ReadAll,
        }
    }

    fn write(&mut self) -> Step {
        let durability = match self.rng.one_in(4) {
            true => Durability::Synced,
            false => Durability::Buffered,
        };
        let count = match self.rng.below(8) {
            0..5 => 1,
            5..7 => 2 + self.rng.index(4),
            _ => self.rng.index(24),
        };
        let mut batch = WriteBatch::new();
        for _ in 0..count {
            if self.rng.one_in(RANGE_DELETION_INTERVAL) {
                let KeyRange { start, end } = self.narrow_range();
                batch.delete_range((start, end));
            }
            let key = self.key();
            match self.rng.below(10) {
                8.. => batch.merge(&key, &keys::value(&mut self.rng, MAX_OPERAND_BYTES)),
                0..2 => batch.delete(&key),
                2 => {
                    let value = keys::value(&mut self.rng, self.shape.value_bytes);
                    batch.put_until(&key, &value, (self.now + self.rng.below(200)) - 50)
                }
                _ => batch.put(&key, &keys::value(&mut self.rng, self.shape.value_bytes)),
            };
        }
        Step::Write(batch, durability)
    }

    fn ingest(&mut self) -> Step {
        let count = 1 + self.rng.index(16);
        let keys: BTreeSet<Vec<u8>> = (0..count).map(|_| self.key()).collect();
        let mut files = vec![WriteBatch::new()];
        for key in &keys {
            if self.rng.one_in(5) {
                files.push(WriteBatch::new());
            }
            let Some(file) = files.last_mut() else { continue };
            match self.rng.below(8) {
                0 => file.delete(key),
                1 => {
                    let value = keys::value(&mut self.rng, self.shape.value_bytes);
                    file.put_until(key, &value, (self.now + self.rng.below(200)) - 50)
                }
                _ => file.put(key, &keys::value(&mut self.rng, self.shape.value_bytes)),
            };
        }
        files.retain(|file| !file.is_empty());
        let mode = *self.rng.pick(&[IngestMode::Copy, IngestMode::Link, IngestMode::Move]);
        Step::Ingest(files, mode)
    }

    fn key(&mut self) -> Vec<u8> {
        self.pool.key(&mut self.rng)
    }

    fn number(&mut self) -> usize {
        self.rng.index(8)
    }

    fn snapshot(&mut self) -> Option<usize> {
        self.rng.one_in(3).then(|| self.number())
    }

    fn range(&mut self) -> KeyRange {
        if self.rng.one_in(3) { KeyRange::all() } else { self.narrow_range() }
    }

    fn narrow_range(&mut self) -> KeyRange {
        let (a, b) = (self.key(), self.key());
        match self.rng.below(5) {
            0 => KeyRange::prefix(&a[..a.len().div_ceil(2)]),
            1 => KeyRange::new(a..),
            2 => KeyRange::new(..=b),
            3 => KeyRange::new(a.clone().min(b.clone())..=a.max(b)),
            _ => KeyRange::new(a.clone().min(b.clone())..a.max(b)),
        }
    }

    fn moves(&mut self) -> Vec<Move> {
        let count = 3 + self.rng.index(20);
        let mut is_backward = self.rng.one_in(2);
        let mut moves = Vec::with_capacity(count + 1);
        moves.push(self.seek());
        for _ in 0..count {
            if self.rng.one_in(4) {
                is_backward = !is_backward;
            }
            moves.push(match self.rng.below(8) {
                0 => self.seek(),
                _ if is_backward => Move::Prev,
                _ => Move::Next,
            });
        }
        moves
    }

    /// Half of the time the cursor continues from its position, past keys that were written since
    /// it moved there.
    fn move_cursor(&mut self) -> Step {
        let mut moves = self.moves();
        if self.rng.one_in(2) {
            moves.remove(0);
        }
        Step::MoveCursor(moves)
    }

    fn seek(&mut self) -> Move {
        match self.rng.below(6) {
            0 => Move::First,
            1 => Move::Last,
            2..4 => Move::Seek(self.key()),
            _ => Move::SeekBack(self.key()),
        }
    }

    fn clock(&mut self) -> Step {
        let by = self.rng.below(120);
        self.now = match self.shape.clock_goes_back && self.rng.one_in(3) {
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
                for op in batch.iter_all() {
                    match op {
                        BatchOp::Point(Op::Delete { key }) => write!(f, "  -{}", show(key))?,
                        BatchOp::Merge { key, operand } => {
                            write!(f, "  {}+{}", show(key), show(operand))?;
                        }
                        BatchOp::DeleteRange { start, end } => {
                            let end = end.map(show).unwrap_or_default();
                            write!(f, "  -{}..{end}", show(start))?;
                        }
                        BatchOp::Point(Op::Put { key, value, expires_at }) => {
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
    fn seed_determines_a_history_with_every_kind_of_step() {
        let steps = draw(3, &HistoryShape { steps: 3000, ..HistoryShape::EVERYTHING });
        let again = draw(3, &HistoryShape { steps: 3000, ..HistoryShape::EVERYTHING });
        assert!(steps.iter().zip(&again).all(|(a, b)| format!("{a:?}") == format!("{b:?}")));
        let kinds: std::collections::HashSet<_> =
            steps.iter().map(std::mem::discriminant).collect();
        assert_eq!(kinds.len(), 20);
    }
}

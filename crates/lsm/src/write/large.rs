//! NoveLSM's mutable memtable in persistent memory (`level0=novelsm`), for comparison.
//!
//! ```text
//!   DRAM memtable has room             a key that the large memtable has is updated there, others go to DRAM
//!   it is full, others are flushed     every write goes to the large one
//!   the large one is full              both go to level 0, that of DRAM first; a second large one begins
//! ```
//!
//! So the large memtable takes a portion of the writes, the more the longer flushes wait for compactions
//! of level 0, and no writer waits before two large ones are full. Those are flushed to rows
//! of their size, and level 0 and 1 are merged whole.
//!
//! What of it is durable is the log's here, and not its own memory: logs are kept from the one on that
//! was being written when the oldest unflushed memtable began. A row is installed only when the logs are
//! synced, since it may hold later writes than the large memtable.
//!
//! Invariant: of every key, what the large memtable has is newer than what any other memtable has that is
//! not flushed after it; so readers look there first.
//!
//! Source: TriangleKV paper, sections 2.4.3 (increased size, direct updates, flushes to level 0), 5.1 (two
//! memtables of half the persistent memory each) and 5.2 ("handles a portion of update requests").

use std::sync::Arc;

use siltstone_engine::{Op, Result};

use super::Writer;
use crate::engine::Inner;
use crate::memtable::Memtable;
use crate::options::L0Policy;
use crate::record::Position;

/// The large memtable of the writer.
pub(crate) struct Large {
    pub(super) memtable: Arc<Memtable>,
    /// Keys and values that it took.
    bytes: u64,
}

impl Writer {
    /// Adds one operation to the memtable that takes it; `true`: the large one. `is_full`: that of
    /// DRAM has no room.
    pub(super) fn add(
        &mut self,
        sequence: u64,
        op: Op<'_>,
        position: Position,
        is_full: bool,
    ) -> bool {
        let bytes = match op {
            Op::Put { key, value, .. } => key.len() + value.len(),
            Op::Delete { key } => key.len(),
        } as u64;
        match &mut self.large {
            Some(large) if is_full || large.memtable.tree().entry(op.key()).is_some() => {
                large.bytes += bytes;
                large.memtable.add(sequence, op, position);
                true
            }
            _ => {
                self.bytes += bytes;
                self.memtable.add(sequence, op, position);
                false
            }
        }
    }
}

impl Inner {
    /// Whether there is a large memtable, or is to be one when it is wanted.
    pub(crate) fn has_large(&self) -> bool {
        self.options.l0_policy() == L0Policy::NoveLsm
    }

    /// Whether no memtable is to be flushed before a copy is made, because a large one has older writes.
    pub(super) fn holds_for_copy(&self) -> bool {
        self.has_large() && self.copies.is_begun()
    }

    /// How full the memtable of DRAM is where another shares its log.
    pub(super) fn fill_beside_large(&self, open: &Writer) -> Option<f64> {
        self.has_large().then(|| fill(open.bytes, &open.memtable, self.options.memtable()))
    }

    pub(super) fn is_large_full(&self, open: &Writer) -> bool {
        let limit = self.options.novelsm_memtable_bytes();
        let large = open.large.as_ref();
        large.is_some_and(|large| fill(large.bytes, &large.memtable, limit) >= 1.0)
    }

    /// Sees to it that there is room where the memtable of DRAM has none: in the large one, or in a
    /// new one of DRAM if both can go to level 0. `false`: there is none, or no large one.
    pub(super) fn make_large_room(&self, open: &mut Writer) -> Result<bool> {
        if !self.has_large() {
            return Ok(false);
        }
        match &open.large {
            Some(_) if !self.is_large_full(open) => {}
            Some(_) if self.view.load().flushing.iter().any(|memtable| memtable.is_novelsm()) => {
                return Ok(false);
            }
            Some(_) if self.holds_for_copy() => return Ok(false),
            Some(_) => self.rotate(open, true)?,
            None => {
                let number = open.log.number();
                let memtable = Arc::new(Memtable::novelsm(number));
                open.large = Some(Large { memtable: memtable.clone(), bytes: 0 });
                self.publish(&mut self.background.lock(), |view| view.large = Some(memtable));
            }
        }
        Ok(true)
    }
}

fn fill(bytes: u64, memtable: &Memtable, limit: u64) -> f64 {
    // Small values take more memory than they have bytes: the same limits as without a large one.
    bytes.max(memtable.bytes() / 2) as f64 / limit as f64
}

//! NoveLSM's mutable memtable in persistent memory (`level0=novelsm`), for comparison: the overlay
//! of a view.
//!
//! ```text
//!   DRAM memtable has room             a key in the overlay is updated there, others go to DRAM
//!   it is full, others are flushed     every write goes to the overlay
//!   the overlay is full                both go to level 0, that of DRAM first; another one begins
//! ```
//!
//! So the overlay takes a part of the writes, the more the longer flushes wait for compactions of
//! level 0, and no writer waits before two overlays are full. They are flushed to runs of their
//! size, and levels 0 and 1 are merged whole.
//!
//! The overlay is as durable as the log here, and not as its own memory: logs are kept from the one
//! on that was written when the oldest unflushed memtable began. A run is installed only when the
//! logs are synced, since it may contain later writes than the overlay.
//!
//! Invariant: of every key, the entry in the overlay is newer than that in any other memtable that
//! is not flushed after it; so readers search the overlay first.
//!
//! Source: TriangleKV paper, sections 2.4.3 (increased size, direct updates, flushes to level 0),
//! 5.1 (two memtables of half the persistent memory each) and 5.2 ("handles a portion of update
//! requests").

use std::sync::Arc;

use siltstone_durable::{Writer, publish, stall};
use siltstone_engine::{Op, Result};

use crate::engine::Tree;
use crate::memtable::Memtable;
use crate::options::L0Policy;
use crate::record::Position;

/// The overlay, as its writer has it.
pub(super) struct Overlay {
    memtable: Arc<Memtable>,
    /// Keys and values that it took, in bytes.
    bytes: u64,
}

/// Inserts one operation into the memtable that takes it; returns whether that is the overlay.
/// `is_full`: that of DRAM has no room.
pub(super) fn insert(
    writer: &mut Writer<Tree>,
    sequence: u64,
    op: Op<'_>,
    position: Position,
    is_full: bool,
) -> bool {
    let bytes = match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key } => key.len(),
    } as u64;
    match &mut writer.state.overlay {
        Some(overlay) if is_full || overlay.memtable.tree().entry(op.key()).is_some() => {
            overlay.bytes += bytes;
            overlay.memtable.add(sequence, op, position);
            true
        }
        _ => {
            writer.state.bytes += bytes;
            writer.memtable.add(sequence, op, position);
            false
        }
    }
}

impl Tree {
    /// Whether there is an overlay, or may be one.
    pub(crate) fn has_overlay(&self) -> bool {
        self.options.l0_policy() == L0Policy::NoveLsm
    }

    /// Whether a checkpoint forbids the flush of any memtable, because an overlay has older writes.
    pub(super) fn is_flush_held(&self) -> bool {
        self.has_overlay() && self.checkpoint_lock.is_begun()
    }

    /// How full the memtable of DRAM is where another shares its log.
    pub(super) fn fill_beside_overlay(&self, writer: &Writer<Self>) -> Option<f64> {
        let limit = self.options.memtable();
        self.has_overlay().then(|| fill(writer.state.bytes, &writer.memtable, limit))
    }

    pub(super) fn is_overlay_full(&self, writer: &Writer<Self>) -> bool {
        let limit = self.options.novelsm_memtable_bytes();
        let overlay = writer.state.overlay.as_ref();
        overlay.is_some_and(|overlay| fill(overlay.bytes, &overlay.memtable, limit) >= 1.0)
    }

    /// Makes room where the memtable of DRAM has none: in the overlay, or in a new memtable of DRAM
    /// if both can go to level 0. `false`: there is none, or no overlay.
    pub(super) fn make_overlay_room(&self, writer: &mut Writer<Self>) -> Result<bool> {
        if !self.has_overlay() {
            return Ok(false);
        }
        match &writer.state.overlay {
            Some(_) if !self.is_overlay_full(writer) => {}
            Some(_) if self.view.load().flushing.iter().any(|memtable| memtable.is_novelsm()) => {
                return Ok(false);
            }
            Some(_) if self.is_flush_held() => return Ok(false),
            Some(_) => stall::rotate(self, writer, true)?,
            None => {
                let memtable = Arc::new(Memtable::novelsm(writer.log.number()));
                writer.state.overlay = Some(Overlay { memtable: memtable.clone(), bytes: 0 });
                let mut state = self.background.lock();
                publish(self, &mut state, |view| view.overlay = Some(memtable));
            }
        }
        Ok(true)
    }
}

fn fill(bytes: u64, memtable: &Memtable, limit: u64) -> f64 {
    // Small values take more memory than they have bytes: the same limits as without an overlay.
    bytes.max(memtable.bytes() / 2) as f64 / limit as f64
}

//! The overlay: NoveLSM's mutable memtable in persistent memory (`l0_policy=novelsm`), for
//! comparison.
//!
//! It takes writes beside the DRAM memtable:
//!
//! ```text
//!   DRAM memtable has room             a key in the overlay is updated there, others go to DRAM
//!   it is full, others are flushed     every write goes to the overlay
//!   the overlay is full                both go to level 0, that of DRAM first; another one begins
//! ```
//!
//! So the overlay takes a part of the writes, which grows with the time that flushes wait for
//! compactions of level 0. Writers wait only when two overlays are full. They are flushed to runs
//! of their size, and levels 0 and 1 are merged whole.
//!
//! Here the overlay is in DRAM, and the log makes it durable: all logs since the beginning of the
//! oldest unflushed memtable are kept. A flushed run is installed only after the logs are synced,
//! since it may contain later writes than the overlay.
//!
//! Invariant: if a key is in the overlay, its entry there is newer than the one in any memtable
//! that is flushed before the overlay or with it. So readers search the overlay first.
//!
//! Source: TriangleKV paper, sections 2.4.3 (increased size, direct updates, flushes to level 0),
//! 5.1 (two memtables of half the persistent memory each) and 5.2 ("handles a portion of update
//! requests").

use std::sync::Arc;

use siltstone_durable::{Writer, publish, stall};
use siltstone_engine::{BatchOp, Op, Result};

use crate::engine::Tree;
use crate::memtable::Memtable;
use crate::options::L0Policy;
use crate::record::Position;

/// The writer's handle of the overlay.
pub(super) struct Overlay {
    memtable: Arc<Memtable>,
    /// The bytes of keys and values inserted so far.
    bytes: u64,
}

/// Inserts one operation into the memtable that takes it; returns whether that is the overlay.
/// `is_full`: the DRAM memtable is full.
pub(super) fn insert(
    writer: &mut Writer<Tree>,
    sequence: u64,
    op: BatchOp<'_>,
    position: Position,
    is_full: bool,
) -> bool {
    let (key, bytes) = match op {
        BatchOp::Point(Op::Put { key, value, .. }) => (key, key.len() + value.len()),
        BatchOp::Point(Op::Delete { key }) => (key, key.len()),
        BatchOp::Merge { key, operand } => (key, key.len() + operand.len()),
        // Readers compare sequence numbers, so any memtable will do. The DRAM memtable is flushed
        // first, so that range deletions enter versions in their order.
        BatchOp::DeleteRange { start, end } => {
            writer.memtable.delete_range(sequence, start, end);
            return false;
        }
    };
    let bytes = bytes as u64;
    match &mut writer.state.overlay {
        Some(overlay) if is_full || overlay.memtable.tree().entry(key).is_some() => {
            overlay.bytes += bytes;
            overlay.memtable.apply(sequence, op, position);
            true
        }
        _ => {
            writer.state.bytes += bytes;
            writer.memtable.apply(sequence, op, position);
            false
        }
    }
}

impl Tree {
    /// Whether there is an overlay, or may be one.
    #[inline]
    pub(crate) fn has_overlay(&self) -> bool {
        self.l0_policy == L0Policy::NoveLsm
    }

    /// Whether a checkpoint forbids the flush of any memtable, because an overlay has older writes.
    pub(super) fn is_flush_held(&self) -> bool {
        self.has_overlay() && self.checkpoint_lock.is_running()
    }

    /// How full the memtable of DRAM is where another shares its log.
    pub(super) fn fill_beside_overlay(&self, writer: &Writer<Self>) -> Option<f64> {
        self.has_overlay().then(|| {
            let limit = self.options.load().memtable();
            fill(writer.state.bytes, &writer.memtable, limit)
        })
    }

    pub(super) fn is_overlay_full(&self, writer: &Writer<Self>) -> bool {
        writer.state.overlay.as_ref().is_some_and(|overlay| {
            let limit = self.options.load().novelsm_memtable_bytes();
            fill(overlay.bytes, &overlay.memtable, limit) >= 1.0
        })
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

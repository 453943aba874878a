//! What the connections of an iteration have received and not run.
//!
//! ```text
//!   ┌ connection 7 ┬ connection 9 ┬ space ───────────┐
//!   └── received ──┴── received ──┴─ for one read ───┘
//! ```
//!
//! Connections that wait for a group keep their bytes; those of others are given back at once. The
//! buffer is cleared when no connection waits any more.

use std::ops::{Deref, Range};

/// Bytes per read.
const READ_BYTES: usize = 64 << 10;
/// Reads for which there is space at least.
const READS: usize = 4;

/// The received bytes of a worker's connections.
pub(crate) struct ReceiveBuffer {
    bytes: Box<[u8]>,
    used: usize,
}

impl Default for ReceiveBuffer {
    fn default() -> Self {
        ReceiveBuffer { bytes: vec![0; READS * READ_BYTES].into(), used: 0 }
    }
}

impl Deref for ReceiveBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl ReceiveBuffer {
    /// Whether it has to be cleared before the next read.
    pub(crate) fn is_full(&self) -> bool {
        self.used + READ_BYTES > self.bytes.len()
    }

    /// Where the next bytes are to be read.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        let end = self.bytes.len().min(self.used + READ_BYTES);
        &mut self.bytes[self.used..end]
    }

    /// Keeps the first bytes of the [`space`](Self::space).
    pub(crate) fn take(&mut self, count: usize) -> Range<usize> {
        self.used += count;
        self.used - count..self.used
    }

    /// Frees the bytes that were taken last.
    pub(crate) fn give_back(&mut self, count: usize) {
        self.used -= count;
    }

    /// Frees all bytes.
    pub(crate) fn clear(&mut self) {
        self.used = 0;
    }
}

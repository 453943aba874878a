//! Block builder.
//!
//! Entries are appended to one buffer, which is reused for the next block. Every
//! `restart_interval` entries there is a restart point. The layout is drawn in [`super`].
//!
//! Invariant: entries are added in order; the SSTable writer checks it.

use siltstone_structures::common_prefix_len;

use crate::kind::{EntryRef, Kind};
use crate::varint::push_varint;

/// Builds blocks, one at a time.
#[derive(Debug)]
pub struct BlockBuilder {
    bytes: Vec<u8>,
    restarts: Vec<u32>,
    last_key: Vec<u8>,
    restart_interval: usize,
    /// Entries since the last restart point.
    since_restart: usize,
}

impl BlockBuilder {
    /// Sets a restart point every `restart_interval` entries (at least 1).
    pub fn new(restart_interval: usize) -> Self {
        BlockBuilder {
            bytes: Vec::new(),
            restarts: Vec::new(),
            last_key: Vec::new(),
            restart_interval: restart_interval.max(1),
            since_restart: 0,
        }
    }

    /// Adds the next entry in order. A block must stay below 4 GiB.
    pub fn add(&mut self, entry: EntryRef<'_>) {
        let shared = if self.restarts.is_empty() || self.since_restart == self.restart_interval {
            self.restarts.push(self.bytes.len() as u32);
            self.since_restart = 0;
            0
        } else {
            common_prefix_len(&self.last_key, entry.key)
        };
        self.since_restart += 1;
        let suffix = &entry.key[shared..];
        let out = &mut self.bytes;
        out.reserve(suffix.len() + entry.value.len() + 40);
        push_varint(out, shared as u64);
        push_varint(out, suffix.len() as u64);
        push_varint(out, entry.sequence << 3 | entry.kind as u64);
        if entry.kind.stores_expiry() {
            push_varint(out, entry.expires_at);
        }
        if entry.kind != Kind::Delete {
            push_varint(out, entry.value.len() as u64);
        }
        out.extend_from_slice(suffix);
        if entry.kind != Kind::Delete {
            out.extend_from_slice(entry.value);
        }
        self.last_key.truncate(shared);
        self.last_key.extend_from_slice(suffix);
    }

    /// The last key of this block; empty before the first.
    pub fn last_key(&self) -> &[u8] {
        &self.last_key
    }

    /// Whether nothing was added since the last [`clear`](BlockBuilder::clear).
    pub fn is_empty(&self) -> bool {
        self.restarts.is_empty()
    }

    /// The uncompressed size of the block so far, in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len() + 4 * self.restarts.len() + 4
    }

    /// Appends the restart points and returns the contents; call [`clear`](Self::clear) afterwards.
    pub fn finish(&mut self) -> &[u8] {
        for restart in &self.restarts {
            self.bytes.extend_from_slice(&restart.to_le_bytes());
        }
        self.bytes.extend_from_slice(&(self.restarts.len() as u32).to_le_bytes());
        &self.bytes
    }

    /// Starts the next block, reusing the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.restarts.clear();
        self.last_key.clear();
        self.since_restart = 0;
    }
}

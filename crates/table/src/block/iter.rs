//! Bidirectional block iterator.
//!
//! The key is rebuilt in one reused buffer; the value is a range of the block. A step back rescans
//! from the preceding restart point. A seek builds only the key that it finds.
//!
//! Invariant: `key`, `value` and the other accessors describe one entry while `valid` is true;
//! after an error the iterator is unpositioned.

use std::sync::Arc;

use siltstone_structures::KeyBuffer;

use super::{Block, MalformedBlock, RawEntry};
use crate::kind::{EntryRef, Kind};

/// A position in a block. Keeps the block alive.
#[derive(Debug)]
pub struct BlockIter {
    block: Arc<Block>,
    key: KeyBuffer,
    /// The offset of the entry at the iterator.
    at: usize,
    /// That entry; `None` if the iterator is unpositioned.
    entry: Option<RawEntry>,
}

impl BlockIter {
    /// An unpositioned iterator.
    pub fn new(block: Arc<Block>) -> Self {
        BlockIter { block, key: KeyBuffer::default(), at: 0, entry: None }
    }

    /// Switches to another block, reusing the memory, and returns the previous block.
    pub fn reset(&mut self, block: Arc<Block>) -> Arc<Block> {
        self.entry = None;
        std::mem::replace(&mut self.block, block)
    }

    /// Moves to the first entry. A valid block has at least one.
    ///
    /// # Errors
    /// The entry is malformed.
    pub fn first(&mut self) -> Result<bool, MalformedBlock> {
        self.key.clear();
        self.enter(0)
    }

    /// Moves to the last entry. Cost: a scan of one restart interval.
    ///
    /// # Errors
    /// An entry read on the way is malformed.
    pub fn last(&mut self) -> Result<bool, MalformedBlock> {
        self.scan_to_before(self.block.entries_end)
    }

    /// Moves to the first entry not less than (key, sequence).
    ///
    /// # Errors
    /// An entry read on the way is malformed.
    pub fn seek(&mut self, key: &[u8], sequence: u64) -> Result<bool, MalformedBlock> {
        self.entry = None;
        let Some(hit) = self.block.lower_bound(key, sequence)? else {
            return Ok(false);
        };
        // At most what the scan matched, hence within the target, unless the block is malformed.
        let Some(shared) = key.get(..hit.entry.shared) else {
            return Err(bad_prefix_len(hit.at));
        };
        self.key.set(shared);
        let (from, to) = (hit.entry.key_at, hit.entry.value_at);
        self.key.replace_end(shared.len(), self.block.contents(), from, to);
        self.at = hit.at;
        self.entry = Some(hit.entry);
        Ok(true)
    }

    /// Moves to the last entry not greater than (key, sequence).
    ///
    /// # Errors
    /// An entry read on the way is malformed.
    pub fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<bool, MalformedBlock> {
        self.entry = None;
        match self.block.lower_bound(key, sequence)? {
            None => self.last(),
            Some(hit) if hit.same_key && hit.entry.sequence == sequence => self.seek(key, sequence),
            Some(hit) => self.scan_to_before(hit.at),
        }
    }

    /// Moves to the next entry; the iterator must be valid.
    ///
    /// # Errors
    /// The entry is malformed.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "entries are lent, which Iterator cannot do")]
    pub fn next(&mut self) -> Result<bool, MalformedBlock> {
        match self.entry {
            Some(entry) => self.enter(entry.end),
            None => Ok(false),
        }
    }

    /// Moves to the previous entry; the iterator must be valid. Cost: a scan of one restart
    /// interval.
    ///
    /// # Errors
    /// An entry read on the way is malformed.
    pub fn prev(&mut self) -> Result<bool, MalformedBlock> {
        match self.entry {
            Some(_) => self.scan_to_before(self.at),
            None => Ok(false),
        }
    }

    /// Whether the iterator is positioned on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.entry.is_some()
    }

    /// The entry at the iterator. Panics if it is not valid.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        let entry = self.current();
        EntryRef {
            key: self.key.as_slice(),
            sequence: entry.sequence,
            kind: entry.kind,
            expires_at: entry.expires_at,
            value: self.block.slice(entry.value_at, entry.end),
        }
    }

    /// The key at the iterator. Panics if it is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        debug_assert!(self.valid());
        self.key.as_slice()
    }

    /// The sequence number at the iterator. Panics if it is not valid.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.current().sequence
    }

    /// The kind at the iterator. Panics if it is not valid.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.current().kind
    }

    /// When the entry at the iterator expires, in ms since 1970; 0 unless its kind is
    /// `PutExpiring`. Panics if it is not valid.
    #[inline]
    pub fn expires_at(&self) -> u64 {
        self.current().expires_at
    }

    /// The value at the iterator. Panics if it is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        let entry = self.current();
        self.block.slice(entry.value_at, entry.end)
    }

    /// The length of the prefix shared with the previous entry, and the entry's offset in the
    /// block.
    pub(crate) fn layout(&self) -> (usize, usize) {
        (self.current().shared, self.at)
    }

    /// Whether the entry at the iterator is at a restart point.
    pub(crate) fn at_restart(&self) -> bool {
        self.block.restart(self.block.restart_before(self.at)) == self.at
    }

    #[inline]
    fn current(&self) -> &RawEntry {
        self.entry.as_ref().expect("the iterator is valid")
    }

    /// Decodes the entry at `at`; the buffer holds the preceding key.
    #[inline]
    fn enter(&mut self, at: usize) -> Result<bool, MalformedBlock> {
        self.entry = None;
        if at >= self.block.entries_end {
            return Ok(false);
        }
        let entry = self.block.decode(at)?;
        if entry.shared > self.key.len() {
            return Err(bad_prefix_len(at));
        }
        let (from, to) = (entry.key_at, entry.value_at);
        self.key.replace_end(entry.shared, self.block.contents(), from, to);
        self.at = at;
        self.entry = Some(entry);
        Ok(true)
    }

    /// Moves to the last entry that starts before `offset`.
    fn scan_to_before(&mut self, offset: usize) -> Result<bool, MalformedBlock> {
        self.entry = None;
        if offset == 0 {
            return Ok(false);
        }
        let from = self.block.restart(self.block.restart_before(offset - 1));
        self.key.clear();
        self.enter(from)?;
        while let Some(entry) = self.entry
            && entry.end < offset
        {
            self.enter(entry.end)?;
        }
        Ok(self.valid())
    }
}

fn bad_prefix_len(offset: usize) -> MalformedBlock {
    MalformedBlock { offset, reason: "an entry shares more bytes than the previous key has" }
}

//! Saving what can be read of a damaged table, block by block.
//!
//! A block is one checksum, so damage costs the entries of its own block and no others. The index
//! must hold: without it nothing in a table can be found, and opening it fails.
//!
//! Invariant: every entry that is handed out was under a checksum that held.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use super::table::Table;
use crate::block::BlockIter;
use crate::kind::EntryRef;

impl Table {
    /// Hands every entry of every sound block to `visit`, in order; returns the bytes of the file that
    /// were damaged, adjacent blocks as one range. Cost: one read a block, past the cache.
    ///
    /// # Errors
    /// The medium's, and those of `visit`. Corruption is in the answer instead.
    pub fn salvage(
        &self,
        mut visit: impl FnMut(EntryRef<'_>) -> Result<()>,
    ) -> Result<Vec<Range<u64>>> {
        let mut damaged: Vec<Range<u64>> = Vec::new();
        let mut note = |block: Range<u64>| match damaged.last_mut() {
            Some(last) if last.end == block.start => last.end = block.end,
            _ => damaged.push(block),
        };
        for i in 0..self.index().blocks() {
            let block = match self.read_block(i, Vec::new(), Purpose::Maintenance) {
                Ok(block) => block,
                Err(Error::Corruption { .. }) => {
                    note(self.index().range(i));
                    continue;
                }
                Err(other) => return Err(other),
            };
            let mut iter = BlockIter::new(Arc::new(block));
            let mut there = iter.first();
            while let Ok(true) = there {
                visit(iter.entry())?;
                there = iter.next();
            }
            if there.is_err() {
                note(self.index().range(i));
            }
        }
        Ok(damaged)
    }
}

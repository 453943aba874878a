//! Saving what can be read of a damaged table, block by block.
//!
//! A block is one checksum, so damage costs the entries of its own block and no others. The index
//! must hold: without it nothing in a table can be found, and opening it fails.
//!
//! Invariant: every entry that is handed out was under a checksum that held.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};

use super::table::Table;
use crate::block::BlockIter;
use crate::kind::EntryRef;

impl Table {
    /// Hands every entry of every sound block to `visit`, in order; returns how many blocks were
    /// damaged. Cost: one read a block, past the cache.
    ///
    /// # Errors
    /// The medium's, and those of `visit`. Corruption is counted instead.
    pub fn salvage(&self, mut visit: impl FnMut(EntryRef<'_>) -> Result<()>) -> Result<u64> {
        let mut damaged = 0;
        for i in 0..self.index().blocks() {
            let block = match self.read_block(i, Vec::new(), Purpose::Maintenance) {
                Ok(block) => block,
                Err(Error::Corruption { .. }) => {
                    damaged += 1;
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
            damaged += u64::from(there.is_err());
        }
        Ok(damaged)
    }
}

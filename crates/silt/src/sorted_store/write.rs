//! Writes a SortedStore and its index in one pass over entries in the order of their hashes.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_structures::ect::EctOptions;
use siltstone_structures::{EctBuilder, HashKey};
use siltstone_table::FileSum;
use siltstone_vfs::{File, Vfs};

use super::boundaries::{Boundaries, BoundariesBuilder, UNIT};
use super::format::{CRC, FOOTER, StoreMeta};
use super::index_bytes;
use crate::file::{FileWriter, write_derived};
use crate::names::Kind;

/// The properties of a SortedStore that a merge determines before it writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) partition: u32,
    pub(crate) keys: crate::keys::KeyHasher,
    /// The estimated number of hashes; an upper bound.
    pub(crate) expected: u64,
    pub(crate) hashes_per_block: u32,
    /// The length of every operation, if all have one length.
    pub(crate) one_length: Option<u32>,
    /// The mean length of an operation in bytes, about.
    pub(crate) mean_bytes: u64,
}

/// Writes one SortedStore.
pub(crate) struct SortedStoreWriter<'m> {
    vfs: &'m dyn Vfs,
    number: u64,
    file: Arc<dyn File>,
    out: FileWriter,
    sum: FileSum,
    meta: StoreMeta,
    index: EctBuilder,
    starts: BoundariesBuilder,
    block: Vec<u8>,
    hashes_in_block: u32,
}

/// The error of an index that could not be built, which cannot happen with uniform hashes.
pub(super) fn no_index(error: impl std::fmt::Display) -> Error {
    Error::Invalid(format!("the index of a SortedStore: {error}"))
}

/// The index parameters for blocks of `hashes_per_block` hashes.
pub(super) fn index_options(hashes_per_block: u32) -> EctOptions {
    EctOptions { entries_per_block: hashes_per_block, ..EctOptions::default() }
}

impl<'m> SortedStoreWriter<'m> {
    /// Creates the file `number`.
    pub(crate) fn create(
        vfs: &'m dyn Vfs,
        number: u64,
        plan: Plan,
        rate: &Arc<RateLimiter>,
    ) -> Result<Self> {
        let file = vfs.create(&Kind::SortedStore.name(number))?;
        let meta = StoreMeta {
            partition: plan.partition,
            keys: plan.keys,
            entries: 0,
            hashes: 0,
            hashes_per_block: plan.hashes_per_block,
            lengths: (0, 0),
            is_even: plan.one_length.is_some(),
        };
        let block_bytes = CRC as u64 + u64::from(plan.hashes_per_block) * plan.mean_bytes;
        Ok(SortedStoreWriter {
            vfs,
            number,
            out: FileWriter::new(file.clone(), 0, Purpose::Compaction, rate.clone()),
            file,
            sum: FileSum::new(number),
            meta,
            index: EctBuilder::new(index_options(plan.hashes_per_block), plan.expected)
                .map_err(no_index)?,
            starts: BoundariesBuilder::new(block_bytes + UNIT / 2),
            block: vec![0; CRC],
            hashes_in_block: 0,
        })
    }

    /// Adds the entries of the next hash. Returns `false` if the plan has blocks of one size and
    /// the entries do not fit it, because several keys share a hash; the store is unusable then.
    pub(crate) fn add(&mut self, hash: &HashKey, entries: &[&[u8]]) -> Result<bool> {
        if self.hashes_in_block == self.meta.hashes_per_block {
            self.end_block()?;
        }
        self.index.push(hash).map_err(no_index)?;
        for entry in entries {
            let len = entry.len() as u32;
            let (shortest, longest) = self.meta.lengths;
            let is_first = self.meta.entries == 0;
            self.meta.lengths =
                if is_first { (len, len) } else { (shortest.min(len), longest.max(len)) };
            self.meta.entries += 1;
            self.block.extend_from_slice(entry);
        }
        self.meta.hashes += 1;
        self.hashes_in_block += 1;
        let (shortest, longest) = self.meta.lengths;
        Ok(!self.meta.is_even || (entries.len() == 1 && shortest == longest))
    }

    fn end_block(&mut self) -> Result<()> {
        if self.hashes_in_block == 0 {
            return Ok(());
        }
        let at = self.out.at();
        if !self.meta.is_even {
            self.block.resize(self.block.len().next_multiple_of(UNIT as usize), 0);
            self.starts.push(at);
        }
        let crc = self.sum.of(at, &self.block[CRC..]);
        self.block[..CRC].copy_from_slice(&crc.to_le_bytes());
        self.out.write(&self.block)?;
        self.block.truncate(CRC);
        self.hashes_in_block = 0;
        Ok(())
    }

    /// Ends and syncs the files, but not their directory. Returns the bytes and entries of the data
    /// file; `None` if there are no entries.
    pub(crate) fn finish(mut self) -> Result<Option<(u64, u64)>> {
        self.end_block()?;
        if self.meta.entries == 0 {
            return Ok(None);
        }
        let end = self.out.at();
        let footer = FOOTER.encode(&self.meta.encode(), self.sum, end);
        self.out.write(&footer)?;
        self.out.flush()?;
        self.file.sync(Purpose::Compaction)?;
        let boundaries = match self.meta.is_even {
            true => Boundaries::even(self.meta.blocks(), self.meta.stride(), end),
            false => self.starts.finish(end),
        };
        let trie = self.index.finish().map_err(no_index)?;
        let bytes = index_bytes(&trie, &boundaries);
        let name = Kind::Index.name(self.number);
        write_derived(self.vfs, &name, self.number, &bytes, Purpose::Compaction)?;
        Ok(Some((end + footer.len() as u64, self.meta.entries)))
    }
}

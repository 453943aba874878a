//! Bidirectional SSTable iterator.
//!
//! An iterator over the index finds blocks, and one over the block finds entries. A scan uses the
//! block cache, and after consecutive misses reads ahead, doubling the distance each time. A
//! compaction bypasses the cache, reads ahead the maximum at once, and reuses one block's memory.
//!
//! Invariant: the iterator is positioned on an entry exactly while `valid` is true; after an error
//! it is unpositioned.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use super::table::Table;
use crate::block::{Block, BlockIter, MalformedBlock};
use crate::kind::{EntryRef, Kind};

/// The first readahead of a scan, in bytes.
const MIN_WINDOW_BYTES: u64 = 16 << 10;

/// Entries of a block up to this multiple of the average are drawn with equal probability; on
/// average this many blocks are sampled per entry drawn.
const MAX_BLOCK_SKEW: u64 = 4;
/// Blocks sampled before falling back to the first entry. One in four succeeds, so this is rare.
const MAX_SAMPLED_BLOCKS: usize = 256;

/// Read options of an iterator.
#[derive(Debug, Clone, Copy)]
pub struct IterOptions {
    /// Maximum readahead in bytes; 0: block by block.
    pub readahead_bytes: usize,
    /// Whether blocks are read through the cache. Without it, as for compaction, readahead starts
    /// at once.
    pub fill_cache: bool,
}

impl IterOptions {
    /// For user scans: through the cache, readahead up to 256 KiB.
    pub const SCAN: IterOptions = IterOptions { readahead_bytes: 256 << 10, fill_cache: true };
    /// For compaction: bypasses the cache, 512 KiB at once.
    pub const COMPACTION: IterOptions =
        IterOptions { readahead_bytes: 512 << 10, fill_cache: false };
}

/// A position in an SSTable. Keeps it open.
pub struct TableIter {
    source: Source,
    block: Option<BlockIter>,
    /// Placeholder in the block iterator while its block's memory is refilled, without the cache.
    placeholder: Option<Arc<Block>>,
    /// The number of the current block.
    at: usize,
}

impl Table {
    /// An unpositioned iterator.
    pub fn iter(self: &Arc<Self>, purpose: Purpose, options: IterOptions) -> TableIter {
        let source = Source {
            table: self.clone(),
            purpose,
            options,
            window: Vec::new(),
            window_at: 0,
            next_miss: usize::MAX,
            next_window: 0,
        };
        let placeholder = (!options.fill_cache).then(|| Arc::new(Block::empty()));
        TableIter { source, block: None, placeholder, at: 0 }
    }
}

impl TableIter {
    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn first(&mut self) -> Result<bool> {
        if self.source.blocks() == 0 {
            return Ok(false);
        }
        self.enter(0)?;
        self.move_in_block(BlockIter::first)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn last(&mut self) -> Result<bool> {
        let Some(i) = self.source.blocks().checked_sub(1) else {
            return Ok(false);
        };
        self.enter(i)?;
        self.move_in_block(BlockIter::last)
    }

    /// Moves to the first entry not less than (key, sequence). Cost: a search of the index and of
    /// one block, which is not reread if it is the current one.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn seek(&mut self, key: &[u8], sequence: u64) -> Result<bool> {
        let sequence = self.source.table.stored_sequence(sequence);
        let i = self.source.table.index().find(key, sequence);
        if i == self.source.blocks() {
            self.unposition();
            return Ok(false);
        }
        self.enter(i)?;
        if self.move_in_block(|block| block.seek(key, sequence))? {
            return Ok(true);
        }
        // Between the block's last entry and its separator: the next block's first entry is
        // greater.
        self.next_block()
    }

    /// Moves to the last entry not greater than (key, sequence).
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<bool> {
        let sequence = self.source.table.stored_sequence(sequence);
        let i = self.source.table.index().find(key, sequence);
        if i == self.source.blocks() {
            return self.last();
        }
        self.enter(i)?;
        if self.move_in_block(|block| block.seek_back(key, sequence))? {
            return Ok(true);
        }
        self.prev_block()
    }

    /// Moves to a random entry, uniformly distributed unless a block has more than
    /// `MAX_BLOCK_SKEW` times the average number of entries; the excess is never drawn. `below(n)`
    /// returns a random number below `n`. Cost: a few blocks.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn random(&mut self, below: &mut dyn FnMut(u64) -> u64) -> Result<bool> {
        let blocks = self.source.blocks() as u64;
        if blocks == 0 {
            return Ok(false);
        }
        let max_entries = MAX_BLOCK_SKEW * self.source.table.meta().entries.div_ceil(blocks).max(1);
        for _ in 0..MAX_SAMPLED_BLOCKS {
            self.enter(below(blocks) as usize)?;
            // Rejection sampling: a block is rejected in proportion to its missing entries.
            let mut remaining = below(max_entries);
            let mut is_valid = self.move_in_block(BlockIter::first)?;
            while is_valid && remaining > 0 {
                remaining -= 1;
                is_valid = self.move_in_block(BlockIter::next)?;
            }
            if is_valid {
                return Ok(true);
            }
        }
        self.first()
    }

    /// Moves to the next entry; the iterator must be valid.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "entries are lent, which Iterator cannot do")]
    pub fn next(&mut self) -> Result<bool> {
        let Some(block) = self.block.as_mut().filter(|block| block.valid()) else {
            return Ok(false);
        };
        match block.next() {
            Ok(true) => Ok(true),
            Ok(false) => self.next_block(),
            Err(bad) => {
                self.unposition();
                Err(self.source.table.malformed(self.at, bad))
            }
        }
    }

    /// Moves to the previous entry; the iterator must be valid.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn prev(&mut self) -> Result<bool> {
        if !self.valid() {
            return Ok(false);
        }
        if self.move_in_block(BlockIter::prev)? {
            return Ok(true);
        }
        self.prev_block()
    }

    /// Whether the iterator is positioned on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.block.as_ref().is_some_and(BlockIter::valid)
    }

    /// The entry at the iterator. Panics if it is not valid.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        let entry = self.current().entry();
        EntryRef { sequence: self.source.table.shown_sequence(entry.sequence), ..entry }
    }

    /// The key at the iterator. Panics if it is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.current().key()
    }

    /// The sequence number at the iterator. Panics if it is not valid.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.source.table.shown_sequence(self.current().sequence())
    }

    /// The kind at the iterator. Panics if it is not valid.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.current().kind()
    }

    /// When the entry at the iterator expires, in ms since 1970; 0 unless its kind is
    /// `PutExpiring`. Panics if it is not valid.
    #[inline]
    pub fn expires_at(&self) -> u64 {
        self.current().expires_at()
    }

    /// The value at the iterator. Panics if it is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.current().value()
    }

    /// The SSTable.
    pub fn table(&self) -> &Arc<Table> {
        &self.source.table
    }

    #[inline]
    fn current(&self) -> &BlockIter {
        self.block.as_ref().expect("the iterator is valid")
    }

    fn unposition(&mut self) {
        self.block = None;
    }

    #[inline(never)]
    fn next_block(&mut self) -> Result<bool> {
        if self.at + 1 >= self.source.blocks() {
            return Ok(false);
        }
        self.enter(self.at + 1)?;
        self.move_in_block(BlockIter::first)
    }

    fn prev_block(&mut self) -> Result<bool> {
        if self.at == 0 {
            return Ok(false);
        }
        self.enter(self.at - 1)?;
        self.move_in_block(BlockIter::last)
    }

    /// Makes block `i` the current one.
    fn enter(&mut self, i: usize) -> Result<()> {
        if self.at == i && self.block.is_some() {
            return Ok(());
        }
        // Taken first, so that an error leaves the iterator unpositioned.
        let iter = match (self.block.take(), &self.placeholder) {
            (None, _) => BlockIter::new(self.source.load(i, Vec::new())?),
            (Some(mut iter), Some(placeholder)) => {
                let old = iter.reset(placeholder.clone());
                let memory = Arc::try_unwrap(old).map_or_else(|_| Vec::new(), Block::into_bytes);
                iter.reset(self.source.load(i, memory)?);
                iter
            }
            (Some(mut iter), None) => {
                iter.reset(self.source.load(i, Vec::new())?);
                iter
            }
        };
        self.block = Some(iter);
        self.at = i;
        Ok(())
    }

    /// Moves within the block and adds the location to errors.
    #[inline]
    fn move_in_block(
        &mut self,
        go: impl FnOnce(&mut BlockIter) -> Result<bool, MalformedBlock>,
    ) -> Result<bool> {
        let Some(block) = &mut self.block else {
            return Ok(false);
        };
        match go(block) {
            Ok(there) => Ok(there),
            Err(bad) => {
                self.unposition();
                Err(self.source.table.malformed(self.at, bad))
            }
        }
    }
}

/// Loads blocks, with readahead.
struct Source {
    table: Arc<Table>,
    purpose: Purpose,
    options: IterOptions,
    /// Bytes read ahead, from `window_at` in the file.
    window: Vec<u8>,
    window_at: u64,
    /// A miss of this block would be sequential.
    next_miss: usize,
    /// Readahead of the next sequential miss, in bytes; 0: its block alone.
    next_window: u64,
}

impl Source {
    fn blocks(&self) -> usize {
        self.table.index().blocks()
    }

    fn load(&mut self, i: usize, memory: Vec<u8>) -> Result<Arc<Block>> {
        if !self.options.fill_cache {
            return self.fetch(i, memory).map(Arc::new);
        }
        if let Some(block) = self.table.cached_block(i) {
            return Ok(block.into_arc());
        }
        let block = self.fetch(i, memory)?;
        Ok(self.table.cache_block(i, block))
    }

    /// Block `i` from the window, which is moved if necessary.
    fn fetch(&mut self, i: usize, mut memory: Vec<u8>) -> Result<Block> {
        let range = self.table.index().range(i);
        let loaded = self.window_at..self.window_at + self.window.len() as u64;
        if !(loaded.start <= range.start && range.end <= loaded.end) {
            let ahead = self.readahead(i);
            if ahead <= range.end - range.start {
                return self.table.read_block(i, memory, self.purpose);
            }
            let len = ahead.min(self.table.index().data_bytes() - range.start);
            // Empty during the read, so that a failed read leaves no stale bytes in it.
            let mut window = std::mem::take(&mut self.window);
            window.resize(len as usize, 0);
            self.table.file().read_at(range.start, &mut window, self.purpose)?;
            self.window = window;
            self.window_at = range.start;
            self.next_miss = self.table.index().block_at(range.start + len);
        }
        let from = (range.start - self.window_at) as usize;
        let to = (range.end - self.window_at) as usize;
        memory.clear();
        memory.extend_from_slice(&self.window[from..to]);
        self.table.open_block(i, memory)
    }

    /// Bytes to read for missing block `i`; 0: the block alone.
    fn readahead(&mut self, i: usize) -> u64 {
        let max_bytes = self.options.readahead_bytes as u64;
        let sequential = self.next_miss == i;
        self.next_miss = i + 1;
        if !self.options.fill_cache {
            return max_bytes;
        }
        if !sequential {
            self.next_window = 0;
            return 0;
        }
        let ahead = self.next_window;
        self.next_window = (2 * ahead).max(MIN_WINDOW_BYTES).min(max_bytes);
        ahead
    }
}

//! Walking a table both ways.
//!
//! An iterator over the index finds blocks, one over the block finds entries. Blocks come in two
//! ways: a scan takes them from the cache and puts them there, and after a few misses in a row reads
//! ahead, twice as far each time; a compaction passes the cache by, reads ahead its full measure at
//! once, and reads each block into the memory of the one before.
//!
//! Invariant: the iterator stands on an entry exactly while `valid` is true; after an error it
//! stands nowhere.

use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use super::table::Table;
use crate::block::{Block, BlockIter, Malformed};
use crate::kind::{EntryRef, Kind};

/// The first read ahead of a scan, in bytes.
const FIRST_WINDOW: u64 = 16 << 10;

/// How many times the average number of entries a block may hold so that all of them are drawn by
/// chance alike; as many blocks are drawn for one entry.
const CROWDED: u64 = 4;
/// Blocks that are drawn before the first entry has to do. It hardly comes to that: one in four
/// succeeds.
const MAX_RANDOM_BLOCKS: usize = 256;

/// How an iterator reads.
#[derive(Debug, Clone, Copy)]
pub struct IterOptions {
    /// How far to read ahead at most, in bytes; 0: block by block.
    pub readahead_bytes: usize,
    /// Whether blocks come from the cache and go there. Without it, as for compaction, the cache is
    /// passed by and reading ahead begins at once.
    pub fill_cache: bool,
}

impl IterOptions {
    /// For users' scans: through the cache, reading ahead up to 256 KiB.
    pub const SCAN: IterOptions = IterOptions { readahead_bytes: 256 << 10, fill_cache: true };
    /// For compaction: past the cache, 512 KiB at once.
    pub const COMPACTION: IterOptions =
        IterOptions { readahead_bytes: 512 << 10, fill_cache: false };
}

/// A position in a table, which it keeps open.
pub struct TableIter {
    source: Source,
    block: Option<BlockIter>,
    /// Stands in the block iterator while its block's memory is read into, where blocks pass the cache by.
    nothing: Option<Arc<Block>>,
    /// The number of the block under the iterator.
    at: usize,
}

impl Table {
    /// An iterator that stands nowhere yet.
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
        let nothing = (!options.fill_cache).then(|| Arc::new(Block::none()));
        TableIter { source, block: None, nothing, at: 0 }
    }
}

impl TableIter {
    /// Moves to the first entry.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn first(&mut self) -> Result<bool> {
        if self.source.blocks() == 0 {
            return Ok(false);
        }
        self.enter(0)?;
        self.settle(BlockIter::first)
    }

    /// Moves to the last entry.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn last(&mut self) -> Result<bool> {
        let Some(i) = self.source.blocks().checked_sub(1) else {
            return Ok(false);
        };
        self.enter(i)?;
        self.settle(BlockIter::last)
    }

    /// Moves to the first entry not less than (key, sequence). Cost: a search of the index and of
    /// one block, which is not read again if the iterator is in it.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn seek(&mut self, key: &[u8], sequence: u64) -> Result<bool> {
        let i = self.source.table.index().find(key, sequence);
        if i == self.source.blocks() {
            self.leave();
            return Ok(false);
        }
        self.enter(i)?;
        if self.settle(|block| block.seek(key, sequence))? {
            return Ok(true);
        }
        // Between the block's last entry and its separator: the next block begins with a greater.
        self.next_block()
    }

    /// Moves to the last entry not greater than (key, sequence).
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn seek_back(&mut self, key: &[u8], sequence: u64) -> Result<bool> {
        let i = self.source.table.index().find(key, sequence);
        if i == self.source.blocks() {
            return self.last();
        }
        self.enter(i)?;
        if self.settle(|block| block.seek_back(key, sequence))? {
            return Ok(true);
        }
        self.prev_block()
    }

    /// Moves to an entry drawn by chance. Each is as likely as any other, as far as no block holds
    /// more than `CROWDED` times the average: what lies behind that in its block is not drawn.
    /// `below` draws a number below the one that it is given. Cost: a few blocks.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn random(&mut self, below: &mut dyn FnMut(u64) -> u64) -> Result<bool> {
        let blocks = self.source.blocks() as u64;
        if blocks == 0 {
            return Ok(false);
        }
        let most = CROWDED * self.source.table.meta().entries.div_ceil(blocks).max(1);
        for _ in 0..MAX_RANDOM_BLOCKS {
            self.enter(below(blocks) as usize)?;
            // A block of fewer entries is drawn in vain as often as it has fewer.
            let mut behind = below(most);
            let mut is_there = self.settle(BlockIter::first)?;
            while is_there && behind > 0 {
                behind -= 1;
                is_there = self.settle(BlockIter::next)?;
            }
            if is_there {
                return Ok(true);
            }
        }
        self.first()
    }

    /// Moves to the next entry; the iterator must be valid.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    #[inline]
    #[expect(clippy::should_implement_trait, reason = "entries are lent, which Iterator cannot do")]
    pub fn next(&mut self) -> Result<bool> {
        if !self.valid() {
            return Ok(false);
        }
        if self.settle(BlockIter::next)? {
            return Ok(true);
        }
        self.next_block()
    }

    /// Moves to the entry before; the iterator must be valid.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn prev(&mut self) -> Result<bool> {
        if !self.valid() {
            return Ok(false);
        }
        if self.settle(BlockIter::prev)? {
            return Ok(true);
        }
        self.prev_block()
    }

    /// Whether the iterator stands on an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.block.as_ref().is_some_and(BlockIter::valid)
    }

    /// The entry under the iterator. Panics if it is not valid.
    #[inline]
    pub fn entry(&self) -> EntryRef<'_> {
        self.current().entry()
    }

    /// The key under the iterator. Panics if it is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        self.current().key()
    }

    /// The sequence number under the iterator. Panics if it is not valid.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.current().sequence()
    }

    /// The kind under the iterator. Panics if it is not valid.
    #[inline]
    pub fn kind(&self) -> Kind {
        self.current().kind()
    }

    /// When the entry under the iterator expires, in ms since 1970; 0 unless its kind is
    /// `PutExpiring`. Panics if it is not valid.
    #[inline]
    pub fn expires_at(&self) -> u64 {
        self.current().expires_at()
    }

    /// The value under the iterator. Panics if it is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.current().value()
    }

    /// The table.
    pub fn table(&self) -> &Arc<Table> {
        &self.source.table
    }

    #[inline]
    fn current(&self) -> &BlockIter {
        self.block.as_ref().expect("the iterator stands on an entry")
    }

    fn leave(&mut self) {
        self.block = None;
    }

    fn next_block(&mut self) -> Result<bool> {
        if self.at + 1 >= self.source.blocks() {
            return Ok(false);
        }
        self.enter(self.at + 1)?;
        self.settle(BlockIter::first)
    }

    fn prev_block(&mut self) -> Result<bool> {
        if self.at == 0 {
            return Ok(false);
        }
        self.enter(self.at - 1)?;
        self.settle(BlockIter::last)
    }

    /// Makes block `i` the one under the iterator.
    fn enter(&mut self, i: usize) -> Result<()> {
        if self.at == i && self.block.is_some() {
            return Ok(());
        }
        // Taken out first: an error leaves the iterator nowhere.
        let iter = match (self.block.take(), &self.nothing) {
            (None, _) => BlockIter::new(self.source.load(i, Vec::new())?),
            (Some(mut iter), Some(nothing)) => {
                let old = iter.reset(nothing.clone());
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

    /// Moves within the block and gives errors their place.
    #[inline]
    fn settle(
        &mut self,
        go: impl FnOnce(&mut BlockIter) -> Result<bool, Malformed>,
    ) -> Result<bool> {
        let Some(block) = &mut self.block else {
            return Ok(false);
        };
        match go(block) {
            Ok(there) => Ok(there),
            Err(bad) => {
                self.leave();
                Err(self.source.table.malformed(self.at, bad))
            }
        }
    }
}

/// Where blocks come from.
struct Source {
    table: Arc<Table>,
    purpose: Purpose,
    options: IterOptions,
    /// Bytes read ahead, from `window_at` in the file.
    window: Vec<u8>,
    window_at: u64,
    /// The block that would make the next miss sequential.
    next_miss: usize,
    /// How far the next sequential miss reads, in bytes; 0: its block alone.
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
            return Ok(block);
        }
        let block = Arc::new(self.fetch(i, memory)?);
        self.table.cache_block(i, &block);
        Ok(block)
    }

    /// Block `i` from the window, moved if need be.
    fn fetch(&mut self, i: usize, mut memory: Vec<u8>) -> Result<Block> {
        let range = self.table.index().range(i);
        let held = self.window_at..self.window_at + self.window.len() as u64;
        if !(held.start <= range.start && range.end <= held.end) {
            let ahead = self.look_ahead(i);
            if ahead <= range.end - range.start {
                return self.table.read_block(i, memory, self.purpose);
            }
            let len = ahead.min(self.table.index().data_bytes() - range.start);
            // Empty while it is being filled: a failed read must not leave old bytes in it.
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

    /// How many bytes to read now that block `i` is missing; 0: the block alone.
    fn look_ahead(&mut self, i: usize) -> u64 {
        let most = self.options.readahead_bytes as u64;
        let sequential = self.next_miss == i;
        self.next_miss = i + 1;
        if !self.options.fill_cache {
            return most;
        }
        if !sequential {
            self.next_window = 0;
            return 0;
        }
        let ahead = self.next_window;
        self.next_window = (2 * ahead).max(FIRST_WINDOW).min(most);
        ahead
    }
}

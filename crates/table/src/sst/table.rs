//! Opening a table, and looking up one key.
//!
//! A table keeps its index and its filter resident. A lookup asks the filter (one cache line), the
//! index (a binary search over integers), then searches one block in place — from the cache, or with
//! one read — without building a key.
//!
//! Invariant: every byte used was covered by a checksum when it was read; a block in the cache was
//! checked on its way in. Opening reads the footer, the directory and the meta blocks it keeps.
//!
//! Version: a table of a newer format is refused by name; see `footer`.

use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::RangeFilter;
use siltstone_vfs::File;

use super::filter::{self, Filter};
use super::footer::{FOOTER_BYTES, Footer, MetaBlock, decode_directory};
use super::index::{self, Index};
use super::meta::TableMeta;
use super::writer::PROPERTIES;
use crate::block::frame::{FileSum, open_frame};
use crate::block::{Block, Malformed};
use crate::bytes_file::BytesFile;
use crate::cache::BlockCache;
use crate::kind::Kind;
use crate::number::FileNumber;

/// An open table. Any number of threads may read it.
pub struct Table {
    file: Arc<dyn File>,
    name: String,
    sum: FileSum,
    index: Index,
    filter: Option<Filter>,
    ranges: Option<RangeFilter>,
    meta: TableMeta,
    metas: Vec<MetaBlock>,
    /// The cache, and this table's number in it.
    cache: Option<(Arc<BlockCache>, u64)>,
}

/// The version of a key that a lookup found; it keeps its block alive.
#[derive(Debug, Clone)]
pub struct Found {
    /// When it was written.
    pub sequence: u64,
    /// What it says of the key.
    pub kind: Kind,
    /// When it expires, in ms since 1970; 0 unless the kind is `PutExpiring`.
    pub expires_at: u64,
    block: Arc<Block>,
    value_at: usize,
    value_end: usize,
}

impl Found {
    /// The value, in the block; empty for a delete.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.slice(self.value_at, self.value_end)
    }
}

impl Table {
    /// Opens the table in `file`, which was written as `number`; `name` is for messages. Cost: four
    /// reads (of purpose `Recovery`) and the memory of index and filter.
    ///
    /// # Errors
    /// `Corruption`; `Refused` for a newer format; the medium's.
    pub fn open(
        file: Arc<dyn File>,
        name: &str,
        number: FileNumber,
        cache: Option<Arc<BlockCache>>,
    ) -> Result<Table> {
        let bytes = file.len()?;
        let mut tail = vec![0; bytes.min(FOOTER_BYTES as u64) as usize];
        file.read_at(bytes - tail.len() as u64, &mut tail, Purpose::Recovery)?;
        let footer = Footer::decode(&tail, name, number, bytes)?;
        let bad = |at, reason| move |_| Error::corruption(name, at, reason);
        let sum = FileSum::new(number.0);
        let read = |at: u64, len: u32| -> Result<Vec<u8>> {
            let len = len as usize;
            read_frame(&*file, name, sum, at, len, Vec::new(), Purpose::Recovery).map(
                |(mut c, n)| {
                    c.truncate(n);
                    c
                },
            )
        };
        let at = footer.directory_offset;
        let (data_bytes, metas) = decode_directory(&read(at, footer.directory_bytes)?, at)
            .map_err(|reason| Error::corruption(name, at, reason))?;
        let find = |wanted: &str| metas.iter().find(|meta| meta.name == wanted);
        let needed =
            |wanted: &str| find(wanted).ok_or(()).map_err(bad(at, "a meta block is missing"));

        let place = needed(index::NAME)?;
        let index = Index::decode(&read(place.offset, place.bytes)?)
            .map_err(|reason| Error::corruption(name, place.offset, reason))?;
        if index.data_bytes() != data_bytes {
            return Err(Error::corruption(name, place.offset, "the index does not span the data"));
        }
        let place = needed(PROPERTIES)?;
        let mut meta = TableMeta::decode(&read(place.offset, place.bytes)?)
            .map_err(|reason| Error::corruption(name, place.offset, reason))?;
        (meta.number, meta.bytes) = (number, bytes);
        let filter = match find(filter::NAME) {
            None => None,
            Some(place) => Some(
                Filter::decode(&read(place.offset, place.bytes)?)
                    .map_err(|reason| Error::corruption(name, place.offset, reason))?,
            ),
        };
        let ranges = match find(filter::RANGES) {
            None => None,
            Some(place) => Some(
                RangeFilter::from_bytes(&read(place.offset, place.bytes)?)
                    .map_err(|bad| Error::corruption(name, place.offset, bad.to_string()))?,
            ),
        };
        let cache = cache.map(|cache| {
            let id = cache.register();
            (cache, id)
        });
        Ok(Table { file, name: name.into(), sum, index, filter, ranges, meta, metas, cache })
    }

    /// Opens a table from bytes, for fuzzers and tools.
    ///
    /// # Errors
    /// As [`open`](Table::open).
    pub fn from_bytes(bytes: &[u8], number: FileNumber) -> Result<Table> {
        Self::open(Arc::new(BytesFile::new(bytes)), "table", number, None)
    }

    /// Whether a key of this hash (`hash64`) may be there. Cost: one cache line.
    #[inline]
    pub fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(hash))
    }

    /// Whether a key from `from` to `to`, both counted, may be there. Cost: some three cache lines; where there is
    /// no filter for ranges, none: `true`.
    #[inline]
    pub fn may_hold_between(&self, from: &[u8], to: &[u8]) -> bool {
        self.ranges.as_ref().is_none_or(|ranges| ranges.may_hold(from, to))
    }

    /// The newest version of `key` (whose `hash64` is `hash`) at or before `at_sequence`. Cost: one
    /// cache line if the filter excludes the key; else one block, from the cache or with one read.
    ///
    /// # Errors
    /// `Corruption` in the block; the medium's.
    #[inline]
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        at_sequence: u64,
        purpose: Purpose,
    ) -> Result<Option<Found>> {
        if !self.may_contain(hash) {
            return Ok(None);
        }
        let i = self.index.find(key, at_sequence);
        if i == self.index.blocks() {
            return Ok(None);
        }
        let block = self.block(i, purpose)?;
        let hit = block.lower_bound(key, at_sequence).map_err(|bad| self.malformed(i, bad))?;
        Ok(hit.filter(|hit| hit.same_key).map(|hit| Found {
            sequence: hit.entry.sequence,
            kind: hit.entry.kind,
            expires_at: hit.entry.expires_at,
            block,
            value_at: hit.entry.value_at,
            value_end: hit.entry.end,
        }))
    }

    /// What the table holds.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file's name, as in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Resident bytes of the index.
    pub fn index_bytes(&self) -> usize {
        self.index.memory_bytes()
    }

    /// Resident bytes of the filters.
    pub fn filter_bytes(&self) -> usize {
        self.filter.as_ref().map_or(0, Filter::memory_bytes)
            + self.ranges.as_ref().map_or(0, RangeFilter::memory_bytes)
    }

    /// The contents of another meta block; `None` if the table has none of this name.
    ///
    /// # Errors
    /// `Corruption`; the medium's.
    pub fn meta_block(&self, name: &str, purpose: Purpose) -> Result<Option<Vec<u8>>> {
        let Some(place) = self.metas.iter().find(|meta| meta.name == name) else {
            return Ok(None);
        };
        let (mut contents, len) = read_frame(
            &*self.file,
            &self.name,
            self.sum,
            place.offset,
            place.bytes as usize,
            Vec::new(),
            purpose,
        )?;
        contents.truncate(len);
        Ok(Some(contents))
    }

    /// About how many bytes of the file are before `key`: to split work. Cost: a search of the
    /// index.
    pub fn approximate_offset(&self, key: &[u8]) -> u64 {
        match self.index.find(key, u64::MAX) {
            i if i == self.index.blocks() => self.index.data_bytes(),
            i => self.index.range(i).start,
        }
    }

    /// The bytes of all data blocks: what [`approximate_offset`](Table::approximate_offset) gives for
    /// a key behind the last.
    pub fn data_bytes(&self) -> u64 {
        self.index.data_bytes()
    }

    /// At most `count` keys that part the table into pieces of about the same size, ascending.
    pub fn anchors(&self, count: usize) -> Vec<Vec<u8>> {
        let blocks = self.index.blocks();
        let mut keys: Vec<_> =
            (1..=count).map(|i| i * blocks / (count + 1)).filter(|&i| i > 0).collect();
        keys.dedup();
        let mut keys: Vec<_> = keys.into_iter().map(|i| self.index.separator(i - 1).0).collect();
        keys.dedup();
        keys
    }

    /// Drops the table's blocks from the cache: for a file that is about to be removed. Cost: a
    /// cache lookup for each block.
    pub fn forget_blocks(&self) {
        if let Some((cache, id)) = &self.cache {
            cache.forget(*id, (0..self.index.blocks()).map(|i| self.index.range(i).start));
        }
    }

    /// Reads the directory again and compares it with the one in use.
    pub(super) fn check_directory(&self, footer: &Footer, purpose: Purpose) -> Result<()> {
        let at = footer.directory_offset;
        let len = footer.directory_bytes as usize;
        let (contents, len) =
            read_frame(&*self.file, &self.name, self.sum, at, len, Vec::new(), purpose)?;
        match decode_directory(&contents[..len], at) {
            Ok((_, metas)) if metas == self.metas => Ok(()),
            _ => Err(Error::corruption(&self.name, at, "the directory has changed since opening")),
        }
    }

    pub(super) fn index(&self) -> &Index {
        &self.index
    }

    pub(super) fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref()
    }

    pub(super) fn metas(&self) -> &[MetaBlock] {
        &self.metas
    }

    pub(super) fn file(&self) -> &dyn File {
        &*self.file
    }

    /// Block `i` from the cache, or read and put there.
    #[inline]
    pub(super) fn block(&self, i: usize, purpose: Purpose) -> Result<Arc<Block>> {
        if let Some((cache, id)) = &self.cache
            && let Some(block) = cache.get(*id, self.index.range(i).start)
        {
            return Ok(block);
        }
        self.read_block_to_cache(i, purpose)
    }

    #[cold]
    fn read_block_to_cache(&self, i: usize, purpose: Purpose) -> Result<Arc<Block>> {
        let block = Arc::new(self.read_block(i, Vec::new(), purpose)?);
        self.cache_block(i, &block);
        Ok(block)
    }

    /// Block `i` if it is cached.
    pub(super) fn cached_block(&self, i: usize) -> Option<Arc<Block>> {
        let (cache, id) = self.cache.as_ref()?;
        cache.get(*id, self.index.range(i).start)
    }

    pub(super) fn cache_block(&self, i: usize, block: &Arc<Block>) {
        if let Some((cache, id)) = &self.cache {
            cache.insert(*id, self.index.range(i).start, block.clone());
        }
    }

    /// Reads block `i` past the cache, into `memory`.
    pub(super) fn read_block(&self, i: usize, memory: Vec<u8>, purpose: Purpose) -> Result<Block> {
        let range = self.index.range(i);
        let len = (range.end - range.start) as usize;
        let (contents, len) =
            read_frame(&*self.file, &self.name, self.sum, range.start, len, memory, purpose)?;
        Block::parse(contents, len).map_err(|bad| self.malformed(i, bad))
    }

    /// Block `i` from its frame, already read.
    pub(super) fn open_block(&self, i: usize, frame: Vec<u8>) -> Result<Block> {
        let at = self.index.range(i).start;
        let (contents, len) = open_frame(frame, self.sum, at)
            .map_err(|reason| Error::corruption(&self.name, at, reason))?;
        Block::parse(contents, len).map_err(|bad| self.malformed(i, bad))
    }

    /// The error for an entry of block `i`.
    #[cold]
    pub(super) fn malformed(&self, i: usize, bad: Malformed) -> Error {
        let Malformed { offset, reason } = bad;
        let reason = format!("{reason} (at byte {offset} of the block)");
        Error::corruption(&self.name, self.index.range(i).start, reason)
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        // Its number is never given again, so what stays in the cache would only take up room.
        if self.cache.as_ref().is_some_and(|(cache, _)| cache.resident_bytes() > 0) {
            self.forget_blocks();
        }
    }
}

/// Reads the frame at `at` into `memory` and gives its contents and their length.
pub(super) fn read_frame(
    file: &dyn File,
    name: &str,
    sum: FileSum,
    at: u64,
    len: usize,
    mut memory: Vec<u8>,
    purpose: Purpose,
) -> Result<(Vec<u8>, usize)> {
    memory.clear();
    memory.resize(len, 0);
    file.read_at(at, &mut memory, purpose)?;
    open_frame(memory, sum, at).map_err(|reason| Error::corruption(name, at, reason))
}

//! SSTable reader: open, and point lookups.
//!
//! Index and filters stay in memory. A lookup queries the filter (one cache line) and the index (a
//! binary search over integers), then searches one block in place, from the cache or with one read,
//! without building a key.
//!
//! In an ingested SSTable each entry is stored with the sequence number 1, which stands for that of
//! the ingestion. Callers see the latter: a search maps the sequence number that it asks for to 0,
//! 1 or 2, before, at and after the stored one.
//!
//! Invariant: every byte used matched a checksum when it was read. Opening reads the footer, the
//! directory and the resident meta blocks. A newer format version is rejected by name; see
//! `footer`.

use std::cmp::Ordering;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::{BloomProbe, RangeFilter};
use siltstone_vfs::File;

use super::filter::{self, Filter};
use super::footer::{Contents, FOOTER_BYTES, Footer, MetaBlock, decode_directory};
use super::frames::{read_dictionary, read_frame, read_meta};
use super::index::{self, Index};
use super::meta::TableMeta;
use super::writer::{DICTIONARY, EXTERNAL_SEQUENCE, PROPERTIES};
use crate::FileSum;
use crate::block::dictionary::Dictionary;
use crate::block::frame::open_frame;
use crate::block::{Block, MalformedBlock};
use crate::bytes_file::BytesFile;
use crate::cache::{BlockCache, CacheRef, CachedFile};
use crate::kind::Kind;
use crate::number::{FileKind, FileNumber, Ingestion};

/// An open SSTable. Thread-safe.
pub struct Table {
    file: Arc<dyn File>,
    name: String,
    sum: FileSum,
    /// The number in its footer.
    written_as: FileNumber,
    /// The sequence number of each entry, if it is ingested.
    sequence: Option<u64>,
    index: Index,
    filter: Option<Filter>,
    ranges: Option<RangeFilter>,
    /// The dictionary of its blocks.
    dictionary: Option<Dictionary>,
    meta: TableMeta,
    metas: Vec<MetaBlock>,
    /// Its blocks in the cache.
    cached: Option<CachedFile<Block>>,
}

/// The version of a key found by a lookup. Keeps its block alive.
#[derive(Debug)]
pub struct PinnedEntry {
    /// Its sequence number.
    pub sequence: u64,
    /// Its effect on the key.
    pub kind: Kind,
    /// Expiry time, in ms since 1970; 0 unless the kind is `PutExpiring`.
    pub expires_at: u64,
    block: CacheRef<Block>,
    value_at: usize,
    value_end: usize,
}

impl PinnedEntry {
    /// The value, borrowed from the block; empty for a delete.
    #[inline]
    pub fn value(&self) -> &[u8] {
        self.block.slice(self.value_at, self.value_end)
    }
}

impl Table {
    /// Opens the SSTable in `file`, which was written with `number`; `name` is for messages. Cost:
    /// up to six reads (of purpose `Recovery`) and the memory of index, filters and dictionary.
    ///
    /// # Errors
    /// `Corruption`; `Refused` for a newer format; I/O errors.
    pub fn open(
        file: Arc<dyn File>,
        name: &str,
        number: FileNumber,
        cache: Option<Arc<BlockCache>>,
    ) -> Result<Table> {
        Self::open_kind(file, name, FileKind::Table, number, cache)
    }

    /// As [`open`](Table::open), for an SSTable of either kind.
    ///
    /// # Errors
    /// As [`open`](Table::open).
    pub fn open_kind(
        file: Arc<dyn File>,
        name: &str,
        kind: FileKind,
        number: FileNumber,
        cache: Option<Arc<BlockCache>>,
    ) -> Result<Table> {
        let ingested = match kind {
            FileKind::Ingested(ingested) => Some(ingested),
            FileKind::Table | FileKind::Log | FileKind::Blob | FileKind::Staged => None,
        };
        let written_as = kind.written_as(number);
        let bytes = file.len()?;
        let mut tail = vec![0; bytes.min(FOOTER_BYTES as u64) as usize];
        file.read_at(bytes - tail.len() as u64, &mut tail, Purpose::Recovery)?;
        let footer = Footer::decode(&tail, name, written_as, bytes)?;
        if (footer.contents == Contents::External) != ingested.is_some() {
            let at = bytes.saturating_sub(FOOTER_BYTES as u64);
            return Err(Error::corruption(name, at, "a table of the wrong kind"));
        }
        let bad = |at, reason| move |_| Error::corruption(name, at, reason);
        let sum = FileSum::new(written_as.0);
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
        let sequence = ingested.map(|Ingestion { sequence, .. }| sequence);
        if let Some(sequence) = sequence {
            if (meta.min_sequence, meta.max_sequence) != (EXTERNAL_SEQUENCE, EXTERNAL_SEQUENCE) {
                let reason = "an ingested table has sequence numbers of its own";
                return Err(Error::corruption(name, place.offset, reason));
            }
            (meta.min_sequence, meta.max_sequence) = (sequence, sequence);
        }
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
        let dictionary = match footer.has_dictionary {
            false => None,
            true => Some(read_dictionary(&*file, name, sum, needed(DICTIONARY)?)?),
        };
        let cached = cache.map(|cache| CachedFile::new(cache, index.blocks()));
        let name = name.into();
        Ok(Table {
            file,
            name,
            sum,
            written_as,
            sequence,
            index,
            filter,
            ranges,
            dictionary,
            meta,
            metas,
            cached,
        })
    }

    /// The number that the SSTable in `file` was written with, if it was written outside of a
    /// keyspace; `None` for any other file. Opening it verifies the number.
    ///
    /// # Errors
    /// I/O errors.
    pub fn external_identity(file: &dyn File) -> Result<Option<FileNumber>> {
        let bytes = file.len()?;
        let mut tail = vec![0; bytes.min(FOOTER_BYTES as u64) as usize];
        file.read_at(bytes - tail.len() as u64, &mut tail, Purpose::Recovery)?;
        Ok(Footer::external_number(&tail))
    }

    /// Opens an SSTable from bytes, for fuzzers and tools.
    ///
    /// # Errors
    /// As [`open`](Table::open).
    pub fn from_bytes(bytes: &[u8], number: FileNumber) -> Result<Table> {
        Self::open(Arc::new(BytesFile::new(bytes)), "table", number, None)
    }

    /// Whether the key with the hash (`hash64`) of `probe` may exist. Cost: one cache line.
    #[inline]
    pub fn may_contain(&self, probe: &mut BloomProbe) -> bool {
        self.filter.as_ref().is_none_or(|filter| filter.may_contain(probe))
    }

    /// Removes the Bloom filter from memory and returns it. The caller asks it from now on:
    /// [`may_contain`](Table::may_contain) excludes no key any more.
    pub fn take_filter(&mut self) -> Option<Filter> {
        self.filter.take()
    }

    /// Reads the Bloom filter from the file; `None` if there is none.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn read_filter(&self, purpose: Purpose) -> Result<Option<Filter>> {
        let Some(contents) = self.meta_block(filter::NAME, purpose)? else { return Ok(None) };
        let at = || self.metas.iter().find(|meta| meta.name == filter::NAME).map(|it| it.offset);
        let bad = |reason| Error::corruption(&self.name, at().unwrap_or(0), reason);
        Filter::decode(&contents).map(Some).map_err(bad)
    }

    /// Whether a key in `from..=to` may exist. Cost: about three cache lines. Without a range
    /// filter it returns `true` at once.
    #[inline]
    pub fn may_contain_range(&self, from: &[u8], to: &[u8]) -> bool {
        self.ranges.as_ref().is_none_or(|ranges| ranges.may_contain_range(from, to))
    }

    /// The newest version of `key` (whose `hash64` is `hash`) at or before `at_sequence`. Cost: one
    /// cache line if the filter excludes the key; otherwise one block, from the cache or with one
    /// read.
    ///
    /// # Errors
    /// `Corruption` in the block; I/O errors.
    #[inline]
    pub fn get(
        &self,
        key: &[u8],
        hash: u64,
        at_sequence: u64,
        purpose: Purpose,
    ) -> Result<Option<PinnedEntry>> {
        let may_exist = self.may_contain(&mut BloomProbe::new(hash));
        if may_exist { self.find(key, at_sequence, purpose) } else { Ok(None) }
    }

    /// As [`get`](Table::get), for a key that the filter does not exclude.
    ///
    /// # Errors
    /// As [`get`](Table::get).
    #[inline]
    pub fn find(
        &self,
        key: &[u8],
        at_sequence: u64,
        purpose: Purpose,
    ) -> Result<Option<PinnedEntry>> {
        let at_stored = self.stored_sequence(at_sequence);
        let i = self.index.find(key, at_stored);
        if i == self.index.blocks() {
            return Ok(None);
        }
        let block = self.block(i, purpose)?;
        let hit = block.lower_bound(key, at_stored).map_err(|bad| self.malformed(i, bad))?;
        Ok(hit.filter(|hit| hit.same_key).map(|hit| PinnedEntry {
            sequence: self.shown_sequence(hit.entry.sequence),
            kind: hit.entry.kind,
            expires_at: hit.entry.expires_at,
            block,
            value_at: hit.entry.value_at,
            value_end: hit.entry.end,
        }))
    }

    /// Starts reading the block in which [`find`](Table::find) will search, unless it is cached.
    pub fn begin_read(&self, key: &[u8], at_sequence: u64) {
        let i = self.index.find(key, self.stored_sequence(at_sequence));
        if i < self.index.blocks() && self.cached_block(i).is_none() {
            let range = self.index.range(i);
            self.file.begin_read(range.start, range.end - range.start);
        }
    }

    /// A stored sequence number that is before, at or after those of the entries as `sequence` is.
    #[inline]
    pub(super) fn stored_sequence(&self, sequence: u64) -> u64 {
        match self.sequence.map(|ingested| sequence.cmp(&ingested)) {
            None => sequence,
            Some(Ordering::Less) => EXTERNAL_SEQUENCE - 1,
            Some(Ordering::Equal) => EXTERNAL_SEQUENCE,
            Some(Ordering::Greater) => EXTERNAL_SEQUENCE + 1,
        }
    }

    /// The sequence number of an entry that is stored with `stored`.
    #[inline]
    pub(super) fn shown_sequence(&self, stored: u64) -> u64 {
        self.sequence.unwrap_or(stored)
    }

    /// Whether it is ingested, so that its entries are stored with [`EXTERNAL_SEQUENCE`].
    pub(super) fn is_ingested(&self) -> bool {
        self.sequence.is_some()
    }

    /// The number in its footer.
    pub(super) fn written_as(&self) -> FileNumber {
        self.written_as
    }

    /// The properties.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// The file's name, for messages.
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

    /// The size of the dictionary of the data blocks; 0 if there is none.
    pub fn dictionary_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, Dictionary::bytes)
    }

    /// Resident bytes of the dictionary.
    pub fn dictionary_memory_bytes(&self) -> usize {
        self.dictionary.as_ref().map_or(0, Dictionary::memory_bytes)
    }

    /// The contents of any meta block; `None` if there is none with this name.
    ///
    /// # Errors
    /// `Corruption`; I/O errors.
    pub fn meta_block(&self, name: &str, purpose: Purpose) -> Result<Option<Vec<u8>>> {
        let Some(place) = self.metas.iter().find(|meta| meta.name == name) else {
            return Ok(None);
        };
        read_meta(&*self.file, &self.name, self.sum, place, purpose).map(Some)
    }

    /// Approximate file offset of `key`, to split work. Cost: a search of the index.
    pub fn approximate_offset(&self, key: &[u8]) -> u64 {
        match self.index.find(key, u64::MAX) {
            i if i == self.index.blocks() => self.index.data_bytes(),
            i => self.index.range(i).start,
        }
    }

    /// Total size of the data blocks: the [`approximate_offset`](Table::approximate_offset) of a
    /// key after the last.
    pub fn data_bytes(&self) -> u64 {
        self.index.data_bytes()
    }

    /// Up to `count` ascending keys that split the SSTable into parts of similar size.
    pub fn anchors(&self, count: usize) -> Vec<Vec<u8>> {
        let blocks = self.index.blocks();
        let mut keys: Vec<_> =
            (1..=count).map(|i| i * blocks / (count + 1)).filter(|&i| i > 0).collect();
        keys.dedup();
        let mut keys: Vec<_> = keys.into_iter().map(|i| self.index.separator(i - 1).0).collect();
        keys.dedup();
        keys
    }

    /// Rereads the directory and compares it with the one in use.
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

    /// Block `i`, read through the cache.
    #[inline]
    pub(super) fn block(&self, i: usize, purpose: Purpose) -> Result<CacheRef<Block>> {
        match self.cached_block(i) {
            Some(block) => Ok(block),
            None => self.read_block_to_cache(i, purpose),
        }
    }

    #[cold]
    fn read_block_to_cache(&self, i: usize, purpose: Purpose) -> Result<CacheRef<Block>> {
        let block = self.read_block(i, Vec::new(), purpose)?;
        Ok(self.cache_block(i, block).into())
    }

    /// Block `i` if it is cached.
    #[inline]
    pub(super) fn cached_block(&self, i: usize) -> Option<CacheRef<Block>> {
        self.cached.as_ref()?.get(i)
    }

    pub(super) fn cache_block(&self, i: usize, block: Block) -> Arc<Block> {
        let block = Arc::new(block);
        if let Some(cached) = &self.cached {
            cached.insert(i, block.clone());
        }
        block
    }

    /// Reads block `i` into `memory`, bypassing the cache.
    pub(super) fn read_block(&self, i: usize, memory: Vec<u8>, purpose: Purpose) -> Result<Block> {
        let range = self.index.range(i);
        let len = (range.end - range.start) as usize;
        let mut frame = memory;
        frame.clear();
        frame.resize(len, 0);
        self.file.read_at(range.start, &mut frame, purpose)?;
        self.open_block(i, frame)
    }

    /// Opens block `i` from its frame.
    pub(super) fn open_block(&self, i: usize, frame: Vec<u8>) -> Result<Block> {
        let at = self.index.range(i).start;
        let (contents, len) = open_frame(frame, self.sum, at, self.dictionary.as_ref())
            .map_err(|error| error.at(&self.name, at))?;
        Block::parse(contents, len).map_err(|bad| self.malformed(i, bad))
    }

    /// The error for a malformed entry of block `i`.
    #[cold]
    pub(super) fn malformed(&self, i: usize, bad: MalformedBlock) -> Error {
        let MalformedBlock { offset, reason } = bad;
        let reason = format!("{reason} (at byte {offset} of the block)");
        Error::corruption(&self.name, self.index.range(i).start, reason)
    }
}

//! SSTable writer.
//!
//! Entries fill a block; a full block is framed (compressed, checksummed) into a write buffer,
//! which is written out 1 MiB at a time. A block is framed only when the next block's first key is
//! known, so that its separator can be short. Then follow filters, properties, other meta blocks,
//! index, directory and footer, and one sync. Write-back starts as soon as a buffer is written, so
//! a sync after the next SSTable has been written finds little to do.
//!
//! With a dictionary the first blocks wait until it is trained from them (`sampled_blocks`). It is
//! stored only if a block needs it.
//!
//! Invariant: the file is complete once [`UnsyncedTable::sync`] has returned, and garbage before;
//! its *name* is durable after the caller's `sync_dir`. Memory: one block, the write buffer, 8
//! bytes per key for the Bloom filter, up to 21 bytes per key for the range filter, the index, and
//! the blocks that wait.

use std::sync::Arc;

use siltstone_engine::{Error, MAX_KEY_BYTES, MAX_VALUE_BYTES, Purpose, Result};
use siltstone_structures::{HyperLogLog, RangeFilterBuilder, hash64};
use siltstone_vfs::{File, Vfs};

use super::filter::{self, Filter};
use super::footer::{Contents, FOOTER_BYTES, Footer, MetaBlock, encode_directory};
use super::index::{self, IndexBuilder};
use super::meta::TableMeta;
use super::options::TableOptions;
use super::sampled_blocks::SampledBlocks;
use crate::FileSum;
use crate::block::frame::{Framer, WITH_DICTIONARY};
use crate::block::{BlockBuilder, Compression};
use crate::kind::{EntryRef, Kind, MAX_SEQUENCE, compare};
use crate::number::FileNumber;

/// Name of the meta block with the properties.
pub const PROPERTIES: &str = "properties";
/// Name of the meta block with the HyperLogLog sketch of the keys' `hash64`.
pub const SKETCH: &str = "hyperloglog";
/// Name of the meta block with the dictionary of the data blocks.
pub const DICTIONARY: &str = "dictionary";

/// The sequence number in an SSTable that is written outside of a keyspace. It stands for the one
/// of its ingestion. Neither the first nor the last, so that there is one before and one after it.
pub const EXTERNAL_SEQUENCE: u64 = 1;

const WRITE_BUFFER_BYTES: usize = 1 << 20;

/// Called with the number of bytes before each write; a rate limiter blocks in it.
pub type RateHook = Box<dyn FnMut(u64) + Send>;

/// Writes one SSTable.
pub struct TableWriter {
    file: Arc<dyn File>,
    name: String,
    purpose: Purpose,
    options: TableOptions,
    rate: Option<RateHook>,
    sum: FileSum,
    framer: Framer,
    /// The blocks that wait for the dictionary.
    samples: Option<SampledBlocks>,
    /// The dictionary, if there is one.
    dictionary: Option<Vec<u8>>,
    /// Whether a block needs the dictionary.
    is_dictionary_used: bool,
    block: BlockBuilder,
    /// The sequence number of the last entry.
    last_sequence: u64,
    /// The last key of the previous block, while this one is empty.
    last_key: Vec<u8>,
    index: IndexBuilder,
    hashes: Vec<u64>,
    /// See [`with_filter_sizes`](Self::with_filter_sizes).
    filter_sizes: Vec<usize>,
    ranges: Option<RangeFilterBuilder>,
    sketch: Option<Box<HyperLogLog>>,
    metas: Vec<(String, Vec<u8>)>,
    buffer: Vec<u8>,
    /// Bytes already written; the buffer follows them.
    written: u64,
    meta: TableMeta,
    contents: Contents,
    failed: bool,
}

/// A complete SSTable that is not yet durable.
pub struct UnsyncedTable {
    file: Arc<dyn File>,
    purpose: Purpose,
    meta: TableMeta,
}

impl TableWriter {
    /// Creates the file `name`, which must not exist.
    ///
    /// # Errors
    /// I/O errors; `Invalid` for an impossible compression level.
    pub fn create(
        vfs: &dyn Vfs,
        name: &str,
        number: FileNumber,
        options: TableOptions,
        purpose: Purpose,
    ) -> Result<Self> {
        let framer = new_framer(options.compression)?;
        let is_zstd = matches!(options.compression, Compression::Zstd { .. });
        let samples = (is_zstd && options.dictionary_bytes > 0)
            .then(|| SampledBlocks::new(options.dictionary_bytes));
        Ok(TableWriter {
            file: vfs.create(name)?,
            name: name.into(),
            purpose,
            rate: None,
            filter_sizes: Vec::new(),
            sum: FileSum::new(number.0),
            framer,
            samples,
            dictionary: None,
            is_dictionary_used: false,
            block: BlockBuilder::new(options.restart_interval),
            ranges: options.range_filter.then(RangeFilterBuilder::default),
            sketch: options.sketch.then(Box::default),
            options,
            last_sequence: 0,
            last_key: Vec::new(),
            index: IndexBuilder::default(),
            hashes: Vec::new(),
            metas: Vec::new(),
            buffer: Vec::with_capacity(WRITE_BUFFER_BYTES + (64 << 10)),
            written: 0,
            meta: TableMeta { number, ..TableMeta::default() },
            contents: Contents::Plain,
            failed: false,
        })
    }

    /// Sets the hook that is called before each write.
    #[must_use]
    pub fn with_rate_hook(mut self, hook: RateHook) -> Self {
        self.rate = Some(hook);
        self
    }

    /// Makes it an SSTable that is written outside of a keyspace, to be ingested: its number is
    /// drawn at random, it takes puts and deletes with the sequence number [`EXTERNAL_SEQUENCE`],
    /// and each key once.
    #[must_use]
    pub fn external(mut self) -> Self {
        self.contents = Contents::External;
        self
    }

    /// Gives the Bloom filter the first of these sizes, in bytes, that is close to its own: see
    /// [`BlockedBloom::build_like`](siltstone_structures::BlockedBloom::build_like).
    #[must_use]
    pub fn with_filter_sizes(mut self, sizes: Vec<usize>) -> Self {
        self.filter_sizes = sizes;
        self
    }

    /// Adds the next entry: a greater key than the previous one, or an older version of it.
    ///
    /// # Errors
    /// `Invalid` if it is out of order (the SSTable is unchanged); `TooLarge`; I/O errors, after
    /// which the SSTable cannot be finished.
    pub fn add(&mut self, entry: EntryRef<'_>) -> Result<()> {
        let new_key = self.check(&entry)?;
        // Versions of one key stay in one block unless it grows to twice its size.
        let len = self.block.len();
        let full = len >= self.options.block_bytes
            && (new_key || len >= self.options.block_bytes.saturating_mul(2));
        if full {
            self.close_block(Some(entry.key))?;
        }
        self.block.add(entry);
        self.note(&entry, new_key);
        Ok(())
    }

    /// Adds a meta block with a unique name of up to 255 bytes.
    ///
    /// # Errors
    /// `Invalid` if the name is too long or taken.
    pub fn add_meta(&mut self, name: &str, contents: Vec<u8>) -> Result<()> {
        let ours = [PROPERTIES, SKETCH, DICTIONARY, index::NAME, filter::NAME, filter::RANGES];
        if name.len() > 255
            || ours.contains(&name)
            || self.metas.iter().any(|(taken, _)| taken == name)
        {
            return Err(Error::Invalid(format!("a table cannot have another meta block {name}")));
        }
        self.metas.push((name.into(), contents));
        Ok(())
    }

    /// Approximate size of the file so far, to decide when to start the next one.
    pub fn estimated_bytes(&self) -> u64 {
        self.written + (self.buffer.len() + self.waiting_bytes() + self.block.len()) as u64
    }

    /// Entries so far.
    pub fn entries(&self) -> u64 {
        self.meta.entries
    }

    /// Memory of the writer, in bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buffer.capacity()
            + self.waiting_bytes()
            + self.block.len()
            + self.index.memory_bytes()
            + 8 * self.hashes.capacity()
            + self.ranges.as_ref().map_or(0, RangeFilterBuilder::memory_bytes)
    }

    /// Writes the rest, syncs, and returns the properties.
    ///
    /// # Errors
    /// I/O errors; the file is then garbage.
    pub fn finish(self) -> Result<TableMeta> {
        self.finish_unsynced()?.sync()
    }

    /// Writes the rest without a sync.
    ///
    /// # Errors
    /// I/O errors; the file is then garbage.
    pub fn finish_unsynced(mut self) -> Result<UnsyncedTable> {
        if !self.block.is_empty() {
            self.close_block(None)?;
        }
        self.frame_samples()?;
        let data_bytes = self.position();
        let mut metas = Vec::new();
        if let Some(dictionary) = self.dictionary.take() {
            // No other meta block needs it: a reader would have to read it first.
            self.framer = new_framer(self.options.compression)?;
            if self.is_dictionary_used {
                self.write_meta(&mut metas, DICTIONARY, &dictionary, false)?;
            }
        }
        if self.options.filter_bits_per_key > 0.0 && !self.hashes.is_empty() {
            let hashes = std::mem::take(&mut self.hashes);
            let bits_per_key = self.options.filter_bits_per_key;
            let filter = Filter::encode(&hashes, bits_per_key, &self.filter_sizes);
            self.write_meta(&mut metas, filter::NAME, &filter, false)?;
        }
        if let Some(ranges) = self.ranges.take().and_then(RangeFilterBuilder::finish) {
            self.write_meta(&mut metas, filter::RANGES, &ranges, false)?;
        }
        if let Some(sketch) = self.sketch.take() {
            self.metas.push((SKETCH.to_owned(), sketch.as_bytes().to_vec()));
        }
        for (name, contents) in std::mem::take(&mut self.metas) {
            self.write_meta(&mut metas, &name, &contents, true)?;
        }
        let index = self.index.finish();
        self.write_meta(&mut metas, index::NAME, &index, true)?;
        let properties = self.meta.encode();
        self.write_meta(&mut metas, PROPERTIES, &properties, false)?;

        let directory_offset = self.position();
        let directory = encode_directory(data_bytes, &metas);
        let directory_bytes = self.write_frame(&directory, false)?;
        let footer = Footer {
            directory_offset,
            directory_bytes,
            contents: self.contents,
            has_dictionary: self.is_dictionary_used,
        };
        self.meta.bytes = self.position() + FOOTER_BYTES as u64;
        let footer = footer.encode(self.meta.number, self.meta.bytes);
        self.buffer.extend_from_slice(&footer);
        self.write_out()?;
        Ok(UnsyncedTable { file: self.file, purpose: self.purpose, meta: self.meta })
    }

    /// Validates the next entry, and returns whether its key is new.
    fn check(&self, entry: &EntryRef<'_>) -> Result<bool> {
        if self.failed {
            return Err(Error::Invalid(format!("a write to {} failed before", self.name)));
        }
        siltstone_engine::entry::check_key(entry.key)?;
        let value_limit = MAX_VALUE_BYTES + MAX_KEY_BYTES;
        siltstone_engine::entry::check_value(entry.value, value_limit)?;
        if entry.sequence > MAX_SEQUENCE {
            return Err(Error::Invalid(format!("sequence {} is over 61 bits", entry.sequence)));
        }
        let is_internal = matches!(entry.kind, Kind::Merge | Kind::Position | Kind::Reference);
        let is_external_entry = !is_internal && entry.sequence == EXTERNAL_SEQUENCE;
        if self.contents == Contents::External && !is_external_entry {
            let reason =
                "a table for ingestion takes puts and deletes with its own sequence number";
            return Err(Error::Invalid(reason.to_owned()));
        }
        let last = if self.block.is_empty() { &self.last_key } else { self.block.last_key() };
        let order = compare((last, self.last_sequence), (entry.key, entry.sequence));
        if self.meta.entries > 0 && !order.is_lt() {
            return Err(Error::Invalid("entries are added to a table out of order".into()));
        }
        // Before the first entry, `last` is empty, as a key may be.
        Ok(self.meta.entries == 0 || last != entry.key)
    }

    fn note(&mut self, entry: &EntryRef<'_>, new_key: bool) {
        self.last_sequence = entry.sequence;
        if let Some(ranges) = self.ranges.as_mut().filter(|_| new_key) {
            ranges.add(entry.key);
        }
        if new_key && (self.options.filter_bits_per_key > 0.0 || self.sketch.is_some()) {
            let hash = hash64(entry.key);
            if self.options.filter_bits_per_key > 0.0 {
                self.hashes.push(hash);
            }
            if let Some(sketch) = &mut self.sketch {
                sketch.insert(hash);
            }
        }
        let value_len = if entry.kind == Kind::Delete { 0 } else { entry.value.len() };
        let meta = &mut self.meta;
        if meta.entries == 0 {
            meta.smallest = entry.key.to_vec();
            meta.min_sequence = entry.sequence;
        }
        meta.entries += 1;
        meta.min_sequence = meta.min_sequence.min(entry.sequence);
        meta.max_sequence = meta.max_sequence.max(entry.sequence);
        meta.user_bytes += (entry.key.len() + value_len) as u64;
        match entry.kind {
            Kind::Delete => meta.deletes += 1,
            Kind::PutExpiring => {
                meta.expiring += 1;
                let at = entry.expires_at;
                meta.oldest_expiry = Some(meta.oldest_expiry.map_or(at, |oldest| oldest.min(at)));
            }
            Kind::Merge if self.contents == Contents::Plain => self.contents = Contents::WithMerges,
            Kind::Reference => self.contents = Contents::WithReferences,
            Kind::Put | Kind::Position | Kind::Merge => {}
        }
    }

    /// Ends the block; `next` is the first key after it.
    fn close_block(&mut self, next: Option<&[u8]>) -> Result<()> {
        self.last_key.clear();
        self.last_key.extend_from_slice(self.block.last_key());
        if next.is_none() {
            self.meta.largest.clone_from(&self.last_key);
        }
        self.meta.blocks += 1;
        let last = (std::mem::take(&mut self.last_key), self.last_sequence);
        // Taken while the block is framed, because its contents are borrowed.
        let mut block = std::mem::replace(&mut self.block, BlockBuilder::new(1));
        let contents = block.finish();
        let closed = match &mut self.samples {
            Some(samples) => {
                samples.add(contents, &last, next);
                if samples.are_enough() { self.frame_samples() } else { Ok(()) }
            }
            None => self.frame_block(contents, &last, next),
        };
        block.clear();
        (self.block, self.last_key) = (block, last.0);
        self.failed |= closed.is_err();
        closed
    }

    /// Trains the dictionary from the blocks that wait, and frames them.
    fn frame_samples(&mut self) -> Result<()> {
        let Some(samples) = self.samples.take() else { return Ok(()) };
        if let Compression::Zstd { level } = self.options.compression
            && let Some(dictionary) = samples.train()
        {
            self.framer =
                Framer::with_dictionary(level, &dictionary).map_err(|e| impossible(&e))?;
            self.dictionary = Some(dictionary);
        }
        samples
            .blocks()
            .try_for_each(|block| self.frame_block(block.contents, block.last, block.next))
    }

    /// Frames a block with this last entry, and the first key after it.
    fn frame_block(
        &mut self,
        contents: &[u8],
        last: &(Vec<u8>, u64),
        next: Option<&[u8]>,
    ) -> Result<()> {
        let at = self.position();
        let kind = self
            .framer
            .frame(&mut self.buffer, contents, self.sum, at, true)
            .map_err(|e| Error::io("compress a block of", &self.name, &e))?;
        self.is_dictionary_used |= kind == WITH_DICTIONARY;
        let frame_bytes = self.position() - at;
        self.index.add((&last.0, last.1), next, frame_bytes);
        if self.buffer.len() >= WRITE_BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(())
    }

    /// Bytes of the blocks that wait for the dictionary.
    fn waiting_bytes(&self) -> usize {
        self.samples.as_ref().map_or(0, SampledBlocks::bytes)
    }

    fn write_meta(
        &mut self,
        metas: &mut Vec<MetaBlock>,
        name: &str,
        contents: &[u8],
        compress: bool,
    ) -> Result<()> {
        let offset = self.position();
        let bytes = self.write_frame(contents, compress)?;
        metas.push(MetaBlock { name: name.into(), offset, bytes });
        Ok(())
    }

    fn write_frame(&mut self, contents: &[u8], compress: bool) -> Result<u32> {
        let at = self.position();
        self.framer
            .frame(&mut self.buffer, contents, self.sum, at, compress)
            .map_err(|e| Error::io("compress a block of", &self.name, &e))?;
        let size = self.position() - at;
        let limit = u64::from(u32::MAX);
        let bytes =
            u32::try_from(size).map_err(|_| Error::TooLarge { what: "meta block", size, limit })?;
        if self.buffer.len() >= WRITE_BUFFER_BYTES {
            self.write_out()?;
        }
        Ok(bytes)
    }

    fn position(&self) -> u64 {
        self.written + self.buffer.len() as u64
    }

    fn write_out(&mut self) -> Result<()> {
        let bytes = self.buffer.len() as u64;
        if let Some(rate) = &mut self.rate {
            rate(bytes);
        }
        let outcome = self.file.write_at(self.written, &self.buffer, self.purpose);
        self.failed = outcome.is_err();
        outcome?;
        self.written += bytes;
        self.buffer.clear();
        self.file.begin_sync();
        Ok(())
    }
}

fn new_framer(compression: Compression) -> Result<Framer> {
    Framer::new(compression).map_err(|e| impossible(&e))
}

fn impossible(error: &std::io::Error) -> Error {
    Error::Invalid(format!("cannot compress with these options: {error}"))
}

impl UnsyncedTable {
    /// The properties.
    pub fn meta(&self) -> &TableMeta {
        &self.meta
    }

    /// Makes the SSTable durable, and returns its properties.
    ///
    /// # Errors
    /// I/O errors; the file is then garbage.
    pub fn sync(self) -> Result<TableMeta> {
        self.file.sync(self.purpose)?;
        Ok(self.meta)
    }
}

//! A SortedStore: most of a partition's entries, in the order of their hashes, immutable.
//!
//! ```text
//!   key ─ hash ─▶ entropy-coded trie ─▶ block ─▶ boundaries ─▶ one read ─▶ keys compared
//!                 0.3 to 2.5 bits per entry      none, if entries have one length
//! ```
//!
//! The trie needs the entries in hash order. That order also serves merges, lookups without an
//! index and the rebuilding of the index, which a minimal perfect hash function could not (decision
//! record 31).
//!
//! The index is a file of its own. It is rebuilt from the blocks if it is damaged or missing. While
//! the trie is not loaded, a lookup estimates the block from the hash, which is uniform, and
//! searches from there.
//!
//! Invariant: the trie maps a stored hash to the block that holds it, and any other hash to some
//! block, so a lookup costs exactly one read.
//!
//! Source: Lim, thesis, sections 2.2.3 and 2.3 (fail-graceful indexing), chapter 3.

mod boundaries;
mod format;
mod search;
mod write;

pub(crate) use boundaries::UNIT as BLOCK_UNIT;
pub(crate) use format::{CRC as BLOCK_CRC, FOOTER, StoreMeta};
pub(crate) use write::{Plan, SortedStoreWriter};

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::{Ect, EctBuilder, HashKey};
use siltstone_table::FileSum;
use siltstone_vfs::{Mode, Vfs};

use crate::file::write_derived;
use crate::item::{self, Item};
use crate::keys::KeyHasher;
use crate::names::Kind;
use crate::store_entry::StoreEntry;
use crate::store_file::StoreFile;
use boundaries::{Boundaries, BoundariesBuilder, UNIT};
use format::CRC;
use write::{index_options, no_index};

/// Bytes that a scan reads at once, about.
const CHUNK_BYTES: u64 = 256 << 10;

/// The files of a SortedStore.
const FILES: [Kind; 2] = [Kind::SortedStore, Kind::Index];

/// An open SortedStore.
pub(crate) struct SortedStore {
    files: StoreFile,
    meta: StoreMeta,
    boundaries: Boundaries,
    /// `None` while the trie is not loaded.
    trie: ArcSwapOption<Ect>,
    /// Whether a rebuilt index is written.
    writes_rebuilt: bool,
}

impl Deref for SortedStore {
    type Target = StoreFile;

    fn deref(&self) -> &StoreFile {
        &self.files
    }
}

/// The stored form of an index.
fn index_bytes(trie: &Ect, boundaries: &Boundaries) -> Vec<u8> {
    let trie = trie.to_bytes();
    let mut out = (trie.len() as u64).to_le_bytes().to_vec();
    out.extend_from_slice(&trie);
    boundaries.encode(&mut out);
    out
}

fn parse_index(bytes: &[u8]) -> Option<(Ect, Boundaries)> {
    let (len, rest) = bytes.split_first_chunk::<8>()?;
    let len = usize::try_from(u64::from_le_bytes(*len)).ok()?;
    let (trie, boundaries) = rest.split_at_checked(len)?;
    Some((Ect::from_bytes(trie).ok()?, Boundaries::decode(boundaries)?))
}

impl SortedStore {
    /// Opens the store that `entry` names, without its trie: see [`load`](Self::load). If entries
    /// have several lengths the index is read, because only its boundaries locate the blocks.
    ///
    /// # Errors
    /// `Corruption` if the file does not match `entry`; I/O errors.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        entry: StoreEntry,
        purpose: Purpose,
    ) -> Result<Arc<Self>> {
        Self::open_with(true, vfs, entry, purpose)
    }

    /// As [`open`](Self::open), without writing a rebuilt index.
    pub(crate) fn open_read_only(vfs: &Arc<dyn Vfs>, entry: StoreEntry) -> Result<Arc<Self>> {
        Self::open_with(false, vfs, entry, Purpose::Maintenance)
    }

    fn open_with(
        writes_rebuilt: bool,
        vfs: &Arc<dyn Vfs>,
        entry: StoreEntry,
        purpose: Purpose,
    ) -> Result<Arc<Self>> {
        let files = StoreFile::open(vfs, FILES, entry)?;
        let (fields, end) = files.read_footer(&FOOTER, purpose)?;
        let meta = StoreMeta::decode(&fields);
        let named = (entry.partition, entry.entries, entry.bytes);
        let is_named = (meta.partition, meta.entries, files.file.len()?) == named;
        if !is_named || !meta.can_end_at(end) {
            let reason = "the SortedStore is not the one that the manifest names";
            return Err(files.corruption(end, reason));
        }
        let mut store = SortedStore {
            files,
            boundaries: Boundaries::even(meta.blocks(), meta.stride(), end),
            meta,
            trie: ArcSwapOption::empty(),
            writes_rebuilt,
        };
        if !meta.is_even {
            (_, store.boundaries) = store.read_index(purpose)?;
        }
        Ok(Arc::new(store))
    }

    /// Loads the trie, and rebuilds it if it is damaged or missing. Concurrent lookups continue.
    pub(crate) fn load(&self, purpose: Purpose) -> Result<()> {
        let (trie, _) = self.read_index(purpose)?;
        self.trie.store(Some(Arc::new(trie)));
        Ok(())
    }

    /// Drops the trie from memory. Lookups search for blocks from now on.
    pub(crate) fn unload(&self) {
        self.trie.store(None);
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.trie.load().is_some()
    }

    /// An upper bound of the index's memory when it is loaded, in bytes: 2.5 bits per entry with
    /// one entry per block, less than one bit in blocks of eight, plus a margin.
    pub(crate) fn memory_loaded(&self) -> u64 {
        let share = if self.meta.hashes_per_block < 8 { 2 } else { 6 };
        self.meta.hashes / share + 256 + self.boundaries.memory()
    }

    /// The entry and the hashing that the footer of store `number` states, the end of its blocks,
    /// and their size if they all have one.
    ///
    /// # Errors
    /// `Corruption` if the footer is damaged; `Refused` for a newer format; I/O errors.
    pub(crate) fn describe(
        vfs: &dyn Vfs,
        number: u64,
    ) -> Result<(StoreEntry, KeyHasher, u64, Option<u64>)> {
        let name = Kind::SortedStore.name(number);
        let file = vfs.open(&name, Mode::Read)?;
        let (fields, end) =
            FOOTER.read(file.as_ref(), &name, FileSum::new(number), Purpose::Maintenance)?;
        let meta = StoreMeta::decode(&fields);
        let StoreMeta { partition, entries, .. } = meta;
        let entry = StoreEntry { partition, number, bytes: file.len()?, entries };
        Ok((entry, meta.keys, end, meta.is_even.then(|| meta.stride())))
    }

    /// Reads the index from its file; rebuilds it if that is damaged or missing.
    fn read_index(&self, purpose: Purpose) -> Result<(Ect, Boundaries)> {
        let name = self.derived_name();
        let read = self.read_derived(purpose).and_then(|bytes| {
            let index = parse_index(&bytes).filter(|(trie, boundaries)| {
                (trie.len(), boundaries.blocks()) == (self.meta.hashes, self.meta.blocks())
                    && boundaries.end() == self.end()
            });
            index
                .ok_or_else(|| Error::corruption(&name, 0, "it is not an index of the SortedStore"))
        });
        match read {
            Ok(index) => Ok(index),
            Err(error) if error.is_corruption() => {
                let index = self.index(self.end(), purpose)?;
                if self.writes_rebuilt {
                    // If writing fails, the next load rebuilds the index again.
                    let bytes = index_bytes(&index.0, &index.1);
                    let number = self.entry().number;
                    let _ = write_derived(self.vfs.as_ref(), &name, number, &bytes, purpose);
                }
                self.warn(&error);
                Ok(index)
            }
            Err(other) => Err(other),
        }
    }

    /// Builds the index from the blocks, which end at `end`; checks every block.
    fn index(&self, end: u64, purpose: Purpose) -> Result<(Ect, Boundaries)> {
        let mut trie = EctBuilder::new(index_options(self.meta.hashes_per_block), self.meta.hashes)
            .map_err(no_index)?;
        let mean = end / self.meta.blocks();
        let mut starts = BoundariesBuilder::new(mean);
        let (mut last, mut entries) = (None, 0);
        let mut scan = self.scan_blocks(end, purpose);
        while let Some((at, block)) = scan.next()? {
            if !self.meta.is_even {
                starts.push(at);
            }
            for entry in item::list(block) {
                let Some((op, _)) = entry else {
                    return Err(self.corruption(at, "a block has a malformed entry"));
                };
                let hash = self.meta.keys.hash(op.key());
                entries += 1;
                if last != Some(hash) {
                    trie.push(&hash).map_err(|error| self.corruption(at, &error.to_string()))?;
                    last = Some(hash);
                }
            }
        }
        if (entries, trie.len()) != (self.meta.entries, self.meta.hashes) {
            return Err(
                self.corruption(end, "the blocks hold fewer entries than the footer states")
            );
        }
        let boundaries = match self.meta.is_even {
            true => Boundaries::even(self.meta.blocks(), self.meta.stride(), end),
            false => starts.finish(end),
        };
        Ok((trie.finish().map_err(no_index)?, boundaries))
    }

    /// The entry of `key`. Cost: one read of a block.
    pub(crate) fn get(&self, hash: &HashKey, key: &[u8], purpose: Purpose) -> Result<Option<Item>> {
        let trie = self.trie.load();
        let Some(trie) = trie.as_deref() else { return self.search(hash, key, purpose) };
        let bytes = self.read_block(trie.lookup(hash), purpose)?;
        self.find(bytes, key)
    }

    /// Finds the entry of `key` in the bytes of a block.
    fn find(&self, bytes: Vec<u8>, key: &[u8]) -> Result<Option<Item>> {
        let mut at = CRC;
        while let Some((op, len)) = item::first(&bytes[at..]) {
            if op.key() == key {
                return Ok(Some(Item::new(bytes, at)));
            }
            at += len;
        }
        Ok(None)
    }

    /// Reads a block and verifies its checksum.
    fn read_block(&self, block: u64, purpose: Purpose) -> Result<Vec<u8>> {
        let Some((start, end)) = self.boundaries.range(block) else {
            return Err(self.corruption(0, "the index points outside of the file"));
        };
        let mut bytes = vec![0; (end - start) as usize];
        self.file.read_at(start, &mut bytes, purpose)?;
        self.check_block(start, &bytes)?;
        Ok(bytes)
    }

    fn check_block(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let matches = bytes
            .split_at_checked(CRC)
            .is_some_and(|(crc, entries)| self.sum.of(at, entries).to_le_bytes() == crc);
        let wrong = || self.corruption(at, "a block does not match its checksum");
        matches.then_some(()).ok_or_else(wrong)
    }

    /// Iterates over all entries in the order of hashes.
    pub(crate) fn scan(&self, purpose: Purpose) -> Scan<&Self> {
        Scan::new(self, purpose)
    }

    /// Iterates over all blocks without using the boundaries: the ends of uneven blocks are found
    /// by parsing.
    fn scan_blocks(&self, end: u64, purpose: Purpose) -> BlockScan<&Self> {
        BlockScan { is_known: self.meta.is_even, end, ..BlockScan::known(self, purpose) }
    }

    /// Reads and checks every byte of the store and its index.
    pub(crate) fn verify(&self) -> Result<()> {
        let purpose = Purpose::Maintenance;
        let end = self.end();
        let (trie, boundaries) = self.index(end, purpose)?;
        let stored = self.read_derived(purpose)?;
        let name = self.derived_name();
        let wrong = || Error::corruption(&name, 0, "the index is not that of its SortedStore");
        let (stored, stored_boundaries) = parse_index(&stored).ok_or_else(wrong)?;
        // Two tries of the same hashes may differ in their bucket counts, so lookups are compared.
        let is_equal = (stored.len(), &stored_boundaries.range(0))
            == (trie.len(), &boundaries.range(0))
            && (0..boundaries.blocks()).all(|i| stored_boundaries.range(i) == boundaries.range(i));
        if !is_equal {
            return Err(wrong());
        }
        let mut scan = self.scan_blocks(end, purpose);
        let mut block = 0;
        while let Some((_, entries)) = scan.next()? {
            for entry in item::list(entries).flatten() {
                let hash = self.meta.keys.hash(entry.0.key());
                if stored.lookup(&hash) != block {
                    return Err(wrong());
                }
            }
            block += 1;
        }
        Ok(())
    }

    /// The file offset where the blocks end.
    fn end(&self) -> u64 {
        self.entry().bytes - FOOTER.bytes() as u64
    }

    pub(crate) fn meta(&self) -> &StoreMeta {
        &self.meta
    }

    /// Bytes of memory that the index takes now.
    pub(crate) fn memory(&self) -> u64 {
        self.trie.load().as_ref().map_or(0, |trie| trie.size() as u64) + self.boundaries.memory()
    }
}

/// Iterates over the blocks of a SortedStore, several per read.
struct BlockScan<S> {
    store: S,
    purpose: Purpose,
    /// Whether the boundaries locate the blocks; otherwise they are parsed.
    is_known: bool,
    end: u64,
    next: u64,
    /// The file offset of the next block.
    at: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl<S: Deref<Target = SortedStore>> BlockScan<S> {
    fn known(store: S, purpose: Purpose) -> Self {
        let end = store.end();
        BlockScan {
            store,
            purpose,
            is_known: true,
            end,
            next: 0,
            at: 0,
            chunk: Vec::new(),
            chunk_at: 0,
        }
    }

    /// The next block: its file offset, and its entries.
    fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        if self.next == self.store.meta.blocks() {
            return match self.at == self.end {
                true => Ok(None),
                false => Err(self.store.corruption(self.at, "bytes follow the last block")),
            };
        }
        let start = self.at;
        let range = self.store.boundaries.range(self.next).filter(|_| self.is_known);
        let end = match range {
            Some((_, end)) => end,
            None => self.find_end()?,
        };
        self.load(end)?;
        let from = (start - self.chunk_at) as usize;
        let bytes = &self.chunk[from..from + (end - start) as usize];
        self.store.check_block(start, bytes)?;
        self.next += 1;
        self.at = end;
        Ok(Some((start, &bytes[CRC..])))
    }

    /// Reads the bytes from the next block up to `end`, and beyond up to a chunk.
    fn load(&mut self, end: u64) -> Result<()> {
        if self.chunk_at + self.chunk.len() as u64 >= end && self.chunk_at <= self.at {
            return Ok(());
        }
        let len = (end - self.at).max(CHUNK_BYTES).min(self.end.saturating_sub(self.at));
        let wrong = "a block exceeds the end of the blocks";
        if self.at + len < end {
            return Err(self.store.corruption(self.at, wrong));
        }
        // Empty during the read: a failed read must not leave bytes of other blocks.
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(len as usize, 0);
        self.store.file.read_at(self.at, &mut chunk, self.purpose)?;
        self.chunk = chunk;
        self.chunk_at = self.at;
        Ok(())
    }

    /// Finds the end of a block without its boundaries: after the block's number of hashes, and
    /// padding.
    fn find_end(&mut self) -> Result<u64> {
        let meta = self.store.meta;
        let hashes_before = self.next * u64::from(meta.hashes_per_block);
        let wanted = (meta.hashes - hashes_before).min(u64::from(meta.hashes_per_block));
        let mut have = CHUNK_BYTES;
        loop {
            let limit = (self.at + have).min(self.end);
            self.load(limit)?;
            let from = (self.at - self.chunk_at) as usize;
            let bytes = &self.chunk[from..(limit - self.chunk_at) as usize];
            let (mut at, mut hashes, mut last) = (CRC, 0, None);
            let mut end = None;
            // The next block begins with a checksum, which may parse as an entry with one hash more
            // than the block has. So hashes are counted; further keys of the last hash belong to
            // it.
            while let Some((op, len)) = bytes.get(at..).and_then(item::first) {
                let hash = meta.keys.hash(op.key());
                if last != Some(hash) {
                    if hashes == wanted {
                        break;
                    }
                    hashes += 1;
                    last = Some(hash);
                }
                at += len;
                end = Some(self.at + at as u64);
            }
            if hashes == wanted
                && let Some(end) = end
            {
                return Ok(end.next_multiple_of(UNIT).min(self.end));
            }
            if limit == self.end {
                return Err(self.store.corruption(self.at, "a block is malformed"));
            }
            have *= 2;
        }
    }
}

/// Iterates over the entries of a SortedStore in the order of hashes.
pub(crate) struct Scan<S> {
    blocks: BlockScan<S>,
    block: Vec<u8>,
    at: usize,
}

impl<S: Deref<Target = SortedStore>> Scan<S> {
    pub(crate) fn new(store: S, purpose: Purpose) -> Self {
        Scan { blocks: BlockScan::known(store, purpose), block: Vec::new(), at: 0 }
    }

    /// A scan over the entries with hashes greater than `hash`. Cost: about six reads of blocks.
    pub(crate) fn after(store: S, hash: &HashKey, purpose: Purpose) -> Result<Self> {
        let (block, _) = store.locate(hash, purpose)?;
        let start = store.boundaries.range(block).map_or(store.end(), |(start, _)| start);
        let keys = store.meta.keys;
        let mut scan = Self::new(store, purpose);
        (scan.blocks.next, scan.blocks.at) = (block, start);
        // Skip the entries up to `hash`.
        while let Some(entry) = scan.next()? {
            let (len, op) = (entry.len(), item::first(entry));
            if op.is_some_and(|(op, _)| keys.hash(op.key()) > *hash) {
                scan.at -= len;
                break;
            }
        }
        Ok(scan)
    }

    /// The next entry's bytes.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let len = self.block.get(self.at..).and_then(item::first).map(|(_, len)| len);
            if let Some(len) = len {
                self.at += len;
                return Ok(Some(&self.block[self.at - len..self.at]));
            }
            let Some((_, entries)) = self.blocks.next()? else { return Ok(None) };
            self.block.clear();
            self.block.extend_from_slice(entries);
            self.at = 0;
        }
    }
}

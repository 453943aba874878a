//! A SortedStore: most of a partition's entries, in the order of their hashes, immutable.
//!
//! ```text
//!   key ─ hash ─▶ entropy-coded trie ─▶ block ─▶ boundaries ─▶ one read ─▶ keys compared
//!                 0.3 to 2.5 bits an entry       none, where entries have one length
//! ```
//!
//! Of the two indexes that `structures` has, the trie was chosen by `siltstone repro run rank-index`
//! and the table in `structures/src/rank.rs`: where a block holds several entries, as most do, it is
//! the smaller one, and merges read and write in the order of hashes.
//!
//! The index is a file of its own. Damaged or missing, it is made again from the blocks; while
//! the trie is not in memory, a lookup guesses the block from the hash, which is uniform, and searches
//! on.
//!
//! Invariant: the trie's block of a stored hash is the one that holds it, and of another hash some
//! block, so that every lookup that comes here costs one read.
//!
//! Source: Lim, thesis, sections 2.2.3 and 2.3 (fail-graceful indexing), chapter 3.

mod boundaries;
mod format;
mod search;
mod write;

pub(crate) use boundaries::UNIT as BLOCK_UNIT;
pub(crate) use format::{CRC as BLOCK_CRC, FOOTER, Shape};
pub(crate) use write::{Plan, SortedStoreWriter, discard};

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::{Ect, EctBuilder, HashKey};
use siltstone_vfs::{File, Mode, Vfs};

use crate::file::{FileSum, read_derived, write_derived};
use crate::item::{self, Item};
use crate::keys::Keys;
use crate::names::Kind;
use crate::version::StoreEntry;
use boundaries::{Boundaries, BoundariesBuilder, UNIT};
use format::CRC;
use write::{knobs, no_index};

/// A walk reads about this many bytes at once.
const CHUNK_BYTES: u64 = 256 << 10;

/// An open SortedStore. When the last version that names it is gone and it is obsolete, its files are
/// removed.
pub(crate) struct SortedStore {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    entry: StoreEntry,
    name: String,
    sum: FileSum,
    shape: Shape,
    boundaries: Boundaries,
    /// `None` while it is not loaded, and when it was dropped.
    trie: ArcSwapOption<Ect>,
    /// Why the index had to be made again.
    warning: OnceLock<String>,
    /// An index that had to be made again is written.
    mends: bool,
    obsolete: AtomicBool,
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
    /// Opens what `entry` names, without its trie: see [`load`](Self::load). Where entries have many
    /// lengths the index is read, because without its boundaries no block can be found.
    ///
    /// # Errors
    /// `Corruption` if the file is not what the manifest says; the medium's.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        entry: StoreEntry,
        purpose: Purpose,
    ) -> Result<Arc<Self>> {
        Self::open_and(true, vfs, entry, purpose)
    }

    /// The same, and changes nothing on the medium.
    pub(crate) fn open_as_it_is(vfs: &Arc<dyn Vfs>, entry: StoreEntry) -> Result<Arc<Self>> {
        Self::open_and(false, vfs, entry, Purpose::Maintenance)
    }

    fn open_and(
        mends: bool,
        vfs: &Arc<dyn Vfs>,
        entry: StoreEntry,
        purpose: Purpose,
    ) -> Result<Arc<Self>> {
        let name = Kind::SortedStore.name(entry.number);
        let file = vfs.open(&name, Mode::Read)?;
        let sum = FileSum::new(entry.number);
        let (fields, end) = FOOTER.read(file.as_ref(), &name, sum, purpose)?;
        let shape = Shape::decode(&fields);
        let told = (entry.partition, entry.entries, entry.bytes);
        let is_told = (shape.partition, shape.entries, file.len()?) == told;
        if !is_told || !shape.can_end_at(end) {
            let reason = "the SortedStore is not the one that the manifest names";
            return Err(Error::corruption(name, end, reason));
        }
        let mut store = SortedStore {
            vfs: vfs.clone(),
            file,
            entry,
            name,
            sum,
            boundaries: Boundaries::even(shape.blocks(), shape.stride(), end),
            shape,
            trie: ArcSwapOption::empty(),
            warning: OnceLock::new(),
            mends,
            obsolete: AtomicBool::new(false),
        };
        if !shape.is_even {
            (_, store.boundaries) = store.read_index(purpose)?;
        }
        Ok(Arc::new(store))
    }

    /// Loads the trie, and makes it again if it is damaged or missing. Lookups go on meanwhile.
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

    /// What the index takes in memory at most when it is loaded: 2.5 bits an entry where each is told
    /// apart and less than one in blocks of eight, with room to spare.
    pub(crate) fn memory_loaded(&self) -> u64 {
        let share = if self.shape.hashes_a_block < 8 { 2 } else { 6 };
        self.shape.hashes / share + 256 + self.boundaries.memory()
    }

    /// What the store `number` says of itself in its footer, where its blocks end, and how long they
    /// are if all have one length.
    ///
    /// # Errors
    /// `Corruption` if that does not hold; `Refused` for a newer format; the medium's.
    pub(crate) fn describe(
        vfs: &dyn Vfs,
        number: u64,
    ) -> Result<(StoreEntry, Keys, u64, Option<u64>)> {
        let name = Kind::SortedStore.name(number);
        let file = vfs.open(&name, Mode::Read)?;
        let (fields, end) =
            FOOTER.read(file.as_ref(), &name, FileSum::new(number), Purpose::Maintenance)?;
        let shape = Shape::decode(&fields);
        let Shape { partition, entries, .. } = shape;
        let entry = StoreEntry { partition, number, bytes: file.len()?, entries };
        Ok((entry, shape.keys, end, shape.is_even.then(|| shape.stride())))
    }

    /// The index as it is on the medium; made again if that does not hold.
    fn read_index(&self, purpose: Purpose) -> Result<(Ect, Boundaries)> {
        let number = self.entry.number;
        let name = Kind::Index.name(number);
        let read = read_derived(self.vfs.as_ref(), &name, number, purpose).and_then(|bytes| {
            let index = parse_index(&bytes).filter(|(trie, boundaries)| {
                (trie.len(), boundaries.blocks()) == (self.shape.hashes, self.shape.blocks())
                    && boundaries.end() == self.end()
            });
            index.ok_or_else(|| Error::corruption(&name, 0, "this is no index of the SortedStore"))
        });
        match read {
            Ok(index) => Ok(index),
            Err(error) if error.is_corruption() => {
                let index = self.index(self.end(), purpose)?;
                if self.mends {
                    // If it cannot be written it is made again the next time, too.
                    let bytes = index_bytes(&index.0, &index.1);
                    let _ = write_derived(self.vfs.as_ref(), &name, number, &bytes, purpose);
                }
                let _ = self.warning.set(format!("{error}: made again from {}", self.name));
                Ok(index)
            }
            Err(other) => Err(other),
        }
    }

    /// The index, made from the blocks, which end at `end`; checks every block.
    fn index(&self, end: u64, purpose: Purpose) -> Result<(Ect, Boundaries)> {
        let mut trie = EctBuilder::new(knobs(self.shape.hashes_a_block), self.shape.hashes)
            .map_err(no_index)?;
        let mean = end / self.shape.blocks();
        let mut starts = BoundariesBuilder::new(mean);
        let (mut last, mut entries) = (None, 0);
        let mut walk = self.walk_blocks(end, purpose);
        while let Some((at, block)) = walk.next()? {
            if !self.shape.is_even {
                starts.push(at);
            }
            for entry in item::list(block) {
                let Some((op, _)) = entry else {
                    return Err(self.corruption(at, "a block holds what is no entry"));
                };
                let hash = self.shape.keys.hash(op.key());
                entries += 1;
                if last != Some(hash) {
                    trie.push(&hash).map_err(|error| self.corruption(at, &error.to_string()))?;
                    last = Some(hash);
                }
            }
        }
        if (entries, trie.len()) != (self.shape.entries, self.shape.hashes) {
            return Err(self.corruption(end, "the blocks hold fewer entries than the footer says"));
        }
        let boundaries = match self.shape.is_even {
            true => Boundaries::even(self.shape.blocks(), self.shape.stride(), end),
            false => starts.finish(end),
        };
        Ok((trie.finish().map_err(no_index)?, boundaries))
    }

    /// The entry of `key`. Cost: one read, of a block.
    pub(crate) fn get(&self, hash: &HashKey, key: &[u8], purpose: Purpose) -> Result<Option<Item>> {
        let trie = self.trie.load();
        let Some(trie) = trie.as_deref() else { return self.search(hash, key, purpose) };
        let bytes = self.read_block(trie.lookup(hash), purpose)?;
        self.find(bytes, key)
    }

    /// The entry of `key` in a block that was read.
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

    /// Reads and checks a block, checksum and all.
    fn read_block(&self, block: u64, purpose: Purpose) -> Result<Vec<u8>> {
        let Some((start, end)) = self.boundaries.range(block) else {
            return Err(self.corruption(0, "the index leads out of the file"));
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

    /// All entries in the order of hashes.
    pub(crate) fn walk(&self, purpose: Purpose) -> Walk<&Self> {
        Walk::new(self, purpose)
    }

    /// All blocks, without the boundaries: those that are not even are found one after the other.
    fn walk_blocks(&self, end: u64, purpose: Purpose) -> Blocks<&Self> {
        Blocks { is_known: self.shape.is_even, end, ..Blocks::known(self, purpose) }
    }

    /// Reads and checks every byte, and the index if there is one on the medium.
    pub(crate) fn verify(&self) -> Result<()> {
        let purpose = Purpose::Maintenance;
        let end = self.end();
        let (trie, boundaries) = self.index(end, purpose)?;
        let number = self.entry.number;
        let name = Kind::Index.name(number);
        let stored = read_derived(self.vfs.as_ref(), &name, number, purpose)?;
        let wrong = || Error::corruption(&name, 0, "the index is not that of its SortedStore");
        let (stored, stored_boundaries) = parse_index(&stored).ok_or_else(wrong)?;
        // Two tries of the same hashes may differ in their number of buckets.
        let is_right = (stored.len(), &stored_boundaries.range(0))
            == (trie.len(), &boundaries.range(0))
            && (0..boundaries.blocks()).all(|i| stored_boundaries.range(i) == boundaries.range(i));
        if !is_right {
            return Err(wrong());
        }
        let mut walk = self.walk_blocks(end, purpose);
        let mut block = 0;
        while let Some((_, entries)) = walk.next()? {
            for entry in item::list(entries).flatten() {
                let hash = self.shape.keys.hash(entry.0.key());
                if stored.lookup(&hash) != block {
                    return Err(wrong());
                }
            }
            block += 1;
        }
        Ok(())
    }

    /// Where the blocks end.
    fn end(&self) -> u64 {
        self.entry.bytes - FOOTER.bytes() as u64
    }

    pub(crate) fn shape(&self) -> &Shape {
        &self.shape
    }

    pub(crate) fn entry(&self) -> &StoreEntry {
        &self.entry
    }

    pub(crate) fn warning(&self) -> Option<&str> {
        self.warning.get().map(String::as_str)
    }

    /// Bytes of memory that the index takes.
    pub(crate) fn memory(&self) -> u64 {
        self.trie.load().as_ref().map_or(0, |trie| trie.size() as u64) + self.boundaries.memory()
    }

    /// The names of its files.
    pub(crate) fn names(&self) -> [String; 2] {
        [self.name.clone(), Kind::Index.name(self.entry.number)]
    }

    /// No version made from now on names this store.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    fn corruption(&self, at: u64, reason: &str) -> Error {
        Error::corruption(&self.name, at, reason)
    }
}

impl Drop for SortedStore {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            discard(self.vfs.as_ref(), self.entry.number);
        }
    }
}

/// Walks the blocks of a SortedStore, many a read.
struct Blocks<S> {
    store: S,
    purpose: Purpose,
    /// Boundaries tell where blocks lie; otherwise their checksums do.
    is_known: bool,
    end: u64,
    next: u64,
    /// Where the next block begins.
    at: u64,
    chunk: Vec<u8>,
    chunk_at: u64,
}

impl<S: Deref<Target = SortedStore>> Blocks<S> {
    fn known(store: S, purpose: Purpose) -> Self {
        let end = store.end();
        Blocks {
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

    /// The next block: where it is, and its entries.
    fn next(&mut self) -> Result<Option<(u64, &[u8])>> {
        if self.next == self.store.shape.blocks() {
            return match self.at == self.end {
                true => Ok(None),
                false => {
                    Err(self.store.corruption(self.at, "there are bytes behind the last block"))
                }
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

    /// Makes the bytes from the next block on up to `end` present, and more if there are.
    fn load(&mut self, end: u64) -> Result<()> {
        if self.chunk_at + self.chunk.len() as u64 >= end && self.chunk_at <= self.at {
            return Ok(());
        }
        let len = (end - self.at).max(CHUNK_BYTES).min(self.end.saturating_sub(self.at));
        let wrong = "a block goes on behind the last one";
        if self.at + len < end {
            return Err(self.store.corruption(self.at, wrong));
        }
        // Empty while it is being filled: a failed read must not leave other blocks' bytes.
        let mut chunk = std::mem::take(&mut self.chunk);
        chunk.resize(len as usize, 0);
        self.store.file.read_at(self.at, &mut chunk, self.purpose)?;
        self.chunk = chunk;
        self.chunk_at = self.at;
        Ok(())
    }

    /// Where the block ends whose boundaries are lost: after as many hashes as it has, and zeros.
    fn find_end(&mut self) -> Result<u64> {
        let shape = self.store.shape;
        let hashes_before = self.next * u64::from(shape.hashes_a_block);
        let wanted = (shape.hashes - hashes_before).min(u64::from(shape.hashes_a_block));
        let mut have = CHUNK_BYTES;
        loop {
            let limit = (self.at + have).min(self.end);
            self.load(limit)?;
            let from = (self.at - self.chunk_at) as usize;
            let bytes = &self.chunk[from..(limit - self.chunk_at) as usize];
            let (mut at, mut hashes, mut last) = (CRC, 0, None);
            let mut end = None;
            // One more hash than the block has is the next block's, whose checksum comes first: so
            // entries are counted, and further keys of the last hash looked for.
            while let Some((op, len)) = bytes.get(at..).and_then(item::first) {
                let hash = shape.keys.hash(op.key());
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

/// Walks the entries of a SortedStore.
pub(crate) struct Walk<S> {
    blocks: Blocks<S>,
    block: Vec<u8>,
    at: usize,
}

impl<S: Deref<Target = SortedStore>> Walk<S> {
    pub(crate) fn new(store: S, purpose: Purpose) -> Self {
        Walk { blocks: Blocks::known(store, purpose), block: Vec::new(), at: 0 }
    }

    /// A walk over the entries with hashes greater than `hash`. Cost: some six reads of blocks.
    pub(crate) fn behind(store: S, hash: &HashKey, purpose: Purpose) -> Result<Self> {
        let (block, _) = store.locate(hash, purpose)?;
        let start = store.boundaries.range(block).map_or(store.end(), |(start, _)| start);
        let keys = store.shape.keys;
        let mut walk = Self::new(store, purpose);
        (walk.blocks.next, walk.blocks.at) = (block, start);
        // Up to the last entry that is not behind.
        while let Some(entry) = walk.next()? {
            let (len, op) = (entry.len(), item::first(entry));
            if op.is_some_and(|(op, _)| keys.hash(op.key()) > *hash) {
                walk.at -= len;
                break;
            }
        }
        Ok(walk)
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

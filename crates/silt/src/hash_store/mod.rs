//! A HashStore: the entries of a LogStore in the order of its cuckoo table, immutable.
//!
//! ```text
//!   key ─ hash ─▶ filter in memory ─▶ candidate slots ─▶ one read of each, keys compared
//!                 15 bits per slot    mostly none for an absent key
//! ```
//!
//! The filter is a file of its own. It is rebuilt from the slots if it is damaged or missing. While
//! it is not loaded, a lookup reads both buckets of the hash.
//!
//! Invariant: a slot's entry lies in one of the two buckets of its hash, and the filter has its tag
//! there.
//!
//! Source: Lim, thesis, sections 2.2.2 and 2.3 (fail-graceful indexing).

mod damage;
mod format;
mod write;

pub(crate) use format::{FOOTER, StoreMeta, choose_slot_bytes};
pub(crate) use write::{HashStoreWriter, write_filter};

use std::ops::Deref;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::cuckoo::WAYS;
use siltstone_structures::{CuckooFilter, CuckooTable, HashKey};
use siltstone_vfs::Vfs;

use crate::item::{self, Item};
use crate::keys::cuckoo_bits;
use crate::names::Kind;
use crate::store_entry::StoreEntry;
use crate::store_file::StoreFile;
use format::{CRC, SPLIT_HEADER, Slot, decode_slot};

/// Bytes that a scan reads at once, about.
const CHUNK_BYTES: u32 = 256 << 10;

/// The files of a HashStore.
const FILES: [Kind; 2] = [Kind::HashStore, Kind::Filter];

/// An open HashStore.
pub(crate) struct HashStore {
    files: StoreFile,
    meta: StoreMeta,
    /// The file offset where the overflow area ends and the footer begins.
    end: u64,
    /// `None` while the filter is not loaded.
    filter: ArcSwapOption<CuckooFilter>,
}

impl Deref for HashStore {
    type Target = StoreFile;

    fn deref(&self) -> &StoreFile {
        &self.files
    }
}

impl HashStore {
    /// Opens the store that `entry` names, without its filter: see [`load`](Self::load).
    ///
    /// # Errors
    /// `Corruption` if the file does not match `entry`; I/O errors.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        entry: StoreEntry,
        purpose: Purpose,
    ) -> Result<Arc<Self>> {
        let files = StoreFile::open(vfs, FILES, entry)?;
        let (fields, end) = files.read_footer(&FOOTER, purpose)?;
        let meta = StoreMeta::decode(&fields);
        let named = (entry.partition, entry.entries, entry.bytes);
        let is_named = (meta.partition, u64::from(meta.entries), files.file.len()?) == named;
        let is_complete = meta.slot_bytes as usize > CRC + SPLIT_HEADER && meta.slots_end() <= end;
        if !is_named || !is_complete {
            let reason = "the HashStore is not the one that the manifest names";
            return Err(files.corruption(end, reason));
        }
        Ok(Arc::new(HashStore { files, meta, end, filter: ArcSwapOption::empty() }))
    }

    /// Loads the filter, and rebuilds it if it is damaged or missing. Concurrent lookups continue.
    pub(crate) fn load(&self, purpose: Purpose) -> Result<()> {
        let parsed = self.read_derived(purpose).and_then(|bytes| {
            let filter = CuckooFilter::from_bytes(&bytes);
            let filter = filter.map_err(|error| self.corruption(0, &error.to_string()))?;
            let is_ours =
                filter.slots() == u64::from(self.meta.slots) && filter.len() == self.meta.entries;
            is_ours
                .then_some(filter)
                .ok_or_else(|| self.corruption(0, "the filter is not that of the HashStore"))
        });
        match parsed {
            Ok(filter) => self.filter.store(Some(Arc::new(filter))),
            Err(error) if error.is_corruption() => {
                let table = self.table(purpose)?;
                self.filter.store(Some(Arc::new(CuckooFilter::from_table(&table))));
                // If writing fails, the next load rebuilds the filter again.
                let _ = write_filter(self.vfs.as_ref(), self.entry().number, &table);
                self.warn(&error);
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Rebuilds the cuckoo table of the slots, each with its own number as value; checks every
    /// slot.
    fn table(&self, purpose: Purpose) -> Result<CuckooTable> {
        let mut table = CuckooTable::with_slots(self.meta.slots);
        if table.slots() != u64::from(self.meta.slots) {
            return Err(self.corruption(self.end, "no cuckoo table has this number of slots"));
        }
        let mut scan = self.scan(purpose);
        while let Some((slot, entry)) = scan.next()? {
            let Some((op, _)) = item::first(entry) else {
                return Err(self.corruption(self.offset(slot), "a slot has a malformed entry"));
            };
            let hash = self.meta.keys.hash(op.key());
            if !table.place(cuckoo_bits(&hash), slot, slot) {
                return Err(self.corruption(
                    self.offset(slot),
                    "an entry is in a slot that is not of its buckets",
                ));
            }
        }
        if table.len() != self.meta.entries {
            return Err(
                self.corruption(self.end, "the slots hold fewer entries than the footer states")
            );
        }
        Ok(table)
    }

    /// The entry of `key`. Cost: no read if the filter excludes the key, else mostly one.
    pub(crate) fn get(&self, hash: &HashKey, key: &[u8], purpose: Purpose) -> Result<Option<Item>> {
        let bits = cuckoo_bits(hash);
        let filter = self.filter.load();
        let Some(filter) = filter.as_deref() else {
            return self.get_unfiltered(bits, key, purpose);
        };
        for slot in filter.candidates(bits) {
            let mut bytes = vec![0; self.meta.slot_bytes as usize];
            self.file.read_at(self.offset(slot), &mut bytes, purpose)?;
            if let Some(item) = self.match_slot(slot, &bytes, true, key, purpose)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// As [`get`](Self::get), without a filter: reads both buckets of the hash.
    fn get_unfiltered(&self, bits: u64, key: &[u8], purpose: Purpose) -> Result<Option<Item>> {
        let buckets = CuckooTable::<15>::buckets_of(bits, u64::from(self.meta.slots));
        let buckets = buckets
            .ok_or_else(|| self.corruption(self.end, "no cuckoo table has this number of slots"))?;
        let size = self.meta.slot_bytes as usize;
        for bucket in buckets {
            let first = bucket * WAYS as u32;
            let mut bytes = vec![0; size * WAYS];
            self.file.read_at(self.offset(first), &mut bytes, purpose)?;
            for (slot, bytes) in (first..).zip(bytes.chunks_exact(size)) {
                if let Some(item) = self.match_slot(slot, bytes, false, key, purpose)? {
                    return Ok(Some(item));
                }
            }
        }
        Ok(None)
    }

    fn match_slot(
        &self,
        slot: u32,
        bytes: &[u8],
        has_tag: bool,
        key: &[u8],
        purpose: Purpose,
    ) -> Result<Option<Item>> {
        let entry = match self.decode(slot, bytes)? {
            Slot::Empty if has_tag => {
                let at = self.offset(slot);
                return Err(self.corruption(at, "a slot is empty where the filter has a tag"));
            }
            Slot::Empty => return Ok(None),
            Slot::Inline(entry) => entry.to_vec(),
            Slot::Split { head, len, tail_at } => {
                self.read_split(slot, head, len, tail_at, purpose)?
            }
        };
        match item::first(&entry) {
            None => Err(self.corruption(self.offset(slot), "a slot has a malformed entry")),
            Some((op, _)) if op.key() == key => Ok(Some(Item::new(entry, 0))),
            Some(_) => Ok(None),
        }
    }

    fn decode<'a>(&self, slot: u32, bytes: &'a [u8]) -> Result<Slot<'a>> {
        let at = self.offset(slot);
        decode_slot(bytes, self.sum, at).map_err(|reason| self.corruption(at, reason))
    }

    /// Reads the tail of a split entry and joins it to its head.
    fn read_split(
        &self,
        slot: u32,
        head: &[u8],
        len: usize,
        tail_at: u64,
        purpose: Purpose,
    ) -> Result<Vec<u8>> {
        let tail = len - head.len();
        let end = tail_at.checked_add((tail + CRC) as u64);
        if tail_at < self.meta.slots_end() || end.is_none_or(|end| end > self.end) {
            return Err(self.corruption(self.offset(slot), "a slot points outside of the file"));
        }
        let mut bytes = vec![0; tail + CRC];
        self.file.read_at(tail_at, &mut bytes, purpose)?;
        let (tail, crc) = bytes.split_at(tail);
        if self.sum.of(tail_at, tail).to_le_bytes() != crc {
            return Err(
                self.corruption(tail_at, "the tail of an entry does not match its checksum")
            );
        }
        Ok([head, tail].concat())
    }

    /// Iterates over all entries in table order.
    pub(crate) fn scan(&self, purpose: Purpose) -> Scan<&Self> {
        Scan::new(self, purpose)
    }

    /// Reads and checks every byte of the store and its filter.
    pub(crate) fn verify(&self) -> Result<()> {
        let purpose = Purpose::Maintenance;
        let table = self.table(purpose)?;
        let bytes = self.read_derived(purpose)?;
        if bytes != CuckooFilter::from_table(&table).to_bytes() {
            return Err(Error::corruption(
                self.derived_name(),
                0,
                "the filter is not that of its HashStore",
            ));
        }
        Ok(())
    }

    pub(crate) fn meta(&self) -> &StoreMeta {
        &self.meta
    }

    /// Bytes of memory that the filter takes now.
    pub(crate) fn memory(&self) -> u64 {
        self.filter.load().as_ref().map_or(0, |filter| filter.memory() as u64)
    }

    /// Bytes of memory that the filter takes when it is loaded.
    pub(crate) fn memory_loaded(&self) -> u64 {
        CuckooFilter::<15>::memory_of(u64::from(self.meta.slots))
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.filter.load().is_some()
    }

    /// Drops the filter from memory. Lookups read both buckets from now on.
    pub(crate) fn unload(&self) {
        self.filter.store(None);
    }

    fn offset(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.meta.slot_bytes)
    }
}

/// Iterates over the entries of a HashStore in the order of slots.
pub(crate) struct Scan<S> {
    store: S,
    purpose: Purpose,
    next: u32,
    /// Slots per read.
    chunk: u32,
    bytes: Vec<u8>,
    /// The first slot in `bytes`.
    chunk_at: u32,
    /// The current entry, if it is split.
    entry: Vec<u8>,
}

impl<S: Deref<Target = HashStore>> Scan<S> {
    pub(crate) fn new(store: S, purpose: Purpose) -> Self {
        let chunk = (CHUNK_BYTES / store.meta.slot_bytes).max(1);
        Scan { store, purpose, next: 0, chunk, bytes: Vec::new(), chunk_at: 0, entry: Vec::new() }
    }

    /// The same scan, starting after a slot.
    pub(crate) fn after_slot(self, slot: u32) -> Self {
        Scan { next: slot.saturating_add(1), ..self }
    }

    /// The next entry: its slot, and its bytes, which zeros may follow.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, &[u8])>> {
        let store = &*self.store;
        let size = store.meta.slot_bytes as usize;
        while self.next < store.meta.slots {
            let slot = self.next;
            if self.bytes.is_empty() || slot >= self.chunk_at + (self.bytes.len() / size) as u32 {
                let slots = self.chunk.min(store.meta.slots - slot);
                // Empty during the read: a failed read must not leave bytes of other slots.
                let mut bytes = std::mem::take(&mut self.bytes);
                bytes.resize(slots as usize * size, 0);
                store.file.read_at(store.offset(slot), &mut bytes, self.purpose)?;
                self.bytes = bytes;
                self.chunk_at = slot;
            }
            let at = (slot - self.chunk_at) as usize * size;
            let body = at + CRC..at + size;
            match store.decode(slot, &self.bytes[at..at + size])? {
                Slot::Empty => self.next += 1,
                Slot::Inline(_) => {
                    self.next += 1;
                    return Ok(Some((slot, &self.bytes[body])));
                }
                Slot::Split { head, len, tail_at } => {
                    self.entry = store.read_split(slot, head, len, tail_at, self.purpose)?;
                    self.next += 1;
                    return Ok(Some((slot, &self.entry)));
                }
            }
        }
        Ok(None)
    }
}

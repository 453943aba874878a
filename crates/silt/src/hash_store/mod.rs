//! A HashStore: a LogStore's entries in the order of its cuckoo table, immutable.
//!
//! ```text
//!   key ─ hash ─▶ filter in memory ─▶ slots that may have it ─▶ one read of each, keys compared
//!                 15 bits a slot       none, mostly, if it has not
//! ```
//!
//! The filter is a file of its own. Damaged or missing, it is made again from the slots; while
//! it is not in memory, a lookup reads both buckets of the hash instead.
//!
//! Invariant: a slot's entry lies in one of the two buckets of its hash, and the filter has its tag
//! there.
//!
//! Source: Lim, thesis, sections 2.2.2 and 2.3 (fail-graceful indexing).

mod damaged;
mod format;
mod write;

pub(crate) use format::{FOOTER, Shape, choose_slot_bytes};
pub(crate) use write::{HashStoreWriter, discard, write_filter};

use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::cuckoo::WAYS;
use siltstone_structures::{CuckooFilter, CuckooTable, HashKey};
use siltstone_vfs::{File, Mode, Vfs};

use crate::file::{FileSum, read_derived};
use crate::item::{self, Item};
use crate::keys::cuckoo_bits;
use crate::names::Kind;
use crate::version::StoreEntry;
use format::{CRC, OUTLINE, Slot, decode_slot};

/// A walk reads about this many bytes at once.
const CHUNK_BYTES: u32 = 256 << 10;

/// An open HashStore. When the last version that names it is gone and it is obsolete, its files are
/// removed.
pub(crate) struct HashStore {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    entry: StoreEntry,
    name: String,
    sum: FileSum,
    shape: Shape,
    /// Where the last rest ends and the footer begins.
    end: u64,
    /// `None` while it is not loaded, and when it was dropped.
    filter: ArcSwapOption<CuckooFilter>,
    /// Why the filter had to be made again.
    warning: OnceLock<String>,
    obsolete: AtomicBool,
}

impl HashStore {
    /// Opens what `entry` names, without its filter: see [`load`](Self::load).
    ///
    /// # Errors
    /// `Corruption` if the file is not what the manifest says; the medium's.
    pub(crate) fn open(
        vfs: &Arc<dyn Vfs>,
        entry: StoreEntry,
        purpose: Purpose,
    ) -> Result<Arc<Self>> {
        let name = Kind::HashStore.name(entry.number);
        let file = vfs.open(&name, Mode::Read)?;
        let sum = FileSum::new(entry.number);
        let (fields, end) = FOOTER.read(file.as_ref(), &name, sum, purpose)?;
        let shape = Shape::decode(&fields);
        let told = (entry.partition, entry.entries, entry.bytes);
        let is_told = (shape.partition, u64::from(shape.entries), file.len()?) == told;
        let is_whole = shape.slot_bytes as usize > CRC + OUTLINE && shape.slots_end() <= end;
        if !is_told || !is_whole {
            let reason = "the HashStore is not the one that the manifest names";
            return Err(Error::corruption(name, end, reason));
        }
        Ok(Arc::new(HashStore {
            vfs: vfs.clone(),
            file,
            entry,
            name,
            sum,
            shape,
            end,
            filter: ArcSwapOption::empty(),
            warning: OnceLock::new(),
            obsolete: AtomicBool::new(false),
        }))
    }

    /// Loads the filter, and makes it again if it is damaged or missing. Lookups go on meanwhile.
    pub(crate) fn load(&self, purpose: Purpose) -> Result<()> {
        let number = self.entry.number;
        let read = read_derived(self.vfs.as_ref(), &Kind::Filter.name(number), number, purpose);
        let parsed = read.and_then(|bytes| {
            let filter = CuckooFilter::from_bytes(&bytes);
            let filter = filter.map_err(|error| self.corruption(0, &error.to_string()))?;
            let is_ours =
                filter.slots() == u64::from(self.shape.slots) && filter.len() == self.shape.entries;
            is_ours.then_some(filter).ok_or_else(|| self.corruption(0, "another store's filter"))
        });
        match parsed {
            Ok(filter) => self.filter.store(Some(Arc::new(filter))),
            Err(error) if error.is_corruption() => {
                let table = self.table(purpose)?;
                self.filter.store(Some(Arc::new(CuckooFilter::from_table(&table))));
                // If it cannot be written it is made again the next time, too.
                let _ = write_filter(self.vfs.as_ref(), number, &table);
                let _ = self.warning.set(format!("{error}: made again from {}", self.name));
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// The cuckoo table of the slots, with the slot for the offset; checks every slot.
    fn table(&self, purpose: Purpose) -> Result<CuckooTable> {
        let mut table = CuckooTable::with_slots(self.shape.slots);
        if table.slots() != u64::from(self.shape.slots) {
            return Err(self.corruption(self.end, "no cuckoo table has so many slots"));
        }
        let mut walk = self.walk(purpose);
        while let Some((slot, entry)) = walk.next()? {
            let Some((op, _)) = item::first(entry) else {
                return Err(self.corruption(self.offset(slot), "a slot holds no entry"));
            };
            let hash = self.shape.keys.hash(op.key());
            if !table.place(cuckoo_bits(&hash), slot, slot) {
                return Err(self.corruption(self.offset(slot), "an entry in another's slot"));
            }
        }
        if table.len() != self.shape.entries {
            return Err(
                self.corruption(self.end, "the slots hold fewer entries than the footer says")
            );
        }
        Ok(table)
    }

    /// The entry of `key`. Cost: no read if the filter tells that there is none, else mostly one.
    pub(crate) fn get(&self, hash: &HashKey, key: &[u8], purpose: Purpose) -> Result<Option<Item>> {
        let bits = cuckoo_bits(hash);
        let filter = self.filter.load();
        let Some(filter) = filter.as_deref() else {
            return self.get_unfiltered(bits, key, purpose);
        };
        for slot in filter.candidates(bits) {
            let mut bytes = vec![0; self.shape.slot_bytes as usize];
            self.file.read_at(self.offset(slot), &mut bytes, purpose)?;
            if let Some(item) = self.match_slot(slot, &bytes, true, key, purpose)? {
                return Ok(Some(item));
            }
        }
        Ok(None)
    }

    /// The same without a filter: reads the buckets of the hash.
    fn get_unfiltered(&self, bits: u64, key: &[u8], purpose: Purpose) -> Result<Option<Item>> {
        let buckets = CuckooTable::<15>::buckets_of(bits, u64::from(self.shape.slots));
        let buckets =
            buckets.ok_or_else(|| self.corruption(self.end, "no table has such slots"))?;
        let size = self.shape.slot_bytes as usize;
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
            Slot::Whole(entry) => entry.to_vec(),
            Slot::Cut { first, len, rest_at } => self.join(slot, first, len, rest_at, purpose)?,
        };
        match item::first(&entry) {
            None => Err(self.corruption(self.offset(slot), "a slot holds no entry")),
            Some((op, _)) if op.key() == key => Ok(Some(Item::new(entry, 0))),
            Some(_) => Ok(None),
        }
    }

    fn decode<'a>(&self, slot: u32, bytes: &'a [u8]) -> Result<Slot<'a>> {
        let at = self.offset(slot);
        decode_slot(bytes, self.sum, at).map_err(|reason| self.corruption(at, reason))
    }

    /// An entry whose rest is elsewhere.
    fn join(
        &self,
        slot: u32,
        first: &[u8],
        len: usize,
        rest_at: u64,
        purpose: Purpose,
    ) -> Result<Vec<u8>> {
        let rest = len - first.len();
        let end = rest_at.checked_add((rest + CRC) as u64);
        if rest_at < self.shape.slots_end() || end.is_none_or(|end| end > self.end) {
            return Err(self.corruption(self.offset(slot), "a slot leads out of the file"));
        }
        let mut bytes = vec![0; rest + CRC];
        self.file.read_at(rest_at, &mut bytes, purpose)?;
        let (rest, crc) = bytes.split_at(rest);
        if self.sum.of(rest_at, rest).to_le_bytes() != crc {
            return Err(
                self.corruption(rest_at, "the rest of an entry does not match its checksum")
            );
        }
        Ok([first, rest].concat())
    }

    /// All entries in table order.
    pub(crate) fn walk(&self, purpose: Purpose) -> Walk<&Self> {
        Walk::new(self, purpose)
    }

    /// Reads and checks every byte; the filter too if there is one on the medium.
    pub(crate) fn verify(&self) -> Result<()> {
        let purpose = Purpose::Maintenance;
        let table = self.table(purpose)?;
        let number = self.entry.number;
        let name = Kind::Filter.name(number);
        let bytes = read_derived(self.vfs.as_ref(), &name, number, purpose)?;
        if bytes != CuckooFilter::from_table(&table).to_bytes() {
            return Err(Error::corruption(name, 0, "the filter is not that of its HashStore"));
        }
        Ok(())
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

    /// Bytes of memory that the filter takes.
    pub(crate) fn memory(&self) -> u64 {
        self.filter.load().as_ref().map_or(0, |filter| filter.memory() as u64)
    }

    /// What it takes when it is loaded.
    pub(crate) fn memory_loaded(&self) -> u64 {
        CuckooFilter::<15>::memory_of(u64::from(self.shape.slots))
    }

    pub(crate) fn is_loaded(&self) -> bool {
        self.filter.load().is_some()
    }

    /// Drops the filter from memory. Lookups read both buckets from now on.
    pub(crate) fn unload(&self) {
        self.filter.store(None);
    }

    /// The names of its files.
    pub(crate) fn names(&self) -> [String; 2] {
        [self.name.clone(), Kind::Filter.name(self.entry.number)]
    }

    /// No version made from now on names this store.
    pub(crate) fn retire(&self) {
        self.obsolete.store(true, Ordering::Release);
    }

    fn offset(&self, slot: u32) -> u64 {
        u64::from(slot) * u64::from(self.shape.slot_bytes)
    }

    fn corruption(&self, at: u64, reason: &str) -> Error {
        Error::corruption(&self.name, at, reason)
    }
}

impl Drop for HashStore {
    fn drop(&mut self) {
        if self.obsolete.load(Ordering::Acquire) {
            discard(self.vfs.as_ref(), self.entry.number);
        }
    }
}

/// Walks a HashStore, held in any way, from its first slot.
pub(crate) struct Walk<S> {
    store: S,
    purpose: Purpose,
    next: u32,
    /// Slots read at once.
    chunk: u32,
    bytes: Vec<u8>,
    /// The first slot in `bytes`.
    chunk_at: u32,
    /// The entry handed out, where it was in two pieces.
    entry: Vec<u8>,
}

impl<S: Deref<Target = HashStore>> Walk<S> {
    pub(crate) fn new(store: S, purpose: Purpose) -> Self {
        let chunk = (CHUNK_BYTES / store.shape.slot_bytes).max(1);
        Walk { store, purpose, next: 0, chunk, bytes: Vec::new(), chunk_at: 0, entry: Vec::new() }
    }

    /// The same walk over the slots behind one.
    pub(crate) fn behind_slot(self, slot: u32) -> Self {
        Walk { next: slot.saturating_add(1), ..self }
    }

    /// The next entry: its slot, and its bytes with zeros behind them perhaps.
    pub(crate) fn next(&mut self) -> Result<Option<(u32, &[u8])>> {
        let store = &*self.store;
        let size = store.shape.slot_bytes as usize;
        while self.next < store.shape.slots {
            let slot = self.next;
            if self.bytes.is_empty() || slot >= self.chunk_at + (self.bytes.len() / size) as u32 {
                let slots = self.chunk.min(store.shape.slots - slot);
                // Empty while it is being filled: a failed read must not leave other slots' bytes.
                let mut bytes = std::mem::take(&mut self.bytes);
                bytes.resize(slots as usize * size, 0);
                store.file.read_at(store.offset(slot), &mut bytes, self.purpose)?;
                self.bytes = bytes;
                self.chunk_at = slot;
            }
            let at = (slot - self.chunk_at) as usize * size;
            let head = at + CRC..at + size;
            match store.decode(slot, &self.bytes[at..at + size])? {
                Slot::Empty => self.next += 1,
                Slot::Whole(_) => {
                    self.next += 1;
                    return Ok(Some((slot, &self.bytes[head])));
                }
                Slot::Cut { first, len, rest_at } => {
                    self.entry = store.join(slot, first, len, rest_at, self.purpose)?;
                    self.next += 1;
                    return Ok(Some((slot, &self.entry)));
                }
            }
        }
        Ok(None)
    }
}

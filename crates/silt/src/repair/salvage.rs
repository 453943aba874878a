//! Copies the readable entries of a damaged store to a new one.
//!
//! ```text
//!   HashStore     slots of one size: from the footer, or from the checksums of the first slots
//!   SortedStore   entries are parsed one by one until the checksum of the block matches; without a
//!                 match the reader skips by the unit that block sizes are multiples of
//! ```
//!
//! Two passes keep memory at 40 bytes per entry: the first finds the hash and location of every
//! readable entry, the second copies them in the order of the new store.
//!
//! Invariant: every entry returned had a matching checksum; all other bytes are in `lost`.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_structures::{CuckooTable, HashKey};
use siltstone_table::FileSum;
use siltstone_vfs::{File, Mode, Vfs};

use crate::hash_store::{HashStore, HashStoreWriter, StoreMeta, choose_slot_bytes, write_filter};
use crate::item;
use crate::keys::{KeyHasher, cuckoo_bits};
use crate::names::Kind;
use crate::sorted_store::{BLOCK_CRC, BLOCK_UNIT, Plan, SortedStore, SortedStoreWriter};
use crate::store_entry::StoreEntry;

const PURPOSE: Purpose = Purpose::Maintenance;
/// A block of several entries has at most this many bytes.
const CHUNK: u64 = 4 << 20;
/// A block of a single entry of the maximum size has at most this many bytes.
const MAX_BLOCK_BYTES: u64 = siltstone_engine::MAX_VALUE_BYTES as u64 + CHUNK;
/// The load factor of a new HashStore.
const LOAD_FACTOR: f64 = 0.9;
/// The target size of a block in a new SortedStore.
const BLOCK_BYTES: u64 = 4 << 10;

/// The location of an entry in the damaged file: a slot, or offset and length.
#[derive(Debug, Clone, Copy)]
pub(super) enum EntryLocation {
    Slot(u32),
    Bytes(u64, u32),
}

/// The readable part of a damaged file.
pub(super) struct Salvage {
    file: Arc<dyn File>,
    slots: Option<HashStore>,
    file_bytes: u64,
    /// The unreadable ranges, in order.
    lost: Vec<Range<u64>>,
    /// The end of the range that was read.
    end: u64,
}

impl Salvage {
    /// Reads all slots; calls `each` with the key and location of every readable entry.
    pub(super) fn of_hash_store(
        vfs: &Arc<dyn Vfs>,
        number: u64,
        mut each: impl FnMut(&[u8], EntryLocation) -> Result<()>,
    ) -> Result<Self> {
        let mut salvage = Self::begin(vfs, Kind::HashStore, number)?;
        let Some(store) = HashStore::open_damaged(vfs, number)? else {
            salvage.lose(0..salvage.file_bytes);
            return Ok(salvage);
        };
        salvage.end = store.meta().slots_end();
        for slot in 0..store.meta().slots {
            match store.read_slot(slot) {
                Ok(None) => {}
                Ok(Some(entry)) => match item::first(&entry) {
                    Some((op, _)) => each(op.key(), EntryLocation::Slot(slot))?,
                    None => salvage.lose(store.slot_range(slot)),
                },
                // A checksum of the slot or of its tail does not match.
                Err(error) if error.is_corruption() || error.is_failed_read() => {
                    salvage.lose(store.slot_range(slot));
                }
                Err(other) => return Err(other),
            }
        }
        salvage.slots = Some(store);
        Ok(salvage)
    }

    /// Reads all blocks; calls `each` with the key and location of every readable entry.
    pub(super) fn of_sorted_store(
        vfs: &Arc<dyn Vfs>,
        number: u64,
        mut each: impl FnMut(&[u8], EntryLocation) -> Result<()>,
    ) -> Result<Self> {
        let mut salvage = Self::begin(vfs, Kind::SortedStore, number)?;
        let sum = FileSum::new(number);
        let (end, mut stride) = match SortedStore::describe(vfs.as_ref(), number) {
            Ok((_, _, end, stride)) => (end, stride),
            Err(error) if error.is_corruption() || error.is_failed_read() => {
                (salvage.file_bytes, None)
            }
            Err(other) => return Err(other),
        };
        let (mut at, mut chunk, mut chunk_at, mut is_lost) = (0, Vec::new(), 0u64, false);
        while at < end {
            if chunk_at + (chunk.len() as u64) < (at + CHUNK).min(end) {
                (chunk_at, chunk) = (at, salvage.readable(at, (at + 4 * CHUNK).min(end))?);
            }
            let bytes = chunk.get((at - chunk_at) as usize..).unwrap_or_default();
            let mut len = block_len(bytes, sum, at);
            // A block longer than the chunk may follow a readable one.
            if len.is_none() && !is_lost && chunk_at + (chunk.len() as u64) < end {
                (chunk_at, chunk) = (at, salvage.readable(at, (at + MAX_BLOCK_BYTES).min(end))?);
                len = block_len(&chunk, sum, at);
            }
            is_lost = len.is_none();
            let Some(len) = len else {
                let step = stride.unwrap_or(BLOCK_UNIT).min(end - at);
                salvage.lose(at..at + step);
                at += step;
                continue;
            };
            let from = (at - chunk_at) as usize;
            let (block, mut in_block) = (&chunk[from..from + len], BLOCK_CRC);
            while let Some((op, taken)) = item::first(&block[in_block..]) {
                each(op.key(), EntryLocation::Bytes(at + in_block as u64, taken as u32))?;
                in_block += taken;
            }
            if !(len as u64).is_multiple_of(BLOCK_UNIT) {
                // Only a block of an even store can have such a size.
                stride = stride.or(Some(len as u64));
            }
            at += len as u64;
        }
        Ok(salvage)
    }

    fn begin(vfs: &Arc<dyn Vfs>, kind: Kind, number: u64) -> Result<Self> {
        let file = vfs.open(&kind.name(number), Mode::Read)?;
        let file_bytes = file.len()?;
        Ok(Salvage { file, slots: None, file_bytes, lost: Vec::new(), end: file_bytes })
    }

    /// The ranges in which entries may have been lost. The file had `bytes` bytes, or an unknown
    /// number (0): entries after the end of the range that was read are lost, too.
    pub(super) fn lost_ranges(&self, bytes: u64) -> Vec<Range<u64>> {
        let mut lost = self.lost.clone();
        let end = self.file_bytes.max(bytes);
        match lost.last_mut().filter(|last| last.end >= self.end) {
            Some(last) => last.end = last.end.max(end),
            None if end > self.end => lost.push(self.end..end),
            None => {}
        }
        lost
    }

    /// The bytes of a range, with zeros in place of pages that cannot be read.
    fn readable(&self, start: u64, end: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (end - start) as usize];
        match self.file.read_lossy_at(start, &mut bytes, PURPOSE) {
            Ok(()) => return Ok(bytes),
            Err(error) if error.is_failed_read() => {}
            Err(other) => return Err(other),
        }
        for (page, at) in bytes.chunks_mut(4096).zip((start..).step_by(4096)) {
            match self.file.read_lossy_at(at, page, PURPOSE) {
                Ok(()) => {}
                // No checksum matches zeros.
                Err(error) if error.is_failed_read() => page.fill(0),
                Err(other) => return Err(other),
            }
        }
        Ok(bytes)
    }

    fn lose(&mut self, range: Range<u64>) {
        match self.lost.last_mut().filter(|last| last.end == range.start) {
            Some(last) => last.end = range.end,
            None => self.lost.push(range),
        }
    }

    /// Reads an entry again.
    fn entry(&self, location: EntryLocation) -> Result<Vec<u8>> {
        match location {
            EntryLocation::Slot(slot) => {
                let slots = self.slots.as_ref();
                let entry =
                    slots.map_or(Ok(None), |slots| slots.read_slot(slot))?.unwrap_or_default();
                let len = item::first(&entry).map_or(0, |(_, len)| len);
                Ok(entry[..len].to_vec())
            }
            EntryLocation::Bytes(at, len) => {
                let mut entry = vec![0; len as usize];
                self.file.read_at(at, &mut entry, PURPOSE)?;
                Ok(entry)
            }
        }
    }

    /// Writes the entries to the HashStore `to` and its filter; returns its bytes and entries.
    pub(super) fn write_hash_store(
        &self,
        vfs: &Arc<dyn Vfs>,
        to: &StoreEntry,
        keys: KeyHasher,
        items: &[(HashKey, EntryLocation)],
    ) -> Result<(u64, u64)> {
        let mut slots = (items.len() as f64 / LOAD_FACTOR).ceil() as u32;
        let table = loop {
            let mut table = CuckooTable::with_slots(slots);
            let mut numbered = (0..).zip(items);
            if numbered.all(|(i, (hash, _))| table.insert(cuckoo_bits(hash), i).is_ok()) {
                break table;
            }
            slots = 2 * table.slots() as u32;
        };
        let mut lengths = Vec::with_capacity(items.len());
        for (_, location) in items {
            lengths.push(self.entry(*location)?.len() as u32);
        }
        let meta = StoreMeta {
            partition: to.partition,
            keys,
            slots: table.slots() as u32,
            entries: 0,
            slot_bytes: choose_slot_bytes(table.slots(), &mut lengths),
            lengths: (0, 0),
        };
        let rate = Arc::new(RateLimiter::unlimited());
        let mut writer = HashStoreWriter::create(vfs, to.number, meta, &rate)?;
        for (slot, i) in table.iter() {
            writer.add(slot, &self.entry(items[i as usize].1)?)?;
        }
        let written = writer.finish()?;
        write_filter(vfs.as_ref(), to.number, &table)?;
        Ok(written)
    }

    /// Writes the entries, which are in the order of hashes, to the SortedStore `to` and its index;
    /// returns its bytes and entries.
    pub(super) fn write_sorted_store(
        &self,
        vfs: &Arc<dyn Vfs>,
        to: &StoreEntry,
        keys: KeyHasher,
        items: &[(HashKey, EntryLocation)],
    ) -> Result<(u64, u64)> {
        let sizes = items.iter().map(|(_, location)| match location {
            EntryLocation::Bytes(_, len) => u64::from(*len),
            EntryLocation::Slot(_) => 0,
        });
        let mean_bytes = (sizes.sum::<u64>() / items.len().max(1) as u64).max(1);
        let plan = Plan {
            partition: to.partition,
            keys,
            expected: items.len() as u64,
            hashes_per_block: (BLOCK_BYTES / mean_bytes).clamp(1, 1024) as u32,
            one_length: None,
            mean_bytes,
        };
        let rate = Arc::new(RateLimiter::unlimited());
        let mut writer = SortedStoreWriter::create(vfs.as_ref(), to.number, plan, &rate)?;
        for group in items.chunk_by(|a, b| a.0 == b.0) {
            let entries = group.iter().map(|(_, location)| self.entry(*location));
            let entries = entries.collect::<Result<Vec<_>>>()?;
            let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
            writer.add(&group[0].0, &entries)?;
        }
        Ok(writer.finish()?.unwrap_or_default())
    }
}

/// The length of the block at the start of `bytes`, at `at` of its file, if its checksum matches.
fn block_len(bytes: &[u8], sum: FileSum, at: u64) -> Option<usize> {
    let crc = u32::from_le_bytes(*bytes.first_chunk()?);
    let mut running = sum.begin(at);
    let mut end = BLOCK_CRC;
    while let Some((_, len)) = item::first(&bytes[end..]) {
        running = crc32c::crc32c_append(running, &bytes[end..end + len]);
        end += len;
        if running == crc {
            return Some(end);
        }
        let padded = end.next_multiple_of(BLOCK_UNIT as usize);
        if padded > end
            && let Some(zeros) = bytes.get(end..padded)
            && crc32c::crc32c_append(running, zeros) == crc
        {
            return Some(padded);
        }
    }
    None
}

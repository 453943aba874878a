//! Reading what holds of a damaged store, and writing it to a new one.
//!
//! ```text
//!   HashStore     slots of one length: the footer's, or the one that the first slots' checksums tell
//!   SortedStore   blocks tell their own ends: entries are parsed one by one until the checksum holds
//!                 one that does not is passed over in steps of what blocks are multiples of
//! ```
//!
//! Two passes, so that memory is 40 bytes an entry: the first finds hash and place of every entry that
//! can be read, the second copies them in the new store's order.
//!
//! Invariant: what is given out lay under a checksum that holds; every byte that does not is in `lost`.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_structures::{CuckooTable, HashKey};
use siltstone_vfs::{File, Mode, Vfs};

use crate::file::FileSum;
use crate::hash_store::{HashStore, HashStoreWriter, Shape, choose_slot_bytes, write_filter};
use crate::item;
use crate::keys::{Keys, cuckoo_bits};
use crate::names::Kind;
use crate::sorted_store::{BLOCK_CRC, BLOCK_UNIT, Plan, SortedStore, SortedStoreWriter};
use crate::version::StoreEntry;

const PURPOSE: Purpose = Purpose::Maintenance;
/// A block of entries that fill it has no more bytes than this …
const CHUNK: u64 = 4 << 20;
/// … and one of a single entry of the largest size no more than this.
const LONGEST_BLOCK: u64 = crate::MAX_VALUE_BYTES as u64 + CHUNK;
/// The load of a HashStore's new table.
const LOAD: f64 = 0.9;
/// About the bytes of a block of a new SortedStore.
const BLOCK_BYTES: u64 = 4 << 10;

/// Where an entry lies in the damaged file: a slot, or bytes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Slot(u32),
    Bytes(u64, u32),
}

/// What could be read of a damaged file.
pub(super) struct Salvage {
    file: Arc<dyn File>,
    slots: Option<HashStore>,
    file_bytes: u64,
    /// What could not, in order.
    lost: Vec<Range<u64>>,
    /// Behind this nothing was looked for.
    end: u64,
}

impl Salvage {
    /// Reads all slots that hold; `each` hears the key and place of each entry.
    pub(super) fn of_hash_store(
        vfs: &Arc<dyn Vfs>,
        number: u64,
        mut each: impl FnMut(&[u8], Place) -> Result<()>,
    ) -> Result<Self> {
        let mut salvage = Self::begin(vfs, Kind::HashStore, number)?;
        let Some(store) = HashStore::open_damaged(vfs, number)? else {
            salvage.lose(0..salvage.file_bytes);
            return Ok(salvage);
        };
        salvage.end = store.shape().slots_end();
        for slot in 0..store.shape().slots {
            match store.read_slot(slot) {
                Ok(None) => {}
                Ok(Some(entry)) => match item::first(&entry) {
                    Some((op, _)) => each(op.key(), Place::Slot(slot))?,
                    None => salvage.lose(store.slot_range(slot)),
                },
                // The slot, or the rest of its entry.
                Err(error) if error.is_corruption() || is_unreadable(&error) => {
                    salvage.lose(store.slot_range(slot));
                }
                Err(other) => return Err(other),
            }
        }
        salvage.slots = Some(store);
        Ok(salvage)
    }

    /// Reads all blocks that hold; `each` hears the key and place of each entry.
    pub(super) fn of_sorted_store(
        vfs: &Arc<dyn Vfs>,
        number: u64,
        mut each: impl FnMut(&[u8], Place) -> Result<()>,
    ) -> Result<Self> {
        let mut salvage = Self::begin(vfs, Kind::SortedStore, number)?;
        let sum = FileSum::new(number);
        let (end, mut stride) = match SortedStore::describe(vfs.as_ref(), number) {
            Ok((_, _, end, stride)) => (end, stride),
            Err(error) if error.is_corruption() => (salvage.file_bytes, None),
            Err(other) => return Err(other),
        };
        let (mut at, mut chunk, mut chunk_at, mut is_lost) = (0, Vec::new(), 0u64, false);
        while at < end {
            if chunk_at + (chunk.len() as u64) < (at + CHUNK).min(end) {
                (chunk_at, chunk) = (at, salvage.readable(at, (at + 4 * CHUNK).min(end))?);
            }
            let bytes = chunk.get((at - chunk_at) as usize..).unwrap_or_default();
            let mut len = block_len(bytes, sum, at);
            // Behind a block that held, a long one may follow.
            if len.is_none() && !is_lost && chunk_at + (chunk.len() as u64) < end {
                (chunk_at, chunk) = (at, salvage.readable(at, (at + LONGEST_BLOCK).min(end))?);
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
                each(op.key(), Place::Bytes(at + in_block as u64, taken as u32))?;
                in_block += taken;
            }
            if !(len as u64).is_multiple_of(BLOCK_UNIT) {
                // Only blocks of one length have such a one.
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

    /// The bytes in which entries may have been that could not be read. The file had `bytes` bytes,
    /// or it is not known (0): entries behind what was looked for are lost, too.
    pub(super) fn lost_of(&self, bytes: u64) -> Vec<Range<u64>> {
        let mut lost = self.lost.clone();
        let end = self.file_bytes.max(bytes);
        match lost.last_mut().filter(|last| last.end >= self.end) {
            Some(last) => last.end = last.end.max(end),
            None if end > self.end => lost.push(self.end..end),
            None => {}
        }
        lost
    }

    /// The bytes of a range up to the first that the medium cannot read.
    fn readable(&self, start: u64, end: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (end - start) as usize];
        match self.file.read_at(start, &mut bytes, PURPOSE) {
            Ok(()) => return Ok(bytes),
            Err(error) if is_unreadable(&error) => {}
            Err(other) => return Err(other),
        }
        for (page, at) in bytes.chunks_mut(4096).zip((start..).step_by(4096)) {
            match self.file.read_at(at, page, PURPOSE) {
                Ok(()) => {}
                // Zeros pass no checksum.
                Err(error) if is_unreadable(&error) => page.fill(0),
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

    /// An entry that was given out, anew.
    fn entry(&self, place: Place) -> Result<Vec<u8>> {
        match place {
            Place::Slot(slot) => {
                let slots = self.slots.as_ref();
                let entry =
                    slots.map_or(Ok(None), |slots| slots.read_slot(slot))?.unwrap_or_default();
                let len = item::first(&entry).map_or(0, |(_, len)| len);
                Ok(entry[..len].to_vec())
            }
            Place::Bytes(at, len) => {
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
        keys: Keys,
        items: &[(HashKey, Place)],
    ) -> Result<(u64, u64)> {
        let mut slots = (items.len() as f64 / LOAD).ceil() as u32;
        let table = loop {
            let mut table = CuckooTable::with_slots(slots);
            let mut numbered = (0..).zip(items);
            if numbered.all(|(i, (hash, _))| table.insert(cuckoo_bits(hash), i).is_ok()) {
                break table;
            }
            slots = 2 * table.slots() as u32;
        };
        let mut lengths = Vec::with_capacity(items.len());
        for (_, place) in items {
            lengths.push(self.entry(*place)?.len() as u32);
        }
        let shape = Shape {
            partition: to.partition,
            keys,
            slots: table.slots() as u32,
            entries: 0,
            slot_bytes: choose_slot_bytes(table.slots(), &mut lengths),
            lengths: (0, 0),
        };
        let rate = Arc::new(RateLimiter::unlimited());
        let mut writer = HashStoreWriter::create(vfs.as_ref(), to.number, shape, &rate)?;
        for (slot, i) in table.iter() {
            writer.add(slot, &self.entry(items[i as usize].1)?)?;
        }
        let made = writer.finish()?;
        write_filter(vfs.as_ref(), to.number, &table)?;
        Ok(made)
    }

    /// Writes the entries, which are in the order of hashes, to the SortedStore `to` and its index;
    /// returns its bytes and entries.
    pub(super) fn write_sorted_store(
        &self,
        vfs: &Arc<dyn Vfs>,
        to: &StoreEntry,
        keys: Keys,
        items: &[(HashKey, Place)],
    ) -> Result<(u64, u64)> {
        let sizes = items.iter().map(|(_, place)| match place {
            Place::Bytes(_, len) => u64::from(*len),
            Place::Slot(_) => 0,
        });
        let mean_bytes = (sizes.sum::<u64>() / items.len().max(1) as u64).max(1);
        let plan = Plan {
            partition: to.partition,
            keys,
            expected: items.len() as u64,
            hashes_a_block: (BLOCK_BYTES / mean_bytes).clamp(1, 1024) as u32,
            one_length: None,
            mean_bytes,
        };
        let rate = Arc::new(RateLimiter::unlimited());
        let mut writer = SortedStoreWriter::create(vfs.as_ref(), to.number, plan, &rate)?;
        for group in items.chunk_by(|a, b| a.0 == b.0) {
            let entries = group.iter().map(|(_, place)| self.entry(*place));
            let entries = entries.collect::<Result<Vec<_>>>()?;
            let entries: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
            writer.add(&group[0].0, &entries)?;
        }
        Ok(writer.finish()?.unwrap_or_default())
    }
}

/// The length of the block that `bytes` begin with, at `at` of its file, if its checksum holds.
fn block_len(bytes: &[u8], sum: FileSum, at: u64) -> Option<usize> {
    let crc = u32::from_le_bytes(*bytes.first_chunk()?);
    let mut running = sum.begin(at);
    let mut end = BLOCK_CRC;
    while let Some((_, len)) = item::first(&bytes[end..]) {
        running = FileSum::go_on(running, &bytes[end..end + len]);
        end += len;
        if running == crc {
            return Some(end);
        }
        let padded = end.next_multiple_of(BLOCK_UNIT as usize);
        if padded > end
            && let Some(zeros) = bytes.get(end..padded)
            && FileSum::go_on(running, zeros) == crc
        {
            return Some(padded);
        }
    }
    None
}

/// The medium cannot read here; elsewhere it may.
fn is_unreadable(error: &Error) -> bool {
    matches!(error, Error::Io { operation: "read", .. })
}

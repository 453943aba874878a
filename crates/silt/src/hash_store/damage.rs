//! Opens a damaged HashStore for repair, even without its footer.
//!
//! Each slot has a checksum of its own, also an empty one. Without the footer, the slot size is the
//! smallest one for which the checksums of the first two slots match. The number of slots is that
//! of the cuckoo table behind which most checksums do not match; of a truncated file, as many as it
//! has.

use std::ops::Range;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use siltstone_engine::{Purpose, Result};
use siltstone_structures::cuckoo::WAYS;
use siltstone_table::FileSum;
use siltstone_vfs::{File, Mode, Vfs};

use super::format::{CRC, FOOTER, SPLIT_HEADER, Slot, StoreMeta};
use super::{FILES, HashStore};
use crate::keys::KeyHasher;
use crate::names::Kind;
use crate::store_entry::StoreEntry;
use crate::store_file::StoreFile;

/// The largest slot size that is tried.
const MAX_SLOT_BYTES: u64 = 1 << 20;
/// Bytes that the count of slots reads at once, about.
const CHUNK_BYTES: u64 = 256 << 10;
const PURPOSE: Purpose = Purpose::Maintenance;

impl HashStore {
    /// The entry and the hashing that the footer of store `number` states.
    ///
    /// # Errors
    /// `Corruption` if the footer is damaged; `Refused` for a newer format; I/O errors.
    pub(crate) fn describe(vfs: &dyn Vfs, number: u64) -> Result<(StoreEntry, KeyHasher)> {
        let name = Kind::HashStore.name(number);
        let file = vfs.open(&name, Mode::Read)?;
        let (fields, _) = FOOTER.read(file.as_ref(), &name, FileSum::new(number), PURPOSE)?;
        let meta = StoreMeta::decode(&fields);
        let (bytes, entries) = (file.len()?, u64::from(meta.entries));
        Ok((StoreEntry { partition: meta.partition, number, bytes, entries }, meta.keys))
    }

    /// Opens the readable part of store `number`; `None` if its slot size cannot be determined.
    ///
    /// # Errors
    /// `Refused` for a newer format; I/O errors.
    pub(crate) fn open_damaged(vfs: &Arc<dyn Vfs>, number: u64) -> Result<Option<Self>> {
        let unknown = StoreEntry { partition: 0, number, bytes: 0, entries: 0 };
        let files = StoreFile::open(vfs, FILES, unknown)?;
        let (meta, end) = match files.read_footer(&FOOTER, PURPOSE) {
            Ok((fields, end)) => (Some(StoreMeta::decode(&fields)), end),
            Err(error) if error.is_corruption() || error.is_failed_read() => {
                (infer_meta(files.file.as_ref(), files.sum)?, files.file.len()?)
            }
            Err(other) => return Err(other),
        };
        let is_complete = |meta: &StoreMeta| {
            meta.slot_bytes as usize > CRC + SPLIT_HEADER && meta.slots_end() <= end
        };
        let filter = ArcSwapOption::empty();
        Ok(meta.filter(is_complete).map(|meta| HashStore { files, meta, end, filter }))
    }

    /// The entry of a slot; `None` if it is empty.
    ///
    /// # Errors
    /// `Corruption` if a checksum of the slot or of its tail does not match; I/O errors.
    pub(crate) fn read_slot(&self, slot: u32) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; self.meta.slot_bytes as usize];
        self.file.read_at(self.offset(slot), &mut bytes, PURPOSE)?;
        match self.decode(slot, &bytes)? {
            Slot::Empty => Ok(None),
            Slot::Inline(entry) => Ok(Some(entry.to_vec())),
            Slot::Split { head, len, tail_at } => {
                self.read_split(slot, head, len, tail_at, PURPOSE).map(Some)
            }
        }
    }

    /// The byte range of a slot in the file.
    pub(crate) fn slot_range(&self, slot: u32) -> Range<u64> {
        self.offset(slot)..self.offset(slot) + u64::from(self.meta.slot_bytes)
    }
}

/// Reconstructs the footer fields that reading needs.
fn infer_meta(file: &dyn File, sum: FileSum) -> Result<Option<StoreMeta>> {
    let len = file.len()?;
    let mut bytes = vec![0; len.min(2 * MAX_SLOT_BYTES) as usize];
    file.read_lossy_at(0, &mut bytes, PURPOSE)?;
    let Some(&crc) = bytes.first_chunk::<CRC>() else { return Ok(None) };
    let mut running = sum.begin(0);
    let mut slot_bytes = None;
    for end in CRC + 1..=bytes.len() / 2 {
        running = crc32c::crc32c_append(running, &bytes[end - 1..end]);
        let second = &bytes[end..2 * end];
        let matches = || sum.of(end as u64, &second[CRC..]).to_le_bytes() == second[..CRC];
        if running.to_le_bytes() == crc && matches() {
            slot_bytes = Some(end as u32);
            break;
        }
    }
    let Some(slot_bytes) = slot_bytes else { return Ok(None) };
    Ok(Some(StoreMeta {
        partition: 0,
        keys: KeyHasher { seed: 0, partitions: 0 },
        slots: count_slots(file, sum, slot_bytes)?,
        entries: 0,
        slot_bytes,
        lengths: (0, 0),
    }))
}

/// The number of slots of this size: `WAYS` slots, doubled while most of the slots that this adds
/// match their checksums. Cost: reads the file once.
fn count_slots(file: &dyn File, sum: FileSum, slot_bytes: u32) -> Result<u32> {
    let size = u64::from(slot_bytes);
    let in_file = (file.len()? / size).min(u32::MAX.into());
    // By doubling: the slots that it adds, and those of them whose checksum matches.
    let mut added = [(0u64, 0u64); 64];
    let per_read = (CHUNK_BYTES / size).max(1);
    for first in (0..in_file).step_by(per_read as usize) {
        let mut bytes = vec![0; ((in_file - first).min(per_read) * size) as usize];
        let is_read = match file.read_lossy_at(first * size, &mut bytes, PURPOSE) {
            Ok(()) => true,
            Err(error) if error.is_failed_read() => false,
            Err(other) => return Err(other),
        };
        for (slot, bytes) in (first..).zip(bytes.chunks_exact(slot_bytes as usize)) {
            let doubling = (slot / WAYS as u64).checked_ilog2().map_or(0, |log2| log2 + 1);
            let (all, valid) = &mut added[doubling as usize];
            let matches = || sum.of(slot * size, &bytes[CRC..]).to_le_bytes() == bytes[..CRC];
            *all += 1;
            *valid += u64::from(is_read && matches());
        }
    }
    let doublings = added[1..].iter().take_while(|(all, valid)| 2 * valid > *all).count();
    Ok(in_file.min((WAYS as u64) << doublings) as u32)
}

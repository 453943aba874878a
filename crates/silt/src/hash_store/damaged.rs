//! Reading a HashStore of which something is damaged, its footer perhaps.
//!
//! Slots have checksums of their own. Without the footer, the length for which the checksums of the
//! first two slots hold is theirs; there are as many as a cuckoo table may have and the file holds.

use std::ops::Range;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use siltstone_engine::{Purpose, Result};
use siltstone_structures::cuckoo::WAYS;
use siltstone_vfs::{File, Mode, Vfs};

use super::HashStore;
use super::format::{CRC, FOOTER, OUTLINE, Shape, Slot};
use crate::file::FileSum;
use crate::keys::Keys;
use crate::names::Kind;
use crate::version::StoreEntry;

/// The longest slots that are looked for.
const LONGEST_SLOT: u64 = 1 << 20;
const PURPOSE: Purpose = Purpose::Maintenance;

impl HashStore {
    /// What the store `number` says of itself in its footer.
    ///
    /// # Errors
    /// `Corruption` if that does not hold; `Refused` for a newer format; the medium's.
    pub(crate) fn describe(vfs: &dyn Vfs, number: u64) -> Result<(StoreEntry, Keys)> {
        let name = Kind::HashStore.name(number);
        let file = vfs.open(&name, Mode::Read)?;
        let (fields, _) = FOOTER.read(file.as_ref(), &name, FileSum::new(number), PURPOSE)?;
        let shape = Shape::decode(&fields);
        let (bytes, entries) = (file.len()?, u64::from(shape.entries));
        Ok((StoreEntry { partition: shape.partition, number, bytes, entries }, shape.keys))
    }

    /// Opens the store `number` as far as it holds; `None` if nothing tells how long its slots are.
    ///
    /// # Errors
    /// `Refused` for a newer format; the medium's.
    pub(crate) fn open_damaged(vfs: &Arc<dyn Vfs>, number: u64) -> Result<Option<Self>> {
        let name = Kind::HashStore.name(number);
        let file = vfs.open(&name, Mode::Read)?;
        let sum = FileSum::new(number);
        let (shape, end) = match FOOTER.read(file.as_ref(), &name, sum, PURPOSE) {
            Ok((fields, end)) => (Some(Shape::decode(&fields)), end),
            Err(error) if error.is_corruption() => (guess(file.as_ref(), sum)?, file.len()?),
            Err(other) => return Err(other),
        };
        let is_whole =
            |shape: &Shape| shape.slot_bytes as usize > CRC + OUTLINE && shape.slots_end() <= end;
        Ok(shape.filter(is_whole).map(|shape| HashStore {
            vfs: vfs.clone(),
            file,
            entry: StoreEntry { partition: shape.partition, number, bytes: 0, entries: 0 },
            name,
            sum,
            shape,
            end,
            filter: ArcSwapOption::empty(),
            warning: OnceLock::new(),
            obsolete: AtomicBool::new(false),
        }))
    }

    /// What is in a slot; `None` if nothing is.
    ///
    /// # Errors
    /// `Corruption` if the slot or the rest of its entry does not hold; the medium's.
    pub(crate) fn read_slot(&self, slot: u32) -> Result<Option<Vec<u8>>> {
        let mut bytes = vec![0; self.shape.slot_bytes as usize];
        self.file.read_at(self.offset(slot), &mut bytes, PURPOSE)?;
        match self.decode(slot, &bytes)? {
            Slot::Empty => Ok(None),
            Slot::Whole(entry) => Ok(Some(entry.to_vec())),
            Slot::Cut { first, len, rest_at } => {
                self.join(slot, first, len, rest_at, PURPOSE).map(Some)
            }
        }
    }

    /// Where a slot lies in the file.
    pub(crate) fn slot_range(&self, slot: u32) -> Range<u64> {
        self.offset(slot)..self.offset(slot) + u64::from(self.shape.slot_bytes)
    }
}

/// The shape of a store without a footer, as far as reading needs it.
fn guess(file: &dyn File, sum: FileSum) -> Result<Option<Shape>> {
    let len = file.len()?;
    let mut bytes = vec![0; len.min(2 * LONGEST_SLOT) as usize];
    file.read_at(0, &mut bytes, PURPOSE)?;
    let Some(&crc) = bytes.first_chunk::<CRC>() else { return Ok(None) };
    let mut running = sum.begin(0);
    let mut slot_bytes = None;
    for end in CRC + 1..=bytes.len() / 2 {
        running = FileSum::go_on(running, &bytes[end - 1..end]);
        let second = &bytes[end..2 * end];
        let holds = || sum.of(end as u64, &second[CRC..]).to_le_bytes() == second[..CRC];
        if running.to_le_bytes() == crc && holds() {
            slot_bytes = Some(end as u32);
            break;
        }
    }
    let Some(slot_bytes) = slot_bytes else { return Ok(None) };
    let shape = |slots: u32| Shape {
        partition: 0,
        keys: Keys { seed: 0, partitions: 0 },
        slots,
        entries: 0,
        slot_bytes,
        lengths: (0, 0),
    };
    // Of the numbers of slots that fit, the largest whose last bucket has a slot that holds.
    let fit = (0..28).map(|log2| (WAYS as u32) << log2).map(shape);
    let fit: Vec<Shape> = fit.take_while(|shape| shape.slots_end() <= len).collect();
    for &shape in fit.iter().rev() {
        let bucket = WAYS as u64 * u64::from(slot_bytes);
        let at = shape.slots_end() - bucket;
        let mut bytes = vec![0; bucket as usize];
        file.read_at(at, &mut bytes, PURPOSE)?;
        let mut slots = (at..).step_by(slot_bytes as usize).zip(bytes.chunks(slot_bytes as usize));
        if slots.any(|(at, slot)| sum.of(at, &slot[CRC..]).to_le_bytes() == slot[..CRC]) {
            return Ok(Some(shape));
        }
    }
    Ok(None)
}

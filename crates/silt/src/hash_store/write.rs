//! Writing a HashStore: slots in table order from one end, what does not fit from the other.

use std::sync::Arc;

use siltstone_engine::{Error, Op, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_structures::{CuckooFilter, CuckooTable};
use siltstone_vfs::{File, Vfs};

use super::format::{self, FOOTER, Shape};
use crate::file::{FileSum, FileWriter, write_derived};
use crate::item;
use crate::names::Kind;

/// Writes one HashStore, entry by entry in table order.
pub(crate) struct HashStoreWriter {
    file: Arc<dyn File>,
    sum: FileSum,
    shape: Shape,
    slots: FileWriter,
    rests: FileWriter,
    next_slot: u32,
    slot: Vec<u8>,
}

impl HashStoreWriter {
    /// Begins the file `number`. `shape` says how many slots there are and how large; its entries and
    /// lengths are counted here.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        number: u64,
        shape: Shape,
        rate: &Arc<RateLimiter>,
    ) -> Result<Self> {
        let file = vfs.create(&Kind::HashStore.name(number))?;
        let writer = |start| FileWriter::new(file.clone(), start, Purpose::Flush, rate.clone());
        Ok(HashStoreWriter {
            slots: writer(0),
            rests: writer(shape.slots_end()),
            sum: FileSum::new(number),
            shape: Shape { entries: 0, lengths: (0, 0), ..shape },
            next_slot: 0,
            slot: Vec::new(),
            file,
        })
    }

    /// Writes the entry of `slot`, which is after the one before.
    pub(crate) fn add(&mut self, slot: u32, entry: &[u8]) -> Result<()> {
        self.leave_empty(slot)?;
        let bytes = self.shape.slot_bytes as usize;
        let (at, rest_at) = (self.slots.at(), self.rests.at());
        self.slot.clear();
        let taken = format::encode_slot(&mut self.slot, entry, bytes, self.sum, at, rest_at);
        self.slots.write(&self.slot)?;
        if taken < entry.len() {
            let rest = &entry[taken..];
            self.rests.write(rest)?;
            self.rests.write(&self.sum.of(rest_at, rest).to_le_bytes())?;
        }
        if matches!(item::first(entry), Some((Op::Put { .. }, _))) {
            let len = entry.len() as u32;
            let (shortest, longest) = self.shape.lengths;
            let is_first = longest == 0;
            self.shape.lengths =
                if is_first { (len, len) } else { (shortest.min(len), longest.max(len)) };
        }
        self.shape.entries += 1;
        self.next_slot += 1;
        Ok(())
    }

    /// Writes empty slots up to `slot`.
    fn leave_empty(&mut self, slot: u32) -> Result<()> {
        let bytes = self.shape.slot_bytes as usize;
        while self.next_slot < slot {
            self.slot.clear();
            format::encode_slot(&mut self.slot, &[], bytes, self.sum, self.slots.at(), 0);
            self.slots.write(&self.slot)?;
            self.next_slot += 1;
        }
        Ok(())
    }

    /// Ends the file and makes it durable, but not its name. Returns its bytes and entries.
    pub(crate) fn finish(mut self) -> Result<(u64, u64)> {
        self.leave_empty(self.shape.slots)?;
        self.slots.flush()?;
        let footer = FOOTER.encode(&self.shape.encode(), self.sum, self.rests.at());
        self.rests.write(&footer)?;
        self.rests.flush()?;
        self.file.sync(Purpose::Flush)?;
        Ok((self.rests.at(), u64::from(self.shape.entries)))
    }
}

/// Writes the filter of a HashStore beside it: the tags of its table.
pub(crate) fn write_filter(vfs: &dyn Vfs, number: u64, table: &CuckooTable) -> Result<()> {
    let bytes = CuckooFilter::from_table(table).to_bytes();
    write_derived(vfs, &Kind::Filter.name(number), number, &bytes, Purpose::Flush)
}

/// Removes the files of a HashStore that no manifest names; what stays goes at the next open.
pub(crate) fn discard(vfs: &dyn Vfs, number: u64) {
    for kind in [Kind::HashStore, Kind::Filter] {
        let _: Result<(), Error> = vfs.remove(&kind.name(number));
    }
}

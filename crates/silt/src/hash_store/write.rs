//! Writes a HashStore: slots in table order, and tails of split entries in the area after them.

use std::sync::Arc;

use siltstone_engine::{Op, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_structures::{CuckooFilter, CuckooTable};
use siltstone_table::FileSum;
use siltstone_vfs::{File, Vfs};

use super::format::{self, FOOTER, StoreMeta};
use crate::file::{FileWriter, write_derived};
use crate::item;
use crate::names::Kind;

/// Writes one HashStore, entry by entry in table order.
pub(crate) struct HashStoreWriter {
    file: Arc<dyn File>,
    sum: FileSum,
    meta: StoreMeta,
    slots: FileWriter,
    tails: FileWriter,
    next_slot: u32,
    slot: Vec<u8>,
}

impl HashStoreWriter {
    /// Creates the file `number`. `meta` gives the number and size of slots; entries and lengths
    /// are counted here.
    pub(crate) fn create(
        vfs: &dyn Vfs,
        number: u64,
        meta: StoreMeta,
        rate: &Arc<RateLimiter>,
    ) -> Result<Self> {
        let file = vfs.create(&Kind::HashStore.name(number))?;
        let writer = |start| FileWriter::new(file.clone(), start, Purpose::Flush, rate.clone());
        Ok(HashStoreWriter {
            slots: writer(0),
            tails: writer(meta.slots_end()),
            sum: FileSum::new(number),
            meta: StoreMeta { entries: 0, lengths: (0, 0), ..meta },
            next_slot: 0,
            slot: Vec::new(),
            file,
        })
    }

    /// Writes the entry of `slot`, which is greater than the one before.
    pub(crate) fn add(&mut self, slot: u32, entry: &[u8]) -> Result<()> {
        self.pad_to(slot)?;
        let bytes = self.meta.slot_bytes as usize;
        let (at, tail_at) = (self.slots.at(), self.tails.at());
        self.slot.clear();
        let taken = format::encode_slot(&mut self.slot, entry, bytes, self.sum, at, tail_at);
        self.slots.write(&self.slot)?;
        if taken < entry.len() {
            let tail = &entry[taken..];
            self.tails.write(tail)?;
            self.tails.write(&self.sum.of(tail_at, tail).to_le_bytes())?;
        }
        if matches!(item::first(entry), Some((Op::Put { .. }, _))) {
            let len = entry.len() as u32;
            let (shortest, longest) = self.meta.lengths;
            let is_first = longest == 0;
            self.meta.lengths =
                if is_first { (len, len) } else { (shortest.min(len), longest.max(len)) };
        }
        self.meta.entries += 1;
        self.next_slot += 1;
        Ok(())
    }

    /// Writes empty slots up to `slot`.
    fn pad_to(&mut self, slot: u32) -> Result<()> {
        let bytes = self.meta.slot_bytes as usize;
        while self.next_slot < slot {
            self.slot.clear();
            format::encode_slot(&mut self.slot, &[], bytes, self.sum, self.slots.at(), 0);
            self.slots.write(&self.slot)?;
            self.next_slot += 1;
        }
        Ok(())
    }

    /// Ends and syncs the file, but not its directory. Returns its bytes and entries.
    pub(crate) fn finish(mut self) -> Result<(u64, u64)> {
        self.pad_to(self.meta.slots)?;
        self.slots.flush()?;
        let footer = FOOTER.encode(&self.meta.encode(), self.sum, self.tails.at());
        self.tails.write(&footer)?;
        self.tails.flush()?;
        self.file.sync(Purpose::Flush)?;
        Ok((self.tails.at(), u64::from(self.meta.entries)))
    }
}

/// Writes the filter of a HashStore, which consists of the tags of its table.
pub(crate) fn write_filter(vfs: &dyn Vfs, number: u64, table: &CuckooTable) -> Result<()> {
    let bytes = CuckooFilter::from_table(table).to_bytes();
    write_derived(vfs, &Kind::Filter.name(number), number, &bytes, Purpose::Flush)
}

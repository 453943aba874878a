//! Writes a HashStore: slots in table order, and tails of split entries in the area after them.
//!
//! Slots and tails are written side by side. Where files can only grow, as in an encrypted store,
//! the tails go to a file of their own first, and are copied behind the slots at the end.

use std::sync::Arc;

use siltstone_engine::{Op, Purpose, Result};
use siltstone_runtime::RateLimiter;
use siltstone_structures::{CuckooFilter, CuckooTable};
use siltstone_table::FileSum;
use siltstone_vfs::{File, Vfs};

use super::format::{self, FOOTER, StoreMeta};
use crate::file::{FileWriter, PIECE_BYTES, write_derived};
use crate::item;
use crate::names::Kind;

/// Writes one HashStore, entry by entry in table order.
pub(crate) struct HashStoreWriter {
    file: Arc<dyn File>,
    sum: FileSum,
    meta: StoreMeta,
    slots: FileWriter,
    tails: FileWriter,
    /// The file that the tails are in until the slots are complete.
    tails_file: Option<TailsFile>,
    next_slot: u32,
    slot: Vec<u8>,
}

impl HashStoreWriter {
    /// Creates the file `number`. `meta` gives the number and size of slots; entries and lengths
    /// are counted here.
    pub(crate) fn create(
        vfs: &Arc<dyn Vfs>,
        number: u64,
        meta: StoreMeta,
        rate: &Arc<RateLimiter>,
    ) -> Result<Self> {
        let file = vfs.create(&Kind::HashStore.name(number))?;
        let tails_file =
            vfs.is_append_only().then(|| TailsFile::create(vfs, number)).transpose()?;
        let writer = |file: &Arc<dyn File>, start| {
            FileWriter::new(file.clone(), start, Purpose::Flush, rate.clone())
        };
        let tails = match &tails_file {
            Some(it) => writer(&it.file, 0),
            None => writer(&file, meta.slots_end()),
        };
        Ok(HashStoreWriter {
            slots: writer(&file, 0),
            tails,
            tails_file,
            sum: FileSum::new(number),
            meta: StoreMeta { entries: 0, lengths: (0, 0), ..meta },
            next_slot: 0,
            slot: Vec::new(),
            file,
        })
    }

    /// The offset of the next tail in the complete file.
    fn tail_at(&self) -> u64 {
        let is_apart = self.tails_file.is_some();
        self.tails.at() + if is_apart { self.meta.slots_end() } else { 0 }
    }

    /// Writes the entry of `slot`, which is greater than the one before.
    pub(crate) fn add(&mut self, slot: u32, entry: &[u8]) -> Result<()> {
        self.pad_to(slot)?;
        let bytes = self.meta.slot_bytes as usize;
        let (at, tail_at) = (self.slots.at(), self.tail_at());
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
        let mut out = self.tails;
        match &self.tails_file {
            Some(tails) => {
                out.flush()?;
                out = self.slots;
                tails.copy_to(&mut out)?;
            }
            None => self.slots.flush()?,
        }
        let footer = FOOTER.encode(&self.meta.encode(), self.sum, out.at());
        out.write(&footer)?;
        out.flush()?;
        self.file.sync(Purpose::Flush)?;
        Ok((out.at(), u64::from(self.meta.entries)))
    }
}

/// The tails of a HashStore that is being written; dropping it removes the file. After a crash the
/// next open removes it. It is never synced.
struct TailsFile {
    vfs: Arc<dyn Vfs>,
    file: Arc<dyn File>,
    number: u64,
}

impl TailsFile {
    fn create(vfs: &Arc<dyn Vfs>, number: u64) -> Result<Self> {
        let file = vfs.create(&Kind::Tails.name(number))?;
        Ok(TailsFile { vfs: vfs.clone(), file, number })
    }

    fn copy_to(&self, out: &mut FileWriter) -> Result<()> {
        let bytes = self.file.len()?;
        let mut piece = Vec::new();
        for start in (0..bytes).step_by(PIECE_BYTES) {
            piece.resize((bytes - start).min(PIECE_BYTES as u64) as usize, 0);
            self.file.read_at(start, &mut piece, Purpose::Flush)?;
            out.write(&piece)?;
        }
        Ok(())
    }
}

impl Drop for TailsFile {
    fn drop(&mut self) {
        let _ = self.vfs.remove(&Kind::Tails.name(self.number));
    }
}

/// Writes the filter of a HashStore, which consists of the tags of its table.
pub(crate) fn write_filter(vfs: &dyn Vfs, number: u64, table: &CuckooTable) -> Result<()> {
    let bytes = CuckooFilter::from_table(table).to_bytes();
    write_derived(vfs, &Kind::Filter.name(number), number, &bytes, Purpose::Flush)
}

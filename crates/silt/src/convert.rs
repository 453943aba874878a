//! The oldest full generation becomes HashStores.
//!
//! ```text
//!   LogStore of a partition   cuckoo table: slot 0 ─▶ position, slot 1 ─▶ position, …
//!     a window of slots       positions in the order of the log, each record read once
//!   HashStore                 the same slots, with the entries themselves;  filter: the tags
//! ```
//!
//! Until the manifest names all HashStores of the generation, and not its logs, the LogStores answer.
//! Oldest first, one generation at a time: what is in stores is a prefix of what was written.
//!
//! Invariant: an edit that names the HashStores is the same that lets the logs go.
//!
//! Source: Lim, thesis, section 2.2.2. Tables that a flush finds nearly empty are made smaller: ours.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_structures::CuckooTable;

use crate::engine::Inner;
use crate::generation::Generation;
use crate::hash_store::{HashStoreWriter, Shape, choose_slot_bytes, discard, write_filter};
use crate::item::Item;
use crate::keys::cuckoo_bits;
use crate::log_store::LogStore;
use crate::names::Kind;
use crate::version::{Edit, StoreEntry};

/// Entries are read in windows of about so many bytes …
const WINDOW_BYTES: usize = 4 << 20;
/// … and at most so many entries.
const WINDOW_ENTRIES: usize = 4 << 10;
/// A table with a smaller load is made anew in a smaller size.
const SMALLEST_LOAD: f64 = 0.45;

impl Inner {
    /// Converts the oldest generation that waits, if one does.
    pub(crate) fn convert_oldest(&self) -> Result<()> {
        let view = self.view.load_full();
        let Some(generation) = view.frozen.first() else { return Ok(()) };
        let began = Instant::now();
        let next = view.frozen.get(1).unwrap_or(&view.active);
        let mut written = Vec::new();
        let outcome = self.convert(generation, &mut written);
        if let Err(error) = outcome {
            written.iter().for_each(|store| discard(self.media.as_ref(), store.number));
            return Err(error);
        }
        if !written.is_empty() {
            self.media.sync_dir(Purpose::Flush)?;
        }
        let first_log = next.log_numbers().next();
        let (bytes, entries) =
            written.iter().fold((0, 0), |(b, e), store| (b + store.bytes, e + store.entries));
        let edit = Edit { first_log, hash_stores: written, ..Edit::default() };
        self.install(edit, |view| {
            view.frozen.remove(0);
        })?;
        self.remove_logs_before(first_log.unwrap_or(0));
        self.counters.conversions.fetch_add(1, Relaxed);
        self.counters.converted_entries.fetch_add(entries, Relaxed);
        self.counters.hash_bytes.fetch_add(bytes, Relaxed);
        self.counters.convert_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }

    /// Writes the HashStores of a generation; `written` has those that were begun, too.
    fn convert(&self, generation: &Generation, written: &mut Vec<StoreEntry>) -> Result<()> {
        for partition in 0..self.versions.keys().partitions {
            let store = generation.store(partition as usize);
            for table in store.tables().iter().filter(|table| !table.is_empty()) {
                let number = self.versions.new_number();
                written.push(StoreEntry { partition, number, bytes: 0, entries: 0 });
                let reader = Reader { inner: self, generation, store: &store };
                let made = reader.convert(partition, number, table)?;
                if let Some(last) = written.last_mut() {
                    (last.bytes, last.entries) = made;
                }
            }
        }
        Ok(())
    }

    /// Forgets the logs whose writes are all in stores, and removes them.
    pub(crate) fn remove_logs_before(&self, first_log: u64) {
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.forget_before(first_log));
        drop(unused);
        let mut state = self.background.lock();
        let (gone, needed): (Vec<u64>, _) =
            state.logs.iter().partition(|&&number| number < first_log);
        state.logs = needed;
        drop(state);
        for number in gone {
            // A log that stays behind is removed by the next open.
            let _ = self.media.remove(&Kind::Log.name(number));
        }
    }
}

/// Reads the entries of a LogStore that is being converted.
struct Reader<'a> {
    inner: &'a Inner,
    generation: &'a Generation,
    store: &'a LogStore,
}

impl Reader<'_> {
    /// Writes a table's entries to the HashStore `number`; returns its bytes and entries.
    fn convert(&self, partition: u32, number: u64, table: &Arc<CuckooTable>) -> Result<(u64, u64)> {
        let smaller = if table.load() < SMALLEST_LOAD { Some(self.shrink(table)?) } else { None };
        let table = smaller.as_ref().unwrap_or(table);
        let shape = Shape {
            partition,
            keys: self.inner.versions.keys(),
            slots: table.slots() as u32,
            entries: 0,
            slot_bytes: choose_slot_bytes(table.slots(), &mut self.lengths(table)?),
            lengths: (0, 0),
        };
        let media = self.inner.media.as_ref();
        let mut writer = HashStoreWriter::create(media, number, shape, &self.inner.env.rate)?;
        self.for_each(table, |slot, item| writer.add(slot, item.bytes()))?;
        let made = writer.finish()?;
        write_filter(media, number, table)?;
        Ok(made)
    }

    /// The lengths of all operations of a table.
    fn lengths(&self, table: &CuckooTable) -> Result<Vec<u32>> {
        if let Some(length) = self.store.one_length() {
            return Ok(vec![length; table.len() as usize]);
        }
        let mut lengths = Vec::with_capacity(table.len() as usize);
        self.for_each(table, |_, item| {
            lengths.push(item.bytes().len() as u32);
            Ok(())
        })?;
        Ok(lengths)
    }

    /// The same entries in a table with fewer slots.
    fn shrink(&self, table: &CuckooTable) -> Result<CuckooTable> {
        let mut hashes = Vec::with_capacity(table.len() as usize);
        let positions: Vec<u32> = table.iter().map(|(_, position)| position).collect();
        let mut positions = positions.into_iter();
        self.for_each(table, |_, item| {
            if let (Some(op), Some(position)) = (item.op(), positions.next()) {
                hashes.push((cuckoo_bits(&self.inner.versions.keys().hash(op.key())), position));
            }
            Ok(())
        })?;
        let mut slots = (hashes.len() as f64 / self.inner.options.load).ceil() as u32;
        while u64::from(slots) < table.slots() {
            let mut smaller = CuckooTable::with_slots(slots);
            if hashes.iter().all(|&(bits, position)| smaller.insert(bits, position).is_ok()) {
                return Ok(smaller);
            }
            slots = 2 * smaller.slots() as u32;
        }
        Ok(table.clone())
    }

    /// Gives `take` the slot and entry of all slots in order.
    fn for_each(
        &self,
        table: &CuckooTable,
        mut take: impl FnMut(u32, Item) -> Result<()>,
    ) -> Result<()> {
        let longest = self.store.longest() as usize + 1;
        let window = (WINDOW_BYTES / longest).clamp(1, WINDOW_ENTRIES);
        let mut slots = table.iter().peekable();
        while slots.peek().is_some() {
            if self.inner.background.is_stopping() {
                return Err(Error::Closed);
            }
            let wanted: Vec<(u32, u32)> = slots.by_ref().take(window).collect();
            self.inner.convert_rate.take(wanted.len() as u64);
            // In the order of the log, which is read ahead of us then.
            let mut order: Vec<usize> = (0..wanted.len()).collect();
            order.sort_unstable_by_key(|&i| wanted[i].1);
            let mut items: Vec<Option<Item>> = wanted.iter().map(|_| None).collect();
            for i in order {
                items[i] = Some(self.generation.read(wanted[i].1, Purpose::Flush)?);
            }
            for (&(slot, _), item) in wanted.iter().zip(items) {
                if let Some(item) = item {
                    take(slot, item)?;
                }
            }
        }
        Ok(())
    }
}

//! Conversion: writes the oldest full generation to disk, as SILT's counterpart of a flush.
//!
//! A *generation* has a log and, per partition, a *LogStore*: an in-memory cuckoo hash table of
//! positions in the log. Conversion turns each LogStore into a *HashStore*: an immutable file with
//! the entries themselves, in the same slots, and a filter in memory.
//!
//! ```text
//!   LogStores of all partitions   cuckoo tables: slot 0 ─▶ position, slot 1 ─▶ position, …
//!     a window of slots           as many entries as fit the buffer, of one table or several
//!       log, read sequentially    their records in the order of positions ─▶ buffer
//!   HashStores                    the same slots, with the entries themselves;  filter: the tags
//! ```
//!
//! The log is read in order and in large pieces, once per window. With the default buffer and
//! entries of a hundred bytes, one window holds a whole generation. Slots are written in order,
//! too, so all I/O of a conversion is sequential.
//!
//! The LogStores serve reads until the manifest names the HashStores. Generations are converted one
//! at a time, the oldest first, so stores always hold a prefix of the writes.
//!
//! Invariant: the edit that adds the HashStores of a generation also releases its logs.
//!
//! Source: Lim, thesis, section 2.2.2. Shrinking the nearly empty tables of a forced flush is
//! not in the thesis.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_durable::EditHeader;
use siltstone_engine::{Error, FileInfo, Purpose, Result};
use siltstone_structures::CuckooTable;

use crate::engine::SiltEngine;
use crate::generation::Generation;
use crate::hash_store::{HashStoreWriter, StoreMeta, choose_slot_bytes, write_filter};
use crate::item;
use crate::keys::cuckoo_bits;
use crate::names::Kind;
use crate::store_entry::StoreEntry;
use crate::store_file::discard;
use crate::version::Edit;
use crate::view::View;

/// Entries between two checks for cancellation.
const CHECK_INTERVAL: usize = 1024;
/// A table with a smaller load factor is rebuilt in a smaller size.
const MIN_LOAD_FACTOR: f64 = 0.45;
/// Bytes of memory per window entry besides its operation: entry, order, and range.
const WINDOW_ENTRY_BYTES: u64 =
    (size_of::<WindowEntry>() + 4 + size_of::<std::ops::Range<usize>>()) as u64;

impl SiltEngine {
    /// Converts the oldest frozen generation, if there is one. Returns the HashStores.
    pub(crate) fn convert_oldest(&self, view: &View) -> Result<Vec<FileInfo>> {
        let Some(generation) = view.flushing.first() else { return Ok(Vec::new()) };
        let began = Instant::now();
        let next = view.flushing.get(1).unwrap_or(&view.active);
        let mut written = Vec::new();
        let outcome = Conversion { engine: self, generation }.run(&mut written);
        if let Err(error) = outcome {
            written.iter().for_each(|store| discard(self.vfs.as_ref(), store.number));
            return Err(error);
        }
        if !written.is_empty() {
            self.vfs.sync_dir(Purpose::Flush)?;
        }
        let first_log = next.log_numbers().next();
        let (bytes, entries) =
            written.iter().fold((0, 0), |(b, e), store| (b + store.bytes, e + store.entries));
        let files = written.iter().map(|store| store.info(Kind::HashStore)).collect();
        let header = EditHeader { first_log, ..EditHeader::default() };
        let edit = Edit { header, hash_stores: written, ..Edit::default() };
        let is_installed = self.install(view.generation, edit, |view| {
            view.flushing.remove(0);
        })?;
        if !is_installed {
            return Ok(Vec::new());
        }
        self.discard_logs_before(first_log.unwrap_or(0), &[]);
        self.counters.conversions.fetch_add(1, Relaxed);
        self.counters.converted_entries.fetch_add(entries, Relaxed);
        self.counters.hash_bytes.fetch_add(bytes, Relaxed);
        self.counters.convert_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(files)
    }
}

/// The conversion of one generation.
struct Conversion<'a> {
    engine: &'a SiltEngine,
    generation: &'a Generation,
}

/// A cuckoo table that becomes a HashStore.
struct SourceTable {
    partition: u32,
    table: Arc<CuckooTable>,
    /// The length of the operation in each occupied slot, in the order of slots, in bytes.
    lengths: Vec<u32>,
}

/// An entry of a window.
struct WindowEntry {
    /// The index of its source table.
    source: usize,
    slot: u32,
    position: u32,
}

impl Conversion<'_> {
    /// Writes the HashStores. `written` receives every store that was begun, also on failure.
    fn run(&self, written: &mut Vec<StoreEntry>) -> Result<()> {
        let sources = self.sources()?;
        let all = sources.iter().enumerate().flat_map(|(source, it)| {
            let slots = it.table.iter().zip(&it.lengths);
            slots.map(move |((slot, position), &len)| (WindowEntry { source, slot, position }, len))
        });
        let mut all = all.peekable();
        let (mut window, mut buffer, mut output) = (Vec::new(), Vec::new(), None);
        while all.peek().is_some() {
            window.clear();
            buffer.clear();
            let (mut left, mut bytes) = (self.engine.options.sort_bytes, 0);
            while let Some((entry, len)) = all.next_if(|&(_, len)| {
                window.is_empty() || u64::from(len) + WINDOW_ENTRY_BYTES <= left
            }) {
                left = left.saturating_sub(u64::from(len) + WINDOW_ENTRY_BYTES);
                bytes += len as usize;
                window.push(entry);
            }
            // Exact: a vector that grows by doubling would exceed the memory limit.
            buffer.reserve_exact(bytes);
            let places = self.read_window(&window, &mut buffer)?;
            for (entry, place) in window.iter().zip(places) {
                let output = self.writer_of(entry.source, &sources, &mut output, written)?;
                output.add(entry.slot, &buffer[place])?;
            }
        }
        self.finish(&sources, output, written)
    }

    /// The non-empty tables, shrunk if nearly empty, with the lengths of their operations.
    fn sources(&self) -> Result<Vec<SourceTable>> {
        let mut sources = Vec::new();
        let mut has_lengths = true;
        for partition in 0..self.engine.keys.partitions {
            let store = self.generation.store(partition as usize);
            let one_length = store.one_length();
            has_lengths &= one_length.is_some() || store.entries() == 0;
            for table in store.tables().iter().filter(|table| !table.is_empty()) {
                let is_small = table.load() < MIN_LOAD_FACTOR;
                let table = if is_small { Arc::new(self.shrink(table)?) } else { table.clone() };
                let lengths = vec![one_length.unwrap_or(0); table.len() as usize];
                sources.push(SourceTable { partition, table, lengths });
            }
        }
        if !has_lengths {
            self.measure_lengths(&mut sources)?;
        }
        Ok(sources)
    }

    /// Determines the lengths of all operations by one sequential pass over the log.
    fn measure_lengths(&self, sources: &mut [SourceTable]) -> Result<()> {
        let mut places = Vec::new();
        for (source, it) in sources.iter().enumerate() {
            places.extend((0..).zip(it.table.iter()).map(|(at, (_, pos))| (pos, source, at)));
        }
        places.sort_unstable();
        let mut sweep = self.generation.sweep(Purpose::Flush);
        for (done, (position, source, at)) in places.into_iter().enumerate() {
            self.check_cancelled(done)?;
            let length = sweep.read(position)?.len() as u32;
            let lengths: &mut Vec<u32> = &mut sources[source].lengths;
            lengths[at] = length;
        }
        Ok(())
    }

    /// Copies a table into one with fewer slots.
    fn shrink(&self, table: &CuckooTable) -> Result<CuckooTable> {
        let keys = self.engine.keys;
        let mut positions: Vec<u32> = table.iter().map(|(_, position)| position).collect();
        positions.sort_unstable();
        let mut hashes = Vec::with_capacity(positions.len());
        let mut sweep = self.generation.sweep(Purpose::Flush);
        for (done, position) in positions.into_iter().enumerate() {
            self.check_cancelled(done)?;
            if let Some((op, _)) = item::first(sweep.read(position)?) {
                hashes.push((cuckoo_bits(&keys.hash(op.key())), position));
            }
        }
        let mut slots = (hashes.len() as f64 / self.engine.options.max_load_factor).ceil() as u32;
        while u64::from(slots) < table.slots() {
            let mut smaller = CuckooTable::with_slots(slots);
            if hashes.iter().all(|&(bits, position)| smaller.insert(bits, position).is_ok()) {
                return Ok(smaller);
            }
            slots = 2 * smaller.slots() as u32;
        }
        Ok(table.clone())
    }

    /// Reads the operations of a window into `buffer`; returns the range of each.
    fn read_window(
        &self,
        window: &[WindowEntry],
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<std::ops::Range<usize>>> {
        let mut order: Vec<u32> = (0..window.len() as u32).collect();
        order.sort_unstable_by_key(|&i| window[i as usize].position);
        let mut places = vec![0..0; window.len()];
        let mut sweep = self.generation.sweep(Purpose::Flush);
        for (done, i) in order.into_iter().enumerate() {
            self.check_cancelled(done)?;
            if done.is_multiple_of(CHECK_INTERVAL) {
                self.engine.convert_rate.take(CHECK_INTERVAL.min(window.len() - done) as u64);
            }
            let start = buffer.len();
            buffer.extend_from_slice(sweep.read(window[i as usize].position)?);
            places[i as usize] = start..buffer.len();
        }
        Ok(places)
    }

    /// The writer of a source table. Ends the writer of the previous table first.
    fn writer_of<'o>(
        &self,
        source: usize,
        sources: &[SourceTable],
        output: &'o mut Option<(usize, HashStoreWriter)>,
        written: &mut Vec<StoreEntry>,
    ) -> Result<&'o mut HashStoreWriter> {
        if output.as_ref().is_none_or(|(current, _)| *current != source) {
            self.finish(sources, output.take(), written)?;
            let SourceTable { partition, table, lengths } = &sources[source];
            let number = self.engine.versions.new_number();
            written.push(StoreEntry { partition: *partition, number, bytes: 0, entries: 0 });
            let meta = StoreMeta {
                partition: *partition,
                keys: self.engine.keys,
                slots: table.slots() as u32,
                entries: 0,
                slot_bytes: match self.engine.options.inline_bytes {
                    0 => choose_slot_bytes(table.slots(), &mut lengths.clone()),
                    given => given as u32,
                },
                lengths: (0, 0),
            };
            let vfs = &self.engine.vfs;
            let writer = HashStoreWriter::create(vfs, number, meta, &self.engine.env.rate)?;
            *output = Some((source, writer));
        }
        let writer = output.as_mut().map(|(_, writer)| writer);
        writer.ok_or_else(|| Error::Invalid("a HashStore that was not begun".into()))
    }

    /// Ends the current HashStore, if any, and writes its filter.
    fn finish(
        &self,
        sources: &[SourceTable],
        output: Option<(usize, HashStoreWriter)>,
        written: &mut [StoreEntry],
    ) -> Result<()> {
        if let (Some((source, writer)), Some(last)) = (output, written.last_mut()) {
            (last.bytes, last.entries) = writer.finish()?;
            write_filter(self.engine.vfs.as_ref(), last.number, &sources[source].table)?;
        }
        Ok(())
    }

    /// Checks for cancellation every [`CHECK_INTERVAL`] entries.
    fn check_cancelled(&self, done: usize) -> Result<()> {
        if !done.is_multiple_of(CHECK_INTERVAL) {
            return Ok(());
        }
        self.engine.background.check_cancelled()
    }
}

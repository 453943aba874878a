//! The oldest full generation becomes HashStores.
//!
//! ```text
//!   LogStores of all partitions   cuckoo tables: slot 0 ─▶ position, slot 1 ─▶ position, …
//!     a window of slots           as many entries as the buffer takes, of one table or of several
//!       the log, swept            their records in the order of positions ─▶ buffer
//!   HashStores                    the same slots, with the entries themselves;  filter: the tags
//! ```
//!
//! The log is read in order and in large pieces, once a window: where the buffer holds the entries of
//! a generation, as it does by default for items of a hundred bytes, once in all. Slots are written in
//! order, too, so conversion asks nothing of a medium but streams.
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
use siltstone_table::log::remove_logs;

use crate::engine::Inner;
use crate::generation::Generation;
use crate::hash_store::{HashStoreWriter, Shape, choose_slot_bytes, discard, write_filter};
use crate::item;
use crate::keys::cuckoo_bits;
use crate::version::{Edit, StoreEntry};

/// How often a conversion looks whether it should stop, in entries.
const LOOK_UP_EVERY: usize = 1024;
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
        let outcome = Conversion { inner: self, generation }.run(&mut written);
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
        let numbers: Vec<u64> = written.iter().map(|store| store.number).collect();
        let edit = Edit { first_log, hash_stores: written, ..Edit::default() };
        let installed = self.install(edit, |view| {
            view.frozen.remove(0);
        });
        installed.inspect_err(|error| self.discard_if_unnamed(error, &numbers))?;
        self.remove_logs_before(first_log.unwrap_or(0));
        self.counters.conversions.fetch_add(1, Relaxed);
        self.counters.converted_entries.fetch_add(entries, Relaxed);
        self.counters.hash_bytes.fetch_add(bytes, Relaxed);
        self.counters.convert_us.fetch_add(began.elapsed().as_micros() as u64, Relaxed);
        Ok(())
    }

    /// Removes stores after their edit has failed with `error`, if that says that no manifest names
    /// them: the next attempt writes others.
    pub(crate) fn discard_if_unnamed(&self, error: &Error, numbers: &[u64]) {
        if error.is_transient() {
            numbers.iter().for_each(|number| discard(self.vfs.as_ref(), *number));
        }
    }

    /// Forgets the logs whose writes are all in stores, and removes them.
    pub(crate) fn remove_logs_before(&self, first_log: u64) {
        let unused = self.writer.lock().as_mut().map(|writer| writer.log.release_before(first_log));
        drop(unused);
        let mut state = self.background.lock();
        let gone: Vec<u64> = state.logs.extract_if(.., |number| *number < first_log).collect();
        drop(state);
        remove_logs(self.vfs.as_ref(), gone);
    }
}

/// The conversion of one generation.
struct Conversion<'a> {
    inner: &'a Inner,
    generation: &'a Generation,
}

/// A table that becomes a HashStore.
struct Source {
    partition: u32,
    table: Arc<CuckooTable>,
    /// Bytes of the operation in each slot that has one, in the order of slots.
    lengths: Vec<u32>,
}

/// An entry of a window.
struct Wanted {
    /// Which of the sources it is of.
    source: usize,
    slot: u32,
    position: u32,
}

impl Conversion<'_> {
    /// Writes the HashStores; `written` has those that were begun, too.
    fn run(&self, written: &mut Vec<StoreEntry>) -> Result<()> {
        let sources = self.sources()?;
        let all = sources.iter().enumerate().flat_map(|(source, it)| {
            let slots = it.table.iter().zip(&it.lengths);
            slots.map(move |((slot, position), &len)| (Wanted { source, slot, position }, len))
        });
        let mut all = all.peekable();
        let (mut window, mut buffer, mut output) = (Vec::new(), Vec::new(), None);
        while all.peek().is_some() {
            window.clear();
            buffer.clear();
            let (mut left, mut bytes) = (self.inner.options.sort_bytes, 0);
            while let Some((wanted, len)) = all.next_if(|&(_, len)| {
                let taken = u64::from(len) + WANTED_BYTES;
                window.is_empty() || taken <= left
            }) {
                left = left.saturating_sub(u64::from(len) + WANTED_BYTES);
                bytes += len as usize;
                window.push(wanted);
            }
            // A vector that grows has more than it shows.
            buffer.reserve_exact(bytes);
            let places = self.fetch(&window, &mut buffer)?;
            for (wanted, place) in window.iter().zip(places) {
                let output = self.output(wanted.source, &sources, &mut output, written)?;
                output.add(wanted.slot, &buffer[place])?;
            }
        }
        self.finish(&sources, output, written)
    }

    /// The tables that are not empty, smaller if they are nearly so, and the lengths of what is in
    /// them.
    fn sources(&self) -> Result<Vec<Source>> {
        let mut sources = Vec::new();
        let mut has_lengths = true;
        for partition in 0..self.inner.versions.keys().partitions {
            let store = self.generation.store(partition as usize);
            let one_length = store.one_length();
            has_lengths &= one_length.is_some();
            for table in store.tables().iter().filter(|table| !table.is_empty()) {
                let is_small = table.load() < SMALLEST_LOAD;
                let table = if is_small { Arc::new(self.shrink(table)?) } else { table.clone() };
                let lengths = vec![one_length.unwrap_or(0); table.len() as usize];
                sources.push(Source { partition, table, lengths });
            }
        }
        if !has_lengths {
            self.measure(&mut sources)?;
        }
        Ok(sources)
    }

    /// Finds the lengths of all operations by one sweep over the log.
    fn measure(&self, sources: &mut [Source]) -> Result<()> {
        let mut places = Vec::new();
        for (source, it) in sources.iter().enumerate() {
            places.extend((0..).zip(it.table.iter()).map(|(at, (_, pos))| (pos, source, at)));
        }
        places.sort_unstable();
        let mut sweep = self.generation.sweep(Purpose::Flush);
        for (seen, (position, source, at)) in places.into_iter().enumerate() {
            self.look_up(seen)?;
            let length = sweep.read(position)?.len() as u32;
            let lengths: &mut Vec<u32> = &mut sources[source].lengths;
            lengths[at] = length;
        }
        Ok(())
    }

    /// The same entries in a table with fewer slots.
    fn shrink(&self, table: &CuckooTable) -> Result<CuckooTable> {
        let keys = self.inner.versions.keys();
        let mut positions: Vec<u32> = table.iter().map(|(_, position)| position).collect();
        positions.sort_unstable();
        let mut hashes = Vec::with_capacity(positions.len());
        let mut sweep = self.generation.sweep(Purpose::Flush);
        for (seen, position) in positions.into_iter().enumerate() {
            self.look_up(seen)?;
            if let Some((op, _)) = item::first(sweep.read(position)?) {
                hashes.push((cuckoo_bits(&keys.hash(op.key())), position));
            }
        }
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

    /// Reads a window's operations into `buffer`; returns where each lies there.
    fn fetch(
        &self,
        window: &[Wanted],
        buffer: &mut Vec<u8>,
    ) -> Result<Vec<std::ops::Range<usize>>> {
        let mut order: Vec<u32> = (0..window.len() as u32).collect();
        order.sort_unstable_by_key(|&i| window[i as usize].position);
        let mut places = vec![0..0; window.len()];
        let mut sweep = self.generation.sweep(Purpose::Flush);
        for (seen, i) in order.into_iter().enumerate() {
            self.look_up(seen)?;
            if seen.is_multiple_of(LOOK_UP_EVERY) {
                self.inner.convert_rate.take(LOOK_UP_EVERY.min(window.len() - seen) as u64);
            }
            let start = buffer.len();
            buffer.extend_from_slice(sweep.read(window[i as usize].position)?);
            places[i as usize] = start..buffer.len();
        }
        Ok(places)
    }

    /// The writer for a source: the current one, or a new one after that has ended.
    fn output<'o>(
        &self,
        source: usize,
        sources: &[Source],
        output: &'o mut Option<(usize, HashStoreWriter)>,
        written: &mut Vec<StoreEntry>,
    ) -> Result<&'o mut HashStoreWriter> {
        if output.as_ref().is_none_or(|(current, _)| *current != source) {
            self.finish(sources, output.take(), written)?;
            let Source { partition, table, lengths } = &sources[source];
            let number = self.inner.versions.new_number();
            written.push(StoreEntry { partition: *partition, number, bytes: 0, entries: 0 });
            let shape = Shape {
                partition: *partition,
                keys: self.inner.versions.keys(),
                slots: table.slots() as u32,
                entries: 0,
                slot_bytes: match self.inner.options.inline_bytes {
                    0 => choose_slot_bytes(table.slots(), &mut lengths.clone()),
                    given => given as u32,
                },
                lengths: (0, 0),
            };
            let vfs = self.inner.vfs.as_ref();
            let writer = HashStoreWriter::create(vfs, number, shape, &self.inner.env.rate)?;
            *output = Some((source, writer));
        }
        let writer = output.as_mut().map(|(_, writer)| writer);
        writer.ok_or_else(|| Error::Invalid("a HashStore that was not begun".into()))
    }

    /// Ends the HashStore that is being written, if one is, and writes its filter.
    fn finish(
        &self,
        sources: &[Source],
        output: Option<(usize, HashStoreWriter)>,
        written: &mut [StoreEntry],
    ) -> Result<()> {
        if let (Some((source, writer)), Some(last)) = (output, written.last_mut()) {
            (last.bytes, last.entries) = writer.finish()?;
            write_filter(self.inner.vfs.as_ref(), last.number, &sources[source].table)?;
        }
        Ok(())
    }

    /// Ends the conversion if the table is closing; asked now and then.
    fn look_up(&self, seen: usize) -> Result<()> {
        if !seen.is_multiple_of(LOOK_UP_EVERY) {
            return Ok(());
        }
        self.inner.background.check_cancelled()
    }
}

/// Bytes that an entry of a window takes beside its own: what is wanted, its order, its place.
const WANTED_BYTES: u64 = (size_of::<Wanted>() + 4 + size_of::<std::ops::Range<usize>>()) as u64;

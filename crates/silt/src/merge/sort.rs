//! External sort: orders the entries of HashStores by hash in bounded memory, and merges them with
//! a SortedStore.
//!
//! ```text
//!   entries ─▶ buffer of up to sort_bytes ─ full ─▶ sorted run on disk ─┐
//!                    └─ the last one stays in memory ───────────────────┼─▶ heap ─▶ in order
//!   SortedStore ─ already in order ─────────────────────────────────────┘
//! ```
//!
//! When a tier has the maximum number of runs, they are merged into one run of the next tier, which
//! bounds the memory of their readers. With the default of 64 MiB this begins at 32 GiB of
//! HashStores.
//!
//! Invariant: entries come out by hash, and those of one hash from the youngest to the oldest.
//! Memory is bounded by `sort_bytes`, half of that per tier, and a few times the largest entry.
//!
//! The thesis uses a commercial sorting program here (section 2.5).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};
use siltstone_structures::HashKey;

use super::run::{CHUNK_BYTES, Run, RunReader, RunWriter};
use crate::engine::SiltEngine;
use crate::item;
use crate::sorted_store::{Scan, SortedStore};

/// Entries between two checks for cancellation.
pub(super) const CHECK_INTERVAL: u64 = 1024;

/// The age of an entry among those of its hash; 0 is the youngest.
pub(super) type Age = u32;

/// An entry in the buffer.
struct BufferedEntry {
    hash: HashKey,
    age: Age,
    at: usize,
    len: u32,
}

/// Sorts entries that arrive in any order.
pub(super) struct Sorter<'a> {
    engine: &'a SiltEngine,
    /// The buffered bytes. Like `entries` allocated once, because a vector that grows by doubling
    /// would exceed the limit.
    bytes: Vec<u8>,
    entries: Vec<BufferedEntry>,
    /// Runs by tier. A run of the next tier is the merge of all runs of a full tier.
    runs: Vec<Vec<Run>>,
}

impl<'a> Sorter<'a> {
    /// A sorter for about `expected` entries of `mean_bytes` bytes.
    pub(super) fn new(engine: &'a SiltEngine, expected: u64, mean_bytes: u64) -> Self {
        let entry_bytes = size_of::<BufferedEntry>() as u64;
        let limit = engine.options.sort_bytes;
        // One more than expected, so that an exact estimate suffices.
        let entries = (limit / (mean_bytes + entry_bytes)).clamp(1, expected + 1);
        let bytes = limit.saturating_sub(entries * entry_bytes).min((expected + 1) * mean_bytes);
        Sorter {
            engine,
            bytes: Vec::with_capacity(bytes as usize),
            entries: Vec::with_capacity(entries as usize),
            runs: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, hash: HashKey, age: Age, entry: &[u8]) -> Result<()> {
        let is_full = self.entries.len() == self.entries.capacity()
            || self.bytes.len() + entry.len() > self.bytes.capacity();
        if is_full && !self.entries.is_empty() {
            self.spill()?;
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(entry);
        self.entries.push(BufferedEntry { hash, age, at, len: entry.len() as u32 });
        Ok(())
    }

    fn sort(&mut self) {
        self.entries.sort_unstable_by_key(|entry| (entry.hash, entry.age));
    }

    /// Sorts the buffer and writes it to a run.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut writer = self.writer()?;
        for entry in &self.entries {
            writer.add(entry.age, &self.bytes[entry.at..entry.at + entry.len as usize])?;
        }
        self.add_run(0, writer)?;
        self.bytes.clear();
        self.entries.clear();
        Ok(())
    }

    fn writer(&self) -> Result<RunWriter> {
        let number = self.engine.versions.new_number();
        RunWriter::create(&self.engine.vfs, number, &self.engine.env.rate)
    }

    /// Adds a run to a tier, and merges the tier's runs into one of the next tier if it is full.
    fn add_run(&mut self, tier: usize, writer: RunWriter) -> Result<()> {
        let run = writer.finish()?;
        self.engine.counters.run_bytes.fetch_add(run.bytes(), Relaxed);
        self.runs.resize_with(self.runs.len().max(tier + 1), Vec::new);
        self.runs[tier].push(run);
        if self.runs[tier].len() < self.max_runs() {
            return Ok(());
        }
        let full = std::mem::take(&mut self.runs[tier]);
        let mut merged =
            MergedEntries::new(self.engine, full.into_iter().map(SortedInput::run).collect())?;
        let (mut writer, mut read) = (self.writer()?, 0u64);
        while let Some((_, age, entry)) = merged.next()? {
            writer.add(age, entry)?;
            read += 1;
            if read.is_multiple_of(CHECK_INTERVAL) {
                self.engine.background.check_cancelled()?;
            }
        }
        drop(merged);
        self.add_run(tier + 1, writer)
    }

    /// The maximum number of runs per tier: their readers take half of the buffer's memory.
    fn max_runs(&self) -> usize {
        (self.engine.options.sort_bytes / (2 * CHUNK_BYTES as u64)).max(4) as usize
    }

    /// Ends the input; iterates over all entries and those of `store`, the oldest, in order.
    pub(super) fn finish(mut self, store: Option<&'a SortedStore>) -> Result<MergedEntries<'a>> {
        self.sort();
        let runs = std::mem::take(&mut self.runs).into_iter().flatten();
        let mut inputs: Vec<SortedInput<'a>> = runs.map(SortedInput::run).collect();
        inputs.push(SortedInput::Memory { bytes: self.bytes, entries: self.entries, next: 0 });
        inputs.extend(store.map(|store| SortedInput::Store {
            scan: store.scan(Purpose::Compaction),
            entry: Vec::new(),
        }));
        MergedEntries::new(self.engine, inputs)
    }
}

/// A sorted input, positioned at an entry.
enum SortedInput<'a> {
    Memory { bytes: Vec<u8>, entries: Vec<BufferedEntry>, next: usize },
    Run(RunReader),
    Store { scan: Scan<&'a SortedStore>, entry: Vec<u8> },
}

impl SortedInput<'_> {
    fn run(run: Run) -> Self {
        SortedInput::Run(run.read())
    }
}

/// A k-way merge of sorted inputs.
pub(super) struct MergedEntries<'a> {
    engine: &'a SiltEngine,
    inputs: Vec<SortedInput<'a>>,
    heap: BinaryHeap<Reverse<(HashKey, Age, usize)>>,
    /// The input of the entry that `next` returned last.
    current: Option<usize>,
}

impl<'a> MergedEntries<'a> {
    fn new(engine: &'a SiltEngine, inputs: Vec<SortedInput<'a>>) -> Result<Self> {
        let mut merged = MergedEntries { engine, inputs, heap: BinaryHeap::new(), current: None };
        for at in 0..merged.inputs.len() {
            merged.advance(at)?;
        }
        Ok(merged)
    }

    /// The next entry, its hash and its age.
    pub(super) fn next(&mut self) -> Result<Option<(HashKey, Age, &[u8])>> {
        if let Some(at) = self.current.take() {
            self.advance(at)?;
        }
        let Some(Reverse((hash, age, at))) = self.heap.pop() else { return Ok(None) };
        self.current = Some(at);
        let entry = match &self.inputs[at] {
            SortedInput::Memory { bytes, entries, next } => {
                let entry = &entries[next - 1];
                &bytes[entry.at..entry.at + entry.len as usize]
            }
            SortedInput::Run(run) => run.entry(),
            SortedInput::Store { entry, .. } => entry,
        };
        Ok(Some((hash, age, entry)))
    }

    /// Moves an input to its next entry, and pushes that onto the heap.
    fn advance(&mut self, at: usize) -> Result<()> {
        let keys = self.engine.keys;
        let hash_of = |entry: &[u8]| item::first(entry).map(|(op, _)| keys.hash(op.key()));
        let head = match &mut self.inputs[at] {
            SortedInput::Memory { entries, next, .. } => {
                *next += 1;
                entries.get(*next - 1).map(|entry| (entry.hash, entry.age))
            }
            SortedInput::Run(run) => match run.next()? {
                Some(age) => hash_of(run.entry()).map(|hash| (hash, age)),
                None => None,
            },
            SortedInput::Store { scan, entry } => match scan.next()? {
                Some(bytes) => {
                    entry.clear();
                    entry.extend_from_slice(bytes);
                    hash_of(entry).map(|hash| (hash, Age::MAX))
                }
                None => None,
            },
        };
        self.heap.extend(head.map(|(hash, age)| Reverse((hash, age, at))));
        Ok(())
    }
}

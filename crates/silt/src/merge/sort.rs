//! Sorting the entries of HashStores by hash, in bounded memory, and merging them with a SortedStore.
//!
//! ```text
//!   entries ─▶ buffer, sort_bytes at most ─ full ─▶ sorted run on the medium ─┐
//!                    └─ the last one stays in memory ────────────────────────┼─▶ heap ─▶ in order
//!   SortedStore ─ in order already ──────────────────────────────────────────┘
//! ```
//!
//! As many runs as may be read at once are first merged into one of the next tier, so that what their
//! readers hold is bounded, too: with the default of 64 MiB that begins at 32 GiB of HashStores.
//!
//! Invariant: entries come out by hash, those of one hash from the youngest to the oldest. Memory is
//! `sort_bytes` and half as much for each tier, and a few times the largest entry, whatever there is
//! to sort.
//!
//! Source: ours; the thesis uses a commercial sorting program here (section 2.5).

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};
use siltstone_structures::HashKey;

use super::LOOK_UP_EVERY;
use super::run::{CHUNK_BYTES, Run, RunReader, RunWriter};
use crate::engine::Inner;
use crate::item;
use crate::sorted_store::{SortedStore, Walk};

/// How young an entry is among those of its hash: 0 is the youngest.
pub(super) type Age = u32;

/// Where an entry lies in the buffer.
struct Place {
    hash: HashKey,
    age: Age,
    at: usize,
    len: u32,
}

/// Takes entries in any order.
pub(super) struct Sorter<'a> {
    inner: &'a Inner,
    /// Neither grows while it is filled: a vector that does has more than it shows.
    bytes: Vec<u8>,
    places: Vec<Place>,
    /// Runs by tier; one of the next tier holds what as many as may be of this one held.
    runs: Vec<Vec<Run>>,
}

impl<'a> Sorter<'a> {
    /// A sorter for about so many entries of about so many bytes.
    pub(super) fn new(inner: &'a Inner, expected: u64, mean_bytes: u64) -> Self {
        let a_place = size_of::<Place>() as u64;
        let most = inner.options.sort_bytes;
        // One more, so that a guess that is right is enough.
        let places = (most / (mean_bytes + a_place)).clamp(1, expected + 1);
        let bytes = most.saturating_sub(places * a_place).min((expected + 1) * mean_bytes);
        Sorter {
            inner,
            bytes: Vec::with_capacity(bytes as usize),
            places: Vec::with_capacity(places as usize),
            runs: Vec::new(),
        }
    }

    pub(super) fn add(&mut self, hash: HashKey, age: Age, entry: &[u8]) -> Result<()> {
        let is_full = self.places.len() == self.places.capacity()
            || self.bytes.len() + entry.len() > self.bytes.capacity();
        if is_full && !self.places.is_empty() {
            self.spill()?;
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(entry);
        self.places.push(Place { hash, age, at, len: entry.len() as u32 });
        Ok(())
    }

    fn sort(&mut self) {
        self.places.sort_unstable_by_key(|place| (place.hash, place.age));
    }

    /// Writes the buffer to a run.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut writer = self.writer()?;
        for place in &self.places {
            writer.add(place.age, &self.bytes[place.at..place.at + place.len as usize])?;
        }
        self.add_run(0, writer)?;
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    fn writer(&self) -> Result<RunWriter> {
        let number = self.inner.versions.new_number();
        RunWriter::create(&self.inner.vfs, number, &self.inner.env.rate)
    }

    /// Ends a run of a tier, and merges the tier's runs into one if there are as many as may be.
    fn add_run(&mut self, tier: usize, writer: RunWriter) -> Result<()> {
        let run = writer.finish()?;
        self.inner.counters.run_bytes.fetch_add(run.bytes(), Relaxed);
        self.runs.resize_with(self.runs.len().max(tier + 1), Vec::new);
        self.runs[tier].push(run);
        if self.runs[tier].len() < self.most_runs() {
            return Ok(());
        }
        let full = std::mem::take(&mut self.runs[tier]);
        let mut merged = Merged::new(self.inner, full.into_iter().map(Source::run).collect())?;
        let (mut writer, mut seen) = (self.writer()?, 0u64);
        while let Some((_, age, entry)) = merged.next()? {
            writer.add(age, entry)?;
            seen += 1;
            if seen.is_multiple_of(LOOK_UP_EVERY) {
                self.inner.background.check_cancelled()?;
            }
        }
        drop(merged);
        self.add_run(tier + 1, writer)
    }

    /// The runs of a tier that are merged: their readers have half of the buffer's memory.
    fn most_runs(&self) -> usize {
        (self.inner.options.sort_bytes / (2 * CHUNK_BYTES as u64)).max(4) as usize
    }

    /// All entries and those of `store`, the oldest of all, in order.
    pub(super) fn finish(mut self, store: Option<&'a SortedStore>) -> Result<Merged<'a>> {
        self.sort();
        let runs = std::mem::take(&mut self.runs).into_iter().flatten();
        let mut sources: Vec<Source<'a>> = runs.map(Source::run).collect();
        sources.push(Source::Memory { bytes: self.bytes, places: self.places, next: 0 });
        sources.extend(store.map(|store| Source::Store {
            walk: store.walk(Purpose::Compaction),
            entry: Vec::new(),
        }));
        Merged::new(self.inner, sources)
    }
}

/// A sorted list of entries, standing on one.
enum Source<'a> {
    Memory { bytes: Vec<u8>, places: Vec<Place>, next: usize },
    Run(RunReader),
    Store { walk: Walk<&'a SortedStore>, entry: Vec<u8> },
}

impl Source<'_> {
    fn run(run: Run) -> Self {
        Source::Run(run.read())
    }
}

/// The entries of all sources in order.
pub(super) struct Merged<'a> {
    inner: &'a Inner,
    sources: Vec<Source<'a>>,
    heap: BinaryHeap<Reverse<(HashKey, Age, usize)>>,
    /// The source whose entry was handed out last.
    taken: Option<usize>,
}

impl<'a> Merged<'a> {
    fn new(inner: &'a Inner, sources: Vec<Source<'a>>) -> Result<Self> {
        let mut merged = Merged { inner, sources, heap: BinaryHeap::new(), taken: None };
        for at in 0..merged.sources.len() {
            merged.advance(at)?;
        }
        Ok(merged)
    }

    /// The next entry, its hash and its age.
    pub(super) fn next(&mut self) -> Result<Option<(HashKey, Age, &[u8])>> {
        if let Some(at) = self.taken.take() {
            self.advance(at)?;
        }
        let Some(Reverse((hash, age, at))) = self.heap.pop() else { return Ok(None) };
        self.taken = Some(at);
        let entry = match &self.sources[at] {
            Source::Memory { bytes, places, next } => {
                let place = &places[next - 1];
                &bytes[place.at..place.at + place.len as usize]
            }
            Source::Run(run) => run.entry(),
            Source::Store { entry, .. } => entry,
        };
        Ok(Some((hash, age, entry)))
    }

    /// Moves a source to its next entry, and enters it into the heap.
    fn advance(&mut self, at: usize) -> Result<()> {
        let keys = self.inner.versions.keys();
        let hash_of = |entry: &[u8]| item::first(entry).map(|(op, _)| keys.hash(op.key()));
        let head = match &mut self.sources[at] {
            Source::Memory { places, next, .. } => {
                *next += 1;
                places.get(*next - 1).map(|place| (place.hash, place.age))
            }
            Source::Run(run) => match run.next()? {
                Some(age) => hash_of(run.entry()).map(|hash| (hash, age)),
                None => None,
            },
            Source::Store { walk, entry } => match walk.next()? {
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

//! Sorting the entries of HashStores by hash, in bounded memory, and merging them with a SortedStore.
//!
//! ```text
//!   entries ─▶ buffer, sort_bytes at most ─ full ─▶ sorted run on the medium ─┐
//!                    └─ the last one stays in memory ────────────────────────┼─▶ heap ─▶ in order
//!   SortedStore ─ in order already ──────────────────────────────────────────┘
//! ```
//!
//! Invariant: entries come out by hash, those of one hash from the youngest to the oldest.
//!
//! Source: ours; the thesis uses a commercial sorting program here (section 2.5).

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use siltstone_engine::{Purpose, Result};
use siltstone_structures::HashKey;

use super::run::{Run, RunReader, RunWriter};
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
    bytes: Vec<u8>,
    places: Vec<Place>,
    runs: Vec<Run>,
}

impl<'a> Sorter<'a> {
    pub(super) fn new(inner: &'a Inner) -> Self {
        Sorter { inner, bytes: Vec::new(), places: Vec::new(), runs: Vec::new() }
    }

    pub(super) fn add(&mut self, hash: HashKey, age: Age, entry: &[u8]) -> Result<()> {
        let taken = self.bytes.len() + (self.places.len() + 1) * size_of::<Place>() + entry.len();
        if taken as u64 > self.inner.options.sort_bytes && !self.places.is_empty() {
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
        let number = self.inner.versions.new_number();
        let mut writer = RunWriter::create(&self.inner.media, number, &self.inner.env.rate)?;
        for place in &self.places {
            writer.add(place.age, &self.bytes[place.at..place.at + place.len as usize])?;
        }
        let run = writer.finish()?;
        self.inner.counters.run_bytes.fetch_add(run.bytes(), std::sync::atomic::Ordering::Relaxed);
        self.runs.push(run);
        self.bytes.clear();
        self.places.clear();
        Ok(())
    }

    /// All entries and those of `store`, the oldest of all, in order.
    pub(super) fn finish(mut self, store: Option<&'a SortedStore>) -> Result<Merged<'a>> {
        self.sort();
        let mut sources = Vec::new();
        for run in std::mem::take(&mut self.runs) {
            sources.push(Source::Run(run.read()));
        }
        sources.push(Source::Memory { bytes: self.bytes, places: self.places, next: 0 });
        sources.extend(store.map(|store| Source::Store {
            walk: store.walk(Purpose::Compaction),
            entry: Vec::new(),
        }));
        let mut merged =
            Merged { inner: self.inner, sources, heap: BinaryHeap::new(), taken: None };
        for at in 0..merged.sources.len() {
            merged.advance(at)?;
        }
        Ok(merged)
    }
}

/// A sorted list of entries, standing on one.
enum Source<'a> {
    Memory { bytes: Vec<u8>, places: Vec<Place>, next: usize },
    Run(RunReader),
    Store { walk: Walk<&'a SortedStore>, entry: Vec<u8> },
}

/// The entries of all sources in order.
pub(super) struct Merged<'a> {
    inner: &'a Inner,
    sources: Vec<Source<'a>>,
    heap: BinaryHeap<Reverse<(HashKey, Age, usize)>>,
    /// The source whose entry was handed out last.
    taken: Option<usize>,
}

impl Merged<'_> {
    /// The next entry and its hash.
    pub(super) fn next(&mut self) -> Result<Option<(HashKey, &[u8])>> {
        if let Some(at) = self.taken.take() {
            self.advance(at)?;
        }
        let Some(Reverse((hash, _, at))) = self.heap.pop() else { return Ok(None) };
        self.taken = Some(at);
        let entry = match &self.sources[at] {
            Source::Memory { bytes, places, next } => {
                let place = &places[next - 1];
                &bytes[place.at..place.at + place.len as usize]
            }
            Source::Run(run) => run.entry(),
            Source::Store { entry, .. } => entry,
        };
        Ok(Some((hash, entry)))
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

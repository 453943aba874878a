//! The mapping of SEMEL: every version in memory.
//!
//! The map (`index`) has 20 bytes per version, and lists the versions of a hash by time. A lookup
//! reads only the page of the requested version, and collection reads only the tail, since
//! the map knows which versions are live. A checkpoint stores next to nothing: opening reads the
//! whole log. A version's entry remains as long as the version is on the device, so that opening
//! rebuilds the same map.
//!
//! A deletion that hides nothing any more, or an expired version, is discarded when the tail
//! reaches it for the second time: by then the versions that it hid have been erased durably, and
//! cannot reappear after a power cut. If it has payload pages, the tail reaches these first and
//! would erase them while a power cut could still restore the record. So it is replaced by a *hash
//! tombstone* at the first time, which has no payload.
//!
//! Versions of an abandoned batch remain in pages. Its timestamp is recorded, also in
//! checkpoints, until the tail has passed its pages.
//!
//! *Limitation:* opening detects a damaged page by its missing number in the log. With several
//! channels, numbers of retired blocks between the oldest blocks are missing, too. A page that is
//! damaged among these is not detected, and its versions are lost silently.
//!
//! Versions of a key are ordered by 64 bits of its hash; lookups compare the keys themselves.
//!
//! Source: SkimpyFTL, section 2.3, for SEMEL (Misra et al., ASPLOS 2017). Flags and recovery are
//! not in the papers.

mod index;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{Purpose, Result};

use crate::bytes::{u32_at, u64_at};
use crate::ftl::PageMapped;
use crate::location::Placement;
use crate::location::{self, Location, NONE};
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::page::{Kind, Page};
use crate::page_reader::PageReader;
use crate::record::{Content, FIRST, LAST, RELOCATED, Record};
use crate::shared::{Horizon, Shared};
use crate::tail;
use crate::write_buffer::WriteBuffer;
use index::{Entry, Index, LAST_OF_KEY};

/// Collection begins when the free fraction is below this multiple of the target.
const EARLY_START_FACTOR: f64 = 3.0;
/// Steps per programmed page while more than the target is free.
const EARLY_PACE: f64 = 0.25;

/// The mapping of SEMEL and VFTL.
pub(crate) struct VersionMap {
    steps: u32,
    /// Pages of buffered records that accumulate (`Options::accumulates_writes`).
    accumulated_pages: usize,
    /// VFTL's translation layer, for its statistics.
    ftl: Option<Arc<PageMapped>>,
    index: Mutex<Index>,
    collected: AtomicU64,
    dropped: AtomicU64,
}

/// The decision about a version in the tail.
#[derive(PartialEq, Eq)]
enum TailDecision {
    Relocate,
    /// No longer visible: a hash tombstone replaces it.
    Tombstone,
    Discard,
}

impl VersionMap {
    /// The mapping of SEMEL, or of VFTL if `ftl` is its translation layer.
    pub(crate) fn new(steps: u32, accumulated_pages: usize, ftl: Option<Arc<PageMapped>>) -> Self {
        VersionMap {
            steps,
            accumulated_pages,
            ftl,
            index: Mutex::default(),
            collected: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// The record at a location; `None` if it has moved.
    fn fetch(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        at: Location,
    ) -> Result<Option<Record>> {
        if location::is_pending(at) {
            return Ok(shared.buffer.get(at).map(|record| record.copied()));
        }
        pages.record(at).map(Some)
    }

    /// Decides about a version in the tail, and removes a discarded one from the map.
    fn decide(&self, record: &Record, number: u32, horizon: &Horizon) -> TailDecision {
        let mut index = self.index();
        let mut younger = index.versions(record.hash);
        let is_older =
            |it: &Entry| it.timestamp() > record.timestamp && it.timestamp() <= horizon.watermark;
        // A version before a clear stays hidden if a power cut restores it.
        let is_hidden =
            record.timestamp <= horizon.cleared || younger.by_ref().any(|(_, it)| is_older(&it));
        drop(younger);
        let entry = index.entries[number as usize];
        let is_last = entry.prior == NONE;
        if !is_hidden && horizon.is_past(record) && is_last {
            if entry.flags & LAST_OF_KEY == 0 {
                index.entries[number as usize].flags |= LAST_OF_KEY;
                return if record.payload.is_some() {
                    TailDecision::Tombstone
                } else {
                    TailDecision::Relocate
                };
            }
        } else if !is_hidden {
            return TailDecision::Relocate;
        }
        index.remove(record.hash, number);
        TailDecision::Discard
    }

    fn collect_record(
        &self,
        shared: &Shared,
        writer: &mut Writer,
        mut record: Record,
        number: u32,
    ) -> Result<()> {
        tail::check_copies(shared, self, writer, record.total_bytes())?;
        let horizon = shared.horizon();
        let is_newest = self.index().heads.get(&record.hash) == Some(&number);
        let fate = self.decide(&record, number, &horizon);
        if fate != TailDecision::Relocate && is_newest && record.is_expired(horizon.now) {
            shared.counters.expired.fetch_add(1, Relaxed);
        }
        match fate {
            TailDecision::Relocate => writer.rewrite_payload(shared, &mut record)?,
            TailDecision::Tombstone => record.tombstone(),
            TailDecision::Discard => {
                self.dropped.fetch_add(1, Relaxed);
                return Ok(());
            }
        }
        self.collected.fetch_add(1, Relaxed);
        record.marks = FIRST | LAST | RELOCATED;
        record.link(NONE, NONE);
        let end = shared.buffer.end();
        let mut index = self.index();
        index.entries[number as usize].at = location::pending(end);
        shared.buffer.push([Arc::new(record)]);
        drop(index);
        writer.program_pending(shared, self, false)
    }

    /// The locations of the versions of a hash not younger than `at`, the newest first, back to the
    /// last clear before it; and whether there is a younger one. Versions before the clear may have
    /// lost their payload.
    fn places(&self, shared: &Shared, hash: u64, at: u64) -> (Vec<Location>, bool) {
        let cleared = shared.clears.seen_at(at);
        let index = self.index();
        let mut saw_younger = false;
        let seen = index.versions(hash).filter(|(_, entry)| {
            saw_younger |= entry.timestamp() > at;
            entry.timestamp() <= at && entry.timestamp() > cleared
        });
        let places = seen.map(|(_, entry)| entry.at).collect();
        (places, saw_younger)
    }
}

impl Mapping for VersionMap {
    fn link(&self, records: &mut [(Location, Record)], _most_bytes: usize) {
        records.iter().for_each(|(_, record)| record.link(NONE, NONE));
    }

    fn accumulated_pages(&self) -> usize {
        self.accumulated_pages
    }

    fn pack_accumulated(&self, buffer: &WriteBuffer, _number: u64) -> bool {
        // Every mapping location is in memory: no order is better.
        buffer.pack_accumulated(|_| ())
    }

    fn publish(&self, records: &[(Location, Arc<Record>)], _number: u64) {
        let mut index = self.index();
        for (at, record) in records {
            index.insert(record.hash, record.timestamp, *at);
        }
    }

    fn on_programmed(&self, records: &[Arc<Record>], placement: &Placement) {
        let mut index = self.index();
        for (slot, record) in records.iter().enumerate() {
            let from = placement.from[slot];
            if let Some(number) = index.find(record.hash, record.timestamp) {
                let entry = &mut index.entries[number as usize];
                if entry.at == from {
                    entry.at = placement.base + slot as u32;
                }
            }
        }
    }

    fn find(
        &self,
        shared: &Shared,
        key: &[u8],
        at: u64,
        purpose: Purpose,
    ) -> Result<(Option<Record>, bool)> {
        let hash = crate::keys::hash(key);
        let mut pages = PageReader::new(&shared.device, purpose);
        let _pin = shared.pins.enter();
        'retry: loop {
            let (places, saw_younger) = self.places(shared, hash, at);
            for place in places {
                let Some(mut record) = self.fetch(shared, &mut pages, place)? else {
                    continue 'retry;
                };
                if record.hash != hash {
                    continue 'retry;
                }
                // Versions after it are older, and hidden.
                if record.is_tombstoned() {
                    return Ok((Some(record), saw_younger));
                }
                if !record.has_key() {
                    pages.load(&mut record, false)?;
                }
                if record.key == key {
                    pages.load(&mut record, true)?;
                    return Ok((Some(record), saw_younger));
                }
            }
            return Ok((None, saw_younger));
        }
    }

    fn pace(&self, free: f64, wanted: f64) -> f64 {
        match free / wanted {
            surplus if surplus >= EARLY_START_FACTOR => 0.0,
            surplus if surplus >= 1.0 => EARLY_PACE,
            _ => 1.0,
        }
    }

    fn collect(&self, shared: &Shared, writer: &mut Writer, page: Page) -> Result<()> {
        if page.header.kind == Kind::Payload {
            // Live if a version of its owner refers to it; then that version is relocated with it.
            let owned: Vec<_> = self.index().versions(page.owner()).collect();
            let mut pages = PageReader::new(&shared.device, Purpose::Compaction);
            for (number, entry) in owned {
                let Some(record) = self.fetch(shared, &mut pages, entry.at)? else { continue };
                let is_here = |payload: &crate::record::Payload| payload.pages.contains(&page.page);
                if record.payload.as_ref().is_some_and(is_here) {
                    self.collect_record(shared, writer, record, number)?;
                }
            }
            return Ok(());
        }
        for (slot, record) in page.records().enumerate() {
            let record = record?;
            let at = shared.device.slots.at(page.page, slot);
            let live = {
                let index = self.index();
                let found = index.find(record.hash, record.timestamp);
                found.filter(|number| index.entries[*number as usize].at == at)
            };
            if let Some(number) = live {
                self.collect_record(shared, writer, record, number)?;
            }
        }
        Ok(())
    }

    fn check_lost(&self, shared: &Shared, page: u32) -> Result<()> {
        let Horizon { watermark, cleared, .. } = shared.horizon();
        // A hidden version may have lost its payload earlier.
        let mut places: Vec<Location> = Vec::new();
        {
            let index = self.index();
            for hash in index.heads.keys() {
                for (_, entry) in index.versions(*hash) {
                    if entry.timestamp() <= cleared {
                        break;
                    }
                    places.push(entry.at);
                    if entry.timestamp() <= watermark {
                        break;
                    }
                }
            }
        }
        places.retain(|at| location::is_programmed(*at));
        let mut pages = PageReader::new(&shared.device, Purpose::Compaction);
        for at in places {
            let is_here = shared.device.slots.page(at) == page || {
                let record = pages.record(at)?;
                record.payload.is_some_and(|payload| payload.pages.contains(&page))
            };
            if is_here {
                return Err(shared
                    .device
                    .corrupt(page, "a page with live versions cannot be read"));
            }
        }
        Ok(())
    }

    fn replays_all(&self) -> bool {
        true
    }

    fn is_cut_off(&self, epoch: u32, number: u64) -> bool {
        self.index().cuts.get(&epoch).is_some_and(|end| number >= *end)
    }

    fn cut(&self, epoch: u32, end: u64, tail: u64, epochs: &BTreeSet<u32>) {
        let mut index = self.index();
        index.cuts.insert(epoch, end);
        // The block of a page that was cut off may stay unerased until it is reused, when its
        // numbers are far behind the tail.
        index.cuts.retain(|epoch, end| *end >= tail || epochs.contains(epoch));
        index.abandoned.retain(|_, number| *number >= tail);
    }

    fn abandon(&self, timestamp: u64, number: u64) {
        let mut index = self.index();
        index.abandoned.insert(timestamp, number);
    }

    fn replay(&self, records: Vec<(Location, Record)>, number: u64) {
        let mut index = self.index();
        for (at, record) in records {
            // The same batch may have been written again, further on.
            let behind = index.abandoned.get(&record.timestamp);
            let is_abandoned = behind.is_some_and(|behind| number < *behind);
            if !matches!(record.content, Content::EmptyBucket(_)) && !is_abandoned {
                index.insert(record.hash, record.timestamp, at);
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let index = self.index();
        let mut bytes = (index.cuts.len() as u32).to_le_bytes().to_vec();
        let mut cuts: Vec<_> = index.cuts.iter().collect();
        cuts.sort_unstable();
        for (epoch, end) in cuts {
            bytes.extend_from_slice(&u64::from(*epoch).to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
        }
        for (timestamp, number) in &index.abandoned {
            bytes.extend_from_slice(&timestamp.to_le_bytes());
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    fn checkpoint_bytes(&self) -> u64 {
        let index = self.index();
        4 + 16 * (index.cuts.len() + index.abandoned.len()) as u64
    }

    fn decode(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let Some((count, pairs)) = bytes.split_at_checked(4) else {
            return Err("its lists are missing");
        };
        if !pairs.len().is_multiple_of(16) {
            return Err("its lists are cut short");
        }
        let count = u32_at(count, 0) as usize;
        let mut pairs = pairs.chunks_exact(16).map(|pair| (u64_at(pair, 0), u64_at(pair, 8)));
        let mut index = self.index();
        index.cuts = pairs.by_ref().take(count).map(|(epoch, end)| (epoch as u32, end)).collect();
        index.abandoned = pairs.collect();
        Ok(())
    }

    fn steps(&self) -> u64 {
        u64::from(self.steps)
    }

    fn step(&self, shared: &Shared, step: u64, at: u64) -> Result<Vec<Record>> {
        let _pin = shared.pins.enter();
        let start = |step: u64| (u128::from(step) << 64).div_ceil(u128::from(self.steps)) as u64;
        let hashes: Vec<u64> = {
            let index = self.index();
            match step + 1 == self.steps() {
                true => index.heads.range(start(step)..).map(|(hash, _)| *hash).collect(),
                false => index.heads.range(start(step)..start(step + 1)).map(|it| *it.0).collect(),
            }
        };
        let mut pages = PageReader::new(&shared.device, Purpose::Scan);
        let mut visible: Vec<Record> = Vec::new();
        for hash in hashes {
            'retry: loop {
                let mut of_hash: Vec<Record> = Vec::new();
                for place in self.places(shared, hash, at).0 {
                    let Some(mut record) = self.fetch(shared, &mut pages, place)? else {
                        continue 'retry;
                    };
                    if record.hash != hash {
                        continue 'retry;
                    }
                    if record.is_tombstoned() {
                        break;
                    }
                    // Later ones are older, and a hidden one may have lost its payload. A key that
                    // shares all 64 bits of its hash with another is therefore not found there.
                    if !of_hash.is_empty() && record.payload.is_some() {
                        continue;
                    }
                    pages.load(&mut record, true)?;
                    // The first record of each key is its newest.
                    if of_hash.iter().all(|it| it.key != record.key) {
                        of_hash.push(record);
                    }
                }
                visible.append(&mut of_hash);
                break;
            }
        }
        visible.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(visible)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let index = self.index();
        let entries = (index.entries.len() - index.free.len()) * size_of::<Entry>();
        // A number and a hash per head; the overhead of the tree is not counted.
        let heads = index.heads.len() * 12;
        let mut memory = vec![("version map", entries as u64), ("version heads", heads as u64)];
        memory.extend(self.ftl.iter().map(|ftl| ("page map", ftl.memory_bytes())));
        memory
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let index = self.index();
        let mut counters = vec![
            ("versions", (index.entries.len() - index.free.len()) as u64),
            ("versions_relocated", self.collected.load(Relaxed)),
            ("versions_discarded", self.dropped.load(Relaxed)),
        ];
        if let Some(ftl) = &self.ftl {
            let (copied, erased) = ftl.work();
            counters.extend([("ftl_pages_copied", copied), ("ftl_blocks_erased", erased)]);
        }
        counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_off_pages_stay_so_while_they_are_on_the_device() {
        let versions = VersionMap::new(1, 0, None);
        versions.cut(3, 1, 2, &BTreeSet::from([3]));
        versions.cut(4, 9, 5, &BTreeSet::from([3, 4]));
        assert!(versions.is_cut_off(3, 2) && versions.is_cut_off(4, 9));
        assert!(!versions.is_cut_off(3, 0) && !versions.is_cut_off(4, 8));
        versions.cut(5, 12, 7, &BTreeSet::from([5]));
        assert!(!versions.is_cut_off(3, 2) && versions.is_cut_off(4, 9));
    }
}

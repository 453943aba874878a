//! The mapping of SkimpyFTL: heads of buckets in memory, chains on flash, a translation cache.
//!
//! ```text
//!   heads    bucket ─▶ newest record of the bucket       4 bytes, and 1 for when it was collected
//!   chain    record ─next─▶ record ─next─▶ …             on flash: the newest first
//!   versions record ─prior─▶ the version of the key before it, or unknown: further down the chain
//!   cache    key ─▶ its newest version                   see `cache`
//!   hot      keys that are written again while they head their chain: see `hot`
//! ```
//!
//! A put goes to the front of its chain; its prior version is the cache's, else unknown. Collecting a
//! bucket (`collect`) writes what is wanted of it anew, the oldest first, all pointers known; of older
//! versions the chain then has none: they are found from the newest of their key.
//!
//! Invariant: a version that may be asked for is in the chain, or a newer one of its key leads to it by
//! prior pointers alone. Links lead within the bucket.
//!
//! Source: SkimpyFTL, sections 3.1 to 3.3.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{Purpose, Result};

use crate::cache::Cache;
use crate::device::Pages;
use crate::engine::Inner;
use crate::hot::Hot;
use crate::keys;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::page::{Page, u32_at};
use crate::pending::Placed;
use crate::record::{Content, Record};

pub(crate) mod collect;

/// The mapping.
pub(crate) struct Chains {
    buckets: u32,
    index: Mutex<Index>,
    /// Pages of the log for one step of the stamps.
    granule: u64,
    /// A bucket whose chain was found to be long, and 1.
    long: AtomicU64,
    tidy: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    collected: AtomicU64,
    dropped: AtomicU64,
}

struct Index {
    heads: Vec<Location>,
    /// When each bucket was collected last, in granules of the log, modulo 256.
    stamps: Vec<u8>,
    cache: Cache,
    hot: Hot,
}

impl Index {
    /// A bucket that was empty has records from this stamp on: an older one would come round to seem newer.
    fn begin(&mut self, bucket: u32, stamp: u8) {
        if self.heads[bucket as usize] == NONE {
            self.stamps[bucket as usize] = stamp;
        }
    }

    /// The bucket has pages from this stamp on, which it did not seem to have: what was pending lies in the
    /// log behind payloads that were written after it, and replay meets it first.
    fn reach_back(&mut self, bucket: u32, stamp: u8) {
        let collected = &mut self.stamps[bucket as usize];
        if is_behind(stamp, *collected) {
            *collected = stamp;
        }
    }
}

/// Whether a stamp is of pages before those of another, modulo 256.
fn is_behind(stamp: u8, other: u8) -> bool {
    (1..128).contains(&other.wrapping_sub(stamp))
}

/// A record on the way down a chain, or the news that it has moved meanwhile.
enum Met {
    Record(Arc<Record>),
    Moved,
}

impl Chains {
    /// A mapping of nothing, for a device whose log is at most so many pages long.
    pub(crate) fn new(buckets: u32, cache_keys: u64, log_pages: u64, tidy: u64) -> Self {
        let index = Index {
            heads: vec![NONE; buckets as usize],
            stamps: vec![0; buckets as usize],
            cache: Cache::new(cache_keys, buckets),
            hot: Hot::new(cache_keys / 8),
        };
        Chains {
            buckets,
            index: Mutex::new(index),
            // A window of 128 granules covers all pages that the device can have.
            granule: log_pages.div_ceil(100).max(1),
            long: AtomicU64::new(0),
            tidy,
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            collected: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        }
    }

    fn bucket(&self, hash: u64) -> u32 {
        keys::bucket(hash, self.buckets)
    }

    fn stamp(&self, number: u64) -> u8 {
        (number / self.granule) as u8
    }

    fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// The record at a place.
    fn meet(&self, inner: &Inner, pages: &mut Pages<'_>, at: Location, bucket: u32) -> Result<Met> {
        if location::is_pending(at) {
            let pending = inner.pending.get(at);
            // A number may have come round to another's record.
            let ours = pending.filter(|record| self.bucket(record.hash) == bucket);
            return Ok(ours.map_or(Met::Moved, Met::Record));
        }
        let record = pages.record(at)?;
        if matches!(record.content, Content::EmptyBucket(_)) || self.bucket(record.hash) != bucket {
            let page = inner.device.slots.page(at);
            return Err(inner.device.corrupt(page, "a chain leads to another bucket's record"));
        }
        Ok(Met::Record(Arc::new(record)))
    }

    /// Looks for the key once; `None` if the chain moved underfoot.
    fn look(&self, inner: &Inner, search: &mut Search<'_, '_>) -> Result<Option<Found>> {
        let Search { key, hash, bucket, at, .. } = *search;
        let (head, cached) = {
            let mut index = self.index();
            (index.heads[bucket as usize], index.cache.get(hash, bucket))
        };
        let mut met_younger = false;
        let mut newest = None;
        let (mut place, mut way) = match cached {
            Some(place) => (place, Way::Cached),
            None => (head, Way::Chain),
        };
        let found = loop {
            if place == NONE {
                break None;
            }
            let Met::Record(record) = self.meet(inner, &mut search.pages, place, bucket)? else {
                return Ok(None);
            };
            let Some(record) = search.matches(record, hash, key)? else {
                // Another's record: where the hint misled, the way on is the chain's.
                (place, way) = match way {
                    Way::Cached => (head, Way::Chain),
                    Way::Prior { otherwise } => (otherwise, Way::Chain),
                    Way::Chain => (search.next, Way::Chain),
                };
                continue;
            };
            newest.get_or_insert((place, way));
            if record.timestamp <= at {
                break Some(record);
            }
            met_younger = true;
            (place, way) = match record.prior() {
                NONE => (NONE, Way::Chain),
                UNKNOWN => (record.next(), Way::Chain),
                prior => (prior, Way::Prior { otherwise: record.next() }),
            };
        };
        match newest {
            Some((_, Way::Cached)) => self.hits.fetch_add(1, Relaxed),
            _ => self.misses.fetch_add(1, Relaxed),
        };
        if let Some((place, Way::Chain)) = newest {
            let mut index = self.index();
            // Unless a newer version may have come since.
            if index.heads[bucket as usize] == head {
                index.cache.put(hash, bucket, place);
            }
        }
        Ok(Some((found, met_younger)))
    }
}

/// The record and whether a younger one was met.
type Found = (Option<Arc<Record>>, bool);

/// How a place was come by.
#[derive(Clone, Copy)]
enum Way {
    Cached,
    Chain,
    Prior { otherwise: Location },
}

/// One key, asked for at one moment.
struct Search<'i, 'k> {
    key: &'k [u8],
    hash: u64,
    bucket: u32,
    at: u64,
    pages: Pages<'i>,
    /// Where the chain leads from the record that did not match.
    next: Location,
}

impl Search<'_, '_> {
    /// The record if it is the key's.
    fn matches(
        &mut self,
        record: Arc<Record>,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Arc<Record>>> {
        self.next = record.next();
        if record.hash != hash {
            return Ok(None);
        }
        let record = match record.key.is_empty() {
            false => record,
            true => {
                // Fresh from its page, so it is nobody else's.
                let mut own = Arc::try_unwrap(record).map_err(|_| {
                    siltstone_engine::Error::Invalid("a record without a key is shared".into())
                })?;
                self.pages.load(&mut own, false)?;
                Arc::new(own)
            }
        };
        Ok((record.key == key).then_some(record))
    }
}

/// A copy of a record that others may hold.
pub(crate) fn own(record: &Record) -> Record {
    let copy = Record {
        expires_at: record.expires_at,
        payload: record.payload.clone(),
        marks: record.marks,
        ..Record::new(record.timestamp, record.hash, record.key.clone(), record.content.clone())
    };
    copy.link(record.next(), record.prior());
    copy
}

impl Mapping for Chains {
    fn link(&self, inner: &Inner, records: &[(Location, Arc<Record>)]) {
        let mut index = self.index();
        let mut fresh: HashMap<u32, Location> = HashMap::new();
        for (at, record) in records {
            let bucket = self.bucket(record.hash);
            let head = fresh.insert(bucket, *at).unwrap_or(index.heads[bucket as usize]);
            let prior = match (head, index.cache.get(record.hash, bucket)) {
                (NONE, _) => NONE,
                (_, Some(cached)) => cached,
                (_, None) => UNKNOWN,
            };
            // Where the key's last version is the head, the new one takes its place in the chain.
            let next = index.hot.next_of(record, head);
            let next = next.and_then(|next| match location::is_pending(head) {
                true => inner.pending.get(head).map(|last| last.next()),
                false => Some(next),
            });
            match next {
                Some(next) => record.link(next, head),
                None => record.link(head, prior),
            }
        }
    }

    fn publish(&self, records: &[(Location, Arc<Record>)], number: u64) {
        let mut index = self.index();
        for (at, record) in records {
            let bucket = self.bucket(record.hash);
            index.begin(bucket, self.stamp(number));
            index.heads[bucket as usize] = *at;
            index.cache.put(record.hash, bucket, *at);
            index.hot.put(record, *at);
        }
    }

    fn placed(&self, records: &[Arc<Record>], placed: &Placed) {
        let mut index = self.index();
        for (slot, record) in records.iter().enumerate() {
            if matches!(record.content, Content::EmptyBucket(_)) {
                continue;
            }
            let bucket = self.bucket(record.hash);
            let from = location::pending(placed.first + slot as u64);
            let to = placed.base + slot as u32;
            if index.heads[bucket as usize] == from {
                index.heads[bucket as usize] = to;
            }
            index.cache.moved(record.hash, bucket, Some(from), to);
            index.hot.placed(record, from, to);
        }
    }

    fn find(
        &self,
        inner: &Inner,
        key: &[u8],
        at: u64,
        purpose: Purpose,
    ) -> Result<(Option<Record>, bool)> {
        let hash = keys::hash(key);
        let pages = Pages::new(&inner.device, purpose);
        let bucket = self.bucket(hash);
        let mut search = Search { key, hash, bucket, at, pages, next: NONE };
        let _pin = inner.pins.enter();
        loop {
            let Some((found, met_younger)) = self.look(inner, &mut search)? else { continue };
            if self.tidy > 0 && search.pages.read > self.tidy {
                self.long.store(u64::from(bucket) + 1, Relaxed);
            }
            let Some(found) = found else { return Ok((None, met_younger)) };
            let mut record = Arc::try_unwrap(found).unwrap_or_else(|shared| own(&shared));
            search.pages.load(&mut record, true)?;
            return Ok((Some(record), met_younger));
        }
    }

    fn collect(&self, inner: &Inner, writer: &mut Writer, page: &Page) -> Result<()> {
        self.collect_page(inner, writer, page)
    }

    fn is_untidy(&self) -> bool {
        self.long.load(Relaxed) > 0
    }

    fn tidy(&self, inner: &Inner, writer: &mut Writer) -> Result<()> {
        match self.long.swap(0, Relaxed) {
            0 => Ok(()),
            bucket => self.collect_bucket(inner, writer, (bucket - 1) as u32),
        }
    }

    fn check_lost(&self, inner: &Inner, page: u32) -> Result<()> {
        for bucket in 0..self.buckets {
            let versions = self.versions(inner, bucket, inner.watermark())?;
            let in_page = |at: u32| location::is_placed(at) && inner.device.slots.page(at) == page;
            for version in &versions.met {
                let pages = version.record.payload.iter().flat_map(|payload| &payload.pages);
                if in_page(version.at) || pages.into_iter().any(|it| *it == page) {
                    return Err(inner
                        .device
                        .corrupt(page, "a page with live versions can't be read"));
                }
            }
        }
        Ok(())
    }

    fn replay(&self, records: Vec<(Location, Record)>, number: u64) {
        let mut index = self.index();
        // What collection has remapped was pending for a while; it knows itself since when.
        let since = records.first().map_or(0, |(_, first)| first.since);
        for (at, record) in records {
            let (bucket, head) = match record.content {
                Content::EmptyBucket(bucket) if bucket < self.buckets => (bucket, NONE),
                Content::EmptyBucket(_) => continue,
                _ => (self.bucket(record.hash), at),
            };
            index.begin(bucket, self.stamp(number));
            index.reach_back(bucket, self.stamp(number));
            index.heads[bucket as usize] = head;
            if record.is_marked(crate::record::REMAPPED) {
                index.stamps[bucket as usize] = self.stamp(since);
            }
        }
    }

    fn encode(&self) -> Vec<u8> {
        let index = self.index();
        let mut bytes = Vec::with_capacity(index.heads.len() * 5);
        index.heads.iter().for_each(|head| bytes.extend_from_slice(&head.to_le_bytes()));
        bytes.extend_from_slice(&index.stamps);
        bytes
    }

    fn checkpoint_bytes(&self) -> u64 {
        u64::from(self.buckets) * 5
    }

    fn decode(&self, bytes: &[u8]) -> Result<(), &'static str> {
        let mut index = self.index();
        let count = self.buckets as usize;
        if bytes.len() != 5 * count {
            return Err("it does not have a head for each bucket");
        }
        let (heads, stamps) = bytes.split_at(4 * count);
        for (head, bytes) in index.heads.iter_mut().zip(heads.chunks_exact(4)) {
            *head = u32_at(bytes, 0);
        }
        index.stamps.copy_from_slice(stamps);
        Ok(())
    }

    fn steps(&self) -> u64 {
        u64::from(self.buckets)
    }

    fn step(&self, inner: &Inner, step: u64, at: u64) -> Result<Vec<Record>> {
        let _pin = inner.pins.enter();
        self.seen(inner, step as u32, at)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let index = self.index();
        vec![
            ("bucket heads", index.heads.capacity() as u64 * 4),
            ("collection stamps", index.stamps.capacity() as u64),
            ("translation cache", index.cache.memory_bytes()),
            ("hot keys", index.hot.memory_bytes()),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        vec![
            ("translation_cache_hits", get(&self.hits)),
            ("translation_cache_misses", get(&self.misses)),
            ("buckets_collected", get(&self.collected)),
            ("versions_discarded", get(&self.dropped)),
        ]
    }
}

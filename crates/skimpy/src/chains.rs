//! The mapping of SkimpyFTL: heads of buckets in memory, chains on flash, a translation cache.
//!
//! ```text
//!   heads    bucket ─▶ newest record of the bucket       4 bytes, and 1 for when it was collected
//!   chain    record ─next─▶ record ─next─▶ …             on flash: the newest first, see `walk`
//!   versions record ─prior─▶ the version of the key before it, or unknown: further down the chain
//!   cache    key ─▶ its newest version; fronts           see `cache`
//! ```
//!
//! A put goes to the front of its chain; its prior version is the cache's, else unknown. Where the cache knows
//! what was put since a while, the chain leads past what that hides. Collecting a bucket (`collect`) writes what is wanted of it anew, the oldest first, all pointers known; of older
//! versions the chain then has none: they are found from the newest of their key.
//!
//! Invariant: a version that may be asked for is in the chain, or a newer one of its key leads to it by
//! prior pointers alone. Links lead within the bucket.
//!
//! Source: SkimpyFTL, sections 3.1 to 3.3.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{Purpose, Result};
use siltstone_structures::hash::hash64_seeded;

use crate::cache::{Cache, Front, Id};
use crate::engine::Inner;
use crate::keys;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::{Mapping, Swept};
use crate::page::u32_at;
use crate::pages::Pages;
use crate::pending::{self, Pending, Placed};
use crate::record::{self, Content, Detour, MOST_DETOURS, Record};
use crate::space::LogBlock;

mod collect;
mod crowds;
mod near;
mod sweep;
mod walk;

use crowds::Crowds;
use sweep::Sweep;
use walk::{Walk, Way};

/// What finding a key on a crowded channel counts as, in pages read beyond the first: about what stands in line
/// there.
const CROWDED: u64 = 4;

/// The mapping.
pub(crate) struct Chains {
    buckets: u32,
    index: Mutex<Index>,
    /// Asked for under the writer's lock alone.
    sweep: Mutex<Sweep>,
    /// Pages of the log for one step of the stamps.
    granule: u64,
    /// A bucket that is to be collected for its readers' sake, and 1.
    long: AtomicU64,
    /// Pages that lookups have read beyond the first, and what counts as such, and nothing was collected for yet.
    owed: AtomicU64,
    tidy: u64,
    together: usize,
    crowds: Crowds,
    /// Under which keys have fingerprints, so that nobody can make two that share one.
    secret: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    collected: AtomicU64,
    copied: AtomicU64,
    dropped: AtomicU64,
    /// Pages that lookups have read beyond their first.
    chased: AtomicU64,
    /// Lookups that found their key on a crowded channel.
    crowded: AtomicU64,
    /// Buckets that were collected for readers' sake, and the pages read for it.
    tidied: AtomicU64,
    tidied_pages: AtomicU64,
}

struct Index {
    heads: Vec<Location>,
    /// When each bucket was collected last, in granules of the log, modulo 256.
    stamps: Vec<u8>,
    /// Buckets that are not empty, by their stamp.
    of_stamp: Vec<u32>,
    /// Where the sweep goes on.
    sweep: u32,
    cache: Cache,
}

impl Index {
    /// Sets a bucket's head and when it was collected.
    fn set(&mut self, bucket: u32, head: Location, stamp: u8) {
        let bucket = bucket as usize;
        if self.heads[bucket] != NONE {
            self.of_stamp[usize::from(self.stamps[bucket])] -= 1;
        }
        (self.heads[bucket], self.stamps[bucket]) = (head, stamp);
        if head != NONE {
            self.of_stamp[usize::from(stamp)] += 1;
        }
    }

    /// The bucket has a new head, and pages from this stamp on. One that was empty begins there: an older
    /// stamp would come round to seem newer.
    fn put(&mut self, bucket: u32, head: Location, stamp: u8) {
        let stamp = match self.heads[bucket as usize] {
            NONE => stamp,
            _ => self.stamps[bucket as usize],
        };
        self.set(bucket, head, stamp);
    }

    /// The same in replay. What was pending lies in the log behind payloads that were written after it, and
    /// replay meets it first: then the bucket has pages of before what it seems to have.
    fn replay(&mut self, bucket: u32, head: Location, stamp: u8) {
        self.put(bucket, head, stamp);
        if is_behind(stamp, self.stamps[bucket as usize]) {
            self.set(bucket, head, stamp);
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
    pub(crate) fn new(
        buckets: u32,
        cache_keys: u64,
        log_pages: u64,
        tidy: u64,
        lanes: u32,
    ) -> Self {
        let index = Index {
            heads: vec![NONE; buckets as usize],
            stamps: vec![0; buckets as usize],
            of_stamp: vec![0; 256],
            sweep: 0,
            cache: Cache::new(cache_keys, buckets),
        };
        Chains {
            buckets,
            index: Mutex::new(index),
            sweep: Mutex::default(),
            // A window of 128 granules covers all pages that the device can have.
            granule: log_pages.div_ceil(100).max(1),
            long: AtomicU64::new(0),
            owed: AtomicU64::new(0),
            tidy,
            together: pending::together(log_pages),
            crowds: Crowds::new(lanes),
            secret: RandomState::new().hash_one(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            collected: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            chased: AtomicU64::new(0),
            crowded: AtomicU64::new(0),
            tidied: AtomicU64::new(0),
            tidied_pages: AtomicU64::new(0),
        }
    }

    fn bucket(&self, hash: u64) -> u32 {
        keys::bucket(hash, self.buckets)
    }

    fn stamp(&self, number: u64) -> u8 {
        (number / self.granule) as u8
    }

    fn id(&self, hash: u64, key: &[u8]) -> Id {
        Id { bucket: self.bucket(hash), hash, more: hash64_seeded(key, self.secret) as u32 }
    }

    fn id_of(&self, record: &Record) -> Id {
        self.id(record.hash, &record.key)
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

    /// Charges a bucket with pages that a lookup has read beyond the first, or as if it had. When buckets owe
    /// together what collecting one costs, the one that was charged last is to be collected: as likely each as it
    /// was charged.
    fn charge(&self, bucket: u32, pages: u64) {
        if self.tidy == 0 || pages == 0 {
            return;
        }
        let owed = self.owed.fetch_add(pages, Relaxed) + pages;
        // If somebody else charges meanwhile it is due the next time.
        let paid = |owed| self.owed.compare_exchange(owed, owed - self.tidy, Relaxed, Relaxed);
        if owed >= self.tidy && paid(owed).is_ok() {
            self.long.store(u64::from(bucket) + 1, Relaxed);
        }
    }

    /// Looks for the key once; `None` if the chain moved underfoot.
    fn look(&self, inner: &Inner, search: &mut Search<'_, '_>) -> Result<Option<Found>> {
        let Search { key, hash, id, at, .. } = *search;
        let (head, cached, base) = {
            let mut index = self.index();
            let head = index.heads[id.bucket as usize];
            (head, index.cache.get(id), index.cache.base(id.bucket, head))
        };
        let mut met_younger = false;
        let mut newest = None;
        // A key that is not in the cache is not in the front.
        let from = if cached.is_some() { head } else { base.unwrap_or(head) };
        let mut walk = Walk::from(from, Some(record::tag(hash)));
        let (mut place, mut way) = match cached {
            Some(place) => (place, Way::Cached),
            None => walk.step(),
        };
        let found = loop {
            if place == NONE {
                break None;
            }
            let Met::Record(record) = self.meet(inner, &mut search.pages, place, id.bucket)? else {
                return Ok(None);
            };
            if way == Way::Chain {
                walk.follow(&record);
            }
            let Some(record) = search.matches(record, hash, key)? else {
                // Another's record: where a hint misled, the way on is the chain's.
                (place, way) = walk.step();
                continue;
            };
            newest.get_or_insert((place, way));
            if record.timestamp <= at {
                break Some(record);
            }
            met_younger = true;
            walk.follow(&record);
            (place, way) = match record.prior() {
                NONE => (NONE, Way::Chain),
                UNKNOWN => walk.step(),
                prior => (prior, Way::Prior),
            };
        };
        search.newest = newest.map(|(place, _)| place);
        match newest {
            Some((_, Way::Cached)) => self.hits.fetch_add(1, Relaxed),
            _ => self.misses.fetch_add(1, Relaxed),
        };
        if let Some((place, Way::Chain | Way::Detour)) = newest
            && location::is_placed(place)
        {
            let mut index = self.index();
            // Unless a newer version may have come since.
            if index.heads[id.bucket as usize] == head {
                index.cache.put(id, place);
            }
        }
        Ok(Some((found, met_younger)))
    }
}

/// The record and whether a younger one was met.
type Found = (Option<Arc<Record>>, bool);

/// One key, asked for at one moment.
struct Search<'i, 'k> {
    key: &'k [u8],
    hash: u64,
    id: Id,
    at: u64,
    /// Where the newest version was found.
    newest: Option<Location>,
    pages: Pages<'i>,
}

impl Search<'_, '_> {
    /// The record if it is the key's.
    fn matches(
        &mut self,
        record: Arc<Record>,
        hash: u64,
        key: &[u8],
    ) -> Result<Option<Arc<Record>>> {
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
        detours: record.detours.iter().map(|it| Detour::new(it.tag, it.at())).collect(),
        ..Record::new(record.timestamp, record.hash, record.key.clone(), record.content.clone())
    };
    copy.link(record.next(), record.prior());
    copy
}

impl Mapping for Chains {
    fn link(&self, records: &mut [(Location, Record)], most_bytes: usize) {
        let mut index = self.index();
        let mut fresh: HashMap<u32, Location> = HashMap::new();
        for (at, record) in records {
            let id = self.id_of(record);
            let before = fresh.insert(id.bucket, *at);
            let head = before.unwrap_or(index.heads[id.bucket as usize]);
            let prior = match (head, index.cache.get(id)) {
                (NONE, _) => NONE,
                (_, Some(cached)) => cached,
                (_, None) => UNKNOWN,
            };
            let front = match before {
                None => index.cache.front(id, head),
                Some(_) => None,
            };
            let room = most_bytes - record.encoded_bytes();
            let fits = |front: &Front| {
                let count = front.members.len();
                count <= MOST_DETOURS && record::detours_bytes(count) <= room
            };
            match front.filter(fits) {
                Some(Front { members, base }) => {
                    record.link(base, prior);
                    let detour = |(at, tag)| Detour::new(tag, at);
                    record.detours = members.into_iter().map(detour).collect();
                }
                None => record.link(head, prior),
            }
        }
    }

    fn together(&self) -> usize {
        self.together
    }

    fn settle(&self, pending: &Pending, number: u64) -> bool {
        let (index, newest) = (self.index(), self.stamp(number));
        pending.settle(|record| {
            let bucket = self.bucket(record.hash);
            // The sweep goes from the oldest stamp to the newest, and among those of one by their numbers.
            (index.stamps[bucket as usize].wrapping_sub(newest).wrapping_sub(1), bucket)
        })
    }

    fn publish(&self, records: &[(Location, Arc<Record>)], number: u64) {
        let mut index = self.index();
        for (at, record) in records {
            let id = self.id_of(record);
            index.put(id.bucket, *at, self.stamp(number));
            index.cache.publish(id, *at, record.next(), !record.detours.is_empty());
        }
    }

    fn placed(&self, records: &[Arc<Record>], placed: &Placed) {
        let mut index = self.index();
        for (slot, record) in records.iter().enumerate() {
            if matches!(record.content, Content::EmptyBucket(_)) {
                continue;
            }
            let bucket = self.bucket(record.hash);
            let from = placed.from[slot];
            let to = placed.base + slot as u32;
            if index.heads[bucket as usize] == from {
                index.heads[bucket as usize] = to;
            }
            index.cache.placed(bucket, from, to);
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
        let mut search = Search { key, hash, id: self.id(hash, key), at, newest: None, pages };
        let _pin = inner.pins.enter();
        loop {
            let Some((found, met_younger)) = self.look(inner, &mut search)? else { continue };
            let further = search.pages.read.saturating_sub(1);
            self.chased.fetch_add(further, Relaxed);
            let block = |at| inner.device.geometry.block_of(inner.device.slots.page(at));
            let at = search.newest.filter(|at| location::is_placed(*at));
            let is_crowded = at.is_some_and(|at| self.crowds.note(block(at), bucket));
            self.crowded.fetch_add(u64::from(is_crowded), Relaxed);
            self.charge(bucket, further + if is_crowded { CROWDED } else { 0 });
            let Some(found) = found else { return Ok((None, met_younger)) };
            let mut record = Arc::try_unwrap(found).unwrap_or_else(|shared| own(&shared));
            search.pages.load(&mut record, true)?;
            return Ok((Some(record), met_younger));
        }
    }

    fn sweep(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        tail: LogBlock,
        slack: i64,
    ) -> Result<Swept> {
        self.sweep_some(inner, writer, tail, slack)
    }

    fn pace(&self, free: f64, wanted: f64) -> f64 {
        // Later the first sweep would have to remap everything at once.
        if free > wanted.max(0.5) { 0.0 } else { 1.0 }
    }

    fn most_steps(&self, pages: u64) -> u64 {
        pages
    }

    fn is_untidy(&self) -> bool {
        self.long.load(Relaxed) > 0
    }

    fn tidy(&self, inner: &Inner, writer: &mut Writer) -> Result<()> {
        match self.long.swap(0, Relaxed) {
            0 => Ok(()),
            bucket => {
                let bucket = (bucket - 1) as u32;
                self.sweep.lock().forget(bucket);
                let mut pages = Pages::new(&inner.device, Purpose::Compaction);
                let collected = self.collect_bucket(inner, writer, &mut pages, bucket);
                self.tidied.fetch_add(1, Relaxed);
                self.tidied_pages.fetch_add(pages.read, Relaxed);
                collected
            }
        }
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
            match record.is_marked(record::REMAPPED) {
                true => index.set(bucket, head, self.stamp(since)),
                false => index.replay(bucket, head, self.stamp(number)),
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
        for (bucket, (head, stamp)) in (0..).zip(heads.chunks_exact(4).zip(stamps)) {
            index.set(bucket, u32_at(head, 0), *stamp);
        }
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
        let sweep = self.sweep.lock().memory_bytes();
        let index = self.index();
        vec![
            ("pages of collection", sweep),
            ("bucket heads", index.heads.capacity() as u64 * 4),
            ("collection stamps", (index.stamps.capacity() + 4 * index.of_stamp.len()) as u64),
            ("translation cache", index.cache.memory_bytes()),
        ]
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        let get = |counter: &AtomicU64| counter.load(Relaxed);
        vec![
            ("translation_cache_hits", get(&self.hits)),
            ("translation_cache_misses", get(&self.misses)),
            ("buckets_collected", get(&self.collected)),
            ("buckets_collected_for_readers", get(&self.tidied)),
            ("pages_read_for_readers", get(&self.tidied_pages)),
            ("pages_read_beyond_first", get(&self.chased)),
            ("lookups_on_crowded_channels", get(&self.crowded)),
            ("versions_remapped", get(&self.copied)),
            ("versions_discarded", get(&self.dropped)),
        ]
    }
}

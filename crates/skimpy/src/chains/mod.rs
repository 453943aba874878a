//! The mapping of SkimpyFTL: heads of buckets in memory, chains on flash, and a translation cache.
//!
//! ```text
//!   heads    bucket ─▶ newest record of the bucket       4 bytes, and 1 for its stamp
//!   chain    record ─next─▶ record ─next─▶ …             on flash, newest first: `chain_iter`
//!   versions record ─prior─▶ the previous version of the key, or unknown: further down the chain
//!   cache    key ─▶ its newest version; chain heads      see `cache`
//! ```
//!
//! A put is linked to the head of its chain. Its prior version is the cached one, else unknown.
//! Where the cache has the chain head, the put links past the records that it hides. Collecting a
//! bucket (`collect`) rewrites its live versions, the oldest first, with all pointers known. The
//! new chain has the newest version of each key only; older ones are reached through prior
//! pointers.
//!
//! Invariant: a readable version is in the chain, or a newer version of its key leads to it by
//! prior pointers alone. Links stay within the bucket.
//!
//! Source: SkimpyFTL, sections 3.1 to 3.3.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{Purpose, Result};
use siltstone_structures::hash::hash64_seeded;

use crate::cache::{Cache, ChainHead, Id};
use crate::engine::Inner;
use crate::keys;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::{Mapping, SweepResult};
use crate::page::u32_at;
use crate::page_reader::PageReader;
use crate::record::{self, Content, MAX_SKIP_LINKS, Record, SkipLink};
use crate::space::LogBlock;
use crate::write_buffer::{self, Placement, WriteBuffer};

mod chain_iter;
mod collect;
mod hot_channels;
mod opportunistic;
mod sweep;

use chain_iter::{ChainIter, LinkKind};
use hot_channels::HotChannels;
use sweep::Sweep;

/// The charge for finding a key on a hot channel, in page reads: about the length of the queue
/// there.
const HOT_CHANNEL_CHARGE: u64 = 4;

/// SkimpyFTL's mapping.
pub(crate) struct Chains {
    buckets: u32,
    index: Mutex<Index>,
    /// Used under the writer lock only.
    sweep: Mutex<Sweep>,
    /// Pages of the log per step of the stamps.
    granule: u64,
    /// The bucket that is due for read compaction, plus 1; 0 if none is.
    due_bucket: AtomicU64,
    /// Extra page reads of lookups that have not triggered a collection yet, charges included.
    charged_pages: AtomicU64,
    read_compaction_after: u64,
    accumulated_pages: usize,
    hot_channels: HotChannels,
    /// Seeds the fingerprints of keys, so that nobody can construct two with the same one.
    secret: u64,
    hits: AtomicU64,
    misses: AtomicU64,
    collected: AtomicU64,
    copied: AtomicU64,
    dropped: AtomicU64,
    /// Page reads of lookups beyond their first.
    extra_pages: AtomicU64,
    /// Lookups that found their key on a hot channel.
    hot_lookups: AtomicU64,
    /// Buckets collected by read compaction, and the pages read for it.
    read_compactions: AtomicU64,
    read_compaction_pages: AtomicU64,
}

struct Index {
    heads: Vec<Location>,
    /// When each bucket was last collected, in granules of the log, modulo 256.
    stamps: Vec<u8>,
    /// The number of non-empty buckets by stamp.
    of_stamp: Vec<u32>,
    /// The bucket at which the sweep continues.
    sweep: u32,
    cache: Cache,
}

impl Index {
    /// Sets the head and the stamp of a bucket.
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

    /// Sets a new head. An empty bucket gets this stamp, because its old one could wrap around and
    /// seem newer.
    fn put(&mut self, bucket: u32, head: Location, stamp: u8) {
        let stamp = match self.heads[bucket as usize] {
            NONE => stamp,
            _ => self.stamps[bucket as usize],
        };
        self.set(bucket, head, stamp);
    }

    /// As [`put`](Self::put), in replay. Pending records lie in the log behind payload pages that
    /// were written after them, so replay may see a later stamp first; the bucket then gets the
    /// earlier one.
    fn replay(&mut self, bucket: u32, head: Location, stamp: u8) {
        self.put(bucket, head, stamp);
        if is_behind(stamp, self.stamps[bucket as usize]) {
            self.set(bucket, head, stamp);
        }
    }
}

/// Whether a stamp is before another one, modulo 256.
fn is_behind(stamp: u8, other: u8) -> bool {
    (1..128).contains(&other.wrapping_sub(stamp))
}

/// A record of a chain.
enum Fetched {
    Record(Arc<Record>),
    /// The record has moved since its location was read.
    Moved,
}

impl Chains {
    /// An empty mapping for a device whose log has up to `log_pages` pages.
    pub(crate) fn new(
        buckets: u32,
        cache_keys: u64,
        log_pages: u64,
        read_compaction_after: u64,
        channels: u32,
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
            // Half of the 256 stamps cover all pages of the device.
            granule: log_pages.div_ceil(100).max(1),
            due_bucket: AtomicU64::new(0),
            charged_pages: AtomicU64::new(0),
            read_compaction_after,
            accumulated_pages: write_buffer::accumulated_pages(log_pages),
            hot_channels: HotChannels::new(channels),
            secret: RandomState::new().hash_one(0),
            hits: AtomicU64::new(0),
            misses: AtomicU64::new(0),
            collected: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
            extra_pages: AtomicU64::new(0),
            hot_lookups: AtomicU64::new(0),
            read_compactions: AtomicU64::new(0),
            read_compaction_pages: AtomicU64::new(0),
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

    /// The record at a location of a bucket.
    fn fetch(
        &self,
        inner: &Inner,
        pages: &mut PageReader<'_>,
        at: Location,
        bucket: u32,
    ) -> Result<Fetched> {
        if location::is_pending(at) {
            let pending = inner.buffer.get(at);
            // The number may have been reused for a record of another bucket.
            let of_bucket = pending.filter(|record| self.bucket(record.hash) == bucket);
            return Ok(of_bucket.map_or(Fetched::Moved, Fetched::Record));
        }
        let record = pages.record(at)?;
        if matches!(record.content, Content::EmptyBucket(_)) || self.bucket(record.hash) != bucket {
            let page = inner.device.slots.page(at);
            return Err(inner.device.corrupt(page, "a chain links to a record of another bucket"));
        }
        Ok(Fetched::Record(Arc::new(record)))
    }

    /// Charges a bucket with extra page reads of a lookup. When the charges of all buckets reach
    /// the cost of a collection, the bucket charged last is due: so the probability is in
    /// proportion to the charge.
    fn charge_lookup(&self, bucket: u32, pages: u64) {
        if self.read_compaction_after == 0 || pages == 0 {
            return;
        }
        let charged = self.charged_pages.fetch_add(pages, Relaxed) + pages;
        // Lost against a concurrent charge: due with the next one.
        let settle = |charged| {
            self.charged_pages.compare_exchange(
                charged,
                charged - self.read_compaction_after,
                Relaxed,
                Relaxed,
            )
        };
        if charged >= self.read_compaction_after && settle(charged).is_ok() {
            self.due_bucket.store(u64::from(bucket) + 1, Relaxed);
        }
    }

    /// Searches once; `None` if the chain moved during the search.
    fn try_find(&self, inner: &Inner, search: &mut Search<'_, '_>) -> Result<Option<Found>> {
        let Search { key, hash, id, at, .. } = *search;
        let (head, cached, base) = {
            let mut index = self.index();
            let head = index.heads[id.bucket as usize];
            (head, index.cache.get(id), index.cache.base(id.bucket, head))
        };
        let mut saw_younger = false;
        let mut newest = None;
        // A key that is not cached is not in the cached chain head.
        let from = if cached.is_some() { head } else { base.unwrap_or(head) };
        let mut iter = ChainIter::from(from, Some(record::tag(hash)));
        let (mut place, mut link) = match cached {
            Some(place) => (place, LinkKind::Cached),
            None => iter.next_link(),
        };
        let found = loop {
            if place == NONE {
                break None;
            }
            let Fetched::Record(record) = self.fetch(inner, &mut search.pages, place, id.bucket)?
            else {
                return Ok(None);
            };
            if link == LinkKind::Chain {
                iter.follow(&record);
            }
            let Some(record) = search.matches(record, hash, key)? else {
                // Another key's record, by a false match of a tag: continue along the chain.
                (place, link) = iter.next_link();
                continue;
            };
            newest.get_or_insert((place, link));
            if record.timestamp <= at {
                break Some(record);
            }
            saw_younger = true;
            iter.follow(&record);
            (place, link) = match record.prior() {
                NONE => (NONE, LinkKind::Chain),
                UNKNOWN => iter.next_link(),
                prior => (prior, LinkKind::Prior),
            };
        };
        search.newest = newest.map(|(place, _)| place);
        match newest {
            Some((_, LinkKind::Cached)) => self.hits.fetch_add(1, Relaxed),
            _ => self.misses.fetch_add(1, Relaxed),
        };
        if let Some((place, LinkKind::Chain | LinkKind::Skip)) = newest
            && location::is_programmed(place)
        {
            let mut index = self.index();
            // Only if no newer version can have been published since.
            if index.heads[id.bucket as usize] == head {
                index.cache.put(id, place);
            }
        }
        Ok(Some((found, saw_younger)))
    }
}

/// The record, and whether a younger version was seen.
type Found = (Option<Arc<Record>>, bool);

/// A lookup of one key at one timestamp.
struct Search<'i, 'k> {
    key: &'k [u8],
    hash: u64,
    id: Id,
    at: u64,
    /// The location of the newest version.
    newest: Option<Location>,
    pages: PageReader<'i>,
}

impl Search<'_, '_> {
    /// The record if it is of the key.
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
                // Just decoded from its page, so it is not shared.
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

/// A copy of a record that may be shared.
pub(crate) fn copy_of(record: &Record) -> Record {
    let copy = Record {
        expires_at: record.expires_at,
        payload: record.payload.clone(),
        marks: record.marks,
        skip_links: record.skip_links.iter().map(|it| SkipLink::new(it.tag, it.at())).collect(),
        ..Record::new(record.timestamp, record.hash, record.key.clone(), record.content.clone())
    };
    copy.link(record.next(), record.prior());
    copy
}

impl Mapping for Chains {
    fn link(&self, records: &mut [(Location, Record)], max_bytes: usize) {
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
            let chain_head = match before {
                None => index.cache.chain_head(id, head),
                Some(_) => None,
            };
            let room = max_bytes - record.encoded_bytes();
            let fits = |chain_head: &ChainHead| {
                let count = chain_head.members.len();
                count <= MAX_SKIP_LINKS && record::skip_links_bytes(count) <= room
            };
            match chain_head.filter(fits) {
                Some(ChainHead { members, base }) => {
                    record.link(base, prior);
                    let skip_link = |(at, tag)| SkipLink::new(tag, at);
                    record.skip_links = members.into_iter().map(skip_link).collect();
                }
                None => record.link(head, prior),
            }
        }
    }

    fn accumulated_pages(&self) -> usize {
        self.accumulated_pages
    }

    fn pack_accumulated(&self, buffer: &WriteBuffer, number: u64) -> bool {
        let (index, newest) = (self.index(), self.stamp(number));
        buffer.pack_accumulated(|record| {
            let bucket = self.bucket(record.hash);
            // The order of the sweep: by stamp from the oldest to the newest, then by bucket.
            (index.stamps[bucket as usize].wrapping_sub(newest).wrapping_sub(1), bucket)
        })
    }

    fn publish(&self, records: &[(Location, Arc<Record>)], number: u64) {
        let mut index = self.index();
        for (at, record) in records {
            let id = self.id_of(record);
            index.put(id.bucket, *at, self.stamp(number));
            index.cache.publish(id, *at, record.next(), !record.skip_links.is_empty());
        }
    }

    fn on_programmed(&self, records: &[Arc<Record>], placement: &Placement) {
        let mut index = self.index();
        for (slot, record) in records.iter().enumerate() {
            if matches!(record.content, Content::EmptyBucket(_)) {
                continue;
            }
            let bucket = self.bucket(record.hash);
            let from = placement.from[slot];
            let to = placement.base + slot as u32;
            if index.heads[bucket as usize] == from {
                index.heads[bucket as usize] = to;
            }
            index.cache.update_pending(bucket, from, to);
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
        let pages = PageReader::new(&inner.device, purpose);
        let bucket = self.bucket(hash);
        let mut search = Search { key, hash, id: self.id(hash, key), at, newest: None, pages };
        let _pin = inner.pins.enter();
        loop {
            let Some((found, saw_younger)) = self.try_find(inner, &mut search)? else { continue };
            let further = search.pages.read.saturating_sub(1);
            self.extra_pages.fetch_add(further, Relaxed);
            let block = |at| inner.device.geometry.block_of(inner.device.slots.page(at));
            let at = search.newest.filter(|at| location::is_programmed(*at));
            let is_hot = at.is_some_and(|at| self.hot_channels.record_lookup(block(at), bucket));
            self.hot_lookups.fetch_add(u64::from(is_hot), Relaxed);
            self.charge_lookup(bucket, further + if is_hot { HOT_CHANNEL_CHARGE } else { 0 });
            let Some(found) = found else { return Ok((None, saw_younger)) };
            let mut record = Arc::try_unwrap(found).unwrap_or_else(|shared| copy_of(&shared));
            search.pages.load(&mut record, true)?;
            return Ok((Some(record), saw_younger));
        }
    }

    fn sweep(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        tail: LogBlock,
        slack: i64,
    ) -> Result<SweepResult> {
        self.sweep_step(inner, writer, tail, slack)
    }

    fn pace(&self, free: f64, wanted: f64) -> f64 {
        // A later start would leave the first sweep too little time.
        if free > wanted.max(0.5) { 0.0 } else { 1.0 }
    }

    fn max_steps_of(&self, pages: u64) -> u64 {
        pages
    }

    fn needs_read_compaction(&self) -> bool {
        self.due_bucket.load(Relaxed) > 0
    }

    fn read_compaction(&self, inner: &Inner, writer: &mut Writer) -> Result<()> {
        match self.due_bucket.swap(0, Relaxed) {
            0 => Ok(()),
            bucket => {
                let bucket = (bucket - 1) as u32;
                self.sweep.lock().forget(bucket);
                let mut pages = PageReader::new(&inner.device, Purpose::Compaction);
                let collected = self.collect_bucket(inner, writer, &mut pages, bucket);
                self.read_compactions.fetch_add(1, Relaxed);
                self.read_compaction_pages.fetch_add(pages.read, Relaxed);
                collected
            }
        }
    }

    fn replay(&self, records: Vec<(Location, Record)>, number: u64) {
        let mut index = self.index();
        // Relocated records were pending for a while; the first of them states since when.
        let since = records.first().map_or(0, |(_, first)| first.since);
        for (at, record) in records {
            let (bucket, head) = match record.content {
                Content::EmptyBucket(bucket) if bucket < self.buckets => (bucket, NONE),
                Content::EmptyBucket(_) => continue,
                _ => (self.bucket(record.hash), at),
            };
            match record.is_marked(record::RELOCATED) {
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
        self.visible(inner, step as u32, at)
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
            ("buckets_collected_for_readers", get(&self.read_compactions)),
            ("pages_read_for_readers", get(&self.read_compaction_pages)),
            ("pages_read_beyond_first", get(&self.extra_pages)),
            ("lookups_on_crowded_channels", get(&self.hot_lookups)),
            ("versions_remapped", get(&self.copied)),
            ("versions_discarded", get(&self.dropped)),
        ]
    }
}

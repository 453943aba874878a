//! The state of the SkimpyFTL mapping in memory, and lookups along a chain.
//!
//! ```text
//!   bucket ─▶ head ─▶ record ─▶ record ─▶ …      newest first, on the device or buffered
//!                       └─ prior ─▶ older version of the same key
//!   cache     key ─▶ location of its newest version, which skips the chain before it
//! ```
//!
//! A lookup holds no lock while it reads pages. It starts again if a buffered record of the chain
//! has moved meanwhile.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{Error, Result};
use siltstone_structures::hash::hash64_seeded;

use super::chain_iter::{ChainIter, LinkKind};
use super::hot_channels::HotChannels;
use super::runs::Sweep;
use crate::keys;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::page_reader::PageReader;
use crate::record::{self, Content, Record};
use crate::shared::Shared;
use crate::translation_cache::{KeyId, TranslationCache};
use crate::write_buffer;

/// SkimpyFTL's mapping.
pub(crate) struct Chains {
    pub(super) buckets: u32,
    pub(super) index: Mutex<Index>,
    /// Used under the writer lock only.
    pub(super) sweep: Mutex<Sweep>,
    /// Pages of the log per step of the stamps.
    pub(super) granule: u64,
    /// The bucket that is due for read compaction, plus 1; 0 if none is.
    pub(super) due_bucket: AtomicU64,
    /// Extra page reads of lookups that have not triggered a collection yet, charges included.
    pub(super) charged_pages: AtomicU64,
    pub(super) read_compaction_after: u64,
    pub(super) accumulated_pages: usize,
    pub(super) hot_channels: HotChannels,
    /// Seeds the fingerprints of keys, so that nobody can construct two with the same one.
    pub(super) secret: u64,
    pub(super) hits: AtomicU64,
    pub(super) misses: AtomicU64,
    pub(super) collected: AtomicU64,
    pub(super) copied: AtomicU64,
    pub(super) dropped: AtomicU64,
    /// Page reads of lookups beyond their first.
    pub(super) extra_pages: AtomicU64,
    /// Lookups that found their key on a hot channel.
    pub(super) hot_lookups: AtomicU64,
    /// Buckets collected by read compaction, and the pages read for it.
    pub(super) read_compactions: AtomicU64,
    pub(super) read_compaction_pages: AtomicU64,
}

/// The heads of all buckets, and the cache of keys.
pub(super) struct Index {
    pub(super) heads: Vec<Location>,
    /// When each bucket was last collected, in granules of the log, modulo 256.
    pub(super) stamps: Vec<u8>,
    /// The number of non-empty buckets by stamp.
    pub(super) of_stamp: Vec<u32>,
    /// The bucket at which the sweep continues.
    pub(super) sweep: u32,
    pub(super) cache: TranslationCache,
}

impl Index {
    /// Sets the head and the stamp of a bucket.
    pub(super) fn set(&mut self, bucket: u32, head: Location, stamp: u8) {
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
    pub(super) fn put(&mut self, bucket: u32, head: Location, stamp: u8) {
        let stamp = match self.heads[bucket as usize] {
            NONE => stamp,
            _ => self.stamps[bucket as usize],
        };
        self.set(bucket, head, stamp);
    }

    /// As [`put`](Self::put), in replay. Pending records lie in the log behind payload pages that
    /// were written after them, so replay may see a later stamp first; the bucket then gets the
    /// earlier one.
    pub(super) fn replay(&mut self, bucket: u32, head: Location, stamp: u8) {
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
pub(super) enum FetchOutcome {
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
            cache: TranslationCache::new(cache_keys, buckets),
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

    pub(super) fn bucket(&self, hash: u64) -> u32 {
        keys::bucket(hash, self.buckets)
    }

    pub(super) fn stamp(&self, number: u64) -> u8 {
        (number / self.granule) as u8
    }

    pub(super) fn id(&self, hash: u64, key: &[u8]) -> KeyId {
        KeyId { bucket: self.bucket(hash), hash, more: hash64_seeded(key, self.secret) as u32 }
    }

    pub(super) fn id_of(&self, record: &Record) -> KeyId {
        self.id(record.hash, &record.key)
    }

    pub(super) fn index(&self) -> MutexGuard<'_, Index> {
        self.index.lock()
    }

    /// The record at a location of a bucket.
    pub(super) fn fetch(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        at: Location,
        bucket: u32,
    ) -> Result<FetchOutcome> {
        if location::is_pending(at) {
            let pending = shared.buffer.get(at);
            // The number may have been reused for a record of another bucket.
            let of_bucket = pending.filter(|record| self.bucket(record.hash) == bucket);
            return Ok(of_bucket.map_or(FetchOutcome::Moved, FetchOutcome::Record));
        }
        let record = pages.record(at)?;
        if matches!(record.content, Content::EmptyBucket(_)) || self.bucket(record.hash) != bucket {
            let page = shared.device.slots.page(at);
            return Err(shared.device.corrupt(page, "a chain links to a record of another bucket"));
        }
        Ok(FetchOutcome::Record(Arc::new(record)))
    }

    /// Charges a bucket with extra page reads of a lookup. When the charges of all buckets reach
    /// the cost of a collection, the bucket charged last is due: so the probability is in
    /// proportion to the charge.
    pub(super) fn charge_lookup(&self, bucket: u32, pages: u64) {
        if self.read_compaction_after == 0 || pages == 0 {
            return;
        }
        let charged = self.charged_pages.fetch_add(pages, Relaxed) + pages;
        // Lost against a concurrent charge: due with the next one.
        let take_charge = |charged| {
            self.charged_pages.compare_exchange(
                charged,
                charged - self.read_compaction_after,
                Relaxed,
                Relaxed,
            )
        };
        if charged >= self.read_compaction_after && take_charge(charged).is_ok() {
            self.due_bucket.store(u64::from(bucket) + 1, Relaxed);
        }
    }

    /// Searches once; `None` if the chain moved during the search.
    pub(super) fn try_find(
        &self,
        shared: &Shared,
        search: &mut Search<'_, '_>,
    ) -> Result<Option<SearchResult>> {
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
            let FetchOutcome::Record(record) =
                self.fetch(shared, &mut search.pages, place, id.bucket)?
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
pub(super) type SearchResult = (Option<Arc<Record>>, bool);

/// A lookup of one key at one timestamp.
pub(super) struct Search<'i, 'k> {
    pub(super) key: &'k [u8],
    pub(super) hash: u64,
    pub(super) id: KeyId,
    pub(super) at: u64,
    /// The location of the newest version.
    pub(super) newest: Option<Location>,
    pub(super) pages: PageReader<'i>,
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
        let record = match record.has_key() {
            true => record,
            false => {
                // Just decoded from its page, so it is not shared.
                let mut own = Arc::try_unwrap(record)
                    .map_err(|_| Error::Invalid("a record without a key is shared".into()))?;
                self.pages.load(&mut own, false)?;
                Arc::new(own)
            }
        };
        Ok((record.key == key).then_some(record))
    }
}

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
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{Purpose, Result};

use crate::bytes::u32_at;
use crate::keys;
use crate::location::{self, Location, NONE, Placement, UNKNOWN};
use crate::log::Writer;
use crate::mapping::{Mapping, SweepResult};
use crate::page_reader::PageReader;
use crate::record::{self, Content, MAX_SKIP_LINKS, Record, SkipLink};
use crate::shared::Shared;
use crate::space::LogBlock;
use crate::translation_cache::ChainHead;
use crate::write_buffer::WriteBuffer;

mod chain_iter;
mod collect;
mod hot_channels;
mod index;
mod opportunistic;
mod runs;
mod sweep;

pub(crate) use index::Chains;
use index::Search;

/// The charge for finding a key on a hot channel, in page reads: about the length of the queue
/// there.
const HOT_CHANNEL_CHARGE: u64 = 4;

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
        shared: &Shared,
        key: &[u8],
        at: u64,
        purpose: Purpose,
    ) -> Result<(Option<Record>, bool)> {
        let hash = keys::hash(key);
        let pages = PageReader::new(&shared.device, purpose);
        let bucket = self.bucket(hash);
        let mut search = Search { key, hash, id: self.id(hash, key), at, newest: None, pages };
        let _pin = shared.pins.enter();
        loop {
            let Some((found, saw_younger)) = self.try_find(shared, &mut search)? else { continue };
            let further = search.pages.pages_read.saturating_sub(1);
            self.extra_pages.fetch_add(further, Relaxed);
            let block = |at| shared.device.geometry.block_of(shared.device.slots.page(at));
            let at = search.newest.filter(|at| location::is_programmed(*at));
            let is_hot = at.is_some_and(|at| self.hot_channels.record_lookup(block(at), bucket));
            self.hot_lookups.fetch_add(u64::from(is_hot), Relaxed);
            self.charge_lookup(bucket, further + if is_hot { HOT_CHANNEL_CHARGE } else { 0 });
            let cleared = shared.clears.seen_at(search.at);
            let Some(found) = found.filter(|record| record.timestamp > cleared) else {
                return Ok((None, saw_younger));
            };
            let mut record = Arc::try_unwrap(found).unwrap_or_else(|shared| shared.copied());
            search.pages.load(&mut record, true)?;
            return Ok((Some(record), saw_younger));
        }
    }

    fn sweep(
        &self,
        shared: &Shared,
        writer: &mut Writer,
        tail: LogBlock,
        slack: i64,
    ) -> Result<SweepResult> {
        self.sweep_step(shared, writer, tail, slack)
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

    fn read_compaction(&self, shared: &Shared, writer: &mut Writer) -> Result<()> {
        match self.due_bucket.swap(0, Relaxed) {
            0 => Ok(()),
            bucket => {
                let bucket = (bucket - 1) as u32;
                self.sweep.lock().forget(bucket);
                let mut pages = PageReader::new(&shared.device, Purpose::Compaction);
                let collected = self.collect_bucket(shared, writer, &mut pages, bucket);
                self.read_compactions.fetch_add(1, Relaxed);
                self.read_compaction_pages.fetch_add(pages.pages_read, Relaxed);
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

    fn step(&self, shared: &Shared, step: u64, at: u64) -> Result<Vec<Record>> {
        let _pin = shared.pins.enter();
        self.visible(shared, step as u32, at)
    }

    fn memory(&self) -> Vec<(&'static str, u64)> {
        let sweep = self.sweep.lock().memory_bytes();
        let index = self.index();
        vec![
            ("collection cache", sweep),
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
            ("read_triggered_collections", get(&self.read_compactions)),
            ("read_triggered_page_reads", get(&self.read_compaction_pages)),
            ("extra_page_reads", get(&self.extra_pages)),
            ("hot_channel_lookups", get(&self.hot_lookups)),
            ("versions_relocated", get(&self.copied)),
            ("versions_discarded", get(&self.dropped)),
        ]
    }
}

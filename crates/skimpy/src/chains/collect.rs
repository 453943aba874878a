//! Collection of a bucket: live versions are relocated, the others are discarded.
//!
//! ```text
//!   chain + prior versions down to the watermark ─▶ per key: all above it, and
//!                                                       the youngest not above it
//!     ─▶ copies, the oldest first, as one group ─▶ head = the newest copy
//! ```
//!
//! A deletion or an expired entry that is the youngest version not above the watermark is
//! discarded, too: nothing older is left that it could hide. So is one before a clear.
//!
//! Invariant: until the group is complete in the log, the old chain is valid and its blocks are
//! kept.
//!
//! Source: SkimpyFTL, section 3.4.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};

use super::chain_iter::{ChainIter, LinkKind};
use super::index::{Chains, FetchOutcome};
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::page_reader::PageReader;
use crate::record::{Content, FIRST, LAST, RELOCATED, Record};
use crate::shared::{Horizon, Shared};
use crate::tail;

/// A live version, and whether it is the newest of its key.
type LiveVersion<'v> = (&'v Arc<Record>, bool);

/// The versions of a bucket.
#[derive(Default)]
pub(super) struct BucketVersions {
    /// The number of versions, hidden ones included.
    count: usize,
    /// By key and timestamp: all versions of the chain, and those down to the first not above the
    /// watermark. Ordered, so that reads are reproducible.
    by_key: BTreeMap<Vec<u8>, BTreeMap<u64, Arc<Record>>>,
}

impl BucketVersions {
    /// The live versions, from the oldest to the newest over all keys.
    fn live(&self, horizon: &Horizon) -> BTreeMap<(u64, &[u8]), LiveVersion<'_>> {
        let mut live = BTreeMap::new();
        for (key, of_key) in &self.by_key {
            let newest = of_key.keys().next_back().copied();
            for (timestamp, record) in of_key.iter().rev() {
                if !horizon.is_past(record) {
                    let is_newest = Some(*timestamp) == newest;
                    live.insert((*timestamp, key.as_slice()), (record, is_newest));
                }
                if *timestamp <= horizon.watermark {
                    break;
                }
            }
        }
        live
    }

    /// The number of keys whose newest version is dropped because it has expired.
    fn expired(&self, horizon: &Horizon) -> u64 {
        let newest = self.by_key.values().filter_map(|of_key| of_key.values().next_back());
        let is_past = |record: &&Arc<Record>| horizon.is_past(record);
        newest.filter(is_past).filter(|record| record.is_expired(horizon.now)).count() as u64
    }
}

/// A bucket to be relocated: its versions, and what decides which are live.
pub(super) struct RelocationGroup {
    bucket: u32,
    versions: BucketVersions,
    horizon: Horizon,
    /// Bytes of the copies, without payload pages.
    pub(super) bytes: usize,
}

impl Chains {
    pub(super) fn collect_bucket(
        &self,
        shared: &Shared,
        writer: &mut Writer,
        pages: &mut PageReader<'_>,
        bucket: u32,
    ) -> Result<()> {
        match self.group(shared, pages, bucket)? {
            Some(group) => self.relocate(shared, writer, group),
            None => Ok(()),
        }
    }

    /// The versions of a bucket; `None` if it is empty.
    pub(super) fn group(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        bucket: u32,
    ) -> Result<Option<RelocationGroup>> {
        if self.index().heads[bucket as usize] == NONE {
            return Ok(None);
        }
        let horizon = shared.horizon();
        let versions = self.versions(shared, pages, bucket, horizon.watermark)?;
        let bytes = versions.live(&horizon).values().map(|(it, _)| it.copied_bytes()).sum();
        Ok(Some(RelocationGroup { bucket, versions, horizon, bytes }))
    }

    /// Writes the live versions of a bucket to the log.
    pub(super) fn relocate(
        &self,
        shared: &Shared,
        writer: &mut Writer,
        group: RelocationGroup,
    ) -> Result<()> {
        let RelocationGroup { bucket, versions, horizon, .. } = group;
        let live = versions.live(&horizon);
        tail::check_copies(
            shared,
            self,
            writer,
            live.values().map(|(record, _)| record.total_bytes()).sum(),
        )?;
        // Payload pages are programmed first; the stamp must not be later than them.
        let since = writer.number;
        let mut copies = Vec::with_capacity(live.len());
        for (record, _) in live.values() {
            let mut copy = record.copied();
            // The new chain has nothing to skip.
            copy.skip_links.clear();
            copy.since = since;
            writer.rewrite_payload(shared, &mut copy)?;
            copies.push(copy);
        }
        let end = shared.buffer.end();
        let mut priors: HashMap<&[u8], Location> = HashMap::new();
        let mut head = NONE;
        let last = copies.len().saturating_sub(1);
        for (index, (copy, ((_, key), (_, is_newest)))) in copies.iter_mut().zip(&live).enumerate()
        {
            let at = location::pending(end + index as u64);
            let prior = priors.insert(*key, at).unwrap_or(NONE);
            copy.link(head, prior);
            copy.marks = RELOCATED;
            copy.marks |= if index == 0 { FIRST } else { 0 };
            copy.marks |= if index == last { LAST } else { 0 };
            if *is_newest {
                head = at;
            }
        }
        let discarded = versions.count.saturating_sub(copies.len());
        self.copied.fetch_add(copies.len() as u64, Relaxed);
        if copies.is_empty() {
            let empty = Record::new(0, 0, Vec::new(), Content::EmptyBucket(bucket));
            copies.push(Record { marks: FIRST | LAST | RELOCATED, since, ..empty });
        }
        // Copies must not be recovered without the writes before them.
        if shared.buffer.is_accumulating(self.index().heads[bucket as usize]) {
            self.pack_accumulated(&shared.buffer, writer.number);
        }
        shared.buffer.push(copies.into_iter().map(Arc::new));
        {
            let mut index = self.index();
            index.set(bucket, head, self.stamp(since));
            index.cache.forget_chain_head(bucket);
            for of_key in versions.by_key.values() {
                let Some(any) = of_key.values().next() else { continue };
                let id = self.id_of(any);
                match priors.get(any.key.as_slice()) {
                    Some(newest) => index.cache.update(id, *newest),
                    None => index.cache.remove(id),
                }
            }
        }
        self.collected.fetch_add(1, Relaxed);
        self.dropped.fetch_add(discarded as u64, Relaxed);
        shared.counters.expired.fetch_add(versions.expired(&horizon), Relaxed);
        writer.program_pending(shared, self, false)
    }

    /// The versions of a bucket, in the chain and by prior pointers, down to the watermark. Called
    /// under the writer lock.
    pub(super) fn versions(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        bucket: u32,
        watermark: u64,
    ) -> Result<BucketVersions> {
        loop {
            if let Some(versions) = self.try_versions(shared, pages, bucket, watermark)? {
                return Ok(versions);
            }
        }
    }

    fn try_versions(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        bucket: u32,
        watermark: u64,
    ) -> Result<Option<BucketVersions>> {
        let mut versions = BucketVersions::default();
        let mut hidden = HashSet::new();
        let mut iter = ChainIter::from(self.index().heads[bucket as usize], None);
        loop {
            let (at, link) = iter.next_link();
            if at == NONE {
                break;
            }
            versions.count += 1;
            // Hidden by a newer version, and a skip link leads no further: no need to read it.
            if link == LinkKind::Skip && hidden.contains(&at) {
                continue;
            }
            let Some(record) = self.fetch_with_key(shared, pages, at, bucket)? else {
                return Ok(None);
            };
            if record.timestamp <= watermark {
                hidden.insert(record.prior());
            }
            if link == LinkKind::Chain {
                iter.follow(&record);
            }
            let of_key = versions.by_key.entry(record.key.clone()).or_default();
            of_key.entry(record.timestamp).or_insert_with(|| record.clone());
        }
        let BucketVersions { count, by_key } = &mut versions;
        for (key, of_key) in by_key {
            let Some(mut record) = of_key.values().next_back().cloned() else { continue };
            while record.timestamp > watermark {
                let below = of_key.range(..record.timestamp).next_back().map(|(_, it)| it.clone());
                let prior = match record.prior() {
                    NONE | UNKNOWN => None,
                    prior => match self.fetch_with_key(shared, pages, prior, bucket)? {
                        None => return Ok(None),
                        // Another key with the same tag.
                        Some(prior) => (prior.key == *key).then_some(prior),
                    },
                };
                if let Some(prior) = prior.filter(|prior| prior.timestamp < record.timestamp) {
                    of_key.entry(prior.timestamp).or_insert_with(|| prior.clone());
                    *count += 1;
                    record = prior;
                } else if let Some(below) = below {
                    record = below;
                } else {
                    break;
                }
            }
        }
        Ok(Some(versions))
    }

    fn fetch_with_key(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        at: Location,
        bucket: u32,
    ) -> Result<Option<Arc<Record>>> {
        match self.fetch(shared, pages, at, bucket)? {
            FetchOutcome::Moved => Ok(None),
            FetchOutcome::Record(record) if !record.has_key() => {
                let mut copy = record.copied();
                pages.load(&mut copy, false)?;
                Ok(Some(Arc::new(copy)))
            }
            FetchOutcome::Record(record) => Ok(Some(record)),
        }
    }

    /// The versions of a bucket that are visible at a timestamp, with their values, sorted by key.
    pub(super) fn visible(&self, shared: &Shared, bucket: u32, at: u64) -> Result<Vec<Record>> {
        let mut pages = PageReader::new(&shared.device, Purpose::Scan);
        let versions = loop {
            let found = self.try_versions(shared, &mut pages, bucket, at)?;
            if let Some(versions) = found {
                break versions;
            }
        };
        let mut visible = Vec::new();
        let cleared = shared.clears.seen_at(at);
        for of_key in versions.by_key.into_values() {
            let newest = of_key.range(..=at).next_back();
            if let Some((_, record)) = newest.filter(|(timestamp, _)| **timestamp > cleared) {
                let mut record = record.copied();
                shared.device.load(&mut record, true, Purpose::Scan)?;
                visible.push(record);
            }
        }
        visible.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(visible)
    }
}

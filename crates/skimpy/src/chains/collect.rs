//! Collection of a bucket: what is wanted of its versions is written anew, the rest forgotten.
//!
//! ```text
//!   the oldest buckets by their stamps, or:
//!   a page of the tail ─▶ buckets of its records, but those collected since ─▶ each bucket:
//!     chain + prior versions down to the watermark ─▶ of each key: all above it, the youngest not above it
//!     ─▶ copies, the oldest first, as one group ─▶ head = the newest copy
//! ```
//!
//! A deletion that is the youngest not above the watermark goes too: nothing older is left for it to
//! hide. So does an entry that has expired. The chain is read without the writer's lock being in
//! anybody's way for longer than one bucket takes.
//!
//! Invariant: until the group is whole in the log the old chain stands, and its blocks stay.
//!
//! Source: SkimpyFTL, section 3.4.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result};

use super::walk::{Walk, Way};
use super::{Chains, Index, Met, is_behind, own};
use crate::device::Pages;
use crate::engine::Inner;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::Swept;
use crate::page::{Kind, Page};
use crate::record::{Content, FIRST, LAST, REMAPPED, Record};

/// A version that stays, and whether it is the newest of its key.
type Wanted<'v> = (&'v Arc<Record>, bool);

/// A version and where it is.
pub(super) struct Version {
    pub(super) at: Location,
    pub(super) record: Arc<Record>,
}

/// What a bucket holds.
#[derive(Default)]
pub(super) struct Versions {
    pub(super) met: Vec<Version>,
    /// By key and timestamp: all of the chain, and all down to the first that is not above the watermark.
    pub(super) by_key: HashMap<Vec<u8>, BTreeMap<u64, Arc<Record>>>,
}

/// Buckets that a step of a sweep remaps: enough that their copies lie together, so that next time a page of
/// them is read once.
const RUN: usize = 8;
/// A sweep is for what is left behind: while so large a part of the buckets has pages in the tail, they are remapped
/// page by page, so that each page gives back its space.
const MOST_SWEPT: u32 = 10;

impl Chains {
    /// Remaps the buckets that a page of the tail may have live records of.
    pub(super) fn collect_page(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        page: Page,
    ) -> Result<()> {
        let mut buckets = BTreeSet::new();
        match page.header.kind {
            Kind::Records => {
                for record in page.records() {
                    let record = record?;
                    if !matches!(record.content, Content::EmptyBucket(_)) {
                        buckets.insert(self.bucket(record.hash));
                    }
                }
            }
            Kind::Payload => drop(buckets.insert(self.bucket(page.owner()))),
            Kind::Checkpoint => {}
        }
        let here = self.stamp(page.header.number);
        let mut pages = Pages::new(&inner.device, Purpose::Compaction);
        pages.keep(page);
        for bucket in buckets {
            let collected = self.index().stamps[bucket as usize];
            // Collected since: its copies are further on.
            if !is_behind(here, collected) {
                self.collect_bucket(inner, writer, &mut pages, bucket)?;
            }
        }
        Ok(())
    }

    /// Whether many buckets have pages of the log up to this one.
    fn is_dense(&self, index: &Index, through: u64) -> bool {
        let limit = self.stamp(through);
        let of_age = |age: u8| index.of_stamp[usize::from(limit.wrapping_sub(age))];
        let left: u32 = (0..128).map(of_age).sum();
        left > self.buckets.div_ceil(MOST_SWEPT)
    }

    /// Pages of the log that so many buckets stand for, if each is remapped once while the log goes round.
    fn share(&self, writer: &Writer, buckets: usize) -> f64 {
        let pages = writer.number - writer.space.lowest(writer.number);
        pages as f64 * buckets as f64 / f64::from(self.buckets)
    }

    /// Remaps some of the buckets that have pages up to this one, by their stamps alone.
    pub(super) fn sweep_some(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        through: u64,
    ) -> Result<Swept> {
        let run = {
            let mut index = self.index();
            if self.is_dense(&index, through) {
                return Ok(Swept::Show);
            }
            let limit = self.stamp(through);
            let of_age = |age: u8| index.of_stamp[usize::from(limit.wrapping_sub(age))];
            let Some(oldest) = (0..128).rev().find(|age| of_age(*age) > 0) else {
                return Ok(Swept::Done);
            };
            let stamp = limit.wrapping_sub(oldest);
            let length = RUN.min(of_age(oldest) as usize);
            let mut run = Vec::new();
            for _ in 0..self.buckets {
                if run.len() == length {
                    break;
                }
                let bucket = index.sweep as usize;
                index.sweep = (index.sweep + 1) % self.buckets;
                if index.heads[bucket] != NONE && index.stamps[bucket] == stamp {
                    run.push(bucket as u32);
                }
            }
            run
        };
        let pages = self.share(writer, run.len());
        let mut kept = Pages::new(&inner.device, Purpose::Compaction);
        for bucket in run {
            self.collect_bucket(inner, writer, &mut kept, bucket)?;
        }
        Ok(Swept::Remapped(pages))
    }

    pub(super) fn collect_bucket(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        pages: &mut Pages<'_>,
        bucket: u32,
    ) -> Result<()> {
        if self.index().heads[bucket as usize] == NONE {
            return Ok(());
        }
        let watermark = inner.watermark();
        let now = inner.env.clock.now();
        let versions = self.versions(inner, pages, bucket, watermark)?;
        // From the oldest to the newest over all keys; whether it is the newest of its key.
        let mut wanted: BTreeMap<(u64, &[u8]), Wanted<'_>> = BTreeMap::new();
        for (key, of_key) in &versions.by_key {
            let newest = of_key.keys().next_back().copied();
            for (timestamp, record) in of_key.iter().rev() {
                let is_below = *timestamp <= watermark;
                if !(is_below && record.is_gone(now)) {
                    wanted.insert((*timestamp, key), (record, Some(*timestamp) == newest));
                }
                if is_below {
                    break;
                }
            }
        }
        inner
            .check_copies(writer, wanted.values().map(|(record, _)| record.total_bytes()).sum())?;
        // Payloads are programmed first, and they are part of what must not seem older than this.
        let since = writer.number;
        let mut copies = Vec::with_capacity(wanted.len());
        for (record, _) in wanted.values() {
            let mut copy = own(record);
            // The chain of the copies has nothing to pass.
            copy.detours.clear();
            copy.since = since;
            inner.repay(writer, &mut copy)?;
            copies.push(copy);
        }
        let (end, _) = inner.pending.end();
        let mut priors: HashMap<&[u8], Location> = HashMap::new();
        let mut head = NONE;
        let last = copies.len().saturating_sub(1);
        for (index, (copy, ((_, key), (_, is_newest)))) in
            copies.iter_mut().zip(&wanted).enumerate()
        {
            let at = location::pending(end + index as u64);
            let prior = priors.insert(*key, at).unwrap_or(NONE);
            copy.link(head, prior);
            copy.marks = REMAPPED;
            copy.marks |= if index == 0 { FIRST } else { 0 };
            copy.marks |= if index == last { LAST } else { 0 };
            if *is_newest {
                head = at;
            }
        }
        let discarded = versions.met.len().saturating_sub(copies.len());
        if copies.is_empty() {
            let empty = Record::new(0, 0, Vec::new(), Content::EmptyBucket(bucket));
            copies.push(Record { marks: FIRST | LAST | REMAPPED, since, ..empty });
        }
        inner.pending.push(copies.into_iter().map(Arc::new));
        {
            let mut index = self.index();
            index.set(bucket, head, self.stamp(since));
            index.cache.forget_front(bucket);
            for of_key in versions.by_key.values() {
                let Some(any) = of_key.values().next() else { continue };
                let id = self.id_of(any);
                match priors.get(any.key.as_slice()) {
                    Some(newest) => index.cache.moved(id, *newest),
                    None => index.cache.remove(id),
                }
            }
        }
        self.collected.fetch_add(1, Relaxed);
        self.dropped.fetch_add(discarded as u64, Relaxed);
        writer.place(inner, false)
    }

    /// The chain of a bucket and the versions that its records lead to, down to the watermark. Asked under
    /// the writer's lock.
    pub(super) fn versions(
        &self,
        inner: &Inner,
        pages: &mut Pages<'_>,
        bucket: u32,
        watermark: u64,
    ) -> Result<Versions> {
        loop {
            if let Some(versions) = self.try_versions(inner, pages, bucket, watermark)? {
                return Ok(versions);
            }
        }
    }

    fn try_versions(
        &self,
        inner: &Inner,
        pages: &mut Pages<'_>,
        bucket: u32,
        watermark: u64,
    ) -> Result<Option<Versions>> {
        let mut versions = Versions::default();
        let mut walk = Walk::from(self.index().heads[bucket as usize], None);
        loop {
            let (at, way) = walk.step();
            if at == NONE {
                break;
            }
            let Some(record) = self.meet_with_key(inner, pages, at, bucket)? else {
                return Ok(None);
            };
            if way == Way::Chain {
                walk.follow(&record);
            }
            let of_key = versions.by_key.entry(record.key.clone()).or_default();
            of_key.entry(record.timestamp).or_insert_with(|| record.clone());
            versions.met.push(Version { at, record });
        }
        let Versions { met, by_key } = &mut versions;
        for (key, of_key) in by_key {
            let Some(mut record) = of_key.values().next_back().cloned() else { continue };
            while record.timestamp > watermark {
                let below = of_key.range(..record.timestamp).next_back().map(|(_, it)| it.clone());
                let prior = match record.prior() {
                    NONE | UNKNOWN => None,
                    prior => match self.meet_with_key(inner, pages, prior, bucket)? {
                        None => return Ok(None),
                        // Another's record under the same tag is no prior version.
                        Some(prior) => (prior.key == *key).then_some(prior),
                    },
                };
                if let Some(prior) = prior.filter(|prior| prior.timestamp < record.timestamp) {
                    of_key.entry(prior.timestamp).or_insert_with(|| prior.clone());
                    met.push(Version { at: record.prior(), record: prior.clone() });
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

    fn meet_with_key(
        &self,
        inner: &Inner,
        pages: &mut Pages<'_>,
        at: Location,
        bucket: u32,
    ) -> Result<Option<Arc<Record>>> {
        match self.meet(inner, pages, at, bucket)? {
            Met::Moved => Ok(None),
            Met::Record(record) if record.key.is_empty() => {
                let mut own = own(&record);
                pages.load(&mut own, false)?;
                Ok(Some(Arc::new(own)))
            }
            Met::Record(record) => Ok(Some(record)),
        }
    }

    /// The versions of a bucket that are seen at a moment, with their values, sorted by key.
    pub(super) fn seen(&self, inner: &Inner, bucket: u32, at: u64) -> Result<Vec<Record>> {
        let mut pages = Pages::new(&inner.device, Purpose::Scan);
        let versions = loop {
            let found = self.try_versions(inner, &mut pages, bucket, at)?;
            if let Some(versions) = found {
                break versions;
            }
        };
        let mut seen = Vec::new();
        for of_key in versions.by_key.into_values() {
            if let Some((_, record)) = of_key.range(..=at).next_back() {
                let mut record = own(record);
                inner.device.load(&mut record, true, Purpose::Scan)?;
                seen.push(record);
            }
        }
        seen.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(seen)
    }
}

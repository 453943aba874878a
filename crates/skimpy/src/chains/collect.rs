//! Collection of a bucket: what is wanted of its versions is written anew, the rest forgotten.
//!
//! ```text
//!   chain + prior versions down to the watermark ─▶ of each key: all above it, the youngest not above it
//!     ─▶ copies, the oldest first, as one group ─▶ head = the newest copy
//! ```
//!
//! A deletion that is the youngest not above the watermark goes too: nothing older is left for it to
//! hide. So does an entry that has expired.
//!
//! Invariant: until the group is whole in the log the old chain stands, and its blocks stay.
//!
//! Source: SkimpyFTL, section 3.4.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result, Timestamp};

use super::walk::{Walk, Way};
use super::{Chains, Met, own};
use crate::engine::Inner;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::pages::Pages;
use crate::record::{Content, FIRST, LAST, REMAPPED, Record};

/// A version that stays, and whether it is the newest of its key.
type Wanted<'v> = (&'v Arc<Record>, bool);

/// What a bucket holds.
#[derive(Default)]
pub(super) struct Versions {
    /// Versions that were met, or passed because they are hidden.
    met: usize,
    /// By key and timestamp: all of the chain, and all down to the first that is not above the watermark. In an order, so
    /// that what is read for it is the same each time.
    by_key: BTreeMap<Vec<u8>, BTreeMap<u64, Arc<Record>>>,
}

impl Versions {
    /// What stays, from the oldest to the newest over all keys.
    fn wanted(&self, watermark: u64, now: Timestamp) -> BTreeMap<(u64, &[u8]), Wanted<'_>> {
        let mut wanted = BTreeMap::new();
        for (key, of_key) in &self.by_key {
            let newest = of_key.keys().next_back().copied();
            for (timestamp, record) in of_key.iter().rev() {
                let is_below = *timestamp <= watermark;
                if !(is_below && record.is_gone(now)) {
                    let is_newest = Some(*timestamp) == newest;
                    wanted.insert((*timestamp, key.as_slice()), (record, is_newest));
                }
                if is_below {
                    break;
                }
            }
        }
        wanted
    }
}

/// A bucket that is to be remapped: what it holds, and what was wanted of it when that was read.
pub(super) struct Group {
    bucket: u32,
    versions: Versions,
    watermark: u64,
    now: Timestamp,
    /// What its copies take in pages, but for payloads.
    pub(super) bytes: usize,
}

impl Chains {
    pub(super) fn collect_bucket(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        pages: &mut Pages<'_>,
        bucket: u32,
    ) -> Result<()> {
        match self.group(inner, pages, bucket)? {
            Some(group) => self.remap(inner, writer, group),
            None => Ok(()),
        }
    }

    /// What is wanted of a bucket; `None` if it is empty.
    pub(super) fn group(
        &self,
        inner: &Inner,
        pages: &mut Pages<'_>,
        bucket: u32,
    ) -> Result<Option<Group>> {
        if self.index().heads[bucket as usize] == NONE {
            return Ok(None);
        }
        let watermark = inner.watermark();
        let now = inner.env.clock.now();
        let versions = self.versions(inner, pages, bucket, watermark)?;
        let bytes = versions.wanted(watermark, now).values().map(|(it, _)| it.copied_bytes()).sum();
        Ok(Some(Group { bucket, versions, watermark, now, bytes }))
    }

    /// Writes what is wanted of a bucket anew.
    pub(super) fn remap(&self, inner: &Inner, writer: &mut Writer, group: Group) -> Result<()> {
        let Group { bucket, versions, watermark, now, .. } = group;
        let wanted = versions.wanted(watermark, now);
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
        let end = inner.pending.end();
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
        let discarded = versions.met.saturating_sub(copies.len());
        self.copied.fetch_add(copies.len() as u64, Relaxed);
        if copies.is_empty() {
            let empty = Record::new(0, 0, Vec::new(), Content::EmptyBucket(bucket));
            copies.push(Record { marks: FIRST | LAST | REMAPPED, since, ..empty });
        }
        // Nobody's copies may be there without what was put before.
        if inner.pending.gathers(self.index().heads[bucket as usize]) {
            self.settle(&inner.pending, writer.number);
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
        let mut hidden = HashSet::new();
        let mut walk = Walk::from(self.index().heads[bucket as usize], None);
        loop {
            let (at, way) = walk.step();
            if at == NONE {
                break;
            }
            versions.met += 1;
            // A detour leads no further: where a newer version hides what is there, it need not be read.
            if way == Way::Detour && hidden.contains(&at) {
                continue;
            }
            let Some(record) = self.meet_with_key(inner, pages, at, bucket)? else {
                return Ok(None);
            };
            if record.timestamp <= watermark {
                hidden.insert(record.prior());
            }
            if way == Way::Chain {
                walk.follow(&record);
            }
            let of_key = versions.by_key.entry(record.key.clone()).or_default();
            of_key.entry(record.timestamp).or_insert_with(|| record.clone());
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
                    *met += 1;
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

//! Collection of a bucket: what is wanted of its versions is written anew, the rest forgotten.
//!
//! ```text
//!   log  │tail ░ ░░ ░░░ ░░░░ ░░░░░ ░░░░░░│ ◀── head      ░ where buckets were remapped last
//!         ▲ the next ones                   as many for each page programmed that none is late: `rate`
//!   a few buckets ─▶ their chains, read side by side ─▶ each bucket:
//!     chain + prior versions down to the watermark ─▶ of each key: all above it, the youngest not above it
//!     ─▶ copies, the oldest first, as one group ─▶ head = the newest copy
//! ```
//!
//! A deletion that is the youngest not above the watermark goes too: nothing older is left for it to
//! hide. So does an entry that has expired. A writer that collects waits for the chains of a few buckets.
//!
//! Nothing of the tail can be given back before all buckets with pages there were remapped, and at first that
//! is all of them. So the first sweep begins when half of the device is written; after it the buckets' ages are
//! spread over the log, and remapping goes on at one pace.
//!
//! Invariant: until the group is whole in the log the old chain stands, and its blocks stay.
//!
//! Source: SkimpyFTL, section 3.4; the pace is ours.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use siltstone_engine::{Purpose, Result, Timestamp};

use super::walk::{Walk, Way};
use super::{Chains, Index, Met, own};
use crate::device::Pages;
use crate::engine::Inner;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::Swept;
use crate::page::HEADER_BYTES;
use crate::record::{Content, FIRST, LAST, REMAPPED, Record};
use crate::space::LogBlock;

/// A version that stays, and whether it is the newest of its key.
type Wanted<'v> = (&'v Arc<Record>, bool);

/// What a bucket holds.
#[derive(Default)]
pub(super) struct Versions {
    /// Versions that were met.
    met: usize,
    /// By key and timestamp: all of the chain, and all down to the first that is not above the watermark.
    by_key: HashMap<Vec<u8>, BTreeMap<u64, Arc<Record>>>,
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
struct Group {
    bucket: u32,
    versions: Versions,
    watermark: u64,
    now: Timestamp,
    /// What its copies take in pages, but for payloads.
    bytes: usize,
}

/// The group that goes to the log next, and whether the page before it is programmed as it is.
struct Next {
    index: usize,
    ends_page: bool,
}

/// A group in one page is found by one read. So the largest goes next that the present page has room for; where none
/// fits, the page ends if little of it is left.
fn next_of(groups: &[Group], inner: &Inner) -> Option<Next> {
    let body = inner.device.geometry.page_bytes() - HEADER_BYTES;
    let room = body.saturating_sub(inner.pending.bytes());
    let largest = |most: usize| {
        let fitting = (0..groups.len()).filter(|index| groups[*index].bytes <= most);
        fitting.max_by_key(|index| groups[*index].bytes)
    };
    if let Some(index) = largest(room) {
        return Some(Next { index, ends_page: false });
    }
    let in_new = largest(body).filter(|_| room <= body / MOST_LEFT);
    let index = in_new.or_else(|| largest(usize::MAX))?;
    Some(Next { index, ends_page: in_new.is_some() })
}

/// Buckets that a step of a sweep remaps: their chains are read side by side, and their copies lie together, so that
/// next time a page of them is read once. A writer waits for all of them.
const RUN: usize = 4;
/// A page is programmed with a share of one in so many free if that keeps a group in one page.
const MOST_LEFT: usize = 4;
/// The share of the pages programmed that copies are at most, if the device does not get full by it.
const MOST_COPIED: f64 = 0.9;
/// Pages that are kept for each bucket of a run: more than most chains lie in.
const PAGES_A_BUCKET: usize = 16;

impl Chains {
    /// Buckets to remap for each page that is programmed, so that every bucket is remapped before the log needs the
    /// space of its oldest pages: it may grow by `slack` pages before it needs that of page `first`, or should not
    /// have grown so far. A bucket whose stamp is so many pages ahead of that one has so many pages more of time.
    fn rate(&self, index: &Index, first: u64, slack: i64) -> f64 {
        let tail = self.stamp(first);
        let of = |stamp: u8| index.of_stamp[usize::from(stamp)];
        let mut due: u32 = (1..128).map(|age| of(tail.wrapping_sub(age))).sum();
        let granule = self.granule as i64;
        let rates = (0..128).map(|ahead: u8| {
            due += of(tail.wrapping_add(ahead));
            f64::from(due) / (slack + i64::from(ahead) * granule).max(granule) as f64
        });
        rates.fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Remaps some of the buckets that were remapped longest ago, if any has pages of the block.
    pub(super) fn sweep_some(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        tail: LogBlock,
        slack: i64,
    ) -> Result<Swept> {
        let (run, rate) = {
            let mut index = self.index();
            let limit = self.stamp(tail.last);
            let of_age = |age: u8| index.of_stamp[usize::from(limit.wrapping_sub(age))];
            let Some(oldest) = (0..128).rev().find(|age| of_age(*age) > 0) else {
                return Ok(Swept::Done);
            };
            let stamp = limit.wrapping_sub(oldest);
            let length = RUN.min(of_age(oldest) as usize);
            let rate = self.rate(&index, tail.first.midpoint(tail.last), slack);
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
            (run, rate)
        };
        let pages = run.len() as f64 / rate;
        let room = PAGES_A_BUCKET * run.len();
        let mut kept = Pages::with_room(&inner.device, Purpose::Compaction, room);
        self.read_ahead(inner, &mut kept, &run)?;
        let mut groups = Vec::with_capacity(run.len());
        for bucket in run {
            groups.extend(self.group(inner, &mut kept, bucket)?);
        }
        let before = writer.number;
        while let Some(next) = next_of(&groups, inner) {
            if next.ends_page {
                writer.place(inner, true)?;
            }
            self.remap(inner, writer, groups.swap_remove(next.index))?;
        }
        // Copies are pages of the log, too: they must not make as many more of them due.
        let copied = (writer.number - before) as f64;
        Ok(Swept::Remapped(pages.max(copied / MOST_COPIED)))
    }

    /// Reads the pages of the chains, the next of all of them at once: so channels work side by side.
    fn read_ahead(&self, inner: &Inner, pages: &mut Pages<'_>, run: &[u32]) -> Result<()> {
        let mut walks: Vec<(u32, Walk)> = {
            let index = self.index();
            let head = |bucket: u32| index.heads[bucket as usize];
            run.iter().map(|bucket| (*bucket, Walk::from(head(*bucket), None))).collect()
        };
        while !walks.is_empty() {
            let ahead = walks.iter().flat_map(|(_, walk)| walk.ahead());
            let placed: Vec<Location> = ahead.filter(|at| location::is_placed(*at)).collect();
            pages.fetch(&placed)?;
            let mut further = Vec::with_capacity(walks.len());
            for (bucket, mut walk) in walks {
                let at = walk.step_on();
                if at == NONE {
                    continue;
                }
                if let Met::Record(record) = self.meet(inner, pages, at, bucket)? {
                    walk.follow(&record);
                    further.push((bucket, walk));
                }
            }
            walks = further;
        }
        Ok(())
    }

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
    fn group(&self, inner: &Inner, pages: &mut Pages<'_>, bucket: u32) -> Result<Option<Group>> {
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
    fn remap(&self, inner: &Inner, writer: &mut Writer, group: Group) -> Result<()> {
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
        let discarded = versions.met.saturating_sub(copies.len());
        self.copied.fetch_add(copies.len() as u64, Relaxed);
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
            versions.met += 1;
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

//! The sweep: buckets that were remapped longest ago are remapped, a few at a time, their chains read ahead.
//!
//! ```text
//!   log  │tail ░ ░░ ░░░ ░░░░ ░░░░░ ░░░░░░│ ◀── head      ░ where buckets were remapped last
//!         ▲ the next ones                   as many for each page programmed that none is late: `rate`
//!
//!   a step:  begins a run       ▒▒▒▒ buckets: their heads are asked for
//!            goes on with some  ▒▒▒▒          what has come leads to what is asked for next
//!            ends the oldest    ▒▒▒▒          all of it is there, as a rule: remapped
//! ```
//!
//! So who collects seldom waits for the device. What is put meanwhile lies in front of what was read ahead, and is met
//! when the run ends; nothing is judged before.
//!
//! Nothing of the tail can be given back before all buckets with pages there were remapped, and at first that
//! is all of them. So the first sweep begins when half of the device is written; after it the buckets' ages are
//! spread over the log, and remapping goes on at one pace. Some of a run are taken before their turn, because pages at
//! hand have what they need (`near`).
//!
//! Invariant: a bucket under way has pages where it is led to, for its stamp keeps their blocks.
//!
//! Source: SkimpyFTL, section 3.4; pace and reading ahead are ours.

use std::collections::{HashSet, VecDeque};
use std::time::Duration;

use siltstone_engine::{Purpose, Result};

use super::collect::Group;
use super::near::{best, window};
use super::walk::{Walk, Way};
use super::{Chains, Index, Met};
use crate::engine::Inner;
use crate::location::{self, Location, NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::Swept;
use crate::page::HEADER_BYTES;
use crate::pages::{Kept, Pages};
use crate::record::{Content, REMAPPED};
use crate::space::LogBlock;

/// Buckets that are remapped together: their copies share pages, so that next time one is read once for them. More
/// would share better, and who ends a run waits for all of them.
const RUN: usize = 2;
/// Runs under way: so many steps of a chain are read while others write.
const UNDER_WAY: usize = 4;
/// Pages that are kept for each bucket under way: about what a chain lies in.
const PAGES_A_BUCKET: usize = 3;
/// Memory for records that buckets will need.
const HELD_BYTES: usize = 320 << 10;
/// A page is programmed with a share of one in so many free if that keeps a group in one page.
const MOST_LEFT: usize = 4;
/// The share of the pages programmed that copies are at most, if the device does not get full by it.
const MOST_COPIED: f64 = 0.9;

/// What a sweep has under way, the oldest first.
#[derive(Default)]
pub(super) struct Sweep {
    runs: VecDeque<Run>,
    kept: Kept,
}

/// Buckets that are remapped together.
struct Run {
    buckets: Vec<u32>,
    chains: Vec<Ahead>,
    /// When what was asked for is there.
    there: Duration,
}

/// A chain that is read ahead.
struct Ahead {
    bucket: u32,
    walk: Walk,
    /// Places of versions that newer ones hide.
    hidden: HashSet<Location>,
}

impl Sweep {
    /// The bucket was remapped without this: what was read ahead of it leads nowhere.
    pub(super) fn forget(&mut self, bucket: u32) {
        for run in &mut self.runs {
            run.buckets.retain(|it| *it != bucket);
            run.chains.retain(|chain| chain.bucket != bucket);
        }
    }

    /// Bytes of memory that its pages take.
    pub(super) fn memory_bytes(&self) -> u64 {
        self.kept.memory_bytes()
    }

    fn under_way(&self) -> impl Iterator<Item = u32> + '_ {
        self.runs.iter().flat_map(|run| run.buckets.iter().copied())
    }
}

/// Which buckets are to be remapped soon.
#[derive(Clone, Copy)]
struct Soon {
    /// The stamp of those that are due.
    oldest: u8,
    /// Granules that one may go early.
    window: u8,
}

impl Soon {
    /// How many granules of the log are left until a bucket is due.
    fn wait(self, index: &Index, bucket: u32) -> u8 {
        index.stamps[bucket as usize].wrapping_sub(self.oldest)
    }

    /// How many granules early a bucket would go; `None` if it may not.
    fn early(self, index: &Index, bucket: u32) -> Option<u8> {
        let early = self.wait(index, bucket);
        (index.heads[bucket as usize] != NONE && early <= self.window).then_some(early)
    }
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
    let room = inner.pending.room();
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
        let mut sweep = self.sweep.lock();
        let (mut run, soon, rate) = {
            let mut index = self.index();
            let limit = self.stamp(tail.last);
            let of_age = |age: u8| index.of_stamp[usize::from(limit.wrapping_sub(age))];
            let Some(oldest) = (0..128).rev().find(|age| of_age(*age) > 0) else {
                return Ok(Swept::Done);
            };
            let rate = self.rate(&index, tail.first.midpoint(tail.last), slack);
            let oldest = limit.wrapping_sub(oldest);
            let soon =
                Soon { oldest, window: window(self.stamp(writer.number).wrapping_sub(oldest)) };
            (self.next_run(&mut index, &sweep, soon), soon, rate)
        };
        let room = PAGES_A_BUCKET * RUN * UNDER_WAY;
        let kept = std::mem::take(&mut sweep.kept);
        let mut pages = Pages::with(&inner.device, Purpose::Compaction, room, kept);
        let is_last = run.buckets.is_empty();
        if !is_last {
            run.ask(&mut pages)?;
            sweep.runs.push_back(run);
        }
        for run in &mut sweep.runs {
            while !run.chains.is_empty() && run.there <= inner.device.flash.now() {
                self.go_on(inner, &mut pages, run)?;
            }
        }
        let ended = match is_last || sweep.runs.len() == UNDER_WAY {
            true => sweep.runs.pop_front(),
            false => None,
        };
        let swept = match ended {
            Some(run) => self.end(inner, writer, &mut pages, run, rate)?,
            None => 0.0,
        };
        self.see(inner, &mut pages, soon)?;
        sweep.kept = pages.into_kept();
        Ok(Swept::Remapped(swept))
    }

    /// Buckets that go next: some that pages at hand are of use for, the others of the oldest stamp, one at least. None
    /// if all of that stamp are under way.
    fn next_run(&self, index: &mut Index, sweep: &Sweep, soon: Soon) -> Run {
        let under_way: HashSet<u32> = sweep.under_way().collect();
        let early = |index: &Index, bucket: u32| match under_way.contains(&bucket) {
            true => None,
            false => soon.early(index, bucket),
        };
        let going =
            under_way.iter().filter(|bucket| soon.early(index, **bucket) == Some(0)).count();
        let length = RUN.min(index.of_stamp[usize::from(soon.oldest)] as usize - going);
        let mut buckets = best(&sweep.kept.held, |bucket| early(index, bucket));
        // Who is due must not wait for ever.
        buckets.truncate(length.saturating_sub(1));
        while buckets.len() < length {
            let bucket = index.sweep;
            index.sweep = (bucket + 1) % self.buckets;
            if early(index, bucket) == Some(0) && !buckets.contains(&bucket) {
                buckets.push(bucket);
            }
        }
        let ahead = |bucket: &u32| Ahead {
            bucket: *bucket,
            walk: Walk::from(index.heads[*bucket as usize], None),
            hidden: HashSet::new(),
        };
        let chains = buckets.iter().map(ahead).collect();
        Run { buckets, chains, there: Duration::ZERO }
    }

    /// Holds the records of the pages that came that their buckets seem to need, those that are due soonest.
    fn see(&self, inner: &Inner, pages: &mut Pages<'_>, soon: Soon) -> Result<()> {
        let mut index = self.index();
        let mut held = std::mem::take(&mut pages.kept.held);
        for (page, erases) in pages.fresh() {
            for (slot, record) in page.with_bytes().enumerate() {
                let (record, bytes) = record?;
                if matches!(record.content, Content::EmptyBucket(_)) {
                    continue;
                }
                let (id, at) = (self.id_of(&record), inner.device.slots.at(page.page, slot));
                let seems_newest = match index.cache.peek(id) {
                    Some(newest) => newest == at,
                    // Its key was in the cache when it was put, and has been put since, as a rule.
                    None => record.is_marked(REMAPPED) || record.prior() == UNKNOWN,
                };
                if seems_newest {
                    held.hold(at, *erases, id.bucket, bytes);
                }
            }
        }
        held.trim(HELD_BYTES, |bucket| soon.wait(&index, bucket));
        pages.kept.held = held;
        Ok(())
    }

    /// Follows the chains of a run by what has come, and asks for what that leads to.
    fn go_on(&self, inner: &Inner, pages: &mut Pages<'_>, run: &mut Run) -> Result<()> {
        let watermark = inner.watermark();
        for chain in &mut run.chains {
            self.follow(inner, pages, chain, watermark)?;
        }
        run.chains.retain(|chain| !chain.walk.is_at_end());
        run.ask(pages)
    }

    /// Goes on to the next record of the chain, past the detours on the way.
    fn follow(
        &self,
        inner: &Inner,
        pages: &mut Pages<'_>,
        chain: &mut Ahead,
        watermark: u64,
    ) -> Result<()> {
        loop {
            let (at, way) = chain.walk.step();
            if at == NONE {
                return Ok(());
            }
            if way == Way::Detour && chain.hidden.contains(&at) {
                continue;
            }
            let Met::Record(record) = self.meet(inner, pages, at, chain.bucket)? else {
                return Ok(());
            };
            if record.timestamp <= watermark {
                chain.hidden.insert(record.prior());
            }
            if way == Way::Chain {
                chain.walk.follow(&record);
                return Ok(());
            }
        }
    }

    /// Remaps the buckets of a run: for how many pages of the log that stands.
    fn end(
        &self,
        inner: &Inner,
        writer: &mut Writer,
        pages: &mut Pages<'_>,
        mut run: Run,
        rate: f64,
    ) -> Result<f64> {
        while !run.chains.is_empty() {
            self.go_on(inner, pages, &mut run)?;
        }
        let stands = run.buckets.len() as f64 / rate;
        let mut groups = Vec::with_capacity(run.buckets.len());
        for bucket in run.buckets {
            groups.extend(self.group(inner, pages, bucket)?);
        }
        let body = inner.device.geometry.page_bytes() - HEADER_BYTES;
        let waiting = || inner.pending.bytes() as f64 / body as f64;
        let log = |writer: &Writer| writer.number as f64 + waiting();
        let before = log(writer);
        while let Some(next) = next_of(&groups, inner) {
            if next.ends_page {
                inner.pending.end_page();
            }
            self.remap(inner, writer, groups.swap_remove(next.index))?;
        }
        // Copies are pages of the log, too: they must not make as many more of them due.
        let copied = log(writer) - before;
        Ok(stands.max(copied / MOST_COPIED))
    }
}

impl Run {
    /// Asks for where its chains lead, but for detours to what is hidden.
    fn ask(&mut self, pages: &mut Pages<'_>) -> Result<()> {
        let places = self.chains.iter().flat_map(|chain| {
            let is_wanted = |(at, way): &(Location, Way)| {
                location::is_placed(*at) && !(*way == Way::Detour && chain.hidden.contains(at))
            };
            chain.walk.ahead().filter(is_wanted).map(|(at, _)| at)
        });
        self.there = pages.ask(&places.collect::<Vec<_>>())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_that_was_remapped_meanwhile_is_not_under_way() {
        let chain = |bucket| Ahead { bucket, walk: Walk::from(7, None), hidden: HashSet::new() };
        let run = |buckets: [u32; 2]| Run {
            buckets: buckets.to_vec(),
            chains: buckets.map(chain).into(),
            there: Duration::ZERO,
        };
        let mut sweep = Sweep { runs: [run([1, 2]), run([3, 4])].into(), ..Sweep::default() };
        sweep.forget(3);
        assert_eq!(sweep.under_way().collect::<Vec<_>>(), [1, 2, 4]);
        assert!(sweep.runs.iter().all(|run| run.chains.len() == run.buckets.len()));
    }
}

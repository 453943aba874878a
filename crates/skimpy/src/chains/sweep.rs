//! The sweep: relocates the buckets that were relocated longest ago, a few at a time, with
//! readahead.
//!
//! ```text
//!   log  │tail ░ ░░ ░░░ ░░░░ ░░░░░ ░░░░░░│ ◀── head      ░ where buckets were relocated last
//!         ▲ the next ones                   as many per programmed page that none is late: `rate`
//!
//!   a step:  begins a run       ▒▒▒▒ buckets: the reads of their heads are submitted
//!            advances others    ▒▒▒▒          completed reads determine the next ones
//!            ends the oldest    ▒▒▒▒          its pages are usually in memory: relocated
//! ```
//!
//! So collection seldom waits for the device. Records written meanwhile are in front of the part
//! that was read ahead, and are read when the run ends; which versions are live is decided only
//! then.
//!
//! A block of the tail can be erased only after all buckets with pages there were relocated, which
//! is all buckets at first. So the first sweep begins when half of the device is written. After it,
//! the stamps are spread over the log and the pace is even. Some buckets of a run are taken early,
//! because their records are in memory (`opportunistic`).
//!
//! Invariant: the locations that a bucket in progress reads stay valid, because its stamp protects
//! their blocks.
//!
//! Source: SkimpyFTL, section 3.4. Pace and readahead are not in the paper.

use std::collections::HashSet;
use std::time::Duration;

use siltstone_engine::{Purpose, Result};

use super::chain_iter::{ChainIter, LinkKind};
use super::collect::RelocationGroup;
use super::index::{Chains, FetchOutcome, Index};
use super::opportunistic::{candidates, window};
use super::runs::{ChainReadahead, Sweep, SweepRun};
use crate::location::{NONE, UNKNOWN};
use crate::log::Writer;
use crate::mapping::SweepResult;
use crate::page::HEADER_BYTES;
use crate::page_reader::PageReader;
use crate::record::{Content, RELOCATED};
use crate::shared::Shared;
use crate::space::LogBlock;

/// Buckets relocated together. Their copies share pages, which are read once for them next time.
/// More buckets would share better and make the end of a run longer.
const BUCKETS_PER_RUN: usize = 2;
/// Runs in progress: the number of steps along a chain that overlap with writes.
const MAX_RUNS: usize = 4;
/// Cached pages per bucket in progress, about what a chain takes.
const PAGES_PER_BUCKET: usize = 3;
/// Memory for cached records.
const RECORD_CACHE_BYTES: usize = 320 << 10;
/// A page is ended with up to this fraction (1/4) free if that keeps a group within one page.
const MAX_FREE_PART: usize = 4;
/// The maximum fraction of programmed pages that are copies, unless the device would become full.
const MAX_COPY_FRACTION: f64 = 0.9;

/// Determines which buckets are due soon.
#[derive(Clone, Copy)]
struct DueWindow {
    /// The stamp of the buckets that are due now.
    oldest: u8,
    /// The number of granules that a bucket may be early.
    window: u8,
}

impl DueWindow {
    /// The number of granules until a bucket is due.
    fn wait(self, index: &Index, bucket: u32) -> u8 {
        index.stamps[bucket as usize].wrapping_sub(self.oldest)
    }

    /// The number of granules that a bucket would be early now; `None` if that is too early.
    fn early(self, index: &Index, bucket: u32) -> Option<u8> {
        let early = self.wait(index, bucket);
        (index.heads[bucket as usize] != NONE && early <= self.window).then_some(early)
    }
}

/// The next group to relocate, and whether the current page is ended before it.
struct NextGroup {
    index: usize,
    ends_page: bool,
}

/// Selects the next group: the largest that fits the current page, so that one read finds it. If
/// none fits and little of the page is left, the page ends.
fn next_group(groups: &[RelocationGroup], shared: &Shared) -> Option<NextGroup> {
    let body = shared.device.geometry.page_bytes() - HEADER_BYTES;
    let room = shared.buffer.room();
    let largest = |most: usize| {
        let fitting = (0..groups.len()).filter(|index| groups[*index].bytes <= most);
        fitting.max_by_key(|index| groups[*index].bytes)
    };
    if let Some(index) = largest(room) {
        return Some(NextGroup { index, ends_page: false });
    }
    let in_new = largest(body).filter(|_| room <= body / MAX_FREE_PART);
    let index = in_new.or_else(|| largest(usize::MAX))?;
    Some(NextGroup { index, ends_page: in_new.is_some() })
}

impl Chains {
    /// Buckets to relocate per programmed page so that each is relocated before the log reuses its
    /// oldest pages. The log may grow by `slack` pages (negative: it is too long already) before it
    /// needs the space of page `first`. A bucket with a later stamp has as many pages more.
    fn rate(&self, index: &Index, first: u64, slack: i64) -> f64 {
        let tail = self.stamp(first);
        let count = |stamp: u8| index.of_stamp[usize::from(stamp)];
        let mut due: u32 = (1..128).map(|age| count(tail.wrapping_sub(age))).sum();
        let granule = self.granule as i64;
        let rates = (0..128).map(|ahead: u8| {
            due += count(tail.wrapping_add(ahead));
            f64::from(due) / (slack + i64::from(ahead) * granule).max(granule) as f64
        });
        rates.fold(f64::MIN_POSITIVE, f64::max)
    }

    /// Performs one step of the sweep, unless no bucket has pages in the block `tail`.
    pub(super) fn sweep_step(
        &self,
        shared: &Shared,
        writer: &mut Writer,
        tail: LogBlock,
        slack: i64,
    ) -> Result<SweepResult> {
        let mut sweep = self.sweep.lock();
        let (mut run, due, rate) = {
            let mut index = self.index();
            let limit = self.stamp(tail.last);
            let of_age = |age: u8| index.of_stamp[usize::from(limit.wrapping_sub(age))];
            let Some(oldest) = (0..128).rev().find(|age| of_age(*age) > 0) else {
                return Ok(SweepResult::Done);
            };
            let rate = self.rate(&index, tail.first.midpoint(tail.last), slack);
            let oldest = limit.wrapping_sub(oldest);
            let due = DueWindow {
                oldest,
                window: window(self.stamp(writer.number).wrapping_sub(oldest)),
            };
            (self.next_run(&mut index, &sweep, due), due, rate)
        };
        let capacity = PAGES_PER_BUCKET * BUCKETS_PER_RUN * MAX_RUNS;
        let cache = std::mem::take(&mut sweep.cache);
        let mut pages =
            PageReader::with_cache(&shared.device, Purpose::Compaction, capacity, cache);
        let is_last = run.buckets.is_empty();
        if !is_last {
            run.submit_reads(&mut pages)?;
            sweep.runs.push_back(run);
        }
        for run in &mut sweep.runs {
            while !run.chains.is_empty() && run.ready_at <= shared.device.flash.now() {
                self.advance(shared, &mut pages, run)?;
            }
        }
        let ended = match is_last || sweep.runs.len() == MAX_RUNS {
            true => sweep.runs.pop_front(),
            false => None,
        };
        let swept = match ended {
            Some(run) => self.end_run(shared, writer, &mut pages, run, rate)?,
            None => 0.0,
        };
        self.cache_fresh_records(shared, &mut pages, due)?;
        sweep.cache = pages.into_cache();
        Ok(SweepResult::Relocated(swept))
    }

    /// Selects the buckets of the next run: some with cached records, the others by the oldest
    /// stamp, at least one of these. None if all buckets of that stamp are in progress.
    fn next_run(&self, index: &mut Index, sweep: &Sweep, due: DueWindow) -> SweepRun {
        let in_progress: HashSet<u32> = sweep.in_progress().collect();
        let early = |index: &Index, bucket: u32| match in_progress.contains(&bucket) {
            true => None,
            false => due.early(index, bucket),
        };
        let due_in_progress =
            in_progress.iter().filter(|bucket| due.early(index, **bucket) == Some(0)).count();
        let length =
            BUCKETS_PER_RUN.min(index.of_stamp[usize::from(due.oldest)] as usize - due_in_progress);
        let mut buckets = candidates(&sweep.cache.records, |bucket| early(index, bucket));
        // Leave room for buckets that are due, so that none starves.
        buckets.truncate(length.saturating_sub(1));
        while buckets.len() < length {
            let bucket = index.sweep;
            index.sweep = (bucket + 1) % self.buckets;
            if early(index, bucket) == Some(0) && !buckets.contains(&bucket) {
                buckets.push(bucket);
            }
        }
        let ahead = |bucket: &u32| ChainReadahead {
            bucket: *bucket,
            iter: ChainIter::from(index.heads[*bucket as usize], None),
            hidden: HashSet::new(),
        };
        let chains = buckets.iter().map(ahead).collect();
        SweepRun { buckets, chains, ready_at: Duration::ZERO }
    }

    /// Caches records of the pages just read that their buckets will probably need, the soonest due
    /// first.
    fn cache_fresh_records(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        due: DueWindow,
    ) -> Result<()> {
        let mut index = self.index();
        let mut records = std::mem::take(&mut pages.cache.records);
        for (page, erases) in pages.take_fresh() {
            for (slot, record) in page.with_bytes().enumerate() {
                let (record, bytes) = record?;
                if matches!(record.content, Content::EmptyBucket(_)) {
                    continue;
                }
                let (id, at) = (self.id_of(&record), shared.device.slots.at(page.page, slot));
                let seems_newest = match index.cache.peek(id) {
                    Some(newest) => newest == at,
                    // If it was cached when it was written, a missing entry was evicted as
                    // overwritten.
                    None => record.is_marked(RELOCATED) || record.prior() == UNKNOWN,
                };
                if seems_newest {
                    records.insert(at, *erases, id.bucket, bytes);
                }
            }
        }
        records.trim(RECORD_CACHE_BYTES, |bucket| due.wait(&index, bucket));
        pages.cache.records = records;
        Ok(())
    }

    /// Advances the chains of a run by the completed reads, and submits the next ones.
    fn advance(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        run: &mut SweepRun,
    ) -> Result<()> {
        let watermark = shared.watermark();
        for chain in &mut run.chains {
            self.follow(shared, pages, chain, watermark)?;
        }
        run.chains.retain(|chain| !chain.iter.is_at_end());
        run.submit_reads(pages)
    }

    /// Advances a chain to its next record, past its skip links.
    fn follow(
        &self,
        shared: &Shared,
        pages: &mut PageReader<'_>,
        chain: &mut ChainReadahead,
        watermark: u64,
    ) -> Result<()> {
        loop {
            let (at, link) = chain.iter.next_link();
            if at == NONE {
                return Ok(());
            }
            if link == LinkKind::Skip && chain.hidden.contains(&at) {
                continue;
            }
            let FetchOutcome::Record(record) = self.fetch(shared, pages, at, chain.bucket)? else {
                return Ok(());
            };
            if record.timestamp <= watermark {
                chain.hidden.insert(record.prior());
            }
            if link == LinkKind::Chain {
                chain.iter.follow(&record);
                return Ok(());
            }
        }
    }

    /// Relocates the buckets of a run; returns the number of log pages that this pays for.
    fn end_run(
        &self,
        shared: &Shared,
        writer: &mut Writer,
        pages: &mut PageReader<'_>,
        mut run: SweepRun,
        rate: f64,
    ) -> Result<f64> {
        while !run.chains.is_empty() {
            self.advance(shared, pages, &mut run)?;
        }
        let paid = run.buckets.len() as f64 / rate;
        let mut groups = Vec::with_capacity(run.buckets.len());
        for bucket in run.buckets {
            groups.extend(self.group(shared, pages, bucket)?);
        }
        let body = shared.device.geometry.page_bytes() - HEADER_BYTES;
        let waiting = || shared.buffer.bytes() as f64 / body as f64;
        let log = |writer: &Writer| writer.number as f64 + waiting();
        let before = log(writer);
        while let Some(next) = next_group(&groups, shared) {
            if next.ends_page {
                shared.buffer.end_page();
            }
            self.relocate(shared, writer, groups.swap_remove(next.index))?;
        }
        // Copies are log pages, too; without the limit they would make ever more copies due.
        let copied = log(writer) - before;
        Ok(paid.max(copied / MAX_COPY_FRACTION))
    }
}

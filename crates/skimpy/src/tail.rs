//! The tail of the log: paced collection, and the retirement and erasure of blocks.
//!
//! ```text
//!   free blocks │███████████████░░░░│     plenty: nothing to do
//!               │████████░░░░░░░░░░░│     steps per programmed page, copies included: see
//!                                         `Mapping::pace`, and `rate` in `chains::sweep`
//!               │█░░░░░░░░░░░░░░░░░░│     hardly enough for copies: collect until there is more;
//!                                         after one pass over the whole log the device is full
//! ```
//!
//! A step is a page of the tail, or a few buckets if the mapping knows which are oldest (`chains`).
//! Such a step may wait for reads, so a write performs only a few of them; the rest is left to
//! later writes.
//!
//! A retired block is erased when the copies of its versions are durable, no reader is in it, and
//! replay begins after it from both of the last two checkpoints.
//!
//! Source: SkimpyFTL, section 3.4. The pace is not in the paper.

use std::time::{Duration, Instant};

use siltstone_engine::{Purpose, Result};

use crate::engine::Inner;
use crate::log::Writer;
use crate::mapping::SweepResult;
use crate::space::RetiredBlock;

/// The maximum number of collection steps per programmed page.
const MAX_STEPS_PER_PAGE: f64 = 8.0;
/// Longer than any lookup takes, except on a failing device.
const MAX_LOOKUP_TIME: Duration = Duration::from_secs(1);

impl Inner {
    fn pages_per_block(&self) -> u64 {
        u64::from(self.device.geometry.pages_per_block())
    }

    /// Blocks needed for copies and checkpoints.
    pub(crate) fn min_free_blocks(&self, writer: &Writer) -> u64 {
        writer.space.channels() as u64 + 2 * self.checkpoint_blocks() + 3
    }

    /// Blocks that collection keeps free.
    fn target_free_blocks(&self, writer: &Writer) -> u64 {
        let share = f64::from(self.device.geometry.blocks()) * self.options.free;
        (share as u64).max(self.min_free_blocks(writer) + 2 * writer.space.channels() as u64)
    }

    /// Collects what is due, and as much as a batch of `bytes` bytes needs to find room.
    ///
    /// # Errors
    /// `StorageFull` if nothing can be collected.
    pub(crate) fn make_room(&self, writer: &mut Writer, bytes: u64) -> Result<()> {
        let geometry = self.device.geometry;
        let target = self.target_free_blocks(writer);
        // Records have headers, and each part of a batch may leave a page half empty.
        let pages = |bytes: u64| (2 * bytes).div_ceil(geometry.page_bytes() as u64);
        // Limited, because where little can be discarded copies make ever more copies due.
        let max_steps = (MAX_STEPS_PER_PAGE * writer.due) as u64;
        for _ in 0..max_steps.min(self.mapping.max_steps_of(pages(bytes))) {
            let share = |blocks: u64| blocks as f64 / f64::from(geometry.blocks());
            let pace = self.mapping.pace(share(writer.space.spare_blocks()), share(target));
            if writer.due * pace < 1.0 {
                break;
            }
            match self.collect_step(writer) {
                Ok(Some(pages)) => writer.due -= pages / pace,
                Ok(None) => break,
                // Whether there is room without it is checked below.
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error),
            }
        }
        writer.due = writer.due.min(f64::from(geometry.pages_per_block()));
        // Pending records need their pages, too.
        let pages = pages(bytes + self.buffer.bytes() as u64) + 2;
        let needed = self.min_free_blocks(writer) + pages.div_ceil(self.pages_per_block());
        let mut budget = 2 * geometry.pages();
        while writer.space.free_blocks() < needed {
            let collected = match self.collect_step(writer) {
                Err(error) if error.is_transient() => None,
                collected => collected?,
            };
            if collected.is_none() || budget == 0 {
                let before = writer.space.free_blocks();
                self.reclaim(writer, true)?;
                if writer.space.free_blocks() < needed && self.await_readers(writer) {
                    self.reclaim(writer, true)?;
                }
                if writer.space.free_blocks() >= needed {
                    break;
                }
                if writer.space.free_blocks() <= before || budget == 0 {
                    let reason =
                        "the device is full, and every version on it may still be asked for";
                    return Err(self.device.full(reason));
                }
            }
            budget = budget.saturating_sub(1);
        }
        Ok(())
    }

    /// Waits for the readers in retired blocks; each is there for one lookup. Returns `false` if
    /// there are none, or if they stay.
    fn await_readers(&self, writer: &Writer) -> bool {
        let Some(last) = writer.space.retired.back() else { return false };
        let began = Instant::now();
        while self.pins.is_read(last.age) {
            if began.elapsed() > MAX_LOOKUP_TIME {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Refuses to relocate `bytes` bytes if that would leave no room for checkpoints.
    pub(crate) fn check_copies(&self, writer: &Writer, bytes: u64) -> Result<()> {
        let page = self.device.geometry.page_bytes() as u64;
        // Records may leave half of a page empty, and some may be pending.
        let pages = 2 * (bytes + self.buffer.bytes() as u64).div_ceil(page);
        let blocks = writer.space.blocks_for(&self.device, pages)?;
        match writer.space.free_blocks() >= blocks + 2 * self.checkpoint_blocks() + 2 {
            true => Ok(()),
            false => Err(self.device.full("there is no room to relocate what is in the way")),
        }
    }

    /// Collects the whole log once, as far as anything can be discarded.
    pub(crate) fn collect_all(&self, writer: &mut Writer) -> Result<()> {
        writer.force(self)?;
        let end = writer.number;
        while writer.space.tail().is_some_and(|(block, _)| block.last < end) {
            if writer.space.free_blocks() < self.min_free_blocks(writer) {
                self.reclaim(writer, true)?;
                if writer.space.free_blocks() < self.min_free_blocks(writer) {
                    break;
                }
            }
            match self.collect_step(writer) {
                Err(error) if error.is_transient() => break,
                collected => collected?,
            };
        }
        writer.force(self)?;
        self.reclaim(writer, true)
    }

    /// Performs one step of collection; returns the number of log pages that it pays for. `None` if
    /// there is no tail.
    fn collect_step(&self, writer: &mut Writer) -> Result<Option<f64>> {
        let Some((tail, index)) = writer.space.tail() else { return Ok(None) };
        let pages_per_block = self.device.geometry.pages_per_block();
        let spare = writer.space.spare_blocks() as i64 - self.target_free_blocks(writer) as i64;
        let open = writer.space.open_pages(&self.device)?;
        let slack = spare * i64::from(pages_per_block) + open as i64;
        let (next, pages) = match self.mapping.sweep(self, writer, tail, slack)? {
            SweepResult::Done => (pages_per_block, 0.0),
            SweepResult::Relocated(pages) => (index, pages),
            SweepResult::ReadPages => {
                self.collect_page(writer, tail.block, index)?;
                (index + 1, 1.0)
            }
        };
        writer.space.tail = Some((tail, next));
        if next == pages_per_block {
            writer.space.tail = None;
            writer.space.retired_through = writer.space.retired_through.max(tail.last);
            // The copies may still be pending.
            let copies = self.buffer.end();
            let age = self.pins.next_age();
            writer.space.retired.push_back(RetiredBlock { block: tail, copies, age });
            let many = (u64::from(self.device.geometry.blocks()) / 64).max(2);
            self.reclaim(writer, writer.space.retired.len() as u64 >= many)?;
        }
        Ok(Some(pages))
    }

    fn collect_page(&self, writer: &mut Writer, block: u32, index: u32) -> Result<()> {
        if index >= self.device.flash.programmed(block)? {
            return Ok(());
        }
        let page = self.device.geometry.page(block, index);
        match self.device.try_read(page, Purpose::Compaction)? {
            Some(page) => self.mapping.collect(self, writer, page),
            // Usually torn by a power cut; if not, erasing it would hide the damage.
            None => self.mapping.check_lost(self, page),
        }
    }

    /// Frees the retired blocks; with `force` makes durable what they wait for.
    pub(crate) fn reclaim(&self, writer: &mut Writer, force: bool) -> Result<()> {
        let Some(last) = writer.space.retired.back().copied() else { return Ok(()) };
        let is_needed = |writer: &Writer, it: &RetiredBlock| {
            // A mapping that replays the whole log must know which of its pages are gone.
            let must_be_listed =
                self.mapping.replays_all() && it.block.last > writer.retired_by_checkpoint;
            it.block.last >= writer.starts.0 || must_be_listed
        };
        if force {
            if writer.durable_records < last.copies || writer.erased {
                writer.force(self)?;
            }
            // Replay must begin after the block from both checkpoints.
            for _ in 0..2 {
                if is_needed(writer, &last) {
                    self.checkpoint(writer)?;
                }
            }
        }
        while let Some(retired) = writer.space.retired.front().copied() {
            let is_durable = retired.copies <= writer.durable_records;
            if !is_durable || is_needed(writer, &retired) || self.pins.is_read(retired.age) {
                break;
            }
            writer.give_back(self, retired.block.block)?;
            writer.space.retired.pop_front();
        }
        Ok(())
    }
}

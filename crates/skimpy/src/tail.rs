//! The tail of the log: pages are collected as fast as others are programmed, blocks given up and erased.
//!
//! ```text
//!   free blocks │███████████████░░░░│     plenty: nothing to do
//!               │████████░░░░░░░░░░░│     so many steps for each page programmed, copies among them, as the mapping
//!                                         says (`Mapping::pace`, and `rate` in `chains::sweep`)
//!               │█░░░░░░░░░░░░░░░░░░│     hardly enough to copy into: collect until there is more;
//!                                         after a turn of the whole log the device is full
//! ```
//!
//! A step is a page of the tail, or a few buckets where the mapping knows which are oldest (`chains`). Such a step waits
//! for what it reads: so a write takes few, and who comes when many pages were programmed at once does not pay for all.
//!
//! A block that was collected is erased when its copies are durable, no reader is in it, and replay
//! begins behind it from either of the last two checkpoints.
//!
//! Source: SkimpyFTL, section 3.4; the pace is ours.

use std::time::{Duration, Instant};

use siltstone_engine::{Purpose, Result};

use crate::engine::Inner;
use crate::log::Writer;
use crate::mapping::Swept;
use crate::space::Retired;

/// Steps of collection at most for a page that was programmed.
const MOST_FOR_ONE: f64 = 8.0;
/// Longer than any lookup takes, but for one on a device that fails.
const LONGEST_LOOKUP: Duration = Duration::from_secs(1);

impl Inner {
    fn pages_per_block(&self) -> u64 {
        u64::from(self.device.geometry.pages_per_block())
    }

    /// Blocks without which nothing could be copied and no checkpoint written.
    pub(crate) fn least_free(&self, writer: &Writer) -> u64 {
        writer.space.lanes() as u64 + 2 * self.checkpoint_blocks() + 3
    }

    /// Blocks that collection keeps free.
    fn wanted_free(&self, writer: &Writer) -> u64 {
        let share = f64::from(self.device.geometry.blocks()) * self.options.free;
        (share as u64).max(self.least_free(writer) + 2 * writer.space.lanes() as u64)
    }

    /// Collects what is due, and what it takes for a batch of so many bytes to find room.
    ///
    /// # Errors
    /// `StorageFull` if there is nothing to collect.
    pub(crate) fn make_room(&self, writer: &mut Writer, bytes: u64) -> Result<()> {
        let geometry = self.device.geometry;
        let wanted = self.wanted_free(writer);
        // Records have heads of their own, and every part of a batch may leave a page half empty.
        let pages = |bytes: u64| (2 * bytes).div_ceil(geometry.page_bytes() as u64);
        // Where hardly anything can be discarded copies would make copies due for ever.
        let most = (MOST_FOR_ONE * writer.due) as u64;
        for _ in 0..most.min(self.mapping.most_steps(pages(bytes))) {
            let share = |blocks: u64| blocks as f64 / f64::from(geometry.blocks());
            let pace = self.mapping.pace(share(writer.space.spare_blocks()), share(wanted));
            if writer.due * pace < 1.0 {
                break;
            }
            match self.collect_one(writer) {
                Ok(Some(pages)) => writer.due -= pages / pace,
                Ok(None) => break,
                // Whether there is room without it is seen below.
                Err(error) if error.is_transient() => break,
                Err(error) => return Err(error),
            }
        }
        writer.due = writer.due.min(f64::from(geometry.pages_per_block()));
        // Others wait for their pages.
        let pages = pages(bytes + self.pending.bytes() as u64) + 2;
        let needed = self.least_free(writer) + pages.div_ceil(self.pages_per_block());
        let mut budget = 2 * geometry.pages();
        while writer.space.free_blocks() < needed {
            let collected = match self.collect_one(writer) {
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

    /// Waits for the readers that are in blocks that were given up: each is there for one lookup. `false` if
    /// there are none, or if they stay.
    fn await_readers(&self, writer: &Writer) -> bool {
        let Some(last) = writer.space.retired.back() else { return false };
        let began = Instant::now();
        while self.pins.is_read(last.age) {
            if began.elapsed() > LONGEST_LOOKUP {
                return false;
            }
            std::thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// Refuses to remap so many bytes if that would leave no room for checkpoints.
    pub(crate) fn check_copies(&self, writer: &Writer, bytes: u64) -> Result<()> {
        let page = self.device.geometry.page_bytes() as u64;
        // Records may leave half of a page empty, and some may be pending.
        let pages = 2 * (bytes + self.pending.bytes() as u64).div_ceil(page);
        let blocks = writer.space.blocks_for(&self.device, pages)?;
        match writer.space.free_blocks() >= blocks + 2 * self.checkpoint_blocks() + 2 {
            true => Ok(()),
            false => Err(self.device.full("there is no room to remap what is in the way")),
        }
    }

    /// Collects the whole log once, as far as anything can be discarded.
    pub(crate) fn collect_all(&self, writer: &mut Writer) -> Result<()> {
        writer.force(self)?;
        let end = writer.number;
        while writer.space.tail().is_some_and(|(block, _)| block.last < end) {
            if writer.space.free_blocks() < self.least_free(writer) {
                self.reclaim(writer, true)?;
                if writer.space.free_blocks() < self.least_free(writer) {
                    break;
                }
            }
            match self.collect_one(writer) {
                Err(error) if error.is_transient() => break,
                collected => collected?,
            };
        }
        writer.force(self)?;
        self.reclaim(writer, true)
    }

    /// Collects a little of the tail: for how many pages of the log that stands. `None` if there is no
    /// tail.
    fn collect_one(&self, writer: &mut Writer) -> Result<Option<f64>> {
        let Some((tail, index)) = writer.space.tail() else { return Ok(None) };
        let pages_per_block = self.device.geometry.pages_per_block();
        let spare = writer.space.spare_blocks() as i64 - self.wanted_free(writer) as i64;
        let open = writer.space.open_pages(&self.device)?;
        let slack = spare * i64::from(pages_per_block) + open as i64;
        let (next, pages) = match self.mapping.sweep(self, writer, tail, slack)? {
            Swept::Done => (pages_per_block, 0.0),
            Swept::Remapped(pages) => (index, pages),
            Swept::Show => {
                self.collect_page(writer, tail.block, index)?;
                (index + 1, 1.0)
            }
        };
        writer.space.tail = Some((tail, next));
        if next == pages_per_block {
            writer.space.tail = None;
            writer.space.retired_through = writer.space.retired_through.max(tail.last);
            // Copies may still be pending.
            let copies = self.pending.end();
            let age = self.pins.next_age();
            writer.space.retired.push_back(Retired { block: tail, copies, age });
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
        match self.device.look(page, Purpose::Compaction)? {
            Some(page) => self.mapping.collect(self, writer, page),
            // Torn by a power cut, as a rule; if not, erasing it would hide the damage.
            None => self.mapping.check_lost(self, page),
        }
    }

    /// Frees the blocks that were given up; with `force` makes durable what that takes.
    pub(crate) fn reclaim(&self, writer: &mut Writer, force: bool) -> Result<()> {
        let Some(last) = writer.space.retired.back().copied() else { return Ok(()) };
        let is_needed = |writer: &Writer, it: &Retired| {
            // A mapping that reads the whole log again must know which of its pages are gone.
            let is_missed =
                self.mapping.replays_all() && it.block.last > writer.retired_by_checkpoint;
            it.block.last >= writer.starts.0 || is_missed
        };
        if force {
            if writer.durable_records < last.copies || writer.erased {
                writer.force(self)?;
            }
            // Replay must begin behind the block from both checkpoints.
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

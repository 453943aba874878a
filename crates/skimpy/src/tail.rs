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

use crate::checkpoint;
use crate::log::Writer;
use crate::mapping::{Mapping, SweepResult};
use crate::shared::Shared;
use crate::space::RetiredBlock;

/// The maximum number of collection steps per programmed page.
const MAX_STEPS_PER_PAGE: f64 = 8.0;
/// Longer than any lookup takes, except on a failing device; on an overloaded machine one may take
/// seconds.
const MAX_LOOKUP_TIME: Duration = Duration::from_secs(30);

/// Blocks that writes leave free, for copies and checkpoints.
pub(crate) fn min_free_blocks(shared: &Shared, mapping: &dyn Mapping, writer: &Writer) -> u64 {
    writer.space.channels() as u64 + 2 * checkpoint::blocks(shared, mapping) + 3
}

/// Blocks that collection keeps free.
fn target_free_blocks(shared: &Shared, mapping: &dyn Mapping, writer: &Writer) -> u64 {
    let share = f64::from(shared.device.geometry.blocks()) * shared.options.reserved_space;
    (share as u64)
        .max(min_free_blocks(shared, mapping, writer) + 2 * writer.space.channels() as u64)
}

/// Collects what is due, and as much as a batch of `bytes` bytes needs to find room.
///
/// # Errors
/// `StorageFull` if nothing can be collected.
pub(crate) fn make_room(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    bytes: u64,
) -> Result<()> {
    let geometry = shared.device.geometry;
    let target = target_free_blocks(shared, mapping, writer);
    // Records have headers, and each part of a batch may leave a page half empty.
    let pages = |bytes: u64| (2 * bytes).div_ceil(geometry.page_bytes() as u64);
    // Limited, because where little can be discarded copies make ever more copies due.
    let max_steps = (MAX_STEPS_PER_PAGE * writer.due) as u64;
    for _ in 0..max_steps.min(mapping.max_steps_of(pages(bytes))) {
        let share = |blocks: u64| blocks as f64 / f64::from(geometry.blocks());
        let pace = mapping.pace(share(writer.space.spare_blocks()), share(target));
        if writer.due * pace < 1.0 {
            break;
        }
        match collect_step(shared, mapping, writer) {
            Ok(Some(pages)) => writer.due -= pages / pace,
            Ok(None) => break,
            // Whether there is room without it is checked below.
            Err(error) if error.is_transient() => break,
            Err(error) => return Err(error),
        }
    }
    writer.due = writer.due.min(f64::from(geometry.pages_per_block()));
    // Pending records need their pages, too.
    let pages = pages(bytes + shared.buffer.bytes() as u64) + 2;
    let needed =
        min_free_blocks(shared, mapping, writer) + pages.div_ceil(shared.pages_per_block());
    let mut budget = 2 * geometry.pages();
    while writer.space.free_blocks() < needed {
        let collected = match collect_step(shared, mapping, writer) {
            Err(error) if error.is_transient() => None,
            collected => collected?,
        };
        if collected.is_none() || budget == 0 {
            let before = writer.space.free_blocks();
            reclaim(shared, mapping, writer, true)?;
            if writer.space.free_blocks() < needed && await_readers(shared, writer) {
                reclaim(shared, mapping, writer, true)?;
            }
            if writer.space.free_blocks() >= needed {
                break;
            }
            if writer.space.free_blocks() <= before || budget == 0 {
                let reason = "the device is full, and every version on it is still readable";
                return Err(shared.device.full(reason));
            }
        }
        budget = budget.saturating_sub(1);
    }
    Ok(())
}

/// Waits for the readers in retired blocks; each is there for one lookup. Returns `false` if
/// there are none, or if they stay.
fn await_readers(shared: &Shared, writer: &Writer) -> bool {
    let Some(last) = writer.space.retired.back() else { return false };
    let began = Instant::now();
    while shared.pins.is_read(last.age) {
        if began.elapsed() > MAX_LOOKUP_TIME {
            return false;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    true
}

/// Refuses to relocate `bytes` bytes if that would leave no room for a checkpoint.
///
/// Writes leave more blocks free ([`min_free_blocks`]): the difference is the reserve of
/// collection, which frees the block at the tail for its copies.
pub(crate) fn check_copies(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &Writer,
    bytes: u64,
) -> Result<()> {
    let page = shared.device.geometry.page_bytes() as u64;
    // Records may leave half of a page empty, and some may be pending.
    let pages = 2 * (bytes + shared.buffer.bytes() as u64).div_ceil(page);
    let blocks = writer.space.blocks_for(&shared.device, pages)?;
    // One checkpoint at a time: the next one takes the blocks of an older one. One block more, in
    // case that one is worn out.
    match writer.space.free_blocks() > blocks + checkpoint::blocks(shared, mapping) {
        true => Ok(()),
        false => Err(shared.device.full("there is no room to relocate what is in the way")),
    }
}

/// Collects the whole log once, as far as anything can be discarded.
pub(crate) fn collect_all(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
) -> Result<()> {
    writer.force(shared, mapping)?;
    let end = writer.number;
    while writer.space.tail().is_some_and(|(block, _)| block.last < end) {
        if writer.space.free_blocks() < min_free_blocks(shared, mapping, writer) {
            reclaim(shared, mapping, writer, true)?;
            if writer.space.free_blocks() < min_free_blocks(shared, mapping, writer) {
                break;
            }
        }
        match collect_step(shared, mapping, writer) {
            Err(error) if error.is_transient() => break,
            collected => collected?,
        };
    }
    writer.force(shared, mapping)?;
    reclaim(shared, mapping, writer, true)
}

/// Performs one step of collection; returns the number of log pages that it pays for. `None` if
/// there is no tail.
fn collect_step(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
) -> Result<Option<f64>> {
    let Some((tail, index)) = writer.space.tail() else { return Ok(None) };
    let pages_per_block = shared.device.geometry.pages_per_block();
    let spare =
        writer.space.spare_blocks() as i64 - target_free_blocks(shared, mapping, writer) as i64;
    let open = writer.space.open_pages(&shared.device)?;
    let slack = spare * i64::from(pages_per_block) + open as i64;
    let (next, pages) = match mapping.sweep(shared, writer, tail, slack)? {
        SweepResult::Done => (pages_per_block, 0.0),
        SweepResult::Relocated(pages) => (index, pages),
        SweepResult::ReadPages => {
            collect_page(shared, mapping, writer, tail.block, index)?;
            (index + 1, 1.0)
        }
    };
    writer.space.tail = Some((tail, next));
    if next == pages_per_block {
        writer.space.tail = None;
        writer.space.retired_through = writer.space.retired_through.max(tail.last);
        // The copies may still be pending.
        let copies = shared.buffer.end();
        let age = shared.pins.next_age();
        writer.space.retired.push_back(RetiredBlock { block: tail, copies, age });
        let many = (u64::from(shared.device.geometry.blocks()) / 64).max(2);
        reclaim(shared, mapping, writer, writer.space.retired.len() as u64 >= many)?;
    }
    Ok(Some(pages))
}

fn collect_page(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    block: u32,
    index: u32,
) -> Result<()> {
    if index >= shared.device.flash.programmed(block)? {
        return Ok(());
    }
    let page = shared.device.geometry.page(block, index);
    match shared.device.try_read(page, Purpose::Compaction)? {
        Some(page) => mapping.collect(shared, writer, page),
        // Usually torn by a power cut; if not, erasing it would hide the damage.
        None => mapping.check_lost(shared, page),
    }
}

/// Frees the retired blocks; with `force` makes durable what they wait for.
pub(crate) fn reclaim(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    force: bool,
) -> Result<()> {
    let Some(last) = writer.space.retired.back().copied() else { return Ok(()) };
    let is_needed = |writer: &Writer, it: &RetiredBlock| {
        // A mapping that replays the whole log must know which of its pages are gone.
        let must_be_listed = mapping.replays_all() && it.block.last > writer.retired_by_checkpoint;
        it.block.last >= writer.starts.0 || must_be_listed
    };
    if force {
        if writer.durable_records < last.copies || writer.erased {
            writer.force(shared, mapping)?;
        }
        // Replay must begin after the block from both checkpoints.
        for _ in 0..2 {
            if is_needed(writer, &last) {
                checkpoint::write(shared, mapping, writer)?;
            }
        }
    }
    while let Some(retired) = writer.space.retired.front().copied() {
        let is_durable = retired.copies <= writer.durable_records;
        if !is_durable || is_needed(writer, &retired) || shared.pins.is_read(retired.age) {
            break;
        }
        writer.give_back(shared, retired.block.block)?;
        writer.space.retired.pop_front();
    }
    Ok(())
}

//! Assigns every block of the device to its state after replay: free, sealed, or open for the log.

use siltstone_engine::{Purpose, Result};

use super::device_scan::DeviceScan;
use super::replay::ReplayResult;
use crate::checkpoint::Checkpoint;
use crate::device::Device;
use crate::options::Options;
use crate::space::{LogBlock, Space};

/// The highest page number of a block. Over a translation layer its last page may be one from
/// before its last erase.
fn last_of(device: &Device, block: u32) -> Result<u64> {
    let mut last = 0;
    for index in 0..device.flash.programmed(block)? {
        let page = device.geometry.page(block, index);
        if let Some(page) = device.try_read(page, Purpose::Recovery)? {
            last = last.max(page.header.number);
        }
    }
    Ok(last)
}

/// An upper bound of the page numbers of a block that was not replayed and begins with page
/// `first` of the log.
///
/// A torn last page must not make the block seem as new as the log: it could be erased only after
/// every bucket was relocated, and each opening would begin that again.
fn max_last(device: &Device, options: &Options, block: u32, first: u64) -> Result<u64> {
    // The lead of a channel is limited (`Space::next_channel`, `can_append`), so the numbers of
    // consecutive pages of a block differ by less than this.
    let max_gap = 4 * u64::from(device.geometry.pages_per_block()) * u64::from(options.channels);
    let mut unreadable = 0;
    for index in (0..device.flash.programmed(block)?).rev() {
        match device.try_read(device.geometry.page(block, index), Purpose::Recovery)? {
            None => unreadable += 1,
            // Over a translation layer pages from before the block's last erase may follow.
            Some(page) if page.header.number < first => {}
            Some(page) => return Ok(page.header.number + unreadable * max_gap),
        }
    }
    Ok(u64::MAX)
}

/// Assigns every block to its state; returns the number of the newest checkpoint, complete or not.
pub(super) fn assign_blocks(
    device: &Device,
    options: &Options,
    scan: DeviceScan,
    found: &Checkpoint,
    number: u64,
    previous: Option<u64>,
    replayed: &ReplayResult,
) -> Result<(Space, u64)> {
    let mut space = Space::new(options.channels);
    space.retired_through = found.retired_through;
    let newest = scan.checkpoints.last_key_value().map_or(0, |(number, _)| *number);
    for block in scan.erased.into_iter().chain(scan.unknown) {
        space.set_free(block, device.flash.erases(block)?);
    }
    for (of, parts) in scan.checkpoints {
        if of == number || Some(of) == previous {
            space.checkpoints.push_back(parts.blocks);
            continue;
        }
        for block in parts.blocks {
            space.set_free(block, device.flash.erases(block)?);
        }
    }
    for LogBlock { block, first, .. } in scan.log {
        // All of its pages were cut off.
        if first >= replayed.end {
            space.set_free(block, device.flash.erases(block)?);
            continue;
        }
        // The last page of a block that was not replayed is before the checkpoint's start. The
        // exact number is worth a read: the block is not freed before all buckets were relocated
        // after it.
        let last = match replayed.last_of.get(&block) {
            Some(last) => *last,
            None if first < found.tail => last_of(device, block)?,
            None => {
                max_last(device, options, block, first)?.min(found.replay_start.saturating_sub(1))
            }
        };
        // Retired, but not erased in time.
        if last < found.tail {
            space.set_free(block, device.flash.erases(block)?);
            continue;
        }
        let block = LogBlock { block, first, last: last.max(first) };
        match can_append(device, options, block, replayed.end)? {
            true => space.reopen(block),
            false => space.add_sealed(block),
        }
    }
    Ok((space, newest))
}

/// Whether the log can continue in a block that is not full, so that a crash during opening costs
/// pages and not a block per channel. All of its pages must be of the replayed log, and the last of
/// them near its end: a block with pages of the whole log would retire only after all buckets were
/// relocated.
fn can_append(device: &Device, options: &Options, block: LogBlock, end: u64) -> Result<bool> {
    let programmed = device.flash.programmed(block.block)?;
    let pages_per_block = device.geometry.pages_per_block();
    let near = u64::from(pages_per_block) * u64::from(options.channels);
    if programmed == pages_per_block || block.last + near < end {
        return Ok(false);
    }
    // Over a translation layer pages from before the last erase may follow: they have lower
    // numbers.
    let mut next = block.first;
    for index in 0..programmed {
        let page = device.try_read(device.geometry.page(block.block, index), Purpose::Recovery)?;
        let number = page.map(|page| page.header.number);
        match number.filter(|number| (next..end).contains(number)) {
            Some(number) => next = number + 1,
            None => return Ok(false),
        }
    }
    Ok(true)
}

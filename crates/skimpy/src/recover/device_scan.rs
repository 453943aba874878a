//! Scan of the device at open: which blocks are erased, in the log, or parts of checkpoints.
//!
//! The first readable page of a block shows its kind. Of checkpoints all pages are read.

use std::collections::BTreeMap;

use siltstone_engine::{Purpose, Result};

use crate::checkpoint::{self, Checkpoint};
use crate::device::Device;
use crate::page::Kind;
use crate::space::LogBlock;

/// The blocks of a device by kind.
#[derive(Default)]
pub(super) struct DeviceScan {
    pub(super) erased: Vec<u32>,
    /// Blocks without a readable page.
    pub(super) unknown: Vec<u32>,
    pub(super) log: Vec<LogBlock>,
    /// By checkpoint number.
    pub(super) checkpoints: BTreeMap<u64, CheckpointParts>,
    pub(super) newest_epoch: u32,
}

/// The pages of a checkpoint that were found.
#[derive(Default)]
pub(super) struct CheckpointParts {
    /// The number of pages of the whole checkpoint.
    pages: u32,
    parts: BTreeMap<u32, Vec<u8>>,
    pub(super) blocks: Vec<u32>,
    pub(super) floor: u64,
}

impl CheckpointParts {
    /// The bytes of the checkpoint, if no page of it is missing.
    fn bytes_if_complete(&self) -> Option<Vec<u8>> {
        let is_complete_set = self.pages > 0 && self.parts.len() == self.pages as usize;
        is_complete_set.then(|| self.parts.values().flatten().copied().collect())
    }
}

/// Reads the first readable page of each block, and all pages of checkpoints.
pub(super) fn scan_blocks(device: &Device) -> Result<DeviceScan> {
    let mut scan = DeviceScan::default();
    for block in 0..device.geometry.blocks() {
        let programmed = device.flash.programmed(block)?;
        let pages = (0..programmed).map(|index| device.geometry.page(block, index));
        let mut first = None;
        for page in pages.clone() {
            first = device.try_read(page, Purpose::Recovery)?;
            if first.is_some() {
                break;
            }
        }
        match first {
            None if programmed == 0 => scan.erased.push(block),
            None => scan.unknown.push(block),
            Some(first) if first.header.kind == Kind::Checkpoint => {
                let parts = scan.checkpoints.entry(first.header.number).or_default();
                parts.blocks.push(block);
                for page in pages {
                    let Some(page) = device.try_read(page, Purpose::Recovery)? else { continue };
                    // Over a translation layer, pages from before the block's last erase may show
                    // again.
                    let is_part = page.header.kind == Kind::Checkpoint;
                    if !is_part || page.header.number != first.header.number {
                        continue;
                    }
                    let (index, count, part) = checkpoint::part(&page);
                    parts.pages = count;
                    parts.floor = parts.floor.max(page.header.floor);
                    parts.parts.insert(index, part.to_vec());
                }
            }
            Some(first) => {
                scan.newest_epoch = scan.newest_epoch.max(first.header.epoch);
                let first = first.header.number;
                // The last number is unknown here, because pages alternate between channels:
                // replay, or the last page of the block, determines it.
                scan.log.push(LogBlock { block, first, last: first });
            }
        }
    }
    scan.log.sort_by_key(|block| block.first);
    Ok(scan)
}

/// The newest complete checkpoint, if there is one.
pub(crate) fn newest_complete_checkpoint(device: &Device) -> Result<Option<Checkpoint>> {
    Ok(newest_checkpoint(device, &scan_blocks(device)?)?.map(|(_, checkpoint)| checkpoint))
}

/// As [`newest_complete_checkpoint`], with its number.
pub(super) fn newest_checkpoint(
    device: &Device,
    scan: &DeviceScan,
) -> Result<Option<(u64, Checkpoint)>> {
    for (number, parts) in scan.checkpoints.iter().rev() {
        if let Some(bytes) = parts.bytes_if_complete() {
            let page = parts.blocks.first().map_or(0, |block| device.geometry.page(*block, 0));
            let decoded = Checkpoint::decode(&bytes);
            return Ok(Some((*number, decoded.map_err(|reason| device.corrupt(page, reason))?)));
        }
    }
    Ok(None)
}

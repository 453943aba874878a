//! Allocation of blocks: free, open, part of the log, retired, or of a checkpoint.
//!
//! ```text
//!   free ──▶ open, one per channel ──▶ sealed, oldest first ──▶ retired ──▶ erased: free
//!    │                                 the tail                when nothing can need it
//!    └─────▶ checkpoint ───────────────────────────────────▶ when the second after it is durable
//! ```
//!
//! The log wraps around the device, and the least worn free block of a channel is used first. So
//! wear is levelled without moving data for it. A block that cannot be erased any more is left out.
//!
//! Invariant: every block is in one state; log page numbers ascend within a block.
//!
//! Source: SkimpyFTL, sections 2.1 and 3.4.

use std::collections::{BTreeSet, VecDeque};

use crate::flash::{Completion, FlashError};
use siltstone_engine::{Purpose, Result};

use crate::channels::Channels;
use crate::device::Device;

/// A block of the log and the numbers of its first and last page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogBlock {
    pub(crate) block: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// An open block, and the numbers of its first and last page, once there are any.
type OpenBlock = (u32, Option<(u64, u64)>);

/// A block whose live versions were relocated.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RetiredBlock {
    pub(crate) block: LogBlock,
    /// The copies are records below this number (`write_buffer`).
    pub(crate) copies: u64,
    /// Readers of this age or earlier may still be in it.
    pub(crate) age: u64,
}

pub(crate) struct Space {
    /// By channel, the least worn first.
    free: Vec<BTreeSet<(u64, u32)>>,
    /// By channel; no numbers if no page was programmed yet.
    open: Vec<Option<OpenBlock>>,
    channels: Channels,
    pub(crate) sealed: VecDeque<LogBlock>,
    /// The block that is being collected, and the number of its pages that were.
    pub(crate) tail: Option<(LogBlock, u32)>,
    /// The last page of all retired blocks.
    pub(crate) retired_through: u64,
    pub(crate) retired: VecDeque<RetiredBlock>,
    /// Blocks of the last two checkpoints, the older first.
    pub(crate) checkpoints: VecDeque<Vec<u32>>,
    pub(crate) worn: u64,
    pub(crate) erases: u64,
}

/// Pages left in the open block of a channel.
fn pages_left(open: &Option<OpenBlock>, device: &Device) -> Result<u64> {
    let Some((block, _)) = open else { return Ok(0) };
    let left = device.geometry.pages_per_block().saturating_sub(device.flash.programmed(*block)?);
    Ok(u64::from(left))
}

impl Space {
    pub(crate) fn new(channels: u32) -> Self {
        Space {
            free: vec![BTreeSet::new(); channels as usize],
            open: vec![None; channels as usize],
            channels: Channels::new(channels),
            sealed: VecDeque::new(),
            tail: None,
            retired_through: 0,
            retired: VecDeque::new(),
            checkpoints: VecDeque::new(),
            worn: 0,
            erases: 0,
        }
    }

    pub(crate) fn channels(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free.iter().map(|channel| channel.len() as u64).sum()
    }

    /// Blocks that are free, or will be once they are erased.
    pub(crate) fn spare_blocks(&self) -> u64 {
        self.free_blocks() + self.retired.len() as u64
    }

    /// Free blocks that `pages` more pages of the log need, beyond the open blocks.
    pub(crate) fn blocks_for(&self, device: &Device, pages: u64) -> Result<u64> {
        let ppb = u64::from(device.geometry.pages_per_block());
        let of_channel = pages.div_ceil(self.open.len() as u64);
        let mut blocks = 0;
        for open in &self.open {
            blocks += of_channel.saturating_sub(pages_left(open, device)?).div_ceil(ppb);
        }
        Ok(blocks)
    }

    /// Pages left in the open blocks of all channels.
    pub(crate) fn open_pages(&self, device: &Device) -> Result<u64> {
        self.open.iter().map(|open| pages_left(open, device)).sum()
    }

    pub(crate) fn open_blocks(&self) -> Vec<u32> {
        self.open.iter().flatten().map(|(block, _)| *block).collect()
    }

    pub(crate) fn set_free(&mut self, block: u32, erases: u64) {
        let channel = block as usize % self.free.len();
        self.free[channel].insert((erases, block));
    }

    /// Takes the least worn free block, erased: of this channel if there is one.
    pub(crate) fn take_free(
        &mut self,
        device: &Device,
        channel: usize,
        erases: &mut VecDeque<Completion>,
    ) -> Result<u32> {
        loop {
            let fullest = (0..self.free.len()).max_by_key(|channel| self.free[*channel].len());
            let from =
                if self.free[channel].is_empty() { fullest.unwrap_or(channel) } else { channel };
            let Some(&(age, block)) = self.free[from].first() else {
                return Err(device.full("no block of the device is free"));
            };
            let is_good =
                device.flash.programmed(block)? == 0 || self.erase(device, block, erases)?;
            self.free[from].remove(&(age, block));
            if is_good {
                return Ok(block);
            }
        }
    }

    /// Erases a block; `false` if it is worn out, and left out from now on.
    pub(crate) fn erase(
        &mut self,
        device: &Device,
        block: u32,
        erases: &mut VecDeque<Completion>,
    ) -> Result<bool> {
        match device.submit_erase(block, Purpose::Compaction) {
            Ok(completion) => {
                self.erases += 1;
                erases.push_back(completion);
                Ok(true)
            }
            Err(FlashError::WornOut { .. }) => {
                self.worn += 1;
                Ok(false)
            }
            Err(other) => Err(other.into()),
        }
    }

    /// The next page of the log, and its channel.
    pub(crate) fn next_page(
        &mut self,
        device: &Device,
        erases: &mut VecDeque<Completion>,
    ) -> Result<(u32, usize)> {
        let channel = self.next_channel(device);
        loop {
            if let Some((block, numbers)) = self.open[channel] {
                let index = device.flash.programmed(block)?;
                if index < device.geometry.pages_per_block() {
                    return Ok((device.geometry.page(block, index), channel));
                }
                self.open[channel] = None;
                self.seal(block, numbers, device)?;
            }
            self.open[channel] = Some((self.take_free(device, channel, erases)?, None));
        }
    }

    /// The channel of the next page: the least loaded one, or round robin where free blocks are
    /// scarce, as [`blocks_for`](Self::blocks_for) assumes.
    fn next_channel(&self, device: &Device) -> usize {
        if self.free_blocks() <= self.channels() as u64 {
            return self.channels.round_robin();
        }
        // With a larger lead the pages of a block would be far apart in the log, and it would
        // retire late.
        self.channels
            .least_loaded(device.geometry.pages_per_block(), |channel| device.busy_until(channel))
    }

    fn seal(&mut self, block: u32, numbers: Option<(u64, u64)>, device: &Device) -> Result<()> {
        match numbers {
            Some((first, last)) => self.add_sealed(LogBlock { block, first, last }),
            // No page was programmed successfully.
            None => self.set_free(block, device.flash.erases(block)?),
        }
        Ok(())
    }

    pub(crate) fn add_sealed(&mut self, sealed: LogBlock) {
        let at = self.sealed.partition_point(|other| other.first < sealed.first);
        self.sealed.insert(at, sealed);
    }

    /// Reopens a block of the log that is not full; of two of one channel the one with later pages.
    pub(crate) fn reopen(&mut self, block: LogBlock) {
        let channel = block.block as usize % self.open.len();
        let is_later = |other: LogBlock| other.first > block.first;
        let of_channel = self.open[channel].and_then(|(other, numbers)| {
            numbers.map(|(first, last)| LogBlock { block: other, first, last })
        });
        let (open, sealed) = match of_channel {
            Some(other) if is_later(other) => (other, Some(block)),
            other => (block, other),
        };
        self.open[channel] = Some((open.block, Some((open.first, open.last))));
        if let Some(sealed) = sealed {
            self.add_sealed(sealed);
        }
    }

    /// Records that a page of the channel was programmed with this number.
    pub(crate) fn programmed(&mut self, channel: usize, number: u64) {
        if let Some((_, numbers)) = &mut self.open[channel] {
            let (first, _) = numbers.unwrap_or((number, number));
            *numbers = Some((first, number));
        }
        self.channels.assign(channel);
    }

    /// The lowest page number that the log still needs.
    pub(crate) fn lowest(&self, end: u64) -> u64 {
        let open = self.open.iter().flatten().filter_map(|(_, numbers)| numbers.map(|n| n.0));
        let sealed = self.sealed.front().map(|block| block.first);
        let tail = self.tail.map(|(block, _)| block.first);
        open.chain(sealed).chain(tail).min().unwrap_or(end)
    }

    /// The block at the tail and the index of its next page to collect.
    pub(crate) fn tail(&mut self) -> Option<(LogBlock, u32)> {
        if self.tail.is_none() {
            self.tail = self.sealed.pop_front().map(|block| (block, 0));
        }
        self.tail
    }
}

impl Space {
    /// The erase counts of the least and the most worn free block.
    pub(crate) fn wear(&self) -> (u64, u64) {
        let least = self.free.iter().filter_map(|channel| channel.first()).map(|it| it.0).min();
        let most = self.free.iter().filter_map(|channel| channel.last()).map(|it| it.0).max();
        (least.unwrap_or(0), most.unwrap_or(0))
    }
}

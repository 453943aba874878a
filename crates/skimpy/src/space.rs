//! Which block is what: free, open, part of the log, given up, or a checkpoint's.
//!
//! ```text
//!   free ──▶ open, one a lane ──▶ sealed, oldest first ──▶ retired ──▶ erased: free
//!    │                                 the tail              when nothing can need it any more
//!    └─────▶ checkpoint ───────────────────────────────────▶ when the second after it is durable
//! ```
//!
//! The log goes round the device and the least worn free block of a lane is taken first: so wear is
//! levelled without moving anything for its sake. A block that bears no more erases is left out.
//!
//! Invariant: every block is in one place; pages of the log have growing numbers within a block.
//!
//! Source: SkimpyFTL, sections 2.1 and 3.4; ours in the rest.

use std::collections::{BTreeSet, VecDeque};

use siltstone_engine::{Purpose, Result};

use crate::device::Device;
use crate::flash::{Completion, FlashError};
use crate::lanes::Lanes;

/// A block of the log and the numbers of its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogBlock {
    pub(crate) block: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
}

/// An open block, and the numbers of its first and its last page, once there are any.
type Open = (u32, Option<(u64, u64)>);

/// A block whose live versions were remapped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Retired {
    pub(crate) block: LogBlock,
    /// The copies are records below this number (`pending`).
    pub(crate) copies: u64,
    /// Readers of this age may still be in it.
    pub(crate) age: u64,
}

pub(crate) struct Space {
    /// By lane, the least worn first.
    free: Vec<BTreeSet<(u64, u32)>>,
    /// By lane; `None` for the numbers: no page was programmed yet.
    open: Vec<Option<Open>>,
    lanes: Lanes,
    pub(crate) sealed: VecDeque<LogBlock>,
    /// The block that is being collected, and how many of its pages were.
    pub(crate) tail: Option<(LogBlock, u32)>,
    /// The last page of any block that was given up.
    pub(crate) retired_through: u64,
    pub(crate) retired: VecDeque<Retired>,
    /// Blocks of the last two checkpoints, the older first.
    pub(crate) checkpoints: VecDeque<Vec<u32>>,
    pub(crate) worn: u64,
    pub(crate) erases: u64,
}

/// Pages that a lane's open block has room for.
fn pages_left(open: &Option<Open>, device: &Device) -> Result<u64> {
    let Some((block, _)) = open else { return Ok(0) };
    let left = device.geometry.pages_per_block().saturating_sub(device.flash.programmed(*block)?);
    Ok(u64::from(left))
}

impl Space {
    pub(crate) fn new(lanes: u32) -> Self {
        Space {
            free: vec![BTreeSet::new(); lanes as usize],
            open: vec![None; lanes as usize],
            lanes: Lanes::new(lanes),
            sealed: VecDeque::new(),
            tail: None,
            retired_through: 0,
            retired: VecDeque::new(),
            checkpoints: VecDeque::new(),
            worn: 0,
            erases: 0,
        }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.open.len()
    }

    pub(crate) fn free_blocks(&self) -> u64 {
        self.free.iter().map(|lane| lane.len() as u64).sum()
    }

    /// Blocks that are free, or will be as soon as they are erased.
    pub(crate) fn spare_blocks(&self) -> u64 {
        self.free_blocks() + self.retired.len() as u64
    }

    /// Free blocks that so many pages more of the log take: the lanes' open blocks have room for some.
    pub(crate) fn blocks_for(&self, device: &Device, pages: u64) -> Result<u64> {
        let ppb = u64::from(device.geometry.pages_per_block());
        let of_lane = pages.div_ceil(self.open.len() as u64);
        let mut blocks = 0;
        for open in &self.open {
            blocks += of_lane.saturating_sub(pages_left(open, device)?).div_ceil(ppb);
        }
        Ok(blocks)
    }

    /// Pages that the lanes' open blocks have room for.
    pub(crate) fn open_pages(&self, device: &Device) -> Result<u64> {
        self.open.iter().map(|open| pages_left(open, device)).sum()
    }

    pub(crate) fn open_blocks(&self) -> Vec<u32> {
        self.open.iter().flatten().map(|(block, _)| *block).collect()
    }

    pub(crate) fn set_free(&mut self, block: u32, erases: u64) {
        let lane = block as usize % self.free.len();
        self.free[lane].insert((erases, block));
    }

    /// The least worn free block, erased: of this lane if there is one.
    pub(crate) fn take_free(
        &mut self,
        device: &Device,
        lane: usize,
        erases: &mut VecDeque<Completion>,
    ) -> Result<u32> {
        loop {
            let fullest = (0..self.free.len()).max_by_key(|lane| self.free[*lane].len());
            let from = if self.free[lane].is_empty() { fullest.unwrap_or(lane) } else { lane };
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

    /// Erases a block; `false` if it bears no more, and is left out from now on.
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

    /// The next page of the log, and its lane.
    pub(crate) fn next_page(
        &mut self,
        device: &Device,
        erases: &mut VecDeque<Completion>,
    ) -> Result<(u32, usize)> {
        let lane = self.next_lane(device);
        loop {
            if let Some((block, numbers)) = self.open[lane] {
                let index = device.flash.programmed(block)?;
                if index < device.geometry.pages_per_block() {
                    return Ok((device.geometry.page(block, index), lane));
                }
                self.open[lane] = None;
                self.seal(block, numbers, device)?;
            }
            self.open[lane] = Some((self.take_free(device, lane, erases)?, None));
        }
    }

    /// The lane of the next page. Where blocks are short pages go in turn, as [`blocks_for`](Self::blocks_for)
    /// counts on.
    fn next_lane(&self, device: &Device) -> usize {
        if self.free_blocks() <= self.lanes() as u64 {
            return self.lanes.in_turn();
        }
        // A block's length: by more its pages would lie far apart in the log, and it would be given up late.
        self.lanes.idlest(device.geometry.pages_per_block(), |lane| device.done(lane))
    }

    fn seal(&mut self, block: u32, numbers: Option<(u64, u64)>, device: &Device) -> Result<()> {
        match numbers {
            Some((first, last)) => self.add_sealed(LogBlock { block, first, last }),
            // Every page of it failed.
            None => self.set_free(block, device.flash.erases(block)?),
        }
        Ok(())
    }

    pub(crate) fn add_sealed(&mut self, sealed: LogBlock) {
        let at = self.sealed.partition_point(|other| other.first < sealed.first);
        self.sealed.insert(at, sealed);
    }

    /// Goes on in a block of the log that is not full; of two of one lane in the one with the later pages.
    pub(crate) fn reopen(&mut self, block: LogBlock) {
        let lane = block.block as usize % self.open.len();
        let is_later = |other: LogBlock| other.first > block.first;
        let of_lane = self.open[lane].and_then(|(other, numbers)| {
            numbers.map(|(first, last)| LogBlock { block: other, first, last })
        });
        let (open, sealed) = match of_lane {
            Some(other) if is_later(other) => (other, Some(block)),
            other => (block, other),
        };
        self.open[lane] = Some((open.block, Some((open.first, open.last))));
        if let Some(sealed) = sealed {
            self.add_sealed(sealed);
        }
    }

    /// A page of the lane was programmed with this number.
    pub(crate) fn programmed(&mut self, lane: usize, number: u64) {
        if let Some((_, numbers)) = &mut self.open[lane] {
            let (first, _) = numbers.unwrap_or((number, number));
            *numbers = Some((first, number));
        }
        self.lanes.took(lane);
    }

    /// The lowest number of a page that the log still needs.
    pub(crate) fn lowest(&self, end: u64) -> u64 {
        let open = self.open.iter().flatten().filter_map(|(_, numbers)| numbers.map(|n| n.0));
        let sealed = self.sealed.front().map(|block| block.first);
        let tail = self.tail.map(|(block, _)| block.first);
        open.chain(sealed).chain(tail).min().unwrap_or(end)
    }

    /// The block of the tail and the index of its next page to collect.
    pub(crate) fn tail(&mut self) -> Option<(LogBlock, u32)> {
        if self.tail.is_none() {
            self.tail = self.sealed.pop_front().map(|block| (block, 0));
        }
        self.tail
    }
}

impl Space {
    /// Erases of the least and of the most worn free block.
    pub(crate) fn wear(&self) -> (u64, u64) {
        let least = self.free.iter().filter_map(|lane| lane.first()).map(|it| it.0).min();
        let most = self.free.iter().filter_map(|lane| lane.last()).map(|it| it.0).max();
        (least.unwrap_or(0), most.unwrap_or(0))
    }
}

//! What a power cut leaves of what was in flight.
//!
//! A channel serves its requests one after the other, so of those in flight on a channel the first
//! ones happened, one may have been under way, and the others never began:
//!
//! ```text
//!   channel 0    program ✓   erase ✓   program ½   program ✗        drawn from the seed,
//!   channel 1    erase ½                                            for each channel
//!
//!   program ½    erased as before | garbage that reads well | unreadable | whole
//!   erase ½      as before, or each page: as before | garbage that reads well | unreadable
//! ```
//!
//! Garbage reads without an error, as raw flash does when its error correction is deceived: only a
//! checksum of the reader's own tells. A block that is half erased counts as full: nothing can be
//! programmed before it is erased anew.
//!
//! Invariant: a survivor is a function of the state and the seed; what was not in flight is in every
//! survivor.
//!
//! Source: ours; what a cut leaves of a program and of an erase follows Tseng, Grupp and Swanson,
//! "Understanding the Impact of Power Loss on Flash Memory", DAC 2011.

use std::sync::Arc;

use siltstone_structures::SplitMix64;

use super::cells::Image;
use super::memory::BlockImage;
use super::power::{Change, InFlight};
use super::{Geometry, Timing};

/// Spoils the images of all blocks as a cut with these changes in flight might have.
pub(super) fn cut(
    blocks: &mut [BlockImage],
    mut in_flight: Vec<InFlight>,
    geometry: &Geometry,
    timing: &Timing,
    seed: u64,
) {
    in_flight.sort_by_key(|change| change.done);
    for channel in 0..timing.channels.max(1) {
        let mut random = SplitMix64::stream(seed, u64::from(channel));
        let here = |change: &&InFlight| timing.channel_of(change.block) == channel;
        let mut here: Vec<&InFlight> = in_flight.iter().filter(here).collect();
        let under_way = random.below(here.len() as u64 + 1) as usize;
        while here.len() > under_way + 1 {
            here.pop().into_iter().for_each(|change| undo(blocks, change));
        }
        if let Some(change) = here.get(under_way) {
            tear(blocks, change, geometry, &mut random);
        }
    }
}

fn undo(blocks: &mut [BlockImage], change: &InFlight) {
    let block = &mut blocks[change.block as usize];
    match &change.change {
        Change::Program(place) => block.pages.truncate(place.index as usize),
        Change::Erase(before) => *block = before.clone(),
    }
}

fn tear(
    blocks: &mut [BlockImage],
    change: &InFlight,
    geometry: &Geometry,
    random: &mut SplitMix64,
) {
    let block = &mut blocks[change.block as usize];
    match &change.change {
        Change::Program(_) => {
            let Some(page) = block.pages.pop() else { return };
            match random.below(4) {
                0 => {}
                1 => block.pages.push(garbage(&page, geometry, random)),
                2 => block.pages.push(Image::Unreadable),
                _ => block.pages.push(page),
            }
        }
        // Power went before the pulse did.
        Change::Erase(before) if random.below(3) == 0 => *block = before.clone(),
        Change::Erase(before) => {
            let spoil = |page: &Image, random: &mut SplitMix64| match random.below(3) {
                0 => page.clone(),
                1 => garbage(page, geometry, random),
                _ => Image::Unreadable,
            };
            block.pages = before.pages.iter().map(|page| spoil(page, random)).collect();
            block.pages.resize(geometry.pages_per_block() as usize, Image::Unreadable);
        }
    }
}

/// The page up to some byte, and noise from there on.
fn garbage(page: &Image, geometry: &Geometry, random: &mut SplitMix64) -> Image {
    let mut bytes = match page {
        Image::Bytes(bytes) => bytes.to_vec(),
        Image::Unreadable => return Image::Unreadable,
    };
    let good = random.below(geometry.page_bytes() as u64) as usize;
    for byte in &mut bytes[good..] {
        *byte = random.next_u64() as u8;
    }
    Image::Bytes(Arc::from(bytes))
}

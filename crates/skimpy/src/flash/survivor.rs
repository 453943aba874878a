//! Simulates a power cut: decides the outcome of each request in flight.
//!
//! A channel is serial. Of the requests in flight on a channel, the first ones have happened, one
//! may have been in progress, and the others have not started:
//!
//! ```text
//!   channel 0    program ✓   erase ✓   program ½   program ✗        drawn from the seed,
//!   channel 1    erase ½                                            per channel
//!
//!   program ½    erased as before | garbage that reads well | unreadable | complete
//!   erase ½      as before, or each page: as before | garbage that reads well | unreadable
//! ```
//!
//! Garbage reads without an error, as in raw flash when the error correction fails to detect it;
//! only a checksum of the reader detects it. A half-erased block counts as full: it must be erased
//! again before it is programmed.
//!
//! Invariant: a survivor is a function of the state and the seed; completed requests are in every
//! survivor.
//!
//! Source: Tseng, Grupp and Swanson, "Understanding the Impact of Power Loss on Flash Memory", DAC
//! 2011 (the effect on a program and an erase).
use std::sync::Arc;

use siltstone_structures::SplitMix64;

use super::cells::Image;
use super::memory::BlockImage;
use super::power::{Change, InFlight};
use super::{Geometry, Timing};

/// Changes the images of all blocks as a cut with these requests in flight would.
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
        Change::Program(address) => block.pages.truncate(address.index as usize),
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
        // The cut came before the erase pulse.
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

/// A prefix of the page, and noise after it.
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

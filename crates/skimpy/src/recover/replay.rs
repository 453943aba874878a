//! Replays the log from the checkpoint on: pages in order, complete groups, journaled batches.
//!
//! The first missing or torn page ends the log, unless a later page or a journaled batch states
//! that it was durable: then it is damage.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use siltstone_engine::{Purpose, Result};

use super::device_scan::DeviceScan;
use crate::buffer_journal::Frame;
use crate::checkpoint::Checkpoint;
use crate::device::Device;
use crate::location::Location;
use crate::mapping::Mapping;
use crate::page::{Kind, Page};
use crate::record::{FIRST, LAST, RELOCATED, Record};
use crate::space::LogBlock;

/// The result of replay.
#[derive(Default)]
pub(super) struct ReplayResult {
    /// The number of the first page that is missing.
    pub(super) end: u64,
    pub(super) last: u64,
    pub(super) floor: u64,
    pub(super) newest_epoch: u32,
    /// The last page of each block that was read.
    pub(super) last_of: HashMap<u32, u64>,
}

/// Replays the pages of the log from the checkpoint on, up to the first that is missing.
pub(super) fn replay(
    device: &Device,
    scan: &DeviceScan,
    found: &Checkpoint,
    mapping: &dyn Mapping,
) -> Result<ReplayResult> {
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    let mut replayed = ReplayResult {
        last: found.last_timestamp,
        newest_epoch: scan.newest_epoch,
        ..ReplayResult::default()
    };
    let (mut durable, mut proof) = (0, 0);
    let is_after = |block: &&LogBlock| {
        block.first >= found.replay_start || found.open_blocks.contains(&block.block)
    };
    for block in scan.log.iter().filter(is_after) {
        for index in 0..device.flash.programmed(block.block)? {
            let page = device.geometry.page(block.block, index);
            let Some(page) = device.try_read(page, Purpose::Recovery)? else { continue };
            let header = page.header;
            replayed.newest_epoch = replayed.newest_epoch.max(header.epoch);
            let last = replayed.last_of.entry(block.block).or_default();
            *last = (*last).max(header.number);
            if header.epoch > found.epoch {
                return Err(page.corrupt("the page is newer than any complete checkpoint"));
            }
            if header.epoch == found.epoch && header.number >= found.replay_start {
                pages.insert(header.number, page.page);
                if header.durable > durable {
                    (durable, proof) = (header.durable, page.page);
                }
            }
        }
    }
    replayed.end = found.replay_start;
    let mut groups = GroupAssembler::default();
    while let Some(page) = pages.get(&replayed.end) {
        let page = device.read(*page, Purpose::Recovery)?;
        replayed.floor = replayed.floor.max(page.header.floor);
        groups.add_page(device, &page, &mut replayed.last, mapping)?;
        // An earlier opening may have failed to make it durable, and no later sync would repeat
        // that.
        device.flash.renew(page.page, Purpose::Recovery)?;
        replayed.end += 1;
    }
    groups.abandon(replayed.end, mapping);
    if durable > replayed.end {
        let reason = format!("page {} of the log was durable and is missing", replayed.end);
        return Err(device.corrupt(proof, reason));
    }
    Ok(replayed)
}

/// Replays the pages of the log before the checkpoint, in order, for a mapping that needs them all.
/// Returns the epochs of all pages of the log, cut-off ones included.
///
/// Collection may have erased a part of a group at the tail, and the other part is still valid:
/// this mapping excludes abandoned batches by their timestamps.
pub(super) fn replay_earlier(
    device: &Device,
    scan: &DeviceScan,
    found: &Checkpoint,
    mapping: &dyn Mapping,
) -> Result<BTreeSet<u32>> {
    let mut epochs = BTreeSet::new();
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    for block in &scan.log {
        for index in 0..device.flash.programmed(block.block)? {
            let page = device.geometry.page(block.block, index);
            let Some(page) = device.try_read(page, Purpose::Recovery)? else { continue };
            let header = page.header;
            epochs.insert(header.epoch);
            // Blocks below the tail are retired, erased or not: the versions that they hid may be
            // gone.
            let is_before = (found.tail..found.replay_start).contains(&header.number);
            if is_before && !mapping.is_cut_off(header.epoch, header.number) {
                pages.insert(header.number, page.page);
            }
        }
    }
    let mut known = (found.retired_through + 1).max(found.tail)..found.replay_start;
    if let Some(missing) = known.find(|number| !pages.contains_key(number)) {
        return Err(device.corrupt(0, format!("page {missing} of the log cannot be read")));
    }
    for page in pages.into_values() {
        let page = device.read(page, Purpose::Recovery)?;
        let mut records = Vec::new();
        for (slot, record) in page.records().enumerate() {
            records.push((device.slots.at(page.page, slot), record?));
        }
        mapping.replay(records, page.header.number);
    }
    Ok(epochs)
}

/// Assembles groups from the pages that they lie in.
#[derive(Default)]
struct GroupAssembler {
    /// The records of the current group so far, and the page of the log in which it began.
    records: Vec<(Location, Record)>,
    began: u64,
    /// The log numbers of payload pages, by their numbers on the device.
    payloads: HashMap<u32, u64>,
}

impl GroupAssembler {
    /// Abandons the current group, which is incomplete.
    fn abandon(&mut self, number: u64, mapping: &dyn Mapping) {
        if let Some((_, record)) = self.records.first().filter(|it| !it.1.is_marked(RELOCATED)) {
            mapping.abandon(record.timestamp, number);
        }
        self.records.clear();
    }

    /// Adds the records of a page; complete groups go to the mapping.
    fn add_page(
        &mut self,
        device: &Device,
        page: &Page,
        last: &mut u64,
        mapping: &dyn Mapping,
    ) -> Result<()> {
        if page.header.kind == Kind::Payload {
            self.payloads.insert(page.page, page.header.number);
        }
        for (slot, record) in page.records().enumerate() {
            let record = record?;
            if record.is_marked(FIRST) {
                self.abandon(page.header.number, mapping);
                self.began = page.header.number;
            }
            for page in record.payload.iter().flat_map(|payload| &payload.pages) {
                let payload = self.payloads.remove(page);
                self.began = self.began.min(payload.unwrap_or(self.began));
            }
            let is_last = record.is_marked(LAST);
            self.records.push((device.slots.at(page.page, slot), record));
            // A group without its first record was begun before the replayed pages.
            let is_first = |it: &(Location, Record)| it.1.is_marked(FIRST);
            if is_last && self.records.first().is_some_and(is_first) {
                let batch = self.records.iter().filter(|it| !it.1.is_marked(RELOCATED));
                let newest = batch.map(|(_, record)| record.timestamp).max();
                *last = (*last).max(newest.unwrap_or(0));
                mapping.replay(std::mem::take(&mut self.records), self.began);
            }
        }
        Ok(())
    }
}

/// The journaled batches that continue the replayed log.
pub(super) fn frames_to_replay(
    device: &Device,
    found: &Checkpoint,
    replayed: &ReplayResult,
    frames: Vec<Frame>,
) -> Result<Vec<Frame>> {
    let mut last = replayed.last;
    let mut following = Vec::new();
    for frame in frames {
        let is_valid = frame.epoch == found.epoch
            || (frame.epoch == found.journaled.0 && frame.timestamp <= found.journaled.1);
        if frame.epoch > found.epoch {
            return Err(
                device.corrupt(0, "a journaled batch is newer than any complete checkpoint")
            );
        }
        if frame.epoch == found.epoch && frame.durable > replayed.end {
            let reason = format!("page {} of the log was durable and is missing", replayed.end);
            return Err(device.corrupt(0, reason));
        }
        if !is_valid || frame.timestamp <= last {
            continue;
        }
        if frame.previous != last {
            break;
        }
        last = frame.timestamp;
        following.push(frame);
    }
    Ok(following)
}

//! Recovery: opens the table from the contents of the device.
//!
//! ```text
//!   first page of every block ─▶ blocks of checkpoints, of the log, or of neither
//!   the newest complete checkpoint ─▶ the mapping, and where replay begins
//!   pages of the log from there on, in order ─▶ complete groups ─▶ the mapping
//!     the first missing or torn page ends the log: later ones were not durable
//!   journaled batches after that ─▶ written again
//!   a new epoch and a checkpoint ─▶ pages of the old epoch that were cut off cannot reappear
//! ```
//!
//! A missing page is the end of the log unless there is evidence that it was durable: a later page
//! or a journaled batch states how far the log was durable when it was written. Then it is damage,
//! and so is a page of an epoch without a complete checkpoint.
//!
//! The paper does not describe recovery.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use crate::flash::Flash;
use parking_lot::Mutex;
use siltstone_engine::{Durability, Error, Purpose, Result};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::buffer_journal::{self, BufferJournal, Frame};
use crate::chains::Chains;
use crate::checkpoint::{self, Checkpoint};
use crate::device::{DEVICE, Device};
use crate::ftl::PageMapped;
use crate::history::History;
use crate::location::Location;
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::options::{self, Options};
use crate::page::{HEADER_BYTES, Kind, Page};
use crate::pins::Pins;
use crate::record::{FIRST, LAST, RELOCATED, Record};
use crate::shared::{Counters, Shared};
use crate::space::{LogBlock, Space};
use crate::table::Table;
use crate::version_map::VersionMap;
use crate::write_buffer::{self, WriteBuffer};
use crate::{tail, write};

/// Whether a table was completely created here; refuses a directory in which its device is missing.
pub(crate) fn is_complete(vfs: &dyn Vfs) -> Result<bool> {
    let is_complete = vfs.exists(buffer_journal::NAME)?;
    if is_complete && !vfs.exists(DEVICE)? {
        let reason = "the flash device is missing, and the journal of its write buffer exists";
        return Err(Error::corruption(DEVICE, 0, reason));
    }
    Ok(is_complete)
}

/// Whether no page of the device is programmed.
pub(crate) fn is_blank(flash: &dyn Flash) -> Result<bool> {
    for block in 0..flash.geometry().blocks() {
        if flash.programmed(block)? > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The result of reading the first page of each block.
#[derive(Default)]
struct DeviceScan {
    erased: Vec<u32>,
    /// Blocks without a readable page.
    unknown: Vec<u32>,
    log: Vec<LogBlock>,
    /// By checkpoint number.
    checkpoints: BTreeMap<u64, CheckpointParts>,
    newest_epoch: u32,
}

#[derive(Default)]
struct CheckpointParts {
    pages: u32,
    parts: BTreeMap<u32, Vec<u8>>,
    blocks: Vec<u32>,
    floor: u64,
}

impl CheckpointParts {
    fn complete(&self) -> Option<Vec<u8>> {
        let is_complete_set = self.pages > 0 && self.parts.len() == self.pages as usize;
        is_complete_set.then(|| self.parts.values().flatten().copied().collect())
    }
}

fn scan_blocks(device: &Device) -> Result<DeviceScan> {
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

/// Opens the table on a device, or creates it on an erased one.
pub(crate) fn open(
    flash: Arc<dyn Flash>,
    vfs: Option<Arc<dyn Vfs>>,
    env: Env,
    options: Options,
) -> Result<Arc<Table>> {
    let under = match options.mapping {
        options::Mapping::Vftl => {
            let layer = PageMapped::open(flash.clone(), options.channels, options.below)?;
            Some(Arc::new(layer))
        }
        _ => None,
    };
    // A translation layer hides the channels of the device.
    let (flash, channels) = match &under {
        Some(under) => (under.clone() as Arc<dyn Flash>, 1),
        None => (flash, options.channels),
    };
    let device = Device::new(flash, channels);
    let scan = scan_blocks(&device)?;
    let has_journal = match &vfs {
        Some(vfs) => vfs.exists(buffer_journal::NAME)?,
        None => false,
    };
    let newest = newest_checkpoint(&device, &scan)?;
    let is_new = newest.is_none() && scan.log.is_empty() && !has_journal;
    let (number, found) = match newest {
        Some(found) => found,
        None if is_new => {
            let buckets = options.buckets_of_new();
            (
                0,
                Checkpoint {
                    mapping: options.mapping.code(),
                    buckets,
                    start: 1,
                    ..Checkpoint::default()
                },
            )
        }
        None => return Err(device.corrupt(0, "the device has no complete checkpoint")),
    };
    found.check_mapping(device.name(), options.mapping)?;
    let mapping = mapping(&options, &device, found.buckets, under);
    if !is_new {
        mapping.decode(&found.mapping_state).map_err(|reason| device.corrupt(0, reason))?;
    }
    let epochs = match mapping.replays_all() {
        true => replay_earlier(&device, &scan, &found, &*mapping)?,
        false => BTreeSet::new(),
    };
    let mut replayed = replay(&device, &scan, &found, &*mapping)?;
    let floor = scan.checkpoints.get(&number).map_or(0, |parts| parts.floor);
    replayed.floor = replayed.floor.max(floor);
    let tail = scan.log.first().map_or(replayed.end, |block| block.first);
    mapping.cut(found.epoch, replayed.end, tail, &epochs);
    let frames = match &vfs {
        Some(vfs) => BufferJournal::read(&**vfs)?,
        None => Vec::new(),
    };
    let frames = frames_to_replay(&device, &found, &replayed, frames)?;
    let through = frames.last().map_or(replayed.last, |frame| frame.timestamp);

    let previous = scan.checkpoints.range(..number).next_back().map(|(number, _)| *number);
    let (space, newest_number) =
        assign_blocks(&device, &options, scan, &found, number, previous, &replayed)?;
    let epoch = replayed.newest_epoch.max(found.epoch) + 1;
    let mut writer = Writer::new(space, replayed.end, epoch, replayed.last);
    // Pages renewed by replay must be durable before a checkpoint that refers to them is begun.
    writer.durable = found.start.min(replayed.end);
    writer.checkpoint = newest_number.max(number);
    writer.starts = (0, found.start);
    // Collection for these pages may not have been performed. Without it, crashes in openings that
    // program journaled batches would use up the free blocks.
    writer.due = (replayed.end - found.start) as f64;
    // Reads and discards may have used later timestamps than the last batch.
    writer.used = replayed.last.max(replayed.floor);
    let body = device.geometry.page_bytes() - HEADER_BYTES;
    let buffer = WriteBuffer::new(body, device.slots.per_page());
    let shared = Shared {
        device,
        vfs,
        env,
        options,
        buffer,
        history: History::new(replayed.floor),
        pins: Pins::default(),
        visible: AtomicU64::new(replayed.last.max(replayed.floor)),
        closed: AtomicBool::new(false),
        poisoned: OnceLock::new(),
        counters: Counters::default(),
    };
    replay_journal(&shared, &*mapping, &mut writer, &frames, (found.epoch, through))?;
    writer.journal = match &shared.vfs {
        Some(vfs) => Some(BufferJournal::open(&**vfs)?),
        None => None,
    };
    Ok(Arc::new(Table { shared, mapping, writer: Mutex::new(Some(writer)) }))
}

/// Writes the first checkpoint of the epoch, then the journaled batches again. `until`: the
/// previous epoch, and the timestamp of the last of these batches.
fn replay_journal(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    frames: &[Frame],
    (epoch, through): (u32, u64),
) -> Result<()> {
    // Frames keep their epoch until all are programmed, over any number of openings.
    let epoch = frames.first().map_or(epoch, |frame| frame.epoch);
    checkpoint::write_with(shared, mapping, writer, (epoch, through))?;
    for frame in frames {
        // Without room the device may still have enough for these batches, which were acknowledged.
        match tail::make_room(shared, mapping, writer, frame.batch.as_bytes().len() as u64) {
            Err(error) if !error.is_disk_full() => return Err(error),
            _ => {}
        }
        let (batch, timestamp) = (&frame.batch, frame.timestamp);
        write::apply(shared, mapping, writer, batch, timestamp, Durability::Buffered)?;
    }
    if !frames.is_empty() {
        writer.force(shared, mapping)?;
        checkpoint::write(shared, mapping, writer)?;
    }
    Ok(())
}

fn mapping(
    options: &Options,
    device: &Device,
    buckets: u32,
    under: Option<Arc<PageMapped>>,
) -> Box<dyn Mapping> {
    let pages = device.geometry.pages();
    match options.mapping {
        options::Mapping::Skimpy => {
            let cache = options.cache_of(buckets);
            Box::new(Chains::new(
                buckets,
                cache,
                pages,
                options.read_compaction_after,
                options.channels,
            ))
        }
        options::Mapping::Semel | options::Mapping::Vftl => {
            let accumulated_pages =
                if options.gathers { write_buffer::accumulated_pages(pages) } else { 0 };
            Box::new(VersionMap::new(buckets, accumulated_pages, under))
        }
    }
}

/// The newest complete checkpoint, if there is one.
pub(crate) fn newest_complete_checkpoint(device: &Device) -> Result<Option<Checkpoint>> {
    Ok(newest_checkpoint(device, &scan_blocks(device)?)?.map(|(_, checkpoint)| checkpoint))
}

/// As [`newest_complete_checkpoint`], with its number.
fn newest_checkpoint(device: &Device, scan: &DeviceScan) -> Result<Option<(u64, Checkpoint)>> {
    for (number, parts) in scan.checkpoints.iter().rev() {
        if let Some(bytes) = parts.complete() {
            let page = parts.blocks.first().map_or(0, |block| device.geometry.page(*block, 0));
            let decoded = Checkpoint::decode(&bytes);
            return Ok(Some((*number, decoded.map_err(|reason| device.corrupt(page, reason))?)));
        }
    }
    Ok(None)
}

/// The result of replay.
#[derive(Default)]
struct ReplayResult {
    /// The number of the first page that is missing.
    end: u64,
    last: u64,
    floor: u64,
    newest_epoch: u32,
    /// The last page of each block that was read.
    last_of: HashMap<u32, u64>,
}

/// Replays the pages of the log from the checkpoint on, up to the first that is missing.
fn replay(
    device: &Device,
    scan: &DeviceScan,
    found: &Checkpoint,
    mapping: &dyn Mapping,
) -> Result<ReplayResult> {
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    let mut replayed = ReplayResult {
        last: found.last,
        newest_epoch: scan.newest_epoch,
        ..ReplayResult::default()
    };
    let (mut durable, mut proof) = (0, 0);
    let is_after =
        |block: &&LogBlock| block.first >= found.start || found.open.contains(&block.block);
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
            if header.epoch == found.epoch && header.number >= found.start {
                pages.insert(header.number, page.page);
                if header.durable > durable {
                    (durable, proof) = (header.durable, page.page);
                }
            }
        }
    }
    replayed.end = found.start;
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
fn replay_earlier(
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
            let is_before = (found.tail..found.start).contains(&header.number);
            if is_before && !mapping.is_cut_off(header.epoch, header.number) {
                pages.insert(header.number, page.page);
            }
        }
    }
    let mut known = (found.gone + 1).max(found.tail)..found.start;
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
fn frames_to_replay(
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
fn assign_blocks(
    device: &Device,
    options: &Options,
    scan: DeviceScan,
    found: &Checkpoint,
    number: u64,
    previous: Option<u64>,
    replayed: &ReplayResult,
) -> Result<(Space, u64)> {
    let mut space = Space::new(options.channels);
    space.retired_through = found.gone;
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
            None => max_last(device, options, block, first)?.min(found.start.saturating_sub(1)),
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

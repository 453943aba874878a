//! Opening: from what is on the device to the table as it was.
//!
//! ```text
//!   first page of every block ─▶ blocks of checkpoints, of the log, neither
//!   the newest checkpoint that is whole ─▶ the mapping, and where replay begins
//!   pages of the log from there on, in their order ─▶ groups that are whole ─▶ the mapping
//!     the first page that is missing or torn ends the log: what is behind it was not promised
//!   batches that were staged after that ─▶ written again
//!   a new epoch and a checkpoint ─▶ pages of the old epoch that were cut off can't come back
//! ```
//!
//! A page that is missing is a torn end unless something proves that it was durable: a later page or a
//! staged batch says up to where the log was when it was written. Then it is damage, and so is a
//! page of an epoch that no whole checkpoint has begun.
//!
//! Source: ours; the paper leaves recovery open.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use siltstone_engine::{Durability, Error, Purpose, Result};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::chains::Chains;
use crate::checkpoint::{self, Checkpoint};
use crate::device::Device;
use crate::engine::{Counters, DEVICE, Inner};
use crate::flash::Flash;
use crate::ftl::PageMapped;
use crate::history::History;
use crate::location::Location;
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::options::{self, Options};
use crate::page::{HEADER_BYTES, Kind, Page};
use crate::pending::{self, Pending};
use crate::pins::Pins;
use crate::record::{FIRST, LAST, REMAPPED, Record};
use crate::space::{LogBlock, Space};
use crate::stage::{self, Frame, Stage};
use crate::versions::Versions;

/// Whether a table was made here once; refuses a directory in which its device is missing.
pub(crate) fn is_complete(vfs: &dyn Vfs) -> Result<bool> {
    let is_complete = vfs.exists(stage::NAME)?;
    if is_complete && !vfs.exists(DEVICE)? {
        let reason = "the flash device is missing, and its packing buffer is there";
        return Err(Error::corruption(DEVICE, 0, reason));
    }
    Ok(is_complete)
}

/// Whether no table was ever on the device, as far as can be read.
pub(crate) fn is_blank(flash: &dyn Flash) -> Result<bool> {
    for block in 0..flash.geometry().blocks() {
        if flash.programmed(block)? > 0 {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What the first pages of the blocks tell.
#[derive(Default)]
struct Survey {
    erased: Vec<u32>,
    /// Neither the log's nor a checkpoint's, as far as can be read.
    unknown: Vec<u32>,
    log: Vec<LogBlock>,
    /// By number: parts by index, how many there must be, the blocks.
    checkpoints: BTreeMap<u64, Parts>,
    newest_epoch: u32,
}

#[derive(Default)]
struct Parts {
    pages: u32,
    shares: BTreeMap<u32, Vec<u8>>,
    blocks: Vec<u32>,
    floor: u64,
}

impl Parts {
    fn whole(&self) -> Option<Vec<u8>> {
        let is_whole = self.pages > 0 && self.shares.len() == self.pages as usize;
        is_whole.then(|| self.shares.values().flatten().copied().collect())
    }
}

fn survey(device: &Device) -> Result<Survey> {
    let mut survey = Survey::default();
    for block in 0..device.geometry.blocks() {
        let programmed = device.flash.programmed(block)?;
        let pages = (0..programmed).map(|index| device.geometry.page(block, index));
        let mut first = None;
        for page in pages.clone() {
            first = device.look(page, Purpose::Recovery)?;
            if first.is_some() {
                break;
            }
        }
        match first {
            None if programmed == 0 => survey.erased.push(block),
            None => survey.unknown.push(block),
            Some(first) if first.header.kind == Kind::Checkpoint => {
                let parts = survey.checkpoints.entry(first.header.number).or_default();
                parts.blocks.push(block);
                for page in pages {
                    let Some(page) = device.look(page, Purpose::Recovery)? else { continue };
                    // Over a translation layer pages of the block's earlier life may show again.
                    let is_part = page.header.kind == Kind::Checkpoint;
                    if !is_part || page.header.number != first.header.number {
                        continue;
                    }
                    let (index, count, share) = checkpoint::part(&page);
                    parts.pages = count;
                    parts.floor = parts.floor.max(page.header.floor);
                    parts.shares.insert(index, share.to_vec());
                }
            }
            Some(first) => {
                survey.newest_epoch = survey.newest_epoch.max(first.header.epoch);
                let first = first.header.number;
                // No page has a number of more than one a page after the first of its block … but those
                // of other lanes; the last is told by the next block, roughly, and by replay.
                survey.log.push(LogBlock { block, first, last: first });
            }
        }
    }
    survey.log.sort_by_key(|block| block.first);
    Ok(survey)
}

/// Makes the table's state of what is on the device.
pub(crate) fn open(
    flash: Arc<dyn Flash>,
    vfs: Option<Arc<dyn Vfs>>,
    env: Env,
    options: Options,
) -> Result<Arc<Inner>> {
    let under = match options.mapping {
        options::Mapping::Vftl => {
            let layer = PageMapped::open(flash.clone(), options.lanes, options.below)?;
            Some(Arc::new(layer))
        }
        _ => None,
    };
    // What lies below a translation layer it does not tell.
    let (flash, lanes) = match &under {
        Some(under) => (under.clone() as Arc<dyn Flash>, 1),
        None => (flash, options.lanes),
    };
    let device = Device::new(flash, lanes);
    let survey = survey(&device)?;
    let has_stage = match &vfs {
        Some(vfs) => vfs.exists(stage::NAME)?,
        None => false,
    };
    let newest = newest_checkpoint(&device, &survey)?;
    let is_new = newest.is_none() && survey.log.is_empty() && !has_stage;
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
        None => return Err(device.corrupt(0, "no checkpoint of the device is whole")),
    };
    Inner::check_kept(device.name(), options.mapping, &found)?;
    let mapping = mapping(&options, &device, found.buckets, under);
    if !is_new {
        mapping.decode(&found.kept).map_err(|reason| device.corrupt(0, reason))?;
    }
    let epochs = match mapping.replays_all() {
        true => replay_earlier(&device, &survey, &found, &*mapping)?,
        false => BTreeSet::new(),
    };
    let mut replayed = replay(&device, &survey, &found, &*mapping)?;
    let floor = survey.checkpoints.get(&number).map_or(0, |parts| parts.floor);
    replayed.floor = replayed.floor.max(floor);
    let tail = survey.log.first().map_or(replayed.end, |block| block.first);
    mapping.cut(found.epoch, replayed.end, tail, &epochs);
    let frames = match &vfs {
        Some(vfs) => Stage::read(&**vfs)?,
        None => Vec::new(),
    };
    let frames = staged(&device, &found, &replayed, frames)?;
    let through = frames.last().map_or(replayed.last, |frame| frame.timestamp);

    let previous = survey.checkpoints.range(..number).next_back().map(|(number, _)| *number);
    let (space, known_previous) =
        settle(&device, &options, survey, &found, number, previous, &replayed)?;
    let epoch = replayed.newest_epoch.max(found.epoch) + 1;
    let mut writer = Writer::new(space, replayed.end, epoch, replayed.last);
    // What replay has renewed must be durable before a checkpoint that refers to it is begun.
    writer.durable = found.start.min(replayed.end);
    writer.checkpoint = known_previous.max(number);
    writer.starts = (0, found.start);
    // Somebody may have read, and discarded, later than the last batch.
    writer.used = replayed.last.max(replayed.floor);
    let body = device.geometry.page_bytes() - HEADER_BYTES;
    let pending = Pending::new(body, device.slots.per_page());
    let inner = Inner {
        device,
        vfs,
        env,
        history: History::new(replayed.floor),
        mapping,
        pending,
        pins: Pins::default(),
        visible: AtomicU64::new(replayed.last.max(replayed.floor)),
        writer: Mutex::new(None),
        closed: AtomicBool::new(false),
        poisoned: OnceLock::new(),
        counters: Counters::default(),
        options,
    };
    // Frames keep the epoch that they were staged in until all are programmed, however many openings that takes.
    let staged_epoch = frames.first().map_or(found.epoch, |frame| frame.epoch);
    inner.checkpoint_with(&mut writer, (staged_epoch, through))?;
    for frame in &frames {
        // Where no room can be made there may be enough all the same: these batches were acknowledged.
        match inner.make_room(&mut writer, frame.batch.as_bytes().len() as u64) {
            Err(error) if !error.is_disk_full() => return Err(error),
            _ => {}
        }
        inner.apply(&mut writer, &frame.batch, frame.timestamp, Durability::Buffered)?;
    }
    if !frames.is_empty() {
        writer.force(&inner)?;
        inner.checkpoint(&mut writer)?;
    }
    writer.stage = match &inner.vfs {
        Some(vfs) => Some(Stage::open(&**vfs)?),
        None => None,
    };
    *inner.writer.lock() = Some(writer);
    Ok(Arc::new(inner))
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
            Box::new(Chains::new(buckets, cache, pages, options.tidy, options.lanes))
        }
        options::Mapping::Semel | options::Mapping::Vftl => {
            let together = if options.gathers { pending::together(pages) } else { 0 };
            Box::new(Versions::new(buckets, together, under))
        }
    }
}

/// The newest checkpoint that is whole, if any is.
pub(crate) fn newest_whole_checkpoint(device: &Device) -> Result<Option<Checkpoint>> {
    Ok(newest_checkpoint(device, &survey(device)?)?.map(|(_, checkpoint)| checkpoint))
}

/// The newest checkpoint that is whole, with its number.
fn newest_checkpoint(device: &Device, survey: &Survey) -> Result<Option<(u64, Checkpoint)>> {
    for (number, parts) in survey.checkpoints.iter().rev() {
        if let Some(bytes) = parts.whole() {
            let page = parts.blocks.first().map_or(0, |block| device.geometry.page(*block, 0));
            let decoded = Checkpoint::decode(&bytes);
            return Ok(Some((*number, decoded.map_err(|reason| device.corrupt(page, reason))?)));
        }
    }
    Ok(None)
}

/// What replay has found.
#[derive(Default)]
struct Replayed {
    /// The number of the first page that is not there.
    end: u64,
    last: u64,
    floor: u64,
    newest_epoch: u32,
    /// The last page of each block that was read.
    last_of: HashMap<u32, u64>,
}

/// Takes the pages of the log from the checkpoint on, up to the first that is missing.
fn replay(
    device: &Device,
    survey: &Survey,
    found: &Checkpoint,
    mapping: &dyn Mapping,
) -> Result<Replayed> {
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    let mut replayed =
        Replayed { last: found.last, newest_epoch: survey.newest_epoch, ..Replayed::default() };
    let (mut durable, mut proof) = (0, 0);
    let is_after =
        |block: &&LogBlock| block.first >= found.start || found.open.contains(&block.block);
    for block in survey.log.iter().filter(is_after) {
        for index in 0..device.flash.programmed(block.block)? {
            let page = device.geometry.page(block.block, index);
            let Some(page) = device.look(page, Purpose::Recovery)? else { continue };
            let header = page.header;
            replayed.newest_epoch = replayed.newest_epoch.max(header.epoch);
            let last = replayed.last_of.entry(block.block).or_default();
            *last = (*last).max(header.number);
            if header.epoch > found.epoch {
                return Err(page.corrupt("the page is newer than any whole checkpoint"));
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
    let mut groups = Groups::default();
    while let Some(page) = pages.get(&replayed.end) {
        let page = device.read(*page, Purpose::Recovery)?;
        replayed.floor = replayed.floor.max(page.header.floor);
        groups.take(device, &page, &mut replayed.last, mapping)?;
        // An earlier opening may have failed to make it durable, and nothing would try that again.
        device.flash.renew(page.page, Purpose::Recovery)?;
        replayed.end += 1;
    }
    groups.give_up(replayed.end, mapping);
    if durable > replayed.end {
        let reason = format!("page {} of the log is missing, which was durable", replayed.end);
        return Err(device.corrupt(proof, reason));
    }
    Ok(replayed)
}

/// Takes the pages of the log before the checkpoint, in their order, for a mapping that needs them all;
/// the epochs of all pages of the log, those that were cut off among them.
///
/// The tail may have lost parts of a group to collection, and parts are versions like others: a batch that
/// was given up halfway is in no log of such a mapping.
fn replay_earlier(
    device: &Device,
    survey: &Survey,
    found: &Checkpoint,
    mapping: &dyn Mapping,
) -> Result<BTreeSet<u32>> {
    let mut epochs = BTreeSet::new();
    let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
    for block in &survey.log {
        for index in 0..device.flash.programmed(block.block)? {
            let page = device.geometry.page(block.block, index);
            let Some(page) = device.look(page, Purpose::Recovery)? else { continue };
            let header = page.header;
            epochs.insert(header.epoch);
            // Below the tail are blocks that were given up, erased or not: what they hid may be gone.
            let is_before = (found.tail..found.start).contains(&header.number);
            if is_before && !mapping.is_cut_off(header.epoch, header.number) {
                pages.insert(header.number, page.page);
            }
        }
    }
    let mut known = (found.gone + 1).max(found.tail)..found.start;
    if let Some(missing) = known.find(|number| !pages.contains_key(number)) {
        return Err(device.corrupt(0, format!("page {missing} of the log can't be read")));
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

/// Puts groups together from the pages that they lie in.
#[derive(Default)]
struct Groups {
    /// What there is of the present one, and the page of the log that it began in.
    records: Vec<(Location, Record)>,
    began: u64,
    /// The numbers in the log of pages of payloads, by their numbers on the device.
    payloads: HashMap<u32, u64>,
}

impl Groups {
    /// What there is of a group is all that there will be.
    fn give_up(&mut self, number: u64, mapping: &dyn Mapping) {
        if let Some((_, record)) = self.records.first().filter(|it| !it.1.is_marked(REMAPPED)) {
            mapping.give_up(record.timestamp, number);
        }
        self.records.clear();
    }

    /// Takes the records of a page: groups that end in it go to the mapping.
    fn take(
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
                self.give_up(page.header.number, mapping);
                self.began = page.header.number;
            }
            for page in record.payload.iter().flat_map(|payload| &payload.pages) {
                let payload = self.payloads.remove(page);
                self.began = self.began.min(payload.unwrap_or(self.began));
            }
            let ends = record.is_marked(LAST);
            self.records.push((device.slots.at(page.page, slot), record));
            // A group whose beginning is not there was begun before it could be whole.
            let begins = |it: &(Location, Record)| it.1.is_marked(FIRST);
            if ends && self.records.first().is_some_and(begins) {
                let batch = self.records.iter().filter(|it| !it.1.is_marked(REMAPPED));
                let newest = batch.map(|(_, record)| record.timestamp).max();
                *last = (*last).max(newest.unwrap_or(0));
                mapping.replay(std::mem::take(&mut self.records), self.began);
            }
        }
        Ok(())
    }
}

/// The staged batches that follow on what was replayed.
fn staged(
    device: &Device,
    found: &Checkpoint,
    replayed: &Replayed,
    frames: Vec<Frame>,
) -> Result<Vec<Frame>> {
    let mut last = replayed.last;
    let mut following = Vec::new();
    for frame in frames {
        let counts = frame.epoch == found.epoch
            || (frame.epoch == found.staged.0 && frame.timestamp <= found.staged.1);
        if frame.epoch > found.epoch {
            return Err(device.corrupt(0, "a staged batch is newer than any whole checkpoint"));
        }
        if frame.epoch == found.epoch && frame.durable > replayed.end {
            let reason = format!("page {} of the log is missing, which was durable", replayed.end);
            return Err(device.corrupt(0, reason));
        }
        if !counts || frame.timestamp <= last {
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

/// The highest number of a block's pages. Over a translation layer the last page may be one of the
/// block's earlier life.
fn last_of(device: &Device, block: u32) -> Result<u64> {
    let mut last = 0;
    for index in 0..device.flash.programmed(block)? {
        let page = device.geometry.page(block, index);
        if let Some(page) = device.look(page, Purpose::Recovery)? {
            last = last.max(page.header.number);
        }
    }
    Ok(last)
}

/// The number of a block's last page, if that holds.
fn last_page(device: &Device, block: u32) -> Result<Option<u64>> {
    let Some(index) = device.flash.programmed(block)?.checked_sub(1) else { return Ok(None) };
    let page = device.look(device.geometry.page(block, index), Purpose::Recovery)?;
    Ok(page.map(|page| page.header.number))
}

/// Puts every block in its place; the number of the newest checkpoint that there is a trace of.
fn settle(
    device: &Device,
    options: &Options,
    survey: Survey,
    found: &Checkpoint,
    number: u64,
    previous: Option<u64>,
    replayed: &Replayed,
) -> Result<(Space, u64)> {
    let mut space = Space::new(options.lanes);
    space.retired_through = found.gone;
    let newest = survey.checkpoints.last_key_value().map_or(0, |(number, _)| *number);
    for block in survey.erased.into_iter().chain(survey.unknown) {
        space.set_free(block, device.flash.erases(block)?);
    }
    for (of, parts) in survey.checkpoints {
        if of == number || Some(of) == previous {
            space.checkpoints.push_back(parts.blocks);
            continue;
        }
        for block in parts.blocks {
            space.set_free(block, device.flash.erases(block)?);
        }
    }
    for LogBlock { block, first, .. } in survey.log {
        // Nothing but pages that were cut off.
        if first >= replayed.end {
            space.set_free(block, device.flash.erases(block)?);
            continue;
        }
        // The last page of a block that was not read again is before the checkpoint's start. Where exactly is worth
        // a look: the block is not given back before all buckets were remapped behind it.
        let last = match replayed.last_of.get(&block) {
            Some(last) => *last,
            None if first < found.tail => last_of(device, block)?,
            None => {
                let most = found.start.saturating_sub(1);
                last_page(device, block)?
                    .filter(|last| (first..most).contains(last))
                    .unwrap_or(most)
            }
        };
        // It was given up, and not erased in time.
        if last < found.tail {
            space.set_free(block, device.flash.erases(block)?);
            continue;
        }
        let block = LogBlock { block, first, last: last.max(first) };
        match can_go_on(device, options, block, replayed.end)? {
            true => space.reopen(block),
            false => space.add_sealed(block),
        }
    }
    Ok((space, newest))
}

/// Whether the log can go on in a block that is not full, so that an opening that ends early takes pages and not a block
/// for each lane: all of its pages are of the log that was replayed, and the last of them is near its end. A block
/// with pages of the whole log would be given up only after all buckets were remapped.
fn can_go_on(device: &Device, options: &Options, block: LogBlock, end: u64) -> Result<bool> {
    let programmed = device.flash.programmed(block.block)?;
    let pages_per_block = device.geometry.pages_per_block();
    let near = u64::from(pages_per_block) * u64::from(options.lanes);
    if programmed == pages_per_block || block.last + near < end {
        return Ok(false);
    }
    // Over a translation layer pages of the block's earlier life may show behind: theirs are lower numbers.
    let mut next = block.first;
    for index in 0..programmed {
        let page = device.look(device.geometry.page(block.block, index), Purpose::Recovery)?;
        let number = page.map(|page| page.header.number);
        match number.filter(|number| (next..end).contains(number)) {
            Some(number) => next = number + 1,
            None => return Ok(false),
        }
    }
    Ok(true)
}

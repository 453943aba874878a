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
//! A group is the records of one batch. The paper (SkimpyFTL) does not describe recovery.

mod block_states;
mod device_scan;
mod replay;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64};

use parking_lot::Mutex;
use siltstone_engine::{Durability, Error, Result};
use siltstone_runtime::Env;
use siltstone_vfs::Vfs;

use crate::buffer_journal::{self, BufferJournal, Frame};
use crate::chains::Chains;
use crate::checkpoint::{self, Checkpoint};
use crate::clears::Clears;
use crate::device::{DEVICE, Device};
use crate::flash::Flash;
use crate::ftl::PageMapped;
use crate::history::History;
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::options::{self, Options};
use crate::page::HEADER_BYTES;
use crate::pins::Pins;
use crate::shared::{Counters, Shared};
use crate::table::Table;
use crate::version_map::VersionMap;
use crate::write_buffer::{self, WriteBuffer};
use crate::{tail, write};

pub(crate) use device_scan::newest_complete_checkpoint;

use block_states::assign_blocks;
use device_scan::{newest_checkpoint, scan_blocks};
use replay::{frames_to_replay, replay, replay_earlier};

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

/// Opens the table on a device, or creates it on an erased one.
pub(crate) fn open(
    flash: Arc<dyn Flash>,
    vfs: Option<Arc<dyn Vfs>>,
    env: Env,
    options: Options,
) -> Result<Arc<Table>> {
    let ftl = match options.mapping {
        options::Mapping::Vftl => {
            let layer = PageMapped::open(flash.clone(), options.channels, options.ftl_placement)?;
            Some(Arc::new(layer))
        }
        _ => None,
    };
    // A translation layer hides the channels of the device.
    let (flash, channels) = match &ftl {
        Some(ftl) => (ftl.clone() as Arc<dyn Flash>, 1),
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
                    replay_start: 1,
                    ..Checkpoint::default()
                },
            )
        }
        None => return Err(device.corrupt(0, "the device has no complete checkpoint")),
    };
    found.check_mapping(device.name(), options.mapping)?;
    let mapping = new_mapping(&options, &device, found.buckets, ftl);
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
    // The pages that replay has renewed must be durable before a checkpoint refers to them.
    writer.durable = found.replay_start.min(replayed.end);
    writer.checkpoint = newest_number.max(number);
    writer.starts = (0, found.replay_start);
    // The crashed process may not have collected garbage for these pages. If nobody did, repeated
    // crashes in openings that program journaled batches would use up the free blocks.
    writer.due = (replayed.end - found.replay_start) as f64;
    // Reads and discards may have used later timestamps than the last batch.
    let clears = Clears::new(found.clears);
    writer.used = replayed.last.max(replayed.floor).max(clears.newest());
    let body = device.geometry.page_bytes() - HEADER_BYTES;
    let buffer = WriteBuffer::new(body, device.slots.per_page());
    let shared = Shared {
        device,
        vfs,
        env,
        options,
        buffer,
        history: History::new(replayed.floor),
        clears,
        pins: Pins::default(),
        visible: AtomicU64::new(writer.used),
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

/// Writes the first checkpoint of the new epoch, then the batches of the journal again. `epoch` is
/// the previous epoch, and `through` the timestamp of the last of these batches.
fn replay_journal(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    frames: &[Frame],
    (epoch, through): (u32, u64),
) -> Result<()> {
    // Frames keep their epoch until all are programmed, over any number of openings.
    let epoch = frames.first().map_or(epoch, |frame| frame.epoch);
    checkpoint::write_with(shared, mapping, writer, writer.epoch, (epoch, through))?;
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

/// An empty mapping of the kind that the options name.
fn new_mapping(
    options: &Options,
    device: &Device,
    buckets: u32,
    ftl: Option<Arc<PageMapped>>,
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
                if options.accumulates_writes { write_buffer::accumulated_pages(pages) } else { 0 };
            Box::new(VersionMap::new(buckets, accumulated_pages, ftl))
        }
    }
}

//! Checkpoints on the device: the state that opening would otherwise rebuild from the whole log.
//!
//! ```text
//!   pages in blocks of their own, each with the checkpoint's number in its header (see `page`):
//!     0  index    u32, of the page in the checkpoint
//!     4  pages    u32, of the checkpoint
//!     8  its part of the following, then zeros:
//!
//!    0  length    u32, of all that follows
//!    4  version   u8, 2
//!    5  mapping   u8, 0 skimpy, 1 semel, 2 vftl
//!    6  zeros     u16
//!    8  buckets   u32
//!   12  epoch     u32, of the pages that replay accepts
//!   16  replay start     u64, the page of the log at which replay begins
//!   24  last timestamp   u64, of the last batch
//!   32  journal epoch    u32, and
//!   36  journal through  u64: journaled batches of that epoch up to this timestamp count
//!   44  tail             u64, pages of the log below this are not needed
//!   52  retired through  u64, pages up to this may be in retired blocks; all later ones are there
//!   60  open blocks     u32, count; then their numbers, u32 each
//!       clears          u32, count; then their timestamps, u64 each, ascending (see `clears`)
//!       the mapping's state
//! ```
//!
//! All numbers are little-endian. The upgrade rule is that of `page`. Version 1 had no clears, and
//! is still read; older readers report a checkpoint of version 2 as one of another version.
//!
//! A checkpoint is written when everything before it is durable, and is valid if all its pages are.
//! The previous one is kept, with all blocks that replay from it needs: if the newest is torn or
//! damaged, the state is rebuilt from the other.

use siltstone_engine::{Error, Result};

use crate::bytes::{u32_at, u64_at};
use crate::location::NONE;
use crate::log::Writer;
use crate::mapping::Mapping;
use crate::options;
use crate::page::{HEADER_BYTES, Page};
use crate::shared::Shared;

const VERSION: u8 = 2;
/// The version without clears.
const VERSION_WITHOUT_CLEARS: u8 = 1;
const PART_HEADER_BYTES: usize = 8;
const FIXED_BYTES: usize = 64;

/// The content of a checkpoint.
#[derive(Debug, Clone, Default)]
pub(crate) struct Checkpoint {
    pub(crate) mapping: u8,
    pub(crate) buckets: u32,
    pub(crate) epoch: u32,
    pub(crate) replay_start: u64,
    pub(crate) last_timestamp: u64,
    /// Epoch and timestamp up to which journaled batches count.
    pub(crate) journaled: (u32, u64),
    pub(crate) tail: u64,
    pub(crate) retired_through: u64,
    pub(crate) open_blocks: Vec<u32>,
    pub(crate) clears: Vec<u64>,
    pub(crate) mapping_state: Vec<u8>,
}

impl options::Mapping {
    pub(crate) fn code(self) -> u8 {
        match self {
            options::Mapping::Skimpy => 0,
            options::Mapping::Semel => 1,
            options::Mapping::Vftl => 2,
        }
    }
}

impl Checkpoint {
    fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        bytes.extend_from_slice(&[VERSION, self.mapping, 0, 0]);
        bytes.extend_from_slice(&self.buckets.to_le_bytes());
        bytes.extend_from_slice(&self.epoch.to_le_bytes());
        bytes.extend_from_slice(&self.replay_start.to_le_bytes());
        bytes.extend_from_slice(&self.last_timestamp.to_le_bytes());
        bytes.extend_from_slice(&self.journaled.0.to_le_bytes());
        bytes.extend_from_slice(&self.journaled.1.to_le_bytes());
        bytes.extend_from_slice(&self.tail.to_le_bytes());
        bytes.extend_from_slice(&self.retired_through.to_le_bytes());
        bytes.extend_from_slice(&(self.open_blocks.len() as u32).to_le_bytes());
        self.open_blocks.iter().for_each(|block| bytes.extend_from_slice(&block.to_le_bytes()));
        bytes.extend_from_slice(&(self.clears.len() as u32).to_le_bytes());
        self.clears.iter().for_each(|clear| bytes.extend_from_slice(&clear.to_le_bytes()));
        bytes.extend_from_slice(&self.mapping_state);
        let length = (bytes.len() - 4) as u32;
        bytes[..4].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// Decodes a checkpoint from the joined parts of its pages; the error describes what is
    /// malformed.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let length = u32_at(bytes, 0) as usize;
        let Some(bytes) = bytes.get(..length.saturating_add(4)) else {
            return Err("the checkpoint is shorter than its length field");
        };
        if bytes.len() < FIXED_BYTES {
            return Err("the checkpoint is too short");
        }
        let (blocks, rest) =
            list(&bytes[60..], 4).ok_or("the checkpoint has fewer open blocks than it states")?;
        let (clears, mapping_state) = match bytes[4] {
            VERSION => list(rest, 8).ok_or("the checkpoint has fewer clears than it states")?,
            VERSION_WITHOUT_CLEARS => (&[][..], rest),
            _ => return Err("the checkpoint is of another version"),
        };
        Ok(Checkpoint {
            mapping: bytes[5],
            buckets: u32_at(bytes, 8),
            epoch: u32_at(bytes, 12),
            replay_start: u64_at(bytes, 16),
            last_timestamp: u64_at(bytes, 24),
            journaled: (u32_at(bytes, 32), u64_at(bytes, 36)),
            tail: u64_at(bytes, 44),
            retired_through: u64_at(bytes, 52),
            open_blocks: blocks.chunks_exact(4).map(|block| u32_at(block, 0)).collect(),
            clears: clears.chunks_exact(8).map(|clear| u64_at(clear, 0)).collect(),
            mapping_state: mapping_state.to_vec(),
        })
    }

    /// Refuses a device with another mapping than the options have.
    pub(crate) fn check_mapping(&self, name: &str, mapping: options::Mapping) -> Result<()> {
        if self.mapping == mapping.code() {
            return Ok(());
        }
        use options::Mapping::{Semel, Skimpy, Vftl};
        let all = [Skimpy, Semel, Vftl];
        let found_name =
            all.iter().find(|it| it.code() == self.mapping).map_or("another", |it| it.name());
        let reason = format!(
            "it was created with mapping={found_name}, and the options have {}",
            mapping.name()
        );
        Err(Error::Refused { path: name.to_owned(), reason })
    }
}

/// The items of a list with its count (u32) before it, and what follows it; `None` if it is cut
/// off.
fn list(bytes: &[u8], item_bytes: usize) -> Option<(&[u8], &[u8])> {
    let (count, rest) = bytes.split_at_checked(4)?;
    rest.split_at_checked((u32_at(count, 0) as usize).checked_mul(item_bytes)?)
}

/// The index of a page in its checkpoint, the number of pages, and the page's part.
pub(crate) fn part(page: &Page) -> (u32, u32, &[u8]) {
    let body = page.body();
    (u32_at(body, 0), u32_at(body, 4), &body[PART_HEADER_BYTES..])
}

fn part_bytes(shared: &Shared) -> usize {
    shared.device.geometry.page_bytes() - HEADER_BYTES - PART_HEADER_BYTES
}

/// Blocks that a checkpoint takes.
pub(crate) fn blocks(shared: &Shared, mapping: &dyn Mapping) -> u64 {
    let lists = 4 * 64 + 4 + 8 * (shared.clears.all().len() as u64 + 1);
    let bytes = mapping.checkpoint_bytes() + FIXED_BYTES as u64 + lists;
    let pages = bytes.div_ceil(part_bytes(shared) as u64);
    pages.div_ceil(u64::from(shared.device.geometry.pages_per_block()))
}

/// Writes a checkpoint of the present state.
pub(crate) fn write(shared: &Shared, mapping: &dyn Mapping, writer: &mut Writer) -> Result<()> {
    write_with(shared, mapping, writer, writer.epoch, (writer.epoch, u64::MAX))
}

/// As [`write()`], and begins a new epoch: without this checkpoint, or a later one, pages that are
/// written from now on are evidence of damage.
pub(crate) fn write_in_new_epoch(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
) -> Result<()> {
    let epoch = writer.epoch + 1;
    write_with(shared, mapping, writer, epoch, (epoch, u64::MAX))
}

/// As [`write()`], with the epoch of later pages, and the journaled batches that count.
pub(crate) fn write_with(
    shared: &Shared,
    mapping: &dyn Mapping,
    writer: &mut Writer,
    epoch: u32,
    journaled: (u32, u64),
) -> Result<()> {
    writer.force(shared, mapping)?;
    let checkpoint = Checkpoint {
        mapping: shared.options.mapping.code(),
        buckets: mapping.steps() as u32,
        epoch,
        replay_start: writer.number,
        last_timestamp: writer.last,
        journaled,
        tail: writer.space.lowest(writer.number),
        retired_through: writer.space.retired_through,
        open_blocks: writer.space.open_blocks(),
        clears: shared.clears.all(),
        mapping_state: mapping.encode(),
    };
    let bytes = checkpoint.encode();
    let mut blocks = Vec::new();
    // Never reused, even on failure: pages of two checkpoints with one number would be mixed
    // up.
    writer.checkpoint += 1;
    let written = write_pages(shared, writer, &bytes, &mut blocks);
    if let Err(error) = written.and_then(|()| writer.flush(shared)) {
        // The checkpoint is incomplete, so its blocks can be erased at any time.
        for block in blocks {
            writer.space.set_free(block, shared.device.flash.erases(block)?);
        }
        return Err(error);
    }
    // Pages of a failed checkpoint must not have a later epoch than those that replace them.
    writer.epoch = epoch;
    writer.retired_by_checkpoint = checkpoint.retired_through;
    writer.starts = (writer.starts.1, checkpoint.replay_start);
    writer.space.checkpoints.push_back(blocks);
    shared.counters.checkpoints.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    while writer.space.checkpoints.len() > 2 {
        for block in writer.space.checkpoints.pop_front().unwrap_or_default() {
            writer.space.set_free(block, shared.device.flash.erases(block)?);
        }
    }
    Ok(())
}

fn write_pages(
    shared: &Shared,
    writer: &mut Writer,
    bytes: &[u8],
    blocks: &mut Vec<u32>,
) -> Result<()> {
    let geometry = shared.device.geometry;
    let parts = bytes.chunks(part_bytes(shared));
    let pages = parts.len() as u32;
    let mut block = NONE;
    for (index, part) in (0..).zip(parts) {
        let within = index % geometry.pages_per_block();
        if within == 0 {
            block = writer.take_block(shared)?;
            blocks.push(block);
        }
        let mut page = vec![0; HEADER_BYTES];
        page.extend_from_slice(&u32::to_le_bytes(index));
        page.extend_from_slice(&pages.to_le_bytes());
        page.extend_from_slice(part);
        page.resize(geometry.page_bytes(), 0);
        writer.program_checkpoint(shared, geometry.page(block, within), page)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::write;
    use crate::{Options, Skimpy};
    use siltstone_engine::ManualClock;
    use siltstone_faults::FaultyVfs;
    use siltstone_runtime::Env;

    /// The blocks of a failed checkpoint are free but not erased. Their pages must not be mistaken
    /// for those of the next one.
    #[test]
    fn checkpoint_after_a_failed_one_has_another_number() {
        let pairs = [("capacity", "2MiB"), ("block", "4"), ("buckets", "5000")];
        let map: BTreeMap<_, _> = pairs.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let faulty = FaultyVfs::new(1);
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let options = Options::from_map(&map).unwrap();
        let table = Skimpy::open(Arc::new(faulty.clone()), env, options).unwrap();
        let table = &*table.table;
        let mut guard = table.writer.lock();
        let writer = guard.as_mut().unwrap();
        let before = writer.checkpoint;
        // Its first pages are programmed.
        faulty.set_capacity(faulty.space_used() + (10 << 10));
        assert!(write(&table.shared, &*table.mapping, writer).unwrap_err().is_disk_full());
        faulty.set_capacity(u64::MAX);
        write(&table.shared, &*table.mapping, writer).unwrap();
        assert_eq!(writer.checkpoint, before + 2);
    }
}

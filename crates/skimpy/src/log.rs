//! The head of the log: pending records become pages, and pages become durable.
//!
//! ```text
//!   pending records ─▶ page: numbers on device and in log ─▶ submitted ─▶ flushed: durable
//!                         │
//!                         └─▶ mapping and links get the locations
//! ```
//!
//! Pages go to the least loaded channel, so that all channels are busy (`channels`). A page that
//! could not be programmed for lack of space is retried by the next write, at another place. After
//! any other failure the state is unknown, and the table becomes read-only.
//!
//! Invariant: page n of the log is submitted before page n + 1; pages below `durable` survive a
//! power cut.
//!
//! Source: SkimpyFTL, sections 2.3 and 4 (log-structured placement, packing).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::flash::Completion;
use siltstone_engine::{Error, Purpose, Result, Timestamp};

use crate::buffer_journal::BufferJournal;
use crate::location::Placement;
use crate::mapping::Mapping;
use crate::page::{self, HEADER_BYTES, Header, Kind};
use crate::record::{Content, RELOCATED, Record};
use crate::shared::Shared;
use crate::space::Space;
use crate::write_buffer::PageContent;

/// Programs in flight per channel: enough for the other channels to continue while one is erasing.
const MAX_IN_FLIGHT_PER_CHANNEL: usize = 8;

/// The state of the one writer at a time.
pub(crate) struct Writer {
    pub(crate) space: Space,
    /// The number of the next page of the log.
    pub(crate) number: u64,
    pub(crate) epoch: u32,
    /// Log pages below this number are durable.
    pub(crate) durable: u64,
    /// Records below this number are in such pages (`write_buffer`).
    pub(crate) durable_records: u64,
    /// The timestamp of the last batch.
    pub(crate) last: u64,
    /// The highest used timestamp: of the last batch, of a failed batch, or of a read point.
    pub(crate) used: u64,
    pub(crate) journal: Option<BufferJournal>,
    /// When the oldest pending record was added.
    pub(crate) pending_since: Option<Timestamp>,
    /// Pages of the tail to be collected for the pages programmed so far; negative if collection is
    /// ahead.
    pub(crate) due: f64,
    /// The last page of all blocks that the last checkpoint lists as retired.
    pub(crate) retired_by_checkpoint: u64,
    /// The number of the last checkpoint, and where replay begins from the one before it and from
    /// it.
    pub(crate) checkpoint: u64,
    pub(crate) starts: (u64, u64),
    /// Locations assigned since the current batch began.
    pub(crate) placements: Vec<Placement>,
    /// Whether a block was erased since the last flush.
    pub(crate) erased: bool,
    /// Pages programmed in this epoch.
    sequence: u64,
    /// Programs in flight, the first to complete on top, and erases. Erases take long, and only a
    /// flush waits for them.
    done: BinaryHeap<Reverse<Completion>>,
    erases: VecDeque<Completion>,
}

impl Writer {
    pub(crate) fn new(space: Space, number: u64, epoch: u32, last: u64) -> Self {
        Writer {
            space,
            number,
            epoch,
            durable: number,
            durable_records: 0,
            last,
            used: last,
            journal: None,
            pending_since: None,
            due: 0.0,
            retired_by_checkpoint: 0,
            checkpoint: 0,
            starts: (0, 0),
            placements: Vec::new(),
            erased: false,
            sequence: 0,
            done: BinaryHeap::new(),
            erases: VecDeque::new(),
        }
    }

    /// Programs the next page of the log; `fill` writes its body for the given page number.
    pub(crate) fn program(
        &mut self,
        shared: &Shared,
        kind: Kind,
        purpose: Purpose,
        fill: impl FnOnce(u32) -> (Vec<u8>, usize),
    ) -> Result<u32> {
        let device = &shared.device;
        let next = self.space.next_page(device, &mut self.erases);
        let (page, channel) =
            next.map_err(|error| shared.poison_unless_transient("open a block", error))?;
        let (mut bytes, count) = fill(page);
        let header = self.header(shared, kind, count, self.number);
        page::seal(&mut bytes, page, &header);
        let submitted = device.submit_program(page, &bytes, purpose);
        let completion = submitted.map_err(|error| {
            shared.poison_unless_transient("program a page", Error::from(error))
        })?;
        self.done.push(Reverse(completion));
        self.space.programmed(channel, self.number);
        self.number += 1;
        self.due += 1.0;
        while self.done.len() > MAX_IN_FLIGHT_PER_CHANNEL * self.space.channels() {
            self.wait_one(shared)?;
        }
        Ok(page)
    }

    /// Programs a page of the current checkpoint, in a block of its own.
    pub(crate) fn program_checkpoint(
        &mut self,
        shared: &Shared,
        page: u32,
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        let header = self.header(shared, Kind::Checkpoint, 0, self.checkpoint);
        page::seal(&mut bytes, page, &header);
        let submitted = shared.device.submit_program(page, &bytes, Purpose::Manifest);
        let completion = submitted.map_err(|error| {
            shared.poison_unless_transient("program a checkpoint", Error::from(error))
        })?;
        self.done.push(Reverse(completion));
        Ok(())
    }

    /// Takes a free block for a checkpoint.
    pub(crate) fn take_block(&mut self, shared: &Shared) -> Result<u32> {
        let taken = self.space.take_free(&shared.device, 0, &mut self.erases);
        taken.map_err(|error| shared.poison_unless_transient("erase a block", error))
    }

    /// Erases a block that is no longer needed, and frees it.
    pub(crate) fn give_back(&mut self, shared: &Shared, block: u32) -> Result<()> {
        let device = &shared.device;
        let erased = self.space.erase(device, block, &mut self.erases);
        if erased.map_err(|error| shared.poison_unless_transient("erase a block", error))? {
            self.erased = true;
            self.space.set_free(block, device.flash.erases(block)?);
        }
        Ok(())
    }

    fn header(&mut self, shared: &Shared, kind: Kind, count: usize, number: u64) -> Header {
        self.sequence += 1;
        let (epoch, durable, sequence) = (self.epoch, self.durable, self.sequence);
        Header { kind, count, number, epoch, durable, floor: shared.history.floor(), sequence }
    }

    fn wait_one(&mut self, shared: &Shared) -> Result<()> {
        let first = self.done.pop().map(|Reverse(completion)| completion);
        let Some(completion) = first.or_else(|| self.erases.pop_front()) else { return Ok(()) };
        let waited = shared.device.flash.wait(completion);
        waited.map_err(|error| {
            shared.poison_unless_transient("wait for the device", Error::from(error))
        })
    }

    /// Programs pending records: with `all` every one, else full pages while more than the
    /// accumulated pages are pending. So each page of new records programs one page.
    pub(crate) fn program_pending(
        &mut self,
        shared: &Shared,
        mapping: &dyn Mapping,
        all: bool,
    ) -> Result<()> {
        let page_bytes = shared.device.geometry.page_bytes();
        let max_pending_bytes = mapping.accumulated_pages() * (page_bytes - HEADER_BYTES);
        let slots = shared.device.slots;
        if all {
            mapping.pack_accumulated(&shared.buffer, self.number);
        }
        while all || shared.buffer.bytes() >= max_pending_bytes {
            let Some(PageContent { records, marks, from }) = shared.buffer.next_page(all) else {
                if mapping.pack_accumulated(&shared.buffer, self.number) {
                    continue;
                }
                break;
            };
            let purpose = match records[0].is_marked(RELOCATED) {
                true => Purpose::Compaction,
                false => Purpose::Flush,
            };
            let mut placement = Placement { from, base: 0 };
            self.program(shared, Kind::Records, purpose, |page| {
                placement.base = slots.at(page, 0);
                let mut bytes = Vec::with_capacity(page_bytes);
                bytes.resize(HEADER_BYTES, 0);
                for (record, marks) in records.iter().zip(&marks) {
                    record.encode(*marks, &placement, &mut bytes);
                }
                bytes.resize(page_bytes, 0);
                (bytes, records.len())
            })?;
            for record in &records {
                record.resolve(&placement);
            }
            mapping.on_programmed(&records, &placement);
            shared.buffer.resolve_links(&placement);
            shared.buffer.remove_page();
            self.placements.push(placement);
        }
        if shared.buffer.is_empty() {
            self.pending_since = None;
            if let Some(journal) = &mut self.journal {
                journal.restart();
            }
        }
        Ok(())
    }

    /// Makes all pages programmed so far durable.
    pub(crate) fn flush(&mut self, shared: &Shared) -> Result<()> {
        while !(self.done.is_empty() && self.erases.is_empty()) {
            self.wait_one(shared)?;
        }
        let flushed = shared.device.flash.flush(Purpose::Flush);
        flushed.map_err(|error| shared.poison("flush the device", error.into()))?;
        self.durable = self.number;
        self.durable_records = shared.buffer.first();
        self.erased = false;
        Ok(())
    }

    /// Programs all pending records and makes everything durable.
    pub(crate) fn force(&mut self, shared: &Shared, mapping: &dyn Mapping) -> Result<()> {
        self.program_pending(shared, mapping, true)?;
        match self.durable == self.number && !self.erased {
            true => Ok(()),
            false => self.flush(shared),
        }
    }

    /// The location of the record that was pushed under this number.
    pub(crate) fn location_of(&self, number: u64) -> u32 {
        let at = crate::location::pending(number);
        self.placements
            .iter()
            .map(|placement| placement.resolve(at))
            .find(|location| *location != at)
            .unwrap_or(at)
    }

    /// Writes a payload to pages of its own.
    pub(crate) fn program_payload(
        &mut self,
        shared: &Shared,
        record: &Record,
        parts: [&[u8]; 2],
        purpose: Purpose,
    ) -> Result<Vec<u32>> {
        let page_bytes = shared.device.geometry.page_bytes();
        let bytes = parts.concat();
        let pages = bytes.chunks(page::payload_bytes(page_bytes));
        let program = |part: &[u8]| {
            self.program(shared, Kind::Payload, purpose, |_| {
                (page::payload(page_bytes, record.hash, part), 0)
            })
        };
        pages.map(program).collect()
    }

    /// Rewrites the payload pages of a record that is relocated.
    pub(crate) fn rewrite_payload(&mut self, shared: &Shared, record: &mut Record) -> Result<()> {
        if record.payload.is_none() || record.is_tombstoned() {
            return Ok(());
        }
        record.key.clear();
        shared.device.load(record, true, Purpose::Compaction)?;
        let value = match &mut record.content {
            Content::Value(value) => std::mem::take(value),
            _ => Vec::new(),
        };
        let parts = [record.key.as_slice(), &value];
        let pages = self.program_payload(shared, record, parts, Purpose::Compaction)?;
        if let Some(payload) = &mut record.payload {
            payload.pages = pages;
        }
        Ok(())
    }
}

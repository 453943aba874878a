//! The head of the log: pending records become pages, pages become durable.
//!
//! ```text
//!   pending records ─▶ page: number on the device, place in the log ─▶ submitted ─▶ flushed: durable
//!                         │
//!                         └─▶ mapping and links learn the places
//! ```
//!
//! Pages go to the lane that has least to do, so that all channels are busy (`lanes`). A page that could not be programmed for
//! want of space is tried again with the next write, in another place; after any other failure nothing
//! is known, and the table is read-only.
//!
//! Invariant: page n of the log is submitted before page n + 1; `durable` pages survive any power cut.
//!
//! Source: SkimpyFTL, sections 2.3 and 4 (log-structured placement, packing).

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use siltstone_engine::{Error, Purpose, Result, Timestamp};

use crate::engine::Inner;
use crate::flash::Completion;
use crate::page::{self, HEADER_BYTES, Header, Kind};
use crate::pending::{Front, Placed};
use crate::record::{REMAPPED, Record};
use crate::space::Space;
use crate::stage::Stage;

/// Pages of a lane under way: enough to go on with the other lanes while one is erased.
const UNDER_WAY: usize = 8;

/// What the one writer at a time has.
pub(crate) struct Writer {
    pub(crate) space: Space,
    /// The number of the next page of the log.
    pub(crate) number: u64,
    pub(crate) epoch: u32,
    /// Pages below this are durable.
    pub(crate) durable: u64,
    /// Records with numbers below this are in such pages (`pending`).
    pub(crate) durable_records: u64,
    /// The last batch's timestamp.
    pub(crate) last: u64,
    /// The highest timestamp that no batch can have any more: the last one's, that of one that failed, or
    /// one that somebody reads at.
    pub(crate) used: u64,
    pub(crate) stage: Option<Stage>,
    /// When the oldest pending record came.
    pub(crate) pending_since: Option<Timestamp>,
    /// Pages of the tail that are to be collected for those that were programmed; below zero what was done
    /// beyond that.
    pub(crate) due: f64,
    /// The last page of any block that the last checkpoint knew as given up.
    pub(crate) retired_by_checkpoint: u64,
    /// The number of the last checkpoint that was begun, and where replay begins from it and from
    /// the one before.
    pub(crate) checkpoint: u64,
    pub(crate) starts: (u64, u64),
    /// Places that were found since the present batch was begun.
    pub(crate) moved: Vec<Placed>,
    /// Whether a block was erased since the last flush.
    pub(crate) erased: bool,
    /// Pages programmed in this epoch.
    sequence: u64,
    /// Programs that may be under way, the first to be done first, and erases: those take long, and nobody waits for one but who
    /// wants everything durable.
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
            stage: None,
            pending_since: None,
            due: 0.0,
            retired_by_checkpoint: 0,
            checkpoint: 0,
            starts: (0, 0),
            moved: Vec::new(),
            erased: false,
            sequence: 0,
            done: BinaryHeap::new(),
            erases: VecDeque::new(),
        }
    }

    /// Programs the next page of the log; `fill` writes its body, once its number is known.
    pub(crate) fn program(
        &mut self,
        inner: &Inner,
        kind: Kind,
        purpose: Purpose,
        fill: impl FnOnce(u32) -> (Vec<u8>, usize),
    ) -> Result<u32> {
        let device = &inner.device;
        let next = self.space.next_page(device, &mut self.erases);
        let (page, lane) = next.map_err(|error| inner.doubt("open a block", error))?;
        let (mut bytes, count) = fill(page);
        let header = self.header(inner, kind, count, self.number);
        page::seal(&mut bytes, page, &header);
        let submitted = device.submit_program(page, &bytes, purpose);
        let completion =
            submitted.map_err(|error| inner.doubt("program a page", Error::from(error)))?;
        self.done.push(Reverse(completion));
        self.space.programmed(lane, self.number);
        self.number += 1;
        self.due += 1.0;
        while self.done.len() > UNDER_WAY * self.space.lanes() {
            self.wait_one(inner)?;
        }
        Ok(page)
    }

    /// Programs a page of the checkpoint that is being written, in a block of its own.
    pub(crate) fn program_checkpoint(
        &mut self,
        inner: &Inner,
        page: u32,
        mut bytes: Vec<u8>,
    ) -> Result<()> {
        let header = self.header(inner, Kind::Checkpoint, 0, self.checkpoint);
        page::seal(&mut bytes, page, &header);
        let submitted = inner.device.submit_program(page, &bytes, Purpose::Manifest);
        let completion =
            submitted.map_err(|error| inner.doubt("program a checkpoint", Error::from(error)))?;
        self.done.push(Reverse(completion));
        Ok(())
    }

    /// A free block, for a checkpoint.
    pub(crate) fn take_block(&mut self, inner: &Inner) -> Result<u32> {
        let taken = self.space.take_free(&inner.device, 0, &mut self.erases);
        taken.map_err(|error| inner.doubt("erase a block", error))
    }

    /// Erases a block that nothing needs any more, and frees it.
    pub(crate) fn give_back(&mut self, inner: &Inner, block: u32) -> Result<()> {
        let device = &inner.device;
        let erased = self.space.erase(device, block, &mut self.erases);
        if erased.map_err(|error| inner.doubt("erase a block", error))? {
            self.erased = true;
            self.space.set_free(block, device.flash.erases(block)?);
        }
        Ok(())
    }

    fn header(&mut self, inner: &Inner, kind: Kind, count: usize, number: u64) -> Header {
        self.sequence += 1;
        let (epoch, durable, sequence) = (self.epoch, self.durable, self.sequence);
        Header { kind, count, number, epoch, durable, floor: inner.history.floor(), sequence }
    }

    fn wait_one(&mut self, inner: &Inner) -> Result<()> {
        let first = self.done.pop().map(|Reverse(completion)| completion);
        let Some(completion) = first.or_else(|| self.erases.pop_front()) else { return Ok(()) };
        let waited = inner.device.flash.wait(completion);
        waited.map_err(|error| inner.doubt("wait for the device", Error::from(error)))
    }

    /// Programs pending records, page by page: with `all` every one, else full pages while more wait than are to wait
    /// for one another. So whoever puts a page of records makes room for it by programming one.
    pub(crate) fn place(&mut self, inner: &Inner, all: bool) -> Result<()> {
        let page_bytes = inner.device.geometry.page_bytes();
        let waiting = inner.mapping.together() * (page_bytes - HEADER_BYTES);
        let slots = inner.device.slots;
        if all {
            inner.mapping.settle(&inner.pending, self.number);
        }
        while all || inner.pending.bytes() >= waiting {
            let Some(Front { records, marks, from }) = inner.pending.front(all) else {
                if inner.mapping.settle(&inner.pending, self.number) {
                    continue;
                }
                break;
            };
            let purpose = match records[0].is_marked(REMAPPED) {
                true => Purpose::Compaction,
                false => Purpose::Flush,
            };
            let mut placed = Placed { from, base: 0 };
            self.program(inner, Kind::Records, purpose, |page| {
                placed.base = slots.at(page, 0);
                let mut bytes = Vec::with_capacity(page_bytes);
                bytes.resize(HEADER_BYTES, 0);
                for (record, marks) in records.iter().zip(&marks) {
                    record.encode(*marks, &placed, &mut bytes);
                }
                bytes.resize(page_bytes, 0);
                (bytes, records.len())
            })?;
            for record in &records {
                record.resolve(&placed);
            }
            inner.mapping.placed(&records, &placed);
            inner.pending.follow(&placed);
            inner.pending.leave();
            self.moved.push(placed);
        }
        if inner.pending.is_empty() {
            self.pending_since = None;
            if let Some(stage) = &mut self.stage {
                stage.restart();
            }
        }
        Ok(())
    }

    /// Makes all pages so far durable.
    pub(crate) fn flush(&mut self, inner: &Inner) -> Result<()> {
        while !(self.done.is_empty() && self.erases.is_empty()) {
            self.wait_one(inner)?;
        }
        let flushed = inner.device.flash.flush(Purpose::Flush);
        flushed.map_err(|error| inner.poison("flush the device", error.into()))?;
        self.durable = self.number;
        self.durable_records = inner.pending.first();
        self.erased = false;
        Ok(())
    }

    /// Programs what is pending and makes everything durable.
    pub(crate) fn force(&mut self, inner: &Inner) -> Result<()> {
        self.place(inner, true)?;
        match self.durable == self.number && !self.erased {
            true => Ok(()),
            false => self.flush(inner),
        }
    }

    /// Where a record is that was pushed under this number.
    pub(crate) fn place_of(&self, number: u64) -> u32 {
        let at = crate::location::pending(number);
        self.moved.iter().map(|placed| placed.resolve(at)).find(|place| *place != at).unwrap_or(at)
    }

    /// Writes a payload to pages of its own.
    pub(crate) fn program_payload(
        &mut self,
        inner: &Inner,
        record: &Record,
        parts: [&[u8]; 2],
        purpose: Purpose,
    ) -> Result<Vec<u32>> {
        let page_bytes = inner.device.geometry.page_bytes();
        let bytes = parts.concat();
        let pages = bytes.chunks(page::payload_bytes(page_bytes));
        let program = |part: &[u8]| {
            self.program(inner, Kind::Payload, purpose, |_| {
                (page::payload(page_bytes, record.hash, part), 0)
            })
        };
        pages.map(program).collect()
    }
}

//! The versions that can be read from a damaged device, and how they get to the new one.
//!
//! ```text
//!   pages ── newest checkpoint, pages of the log that count ──▶ groups of records ──▶ versions
//!   versions, journaled batches ── in time order ──▶ new device
//! ```
//!
//! [`Salvage`] has the location and not the value of each version; the values are read again when
//! they are written. A version may have several copies, since collection relocates it: the last
//! written one that is readable counts.
//!
//! Invariants: a damaged page is reported as a loss; of an abandoned batch nothing is written.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use siltstone_engine::{
    Durability, Error, Loss, LossEffect, Purpose, RepairReport, Result, WriteBatch,
};

use crate::buffer_journal::{self, Frame};
use crate::checkpoint::Checkpoint;
use crate::clears::Clears;
use crate::device::{DEVICE, Device};
use crate::flash::Emulator;
use crate::options::{Mapping, Options};
use crate::page::{Kind, Page};
use crate::record::{Content, FIRST, LAST, RELOCATED, Record};
use crate::table::Table;
use crate::{recover, tail, timestamp, write};

/// The location of a version.
#[derive(Debug, Clone, Copy)]
struct VersionLocation {
    page: u32,
    slot: usize,
}

/// The readable versions.
#[derive(Default)]
pub(super) struct Salvage {
    /// By timestamp, then by key: the copies of a version, the last written first.
    versions: BTreeMap<u64, BTreeMap<Vec<u8>, Vec<VersionLocation>>>,
    /// By hash: the timestamp of its newest tombstone, which hides older versions.
    tombstones: BTreeMap<u64, u64>,
    /// Operations of the last batch or batches, whose end is missing: each one's timestamp and its
    /// bytes in the device's file.
    left_out: Vec<(u64, Range<u64>)>,
    /// The highest watermark by which versions were discarded.
    floor: u64,
    /// The clears that the newest complete checkpoint lists.
    clears: Vec<u64>,
    /// The number of buckets that the newest complete checkpoint states.
    pub(super) buckets: Option<u32>,
}

/// The bytes of a page in the device's file. Over a translation layer the location of a logical
/// page is unknown: all bytes.
fn page_in_file(device: &Device, options: &Options, page: u32) -> Result<Range<u64>> {
    Ok(match options.mapping {
        Mapping::Vftl => 0..Emulator::file_bytes(&options.geometry()?),
        _ => Emulator::page_in_file(&device.geometry, page),
    })
}

/// Adds an extent, joined with the last one if that is the same or ends where this one begins.
fn add_extent(extents: &mut Vec<Range<u64>>, bytes: Range<u64>) {
    match extents.last_mut() {
        Some(last) if last.end == bytes.start => last.end = bytes.end,
        Some(last) if *last == bytes => {}
        _ => extents.push(bytes),
    }
}

/// Readable pages of the log, by epoch and number.
type LogPages = BTreeMap<(u32, u64), u32>;

impl Salvage {
    /// Reads the device; `report` gets the damage and the losses.
    ///
    /// # Errors
    /// I/O errors; a checkpoint of another mapping.
    pub(super) fn of(
        device: &Device,
        options: &Options,
        report: &mut RepairReport,
    ) -> Result<Self> {
        let mut salvage = Salvage::default();
        let (pages, checkpoint) = salvage.survey(device, options, report)?;
        let tail = match &checkpoint {
            Some(found) => {
                found.check_mapping(device.name(), options.mapping)?;
                salvage.buckets = Some(found.buckets);
                salvage.clears.clone_from(&found.clears);
                let between = pages
                    .keys()
                    .any(|(_, number)| (found.tail..=found.retired_through).contains(number));
                if between {
                    // Versions that hid them may have been in one of the retired blocks.
                    let line = "blocks were retired out of order over several channels: deleted keys may reappear";
                    report.note(line);
                    report.record_loss(Loss::order(DEVICE));
                }
                found.tail
            }
            None => {
                let line =
                    "no checkpoint is complete: keys that were deleted long ago may reappear";
                report.note(line);
                report.record_loss(Loss::order(DEVICE));
                0
            }
        };
        salvage.read(device, options, &pages, tail, report)?;
        salvage.drop_unreadable();
        Ok(salvage)
    }

    /// The pages of the log, and the newest complete checkpoint.
    fn survey(
        &mut self,
        device: &Device,
        options: &Options,
        report: &mut RepairReport,
    ) -> Result<(LogPages, Option<Checkpoint>)> {
        let mut pages = LogPages::new();
        let (mut lost, mut durable): (Vec<Range<u64>>, u64) = (Vec::new(), 0);
        for block in 0..device.geometry.blocks() {
            for index in 0..device.flash.programmed(block)? {
                let number = device.geometry.page(block, index);
                let Some(page) = device.try_read(number, Purpose::Maintenance)? else {
                    add_extent(&mut lost, page_in_file(device, options, number)?);
                    continue;
                };
                self.floor = self.floor.max(page.header.floor);
                durable = durable.max(page.header.durable);
                if page.header.kind != Kind::Checkpoint {
                    pages.insert((page.header.epoch, page.header.number), number);
                }
            }
        }
        let newest = recover::newest_complete_checkpoint(device)?;
        let unreadable = lost.iter().map(|bytes| bytes.end - bytes.start).sum::<u64>();
        let unreadable = unreadable / Emulator::page_in_file(&device.geometry, 0).end.max(1);
        for bytes in lost {
            report.record_loss(Loss::entries(DEVICE, bytes));
        }
        let from =
            newest.as_ref().map_or(u64::MAX, |found| found.tail.max(found.retired_through + 1));
        let numbers: BTreeSet<u64> = pages.keys().map(|(_, number)| *number).collect();
        let present = numbers.range(from..).count() as u64;
        let expected = durable.max(numbers.last().map_or(0, |last| last + 1)).saturating_sub(from);
        if expected > present + unreadable {
            let missing = expected - present - unreadable;
            report.note(format!("{missing} pages of the log are missing without a trace"));
            report
                .record_loss(Loss::entries(DEVICE, 0..Emulator::file_bytes(&options.geometry()?)));
        }
        Ok((pages, newest))
    }

    /// Reads the records of the pages that count.
    fn read(
        &mut self,
        device: &Device,
        options: &Options,
        pages: &LogPages,
        tail: u64,
        report: &mut RepairReport,
    ) -> Result<()> {
        // An opening continues after the last page that it found: later pages of earlier epochs are
        // cut off.
        let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
        for (epoch, number) in pages.keys() {
            begins.entry(*epoch).or_insert(*number);
        }
        let cut = |epoch: u32| begins.range(epoch + 1..).map(|(_, first)| *first).min();
        let mut group: Vec<(VersionLocation, Record)> = Vec::new();
        let mut previous = None;
        let mut unfinished = 0;
        for (&(epoch, number), &at) in pages {
            if number < tail || cut(epoch).is_some_and(|cut| number >= cut) {
                continue;
            }
            match previous {
                Some((before, last)) if last + 1 == number => {
                    // The opening that began this epoch found no end of the group.
                    if before < epoch {
                        unfinished += abandon(&mut group);
                    }
                }
                // The end of the group may be in the missing pages: it may have been complete.
                _ => self.take(device, &mut group, report)?,
            }
            previous = Some((epoch, number));
            let page = device.read(at, Purpose::Maintenance)?;
            unfinished += self.read_page(device, &page, &mut group, report)?;
        }
        if unfinished > 0 {
            report.note(format!("{unfinished} operations of abandoned batches are left out"));
        }
        // The log may have continued in pages that are lost.
        for (location, record) in group.iter().filter(|(_, it)| !it.is_marked(RELOCATED)) {
            let payload = record.payload.iter().flat_map(|payload| payload.pages.iter().copied());
            for page in std::iter::once(location.page).chain(payload) {
                let bytes = page_in_file(device, options, page)?;
                self.left_out.push((record.timestamp, bytes));
            }
        }
        Ok(())
    }

    /// Reports the left-out operations, except those of the batches that the journal has. Where
    /// nothing is lost the end of the batch was never durable.
    fn report_left_out(&self, journaled: &BTreeMap<u64, WriteBatch>, report: &mut RepairReport) {
        if report.losses.iter().all(|loss| loss.effect == LossEffect::Order) {
            return;
        }
        let left_out = self.left_out.iter().filter(|(at, _)| !journaled.contains_key(at));
        let mut extents = Vec::new();
        left_out.for_each(|(_, bytes)| add_extent(&mut extents, bytes.clone()));
        if extents.is_empty() {
            return;
        }
        report.note("the end of the last batch is missing: its other operations are left out");
        for bytes in extents {
            report.record_loss(Loss::entries(DEVICE, bytes));
        }
    }

    /// Reads one page; returns the number of operations of abandoned batches.
    fn read_page(
        &mut self,
        device: &Device,
        page: &Page,
        group: &mut Vec<(VersionLocation, Record)>,
        report: &mut RepairReport,
    ) -> Result<usize> {
        let mut unfinished = 0;
        for (slot, record) in page.records().enumerate() {
            let Ok(record) = record else {
                report.note(format!(
                    "page {}: a record is malformed, and what follows it",
                    page.page
                ));
                break;
            };
            if record.is_marked(FIRST) {
                unfinished += abandon(group);
            }
            let ends = record.is_marked(LAST);
            group.push((VersionLocation { page: page.page, slot }, record));
            if ends {
                self.take(device, group, report)?;
            }
        }
        Ok(unfinished)
    }

    fn take(
        &mut self,
        device: &Device,
        group: &mut Vec<(VersionLocation, Record)>,
        report: &mut RepairReport,
    ) -> Result<()> {
        for (location, mut record) in group.drain(..) {
            if matches!(record.content, Content::EmptyBucket(_)) {
                continue;
            }
            if record.is_tombstoned() {
                let timestamp = self.tombstones.entry(record.hash).or_default();
                *timestamp = record.timestamp.max(*timestamp);
                continue;
            }
            match device.load(&mut record, false, Purpose::Maintenance) {
                Err(damage @ Error::Corruption { .. }) => {
                    let when = timestamp::millis(record.timestamp);
                    report.note(format!("a key of time {when} is lost: {damage}"));
                    continue;
                }
                loaded => loaded?,
            }
            let of_time = self.versions.entry(record.timestamp).or_default();
            of_time.entry(record.key).or_default().insert(0, location);
        }
        Ok(())
    }

    /// Drops versions below the highest watermark, except the youngest of each key, and those
    /// before the last clear there.
    fn drop_unreadable(&mut self) {
        let cleared = Clears::new(self.clears.clone()).seen_at(self.floor);
        self.versions = self.versions.split_off(&(cleared + 1));
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        for (timestamp, keys) in self.versions.range_mut(..=self.floor).rev() {
            debug_assert!(*timestamp <= self.floor);
            keys.retain(|key, _| {
                let tombstone = self.tombstones.get(&crate::keys::hash(key));
                tombstone.is_none_or(|tombstone| timestamp > tombstone) && seen.insert(key.clone())
            });
        }
        self.versions.retain(|_, keys| !keys.is_empty());
    }

    /// The journaled batches that count, by timestamp: those that the device may not have.
    fn journaled(
        &self,
        frames: Vec<Frame>,
        report: &mut RepairReport,
    ) -> BTreeMap<u64, WriteBatch> {
        // Up to the floor a version that the device does not have may have been discarded.
        let newest = self.versions.last_key_value().map_or(0, |(timestamp, _)| *timestamp);
        let from = newest.min(self.floor);
        let is_on_device = |frame: &Frame| {
            let keys = self.versions.get(&frame.timestamp);
            frame.batch.iter().all(|op| keys.is_some_and(|keys| keys.contains_key(op.key())))
        };
        let mut journaled = BTreeMap::new();
        let (mut previous, mut is_current) = (None, true);
        let mut start = 0;
        for frame in frames {
            let bytes = start..start + frame.encoded_bytes();
            start = bytes.end;
            // Frames of earlier rounds follow those of the current one; their batches were on the
            // device.
            is_current &= previous.is_none_or(|previous| frame.previous == previous);
            previous = Some(frame.timestamp);
            if frame.timestamp <= from {
                continue;
            }
            if is_current {
                journaled.insert(frame.timestamp, frame.batch);
            } else if !is_on_device(&frame) {
                report.record_loss(Loss::entries(buffer_journal::NAME, bytes));
            }
        }
        journaled
    }

    /// Writes all versions and the journaled batches in time order; returns their number.
    pub(super) fn write(
        &self,
        device: &Device,
        new: &Table,
        frames: Vec<Frame>,
        report: &mut RepairReport,
    ) -> Result<u64> {
        let journaled = self.journaled(frames, report);
        self.report_left_out(&journaled, report);
        // Pinned, so that nothing above the floor is discarded during the repair.
        new.shared.history.advance(|| self.floor);
        new.shared.clears.set(self.clears.clone());
        let _pin = new.shared.pin_at(|| self.floor)?;
        let mut written = 0;
        let mut batch = WriteBatch::new();
        let timestamps: BTreeSet<u64> =
            self.versions.keys().chain(journaled.keys()).copied().collect();
        for timestamp in timestamps {
            if let Some(batch) = journaled.get(&timestamp) {
                written += apply(new, batch, timestamp)?;
                continue;
            }
            batch.clear();
            for (key, locations) in self.versions.get(&timestamp).into_iter().flatten() {
                match version(device, locations)? {
                    Ok(record) => push(&mut batch, record),
                    Err(damage) => report.note(format!(
                        "{} as of {} is lost: {damage}",
                        key.escape_ascii(),
                        timestamp::millis(timestamp)
                    )),
                }
            }
            written += apply(new, &batch, timestamp)?;
        }
        Ok(written)
    }
}

/// Drops a group without its end; returns the number of its operations.
fn abandon(group: &mut Vec<(VersionLocation, Record)>) -> usize {
    group.drain(..).filter(|(_, record)| !record.is_marked(RELOCATED)).count()
}

/// A version with its value, from its first readable copy; else the damage.
fn version(device: &Device, locations: &[VersionLocation]) -> Result<Result<Record, Error>> {
    let mut damage = None;
    for location in locations {
        let read = || {
            let page = device.read(location.page, Purpose::Maintenance)?;
            let mut record = page.record(location.slot)?;
            device.load(&mut record, true, Purpose::Maintenance)?;
            Ok(record)
        };
        match read() {
            Err(error @ Error::Corruption { .. }) => damage = Some(error),
            record => return record.map(Ok),
        }
    }
    Ok(Err(damage.unwrap_or_else(|| device.corrupt(0, "the version has no copy"))))
}

fn push(batch: &mut WriteBatch, record: Record) {
    match (&record.content, record.expires_at) {
        (Content::Value(value), Some(at)) => batch.put_until(&record.key, value, at),
        (Content::Value(value), None) => batch.put(&record.key, value),
        _ => batch.delete(&record.key),
    };
}

fn apply(new: &Table, batch: &WriteBatch, timestamp: u64) -> Result<u64> {
    if batch.is_empty() {
        return Ok(0);
    }
    let Table { shared, mapping, .. } = new;
    new.with_writer(|writer| {
        tail::make_room(shared, &**mapping, writer, 2 * batch.as_bytes().len() as u64)?;
        write::apply(shared, &**mapping, writer, batch, timestamp, Durability::Buffered)
    })?;
    Ok(batch.len() as u64)
}

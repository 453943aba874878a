//! Makes a damaged table open again, with all that can be read.
//!
//! ```text
//!   flash ── pages that hold ──▶ versions that may be asked for ──▶ a new device, written in the order of time
//!     └─▶ flash.damaged                                              └─▶ flash
//! ```
//!
//! 1. A table that opens and verifies is left as it is.
//! 2. Label and headers of blocks are mended in memory; the pages are read one by one.
//! 3. Of the log's pages count those that no later opening has cut off and that are not below the tail that the
//!    newest checkpoint tells. Without a whole checkpoint a key that was deleted long ago may show again, and the
//!    report says so. Of the versions count all above the highest watermark, and of each key the
//!    youngest below it; one that is buried (see `record`) is not written, and hides older ones. A batch
//!    without its end does not count, unless pages are missing behind it.
//! 4. They are written to a new device with the timestamps that they had, then what was staged.
//! 5. Old files are kept as `*.damaged`. Nothing is deleted.
//!
//! Each page that does not hold is reported as a loss, by its bytes in the file. Pages that are
//! missing without one that does not hold, of a device that was cut or zeroed, may have been
//! anywhere on it. Of a key whose newest version is lost an older one may show. Keys and places of
//! all versions are in memory meanwhile, and the directory takes two devices. The table must not be
//! open.
//!
//! Invariant: until the new device is whole it has another name; a repair that broke off is done anew, or ended.
//!
//! Source: ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{
    Durability, Engine, Error, Loss, LossEffect, Purpose, RepairReport, Result, WriteBatch,
};
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Overlay, Vfs};

use crate::checkpoint::Checkpoint;
use crate::device::Device;
use crate::engine::{DEVICE, Inner, Skimpy, device_options};
use crate::flash::{Emulator, Flash};
use crate::ftl::PageMapped;
use crate::options::{Mapping, Options};
use crate::page::{Kind, Page};
use crate::record::{Content, FIRST, LAST, REMAPPED, Record};
use crate::stage::{self, Frame, Stage};
use crate::{recover, timestamp};

/// The new device until it is whole.
const DRAFT: &str = "flash.repaired";

/// Repairs the table on `media`, which is kept with these options.
///
/// # Errors
/// Failures of the medium; a device of another version, geometry or mapping. Damage is no error here.
pub fn repair(vfs: &Arc<dyn Vfs>, env: Env, options: &Options) -> Result<RepairReport> {
    if !vfs.exists(DEVICE)? && vfs.exists(DRAFT)? {
        finish(&**vfs)?;
        return Ok(RepairReport::from(format!(
            "a repair that had broken off is ended: {DEVICE} is the new device"
        )));
    }
    if !vfs.exists(DEVICE)? && !vfs.exists(stage::NAME)? {
        return Ok(format!("nothing to repair: there is no {DEVICE}, and never was").into());
    }
    if !vfs.exists(DEVICE)? {
        return begin_anew(vfs, env, options);
    }
    // The damaged device is kept as it is: what is mended of it is so in memory alone.
    let old_media: Arc<dyn Vfs> = Arc::new(Overlay::new(vfs.clone()));
    let damage = found_damage(&old_media, &env, options)?;
    if damage.is_empty() {
        return Ok(RepairReport::from("everything on the device is sound".to_owned()));
    }
    let old_media: Arc<dyn Vfs> = Arc::new(Overlay::new(vfs.clone()));
    let mut report = RepairReport::default();
    damage.iter().for_each(|(_, told)| report.note(told));
    let geometry = options.geometry()?;
    let (is, whole) = (old_media.open(DEVICE, Mode::Read)?.len()?, Emulator::file_bytes(&geometry));
    Emulator::mend(&*old_media, DEVICE, geometry)?.into_iter().for_each(|line| report.note(line));
    if is < whole {
        // The page that was cut is gone as a whole.
        let pages = (0..geometry.pages() as u32).map(|it| Emulator::page_in_file(&geometry, it));
        let from = pages.map(|bytes| bytes.start).take_while(|start| *start <= is).last();
        report.lose(Loss::entries(DEVICE, from.unwrap_or(0)..whole));
    }
    let of_device = device_options(options.geometry()?, options.lanes);
    let old: Arc<dyn Flash> = Arc::new(Emulator::in_file(&*old_media, DEVICE, of_device.clone())?);
    let old: Arc<dyn Flash> = match options.mapping {
        Mapping::Vftl => Arc::new(PageMapped::open(old, options.lanes, options.below)?),
        _ => old,
    };
    let device = Device::new(old, 1);
    let salvage = Salvage::of(&device, options, &mut report)?;
    if vfs.exists(DRAFT)? {
        vfs.remove(DRAFT)?;
    }
    let options =
        Options { buckets: salvage.buckets.unwrap_or(options.buckets), ..options.clone() };
    let new = Arc::new(Emulator::in_file(&**vfs, DRAFT, of_device)?);
    let new = Skimpy { inner: recover::open(new, None, env.clone(), options.clone())? };
    let frames = Stage::read(&**vfs)?;
    let written = salvage.write(&device, &new.inner, frames, &mut report)?;
    new.close()?;
    if report.losses.iter().all(|loss| loss.effect == LossEffect::Order) {
        // With label and headers mended it may be sound. If not, what is missing left no trace.
        drop(device);
        let mended: Arc<dyn Vfs> = Arc::new(Overlay::new(vfs.clone()));
        Emulator::mend(&*mended, DEVICE, geometry)?;
        if !found_damage(&mended, &env, &options)?.is_empty() {
            report.lose(Loss::entries(DEVICE, 0..whole));
        }
    }
    let kept = finish(&**vfs)?;
    report
        .note(format!("{written} versions are written to a new device; kept: {}", kept.join(", ")));
    Ok(report)
}

/// Makes a device in the place of one that is missing; what was staged is all that there is to
/// write to it.
fn begin_anew(vfs: &Arc<dyn Vfs>, env: Env, options: &Options) -> Result<RepairReport> {
    let mut report = RepairReport::default();
    report.note(format!("{DEVICE} is missing, and with it every version that was on the device"));
    report.lose(Loss::entries(DEVICE, 0..u64::MAX));
    let of_device = device_options(options.geometry()?, options.lanes);
    let new = Arc::new(Emulator::in_file(&**vfs, DRAFT, of_device)?);
    let new = Skimpy { inner: recover::open(new, None, env, options.clone())? };
    let frames = Stage::read(&**vfs)?;
    let written = Salvage::default().write(&new.inner.device, &new.inner, frames, &mut report)?;
    new.close()?;
    let kept = finish(&**vfs)?;
    report.note(format!(
        "{written} versions that waited in {} are written to a new device; kept: {}",
        stage::NAME,
        if kept.is_empty() { "nothing".to_owned() } else { kept.join(", ") }
    ));
    Ok(report)
}

/// What is wrong with the table, as far as opening and verifying tell: where, and in words. `media`
/// is changed.
fn found_damage(vfs: &Arc<dyn Vfs>, env: &Env, options: &Options) -> Result<Vec<(u64, String)>> {
    let table = match Skimpy::open(vfs.clone(), env.clone(), options.clone()) {
        Ok(table) => table,
        Err(Error::Corruption { file, offset, reason }) => {
            let told = Error::corruption(file, offset, reason).to_string();
            return Ok(vec![(offset, told)]);
        }
        Err(other) => return Err(other),
    };
    let report = table.verify(&mut |_, _| ())?;
    let damage = report.damage.iter();
    let told =
        damage.map(|it| (it.offset, format!("{}, byte {}: {}", it.file, it.offset, it.reason)));
    Ok(told.collect())
}

/// Gives the new device its name, and what was there another; the names of what is kept.
fn finish(vfs: &dyn Vfs) -> Result<Vec<String>> {
    let mut kept = Vec::new();
    for name in [DEVICE, stage::NAME] {
        if vfs.exists(name)? {
            let mut aside = format!("{name}.damaged");
            for number in 2.. {
                if !vfs.exists(&aside)? {
                    break;
                }
                aside = format!("{name}.damaged-{number}");
            }
            vfs.rename(name, &aside)?;
            kept.push(aside);
        }
    }
    vfs.sync_dir(Purpose::Manifest)?;
    vfs.rename(DRAFT, DEVICE)?;
    vfs.sync_dir(Purpose::Manifest)?;
    Stage::open(vfs)?;
    Ok(kept)
}

/// Where a version lies.
#[derive(Debug, Clone, Copy)]
struct Place {
    page: u32,
    slot: usize,
}

/// What can be saved.
#[derive(Default)]
struct Salvage {
    /// By timestamp, then by key: copies of the same version, the last written first.
    versions: BTreeMap<u64, BTreeMap<Vec<u8>, Vec<Place>>>,
    /// Of each hash with a version that is buried: that version's timestamp. It hides what is older.
    buried: BTreeMap<u64, u64>,
    /// The highest watermark that anything was discarded by.
    floor: u64,
    buckets: Option<u32>,
}

/// Pages of the log that hold, by epoch and number.
type LogPages = BTreeMap<(u32, u64), u32>;

impl Salvage {
    fn of(device: &Device, options: &Options, report: &mut RepairReport) -> Result<Self> {
        let mut salvage = Salvage::default();
        let (pages, checkpoint) = salvage.survey(device, options, report)?;
        let tail = match &checkpoint {
            Some(found) => {
                Inner::check_kept(device.name(), options.mapping, found)?;
                salvage.buckets = Some(found.buckets);
                let between =
                    pages.keys().any(|(_, number)| (found.tail..=found.gone).contains(number));
                if between {
                    // What hid them may have been in one of the blocks that were given up.
                    let line = "of several lanes blocks were given up out of order: keys that were deleted may show again";
                    report.note(line);
                    report.lose(Loss::order(DEVICE));
                }
                found.tail
            }
            None => {
                let line = "no checkpoint is whole: keys that were deleted long ago may show again";
                report.note(line);
                report.lose(Loss::order(DEVICE));
                0
            }
        };
        salvage.read(device, &pages, tail, report)?;
        salvage.drop_what_nobody_asks_for();
        Ok(salvage)
    }

    /// The pages of the log, and the newest checkpoint that is whole.
    fn survey(
        &mut self,
        device: &Device,
        options: &Options,
        report: &mut RepairReport,
    ) -> Result<(LogPages, Option<Checkpoint>)> {
        let mut pages = LogPages::new();
        let (mut lost, mut durable): (Vec<std::ops::Range<u64>>, u64) = (Vec::new(), 0);
        for block in 0..device.geometry.blocks() {
            for index in 0..device.flash.programmed(block)? {
                let number = device.geometry.page(block, index);
                let Some(page) = device.look(number, Purpose::Maintenance)? else {
                    // Over a translation layer nothing tells where a page is.
                    let bytes = match options.mapping {
                        Mapping::Vftl => 0..Emulator::file_bytes(&options.geometry()?),
                        _ => Emulator::page_in_file(&device.geometry, number),
                    };
                    match lost.last_mut() {
                        Some(last) if last.end == bytes.start => last.end = bytes.end,
                        Some(last) if *last == bytes => {}
                        _ => lost.push(bytes),
                    }
                    continue;
                };
                self.floor = self.floor.max(page.header.floor);
                durable = durable.max(page.header.durable);
                if page.header.kind != Kind::Checkpoint {
                    pages.insert((page.header.epoch, page.header.number), number);
                }
            }
        }
        let newest = recover::newest_whole_checkpoint(device)?;
        let unreadable = lost.iter().map(|bytes| bytes.end - bytes.start).sum::<u64>();
        let unreadable = unreadable / Emulator::page_in_file(&device.geometry, 0).end.max(1);
        for bytes in lost {
            report.lose(Loss::entries(DEVICE, bytes));
        }
        let from = newest.as_ref().map_or(u64::MAX, |found| found.tail.max(found.gone + 1));
        let numbers: BTreeSet<u64> = pages.keys().map(|(_, number)| *number).collect();
        let there = numbers.range(from..).count() as u64;
        let expected = durable.max(numbers.last().map_or(0, |last| last + 1)).saturating_sub(from);
        if expected > there + unreadable {
            let missing = expected - there - unreadable;
            report.note(format!("{missing} pages of the log are missing, and left no trace"));
            report.lose(Loss::entries(DEVICE, 0..Emulator::file_bytes(&options.geometry()?)));
        }
        Ok((pages, newest))
    }

    /// Takes the records of the pages that count.
    fn read(
        &mut self,
        device: &Device,
        pages: &LogPages,
        tail: u64,
        report: &mut RepairReport,
    ) -> Result<()> {
        // An opening goes on behind the last page that it has found: what an earlier one has there was cut off.
        let mut begins: BTreeMap<u32, u64> = BTreeMap::new();
        for (epoch, number) in pages.keys() {
            begins.entry(*epoch).or_insert(*number);
        }
        let cut = |epoch: u32| begins.range(epoch + 1..).map(|(_, first)| *first).min();
        let mut group: Vec<(Place, Record)> = Vec::new();
        let mut before = None;
        let mut unfinished = 0;
        for (&(epoch, number), &at) in pages {
            if number < tail || cut(epoch).is_some_and(|cut| number >= cut) {
                continue;
            }
            if before != Some((epoch, number.wrapping_sub(1))) {
                // What would have ended the group is missing: it may have been whole.
                self.take(device, &mut group, report)?;
            }
            before = Some((epoch, number));
            let page = device.read(at, Purpose::Maintenance)?;
            unfinished += self.read_page(device, &page, &mut group, report)?;
        }
        unfinished += group.iter().filter(|(_, record)| !record.is_marked(REMAPPED)).count();
        if unfinished > 0 {
            report.note(format!("{unfinished} operations of batches without an end are left out"));
        }
        Ok(())
    }

    /// The same of one page; how many operations are of batches that were given up.
    fn read_page(
        &mut self,
        device: &Device,
        page: &Page,
        group: &mut Vec<(Place, Record)>,
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
                unfinished += group.iter().filter(|(_, it)| !it.is_marked(REMAPPED)).count();
                group.clear();
            }
            let ends = record.is_marked(LAST);
            group.push((Place { page: page.page, slot }, record));
            if ends {
                self.take(device, group, report)?;
            }
        }
        Ok(unfinished)
    }

    fn take(
        &mut self,
        device: &Device,
        group: &mut Vec<(Place, Record)>,
        report: &mut RepairReport,
    ) -> Result<()> {
        for (place, mut record) in group.drain(..) {
            if matches!(record.content, Content::EmptyBucket(_)) {
                continue;
            }
            if record.is_buried() {
                let timestamp = self.buried.entry(record.hash).or_default();
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
            of_time.entry(record.key).or_default().insert(0, place);
        }
        Ok(())
    }

    /// Below the highest watermark the youngest version of a key is all that anyone may ask for.
    fn drop_what_nobody_asks_for(&mut self) {
        let mut seen: BTreeSet<Vec<u8>> = BTreeSet::new();
        for (timestamp, keys) in self.versions.range_mut(..=self.floor).rev() {
            debug_assert!(*timestamp <= self.floor);
            keys.retain(|key, _| {
                let buried = self.buried.get(&crate::keys::hash(key));
                buried.is_none_or(|buried| timestamp > buried) && seen.insert(key.clone())
            });
        }
        self.versions.retain(|_, keys| !keys.is_empty());
    }

    /// Writes all of it, in the order of time, and then the staged batches; how many versions that were.
    fn write(
        &self,
        device: &Device,
        new: &Inner,
        frames: Vec<Frame>,
        report: &mut RepairReport,
    ) -> Result<u64> {
        // As long as the repair goes on nothing is discarded but what was before.
        new.history.advance(|| self.floor);
        let _hold = new.hold(|| self.floor)?;
        let mut written = 0;
        let mut batch = WriteBatch::new();
        for (timestamp, keys) in &self.versions {
            batch.clear();
            for (key, places) in keys {
                match version(device, places)? {
                    Ok(record) => push(&mut batch, record),
                    Err(damage) => report.note(format!(
                        "{} as of {} is lost: {damage}",
                        key.escape_ascii(),
                        timestamp::millis(*timestamp)
                    )),
                }
            }
            written += apply(new, &batch, *timestamp)?;
        }
        // The file begins with the present turn's batches; older ones are of batches that were programmed.
        let mut last = self.versions.last_key_value().map_or(0, |(timestamp, _)| *timestamp);
        let mut previous = None;
        for frame in frames {
            if previous.is_some_and(|previous| frame.previous != previous) {
                break;
            }
            previous = Some(frame.timestamp);
            if frame.timestamp > last {
                last = frame.timestamp;
                written += apply(new, &frame.batch, frame.timestamp)?;
            }
        }
        Ok(written)
    }
}

/// A version with its value, from the first of its copies that holds; else what is wrong with it.
fn version(device: &Device, places: &[Place]) -> Result<Result<Record, Error>> {
    let mut damage = None;
    for place in places {
        let read = || {
            let page = device.read(place.page, Purpose::Maintenance)?;
            let mut record = page.record(place.slot)?;
            device.load(&mut record, true, Purpose::Maintenance)?;
            Ok(record)
        };
        match read() {
            Err(error @ Error::Corruption { .. }) => damage = Some(error),
            record => return record.map(Ok),
        }
    }
    Ok(Err(damage.unwrap_or_else(|| device.corrupt(0, "the version is nowhere"))))
}

fn push(batch: &mut WriteBatch, record: Record) {
    match (&record.content, record.expires_at) {
        (Content::Value(value), Some(at)) => batch.put_until(&record.key, value, at),
        (Content::Value(value), None) => batch.put(&record.key, value),
        _ => batch.delete(&record.key),
    };
}

fn apply(new: &Inner, batch: &WriteBatch, timestamp: u64) -> Result<u64> {
    if batch.is_empty() {
        return Ok(0);
    }
    new.with_writer(|writer| {
        new.make_room(writer, 2 * batch.as_bytes().len() as u64)?;
        new.apply(writer, batch, timestamp, Durability::Buffered)
    })?;
    Ok(batch.len() as u64)
}

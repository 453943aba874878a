//! Makes a damaged table open again, with all that can be read.
//!
//! ```text
//!   flash ── pages that hold ──▶ versions that may be asked for ──▶ a new device, written in the order of time
//!     └─▶ flash.damaged                                              └─▶ flash
//! ```
//!
//! 1. A table that opens and verifies is left as it is.
//! 2. Label and headers of blocks are mended in place; the pages are read one by one.
//! 3. Of the log's pages count those that no later opening has cut off and that are not below the tail that the
//!    newest checkpoint tells. Without a whole checkpoint a key that was deleted long ago may show again, and the
//!    report says so. Of the versions count all above the highest watermark, and of each key the
//!    youngest below it; one that is buried (see `record`) is not written, and hides older ones. A batch
//!    without its end does not count, unless pages are missing behind it.
//! 4. They are written to a new device with the timestamps that they had, then what was staged.
//! 5. Old files are kept as `*.damaged`. Nothing is deleted.
//!
//! Of a key whose newest version is lost an older one may show. Keys and places of all versions are in memory
//! meanwhile, and the directory takes two devices. The table must not be open.
//!
//! Invariant: until the new device is whole it has another name; a repair that broke off is done anew, or ended.
//!
//! Source: ours.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use siltstone_engine::{Durability, Engine, Env, Error, Purpose, Result, WriteBatch};
use siltstone_media::Media;
use siltstone_media::flash::{Emulator, Flash};

use crate::checkpoint::Checkpoint;
use crate::device::Device;
use crate::engine::{DEVICE, Inner, Skimpy, device_options};
use crate::ftl::PageMapped;
use crate::options::{Mapping, Options};
use crate::page::{Kind, Page};
use crate::record::{Content, FIRST, LAST, REMAPPED, Record};
use crate::stage::{self, Frame, Stage};
use crate::{recover, timestamp};

/// The new device until it is whole.
const DRAFT: &str = "flash.repaired";

/// Repairs the table on `media`, which is kept with these options; the answer tells, line by line, what was found
/// and done.
///
/// # Errors
/// Failures of the medium; a device of another version, geometry or mapping. Damage is no error here.
pub fn repair(media: &Arc<dyn Media>, env: Env, options: &Options) -> Result<Vec<String>> {
    if !media.exists(DEVICE)? && media.exists(DRAFT)? {
        finish(&**media)?;
        return Ok(vec![format!(
            "a repair that had broken off is ended: {DEVICE} is the new device"
        )]);
    }
    if !media.exists(DEVICE)? && !media.exists(stage::NAME)? {
        return Ok(vec![format!("nothing to repair: there is no {DEVICE}, and never was")]);
    }
    if !media.exists(DEVICE)? {
        return begin_anew(media, env, options);
    }
    let mut story = match found_damage(media, &env, options)? {
        damage if damage.is_empty() => return Ok(vec!["everything on the device is sound".into()]),
        damage => damage,
    };
    story.extend(Emulator::mend(&**media, DEVICE, options.geometry()?)?);
    let of_device = device_options(options.geometry()?, options.lanes);
    let old: Arc<dyn Flash> = Arc::new(Emulator::in_file(&**media, DEVICE, of_device.clone())?);
    let old: Arc<dyn Flash> = match options.mapping {
        Mapping::Vftl => Arc::new(PageMapped::open(old, options.lanes, options.below)?),
        _ => old,
    };
    let device = Device::new(old, 1);
    let salvage = Salvage::of(&device, options, &mut story)?;
    if media.exists(DRAFT)? {
        media.remove(DRAFT)?;
    }
    let options =
        Options { buckets: salvage.buckets.unwrap_or(options.buckets), ..options.clone() };
    let new = Arc::new(Emulator::in_file(&**media, DRAFT, of_device)?);
    let new = Skimpy { inner: recover::open(new, None, env, options)? };
    let frames = Stage::read(&**media)?;
    let written = salvage.write(&device, &new.inner, frames, &mut story)?;
    new.close()?;
    let kept = finish(&**media)?;
    story
        .push(format!("{written} versions are written to a new device; kept: {}", kept.join(", ")));
    Ok(story)
}

/// Makes a device in the place of one that is missing; what was staged is all that there is to
/// write to it.
fn begin_anew(media: &Arc<dyn Media>, env: Env, options: &Options) -> Result<Vec<String>> {
    let mut story = vec![format!(
        "{DEVICE} is missing, and with it every version that was on the device: all of them are lost"
    )];
    let of_device = device_options(options.geometry()?, options.lanes);
    let new = Arc::new(Emulator::in_file(&**media, DRAFT, of_device)?);
    let new = Skimpy { inner: recover::open(new, None, env, options.clone())? };
    let frames = Stage::read(&**media)?;
    let written = Salvage::default().write(&new.inner.device, &new.inner, frames, &mut story)?;
    new.close()?;
    let kept = finish(&**media)?;
    story.push(format!(
        "{written} versions that waited in {} are written to a new device; kept: {}",
        stage::NAME,
        if kept.is_empty() { "nothing".to_owned() } else { kept.join(", ") }
    ));
    Ok(story)
}

/// What is wrong with the table, as far as opening and verifying tell.
fn found_damage(media: &Arc<dyn Media>, env: &Env, options: &Options) -> Result<Vec<String>> {
    let told = |error: &Error| vec![error.to_string()];
    let table = match Skimpy::open(media.clone(), env.clone(), options.clone()) {
        Ok(table) => table,
        Err(damage @ Error::Corruption { .. }) => return Ok(told(&damage)),
        Err(other) => return Err(other),
    };
    let report = table.verify(&mut |_, _| ())?;
    let damage: Vec<String> = report
        .damage
        .iter()
        .map(|it| format!("{}, byte {}: {}", it.file, it.offset, it.reason))
        .collect();
    // A damaged device is not written to any more than opening it does.
    if damage.is_empty() {
        table.close()?;
    }
    Ok(damage)
}

/// Gives the new device its name, and what was there another; the names of what is kept.
fn finish(media: &dyn Media) -> Result<Vec<String>> {
    let mut kept = Vec::new();
    for name in [DEVICE, stage::NAME] {
        if media.exists(name)? {
            let mut aside = format!("{name}.damaged");
            for number in 2.. {
                if !media.exists(&aside)? {
                    break;
                }
                aside = format!("{name}.damaged-{number}");
            }
            media.rename(name, &aside)?;
            kept.push(aside);
        }
    }
    media.sync_dir(Purpose::Manifest)?;
    media.rename(DRAFT, DEVICE)?;
    media.sync_dir(Purpose::Manifest)?;
    Stage::open(media)?;
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
    fn of(device: &Device, options: &Options, story: &mut Vec<String>) -> Result<Self> {
        let mut salvage = Salvage::default();
        let (pages, checkpoint) = salvage.survey(device, story)?;
        let tail = match &checkpoint {
            Some(found) => {
                Inner::check_kept(device.name(), options.mapping, found)?;
                salvage.buckets = Some(found.buckets);
                found.tail
            }
            None => {
                let line = "no checkpoint is whole: keys that were deleted long ago may show again";
                story.push(line.to_owned());
                0
            }
        };
        salvage.read(device, &pages, tail, story)?;
        salvage.drop_what_nobody_asks_for();
        Ok(salvage)
    }

    /// The pages of the log, and the newest checkpoint that is whole.
    fn survey(
        &mut self,
        device: &Device,
        story: &mut Vec<String>,
    ) -> Result<(LogPages, Option<Checkpoint>)> {
        let mut pages = LogPages::new();
        let mut lost = 0;
        for block in 0..device.geometry.blocks() {
            for index in 0..device.flash.programmed(block)? {
                let number = device.geometry.page(block, index);
                let Some(page) = device.look(number, Purpose::Maintenance)? else {
                    lost += 1;
                    continue;
                };
                self.floor = self.floor.max(page.header.floor);
                if page.header.kind != Kind::Checkpoint {
                    pages.insert((page.header.epoch, page.header.number), number);
                }
            }
        }
        if lost > 0 {
            story
                .push(format!("{lost} pages don't hold: damaged, or torn by a power cut long ago"));
        }
        let newest = recover::newest_whole_checkpoint(device)?;
        Ok((pages, newest))
    }

    /// Takes the records of the pages that count.
    fn read(
        &mut self,
        device: &Device,
        pages: &LogPages,
        tail: u64,
        story: &mut Vec<String>,
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
                self.take(device, &mut group, story)?;
            }
            before = Some((epoch, number));
            let page = device.read(at, Purpose::Maintenance)?;
            unfinished += self.read_page(device, &page, &mut group, story)?;
        }
        unfinished += group.iter().filter(|(_, record)| !record.is_marked(REMAPPED)).count();
        if unfinished > 0 {
            story.push(format!("{unfinished} operations of batches without an end are left out"));
        }
        Ok(())
    }

    /// The same of one page; how many operations are of batches that were given up.
    fn read_page(
        &mut self,
        device: &Device,
        page: &Page,
        group: &mut Vec<(Place, Record)>,
        story: &mut Vec<String>,
    ) -> Result<usize> {
        let mut unfinished = 0;
        for (slot, record) in page.records().enumerate() {
            let Ok(record) = record else {
                story.push(format!(
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
                self.take(device, group, story)?;
            }
        }
        Ok(unfinished)
    }

    fn take(
        &mut self,
        device: &Device,
        group: &mut Vec<(Place, Record)>,
        story: &mut Vec<String>,
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
                    story.push(format!("a key of time {when} is lost: {damage}"));
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
        story: &mut Vec<String>,
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
                    Err(damage) => story.push(format!(
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

//! Repair: rebuilds a damaged table from everything that can be read.
//!
//! ```text
//!   flash ── readable pages ──▶ readable versions ──▶ a new device, written in time order
//!     └─▶ flash.damaged                                └─▶ flash
//! ```
//!
//! 1. A table that opens and verifies is left unchanged.
//! 2. Label and block headers are repaired in memory; the pages are read one by one.
//! 3. Versions are selected. Log pages that a later opening cut off, or that are below the tail of
//!    the newest checkpoint, are ignored. Without a complete checkpoint a key that was deleted long
//!    ago, or before a clear, may reappear, and the report says so. All versions above the highest
//!    watermark are kept, and of each key the newest below it. A hash tombstone (see `record`)
//!    hides older versions and is not written. A batch without its end is dropped, unless pages
//!    after it are missing.
//! 4. The selected versions and the journaled batches are written to a new device, with their
//!    timestamps.
//! 5. Old files are kept as `*.damaged`. No file is deleted.
//!
//! Each damaged page is reported as a loss, by its bytes in the file. Pages that are missing
//! without damage, of a device that was truncated or zeroed, may have been anywhere on it. The
//! operations of a last batch without its end are losses, too, unless the journal has them. If the
//! newest version of a key is lost, an older one may reappear. Keys and locations of all versions
//! are in memory during the repair, and the directory needs space for two devices. The table must
//! not be open.
//!
//! Invariant: the new device has another name until it is complete; an interrupted repair is
//! repeated or completed.

mod salvage;

use std::sync::Arc;

use siltstone_engine::{Engine, Error, Loss, LossEffect, Purpose, RepairReport, Result};
use siltstone_runtime::Env;
use siltstone_vfs::{Mode, Overlay, Vfs};

use crate::buffer_journal::{self, BufferJournal};
use crate::device::{DEVICE, Device, device_options};
use crate::engine::Skimpy;
use crate::flash::{Emulator, Flash};
use crate::ftl::PageMapped;
use crate::options::{Mapping, Options};
use crate::recover;
use salvage::Salvage;

/// The name of the new device until it is complete.
const DRAFT: &str = "flash.repaired";
/// The name of a new device in place of a missing one until it is complete: then nothing else shows
/// whether the device under the name [`DRAFT`] is.
const REBUILT: &str = "flash.rebuilt";

/// Repairs the table in `vfs`, which has these options.
///
/// # Errors
/// I/O errors; a device of another version, geometry or mapping. Damage is not an error here.
pub fn repair(vfs: &Arc<dyn Vfs>, env: Env, options: &Options) -> Result<RepairReport> {
    if !vfs.exists(DEVICE)? && vfs.exists(DRAFT)? {
        finish(&**vfs)?;
        return Ok(RepairReport::from(format!(
            "an interrupted repair is completed: {DEVICE} is the new device"
        )));
    }
    if !vfs.exists(DEVICE)? && !vfs.exists(buffer_journal::NAME)? {
        return Ok(format!("nothing to repair: {DEVICE} does not exist and never did").into());
    }
    if !vfs.exists(DEVICE)? {
        return rebuild_from_journal(vfs, env, options);
    }
    // The damaged device is not changed: repairs of its label and headers are made in memory.
    let old_vfs: Arc<dyn Vfs> = Arc::new(Overlay::new(vfs.clone()));
    let damage = find_damage(&old_vfs, &env, options)?;
    if damage.is_empty() {
        return Ok(RepairReport::from("everything on the device is intact".to_owned()));
    }
    let old_vfs: Arc<dyn Vfs> = Arc::new(Overlay::new(vfs.clone()));
    let mut report = RepairReport::default();
    damage.iter().for_each(|(_, text)| report.note(text));
    let geometry = options.geometry()?;
    let (file_bytes, device_bytes) =
        (old_vfs.open(DEVICE, Mode::Read)?.len()?, Emulator::file_bytes(&geometry));
    Emulator::repair(&*old_vfs, DEVICE, geometry)?.into_iter().for_each(|line| report.note(line));
    if file_bytes < device_bytes {
        // A page that was cut is lost as a whole.
        let pages = (0..geometry.pages() as u32).map(|it| Emulator::page_in_file(&geometry, it));
        let from = pages.map(|bytes| bytes.start).take_while(|start| *start <= file_bytes).last();
        report.record_loss(Loss::entries(DEVICE, from.unwrap_or(0)..device_bytes));
    }
    let flash_options = device_options(options.geometry()?, options.channels);
    let old: Arc<dyn Flash> =
        Arc::new(Emulator::in_file(&*old_vfs, DEVICE, flash_options.clone())?);
    let old: Arc<dyn Flash> = match options.mapping {
        Mapping::Vftl => Arc::new(PageMapped::open(old, options.channels, options.ftl_placement)?),
        _ => old,
    };
    let device = Device::new(old, 1);
    let salvage = Salvage::of(&device, options, &mut report)?;
    if vfs.exists(DRAFT)? {
        vfs.remove(DRAFT)?;
    }
    let options =
        Options { buckets: salvage.buckets.unwrap_or(options.buckets), ..options.clone() };
    let new = Arc::new(Emulator::in_file(&**vfs, DRAFT, flash_options)?);
    let new = Skimpy { table: recover::open(new, None, env.clone(), options.clone())? };
    let frames = BufferJournal::read(&**vfs)?;
    let written = salvage.write(&device, &new.table, frames, &mut report)?;
    new.close()?;
    if report.losses.iter().all(|loss| loss.effect == LossEffect::Order) {
        // With label and headers repaired the device may be consistent. If not, the missing pages
        // left no trace.
        drop(device);
        let mended: Arc<dyn Vfs> = Arc::new(Overlay::new(vfs.clone()));
        Emulator::repair(&*mended, DEVICE, geometry)?;
        if !find_damage(&mended, &env, &options)?.is_empty() {
            report.record_loss(Loss::entries(DEVICE, 0..device_bytes));
        }
    }
    let quarantined = finish(&**vfs)?;
    report.note(format!(
        "{written} versions are written to a new device; kept: {}",
        quarantined.join(", ")
    ));
    Ok(report)
}

/// Creates a device in place of a missing one, and writes the journaled batches to it.
fn rebuild_from_journal(vfs: &Arc<dyn Vfs>, env: Env, options: &Options) -> Result<RepairReport> {
    let mut report = RepairReport::default();
    report.note(format!("{DEVICE} is missing, and with it every version that was on the device"));
    report.record_loss(Loss::entries(DEVICE, 0..u64::MAX));
    let flash_options = device_options(options.geometry()?, options.channels);
    if vfs.exists(REBUILT)? {
        vfs.remove(REBUILT)?;
    }
    let new = Arc::new(Emulator::in_file(&**vfs, REBUILT, flash_options)?);
    let new = Skimpy { table: recover::open(new, None, env, options.clone())? };
    let frames = BufferJournal::read(&**vfs)?;
    let written =
        Salvage::default().write(&new.table.shared.device, &new.table, frames, &mut report)?;
    new.close()?;
    vfs.rename(REBUILT, DRAFT)?;
    vfs.sync_dir(Purpose::Manifest)?;
    let quarantined = finish(&**vfs)?;
    report.note(format!(
        "{written} versions of the journal {} are written to a new device; kept: {}",
        buffer_journal::NAME,
        if quarantined.is_empty() { "nothing".to_owned() } else { quarantined.join(", ") }
    ));
    Ok(report)
}

/// The damage that opening and verification find: offset and description. Changes `vfs`.
fn find_damage(vfs: &Arc<dyn Vfs>, env: &Env, options: &Options) -> Result<Vec<(u64, String)>> {
    let table = match Skimpy::open(vfs.clone(), env.clone(), options.clone()) {
        Ok(table) => table,
        Err(Error::Corruption { file, offset, reason }) => {
            let text = Error::corruption(file, offset, reason).to_string();
            return Ok(vec![(offset, text)]);
        }
        Err(other) => return Err(other),
    };
    let report = table.verify(&mut |_, _| ())?;
    let damage = report.damage.iter();
    let found =
        damage.map(|it| (it.offset, format!("{}, byte {}: {}", it.file, it.offset, it.reason)));
    Ok(found.collect())
}

/// Renames the old files, and the new device to `flash`; returns the new names of the old files.
fn finish(vfs: &dyn Vfs) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for name in [DEVICE, buffer_journal::NAME] {
        if vfs.exists(name)? {
            let mut quarantined = format!("{name}.damaged");
            for number in 2.. {
                if !vfs.exists(&quarantined)? {
                    break;
                }
                quarantined = format!("{name}.damaged-{number}");
            }
            vfs.rename(name, &quarantined)?;
            names.push(quarantined);
        }
    }
    vfs.sync_dir(Purpose::Manifest)?;
    vfs.rename(DRAFT, DEVICE)?;
    vfs.sync_dir(Purpose::Manifest)?;
    BufferJournal::open(vfs)?;
    Ok(names)
}

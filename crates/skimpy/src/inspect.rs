//! Describes the contents of one of the engine's files. Damage is part of the result.

use std::sync::Arc;

use crate::flash::Emulator;
use siltstone_engine::inspection::shown;
use siltstone_engine::{Error, Inspection, Purpose, Result};
use siltstone_vfs::{Mode, Vfs};

use crate::device::{DEVICE, Device, device_options};
use crate::page::Kind;
use crate::record::{Content, RELOCATED};
use crate::{buffer_journal, timestamp};

/// Describes the file `name`; `None` if its name is not one of this engine. Lists up to `limit`
/// items.
///
/// # Errors
/// I/O errors; damage is part of the result.
pub fn inspect(vfs: &Arc<dyn Vfs>, name: &str, limit: usize) -> Result<Option<Inspection>> {
    let mut inspection = Inspection::default();
    let result = match name {
        DEVICE => device(&**vfs, limit, &mut inspection),
        buffer_journal::NAME => journal(&**vfs, limit, &mut inspection),
        _ => return Ok(None),
    };
    match result {
        Ok(()) => {}
        Err(error @ (Error::Corruption { .. } | Error::Refused { .. })) => {
            inspection.damage = Some(error.to_string());
        }
        Err(other) => return Err(other),
    }
    Ok(Some(inspection))
}

fn journal(vfs: &dyn Vfs, limit: usize, inspection: &mut Inspection) -> Result<()> {
    inspection.kind = "write buffer of a flash table";
    let frames = buffer_journal::frames(&*vfs.open(buffer_journal::NAME, Mode::Read)?)?;
    inspection.property("batches", frames.len());
    for frame in frames {
        inspection.item(limit, || {
            let operations: Vec<_> = frame.batch.iter().map(|op| shown(op.key())).collect();
            let millis = timestamp::millis(frame.timestamp);
            format!("batch at {millis}, epoch {}: {}", frame.epoch, operations.join(", "))
        });
    }
    Ok(())
}

fn device(vfs: &dyn Vfs, limit: usize, inspection: &mut Inspection) -> Result<()> {
    inspection.kind = "flash device";
    let geometry = Emulator::geometry_of(vfs, DEVICE)?;
    inspection.property("page bytes", geometry.page_bytes());
    inspection.property("pages a block", geometry.pages_per_block());
    inspection.property("blocks", geometry.blocks());
    let device =
        Device::new(Arc::new(Emulator::in_file(vfs, DEVICE, device_options(geometry, 1))?), 1);
    let mut counts = [0u64; 4];
    let mut erases = 0;
    for block in 0..geometry.blocks() {
        erases += device.flash.erases(block)?;
        for index in 0..device.flash.programmed(block)? {
            let number = geometry.page(block, index);
            // Over a translation layer a page is usually at another place than its number.
            let Some(page) = device.try_read_any(number, Purpose::Maintenance)? else {
                counts[0] += 1;
                continue;
            };
            counts[page.header.kind as usize] += 1;
            if page.header.kind != Kind::Records {
                continue;
            }
            for record in page.records() {
                let record = record?;
                inspection.item(limit, || {
                    let mut place = format!("page {number}");
                    if page.page != number {
                        place += &format!(" ({} above the translation layer)", page.page);
                    }
                    let what = match &record.content {
                        Content::Value(value) if record.payload.is_none() => shown(value),
                        Content::Value(_) => "payload in pages".to_owned(),
                        Content::Deleted if record.is_tombstoned() => "tombstone".to_owned(),
                        Content::Deleted => "deleted".to_owned(),
                        Content::EmptyBucket(bucket) => format!("bucket {bucket} is empty"),
                    };
                    let relocated = if record.is_marked(RELOCATED) { ", relocated" } else { "" };
                    let (log, millis) = (page.header.number, timestamp::millis(record.timestamp));
                    let key = match record.payload {
                        Some(_) => format!("hash {:016x}", record.hash),
                        None => shown(&record.key),
                    };
                    format!("{place}, {log} of the log: {key} at {millis}{relocated}: {what}")
                });
            }
        }
    }
    inspection.property("block erases", erases);
    let [torn, records, payload, checkpoints] = counts;
    inspection.property("pages of records", records);
    inspection.property("pages of payload", payload);
    inspection.property("pages of checkpoints", checkpoints);
    inspection.property("unreadable pages", torn);
    Ok(())
}

//! Verification: reads every programmed page, and follows every version that is visible now.
//!
//! A page that was torn by a power cut is not damage, because nothing refers to it. Following the
//! versions finds references to pages that cannot be read.

use std::collections::BTreeSet;

use siltstone_engine::{Damage, Error, Purpose, Result, VerifyReport};

use crate::mapping::Mapping;
use crate::shared::Shared;

/// Verifies the table; calls `progress` with the steps done and in all.
pub(crate) fn verify(
    shared: &Shared,
    mapping: &dyn Mapping,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<VerifyReport> {
    shared.check_open()?;
    let snapshot = shared.pin_now()?;
    let mut report = VerifyReport { files: 1, ..VerifyReport::default() };
    let page_bytes = shared.device.geometry.page_bytes() as u64;
    let blocks = u64::from(shared.device.geometry.blocks());
    let total = blocks + mapping.steps();
    for block in 0..shared.device.geometry.blocks() {
        let _pin = shared.pins.enter();
        for index in 0..shared.device.flash.programmed(block)? {
            let page = shared.device.geometry.page(block, index);
            if let Some(page) = shared.device.try_read(page, Purpose::Maintenance)? {
                report.bytes += page_bytes;
                report.entries += page.header.count as u64;
            }
        }
        progress(u64::from(block) + 1, total);
    }
    match shared.device.flash.check_end().map_err(Error::from) {
        Err(Error::Corruption { file, offset, reason }) => {
            report.damage.push(Damage { file, offset, reason });
        }
        checked => checked?,
    }
    let mut damaged = BTreeSet::new();
    for step in 0..mapping.steps() {
        match mapping.step(shared, step, snapshot.at()) {
            Ok(_) => {}
            Err(Error::Corruption { file, offset, reason }) => {
                if damaged.insert((file.clone(), offset)) {
                    report.damage.push(Damage { file, offset, reason });
                }
            }
            Err(other) => return Err(other),
        }
        progress(blocks + step + 1, total);
    }
    Ok(report)
}

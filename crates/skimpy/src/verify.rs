//! Reads every page that is programmed, and walks the table: does all of it hold?
//!
//! A page that was torn by a power cut is no damage: nothing leads to it. What leads to a page that does
//! not hold is found by the walk, over all versions that can be asked for now.
//!
//! Source: ours.

use std::collections::BTreeSet;

use siltstone_engine::{Damage, Error, Purpose, Result, VerifyReport};

use crate::engine::Inner;

impl Inner {
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.check_open()?;
        let hold = self.hold_now()?;
        let mut report = VerifyReport { files: 1, ..VerifyReport::default() };
        let page_bytes = self.device.geometry.page_bytes() as u64;
        let blocks = u64::from(self.device.geometry.blocks());
        let total = blocks + self.mapping.steps();
        for block in 0..self.device.geometry.blocks() {
            let _pin = self.pins.enter();
            for index in 0..self.device.flash.programmed(block)? {
                let page = self.device.geometry.page(block, index);
                if let Some(page) = self.device.look(page, Purpose::Maintenance)? {
                    report.bytes += page_bytes;
                    report.entries += page.header.count as u64;
                }
            }
            progress(u64::from(block) + 1, total);
        }
        match self.device.flash.check_end().map_err(Error::from) {
            Err(Error::Corruption { file, offset, reason }) => {
                report.damage.push(Damage { file, offset, reason });
            }
            checked => checked?,
        }
        let mut damaged = BTreeSet::new();
        for step in 0..self.mapping.steps() {
            match self.mapping.step(self, step, hold.at()) {
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
}

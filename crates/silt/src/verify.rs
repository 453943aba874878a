//! Verification of an open table.

use siltstone_durable::offline::Verification;
use siltstone_engine::{Result, VerifyReport};

use crate::engine::SiltEngine;
use crate::record::Record;

impl SiltEngine {
    /// Reads the manifest, every store of the current version, and every log.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        let version = self.view.load_full().version.clone();
        let hash = version.hash_stores().map(|store| store.entry().bytes);
        let total = hash.chain(version.sorted_stores().map(|store| store.entry().bytes)).sum();
        let mut verification = Verification::begin(self, total, progress)?;
        for store in version.hash_stores() {
            let entry = store.entry();
            verification.file(entry.bytes, |_| store.verify().map(|()| entry.entries))?;
        }
        for store in version.sorted_stores() {
            let entry = store.entry();
            verification.file(entry.bytes, |_| store.verify().map(|()| entry.entries))?;
        }
        verification.logs(self, |record| match Record::decode(record)? {
            Record::Operation { .. } => Ok(1),
            Record::Link(_) => Ok(0),
        })
    }
}

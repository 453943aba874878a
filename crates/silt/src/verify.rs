//! Checks every byte of every file.

use siltstone_engine::{Result, VerifyReport};
use siltstone_table::Manifest;
use siltstone_table::log::verify_logs;

use crate::engine::Inner;
use crate::record::Record;
use crate::version::ENGINE;

impl Inner {
    /// Reads the manifest, every store of the current version, and every log.
    pub(crate) fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport> {
        self.background.check_open()?;
        let mut report = VerifyReport::default();
        let version = self.view.load_full().version.clone();
        let hash = version.hash_stores().map(|store| store.entry().bytes);
        let total: u64 = hash.chain(version.sorted_stores().map(|store| store.entry().bytes)).sum();
        let mut done = 0;
        let manifest = Manifest::open(self.vfs.clone(), ENGINE);
        report.note(manifest.map(|(manifest, _)| (manifest.bytes(), 0)))?;
        for store in version.hash_stores() {
            let entry = store.entry();
            report.note(store.verify().map(|()| (entry.bytes, entry.entries)))?;
            done += entry.bytes;
            progress(done, total);
        }
        for store in version.sorted_stores() {
            let entry = store.entry();
            report.note(store.verify().map(|()| (entry.bytes, entry.entries)))?;
            done += entry.bytes;
            progress(done, total);
        }
        let logs = self.background.lock().logs.clone();
        verify_logs(self.vfs.as_ref(), &logs, &mut report, |record| {
            match Record::decode(record)? {
                Record::Operation { .. } => Ok(1),
                Record::Link(_) => Ok(0),
            }
        })?;
        Ok(report)
    }
}

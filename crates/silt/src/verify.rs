//! Checks every byte of every file.

use siltstone_engine::{Damage, Error, Result, VerifyReport};
use siltstone_media::Mode;
use siltstone_table::{LogMode, LogReader, Manifest};

use crate::engine::Inner;
use crate::names::Kind;
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
        let manifest = Manifest::open(self.media.clone(), ENGINE);
        note(&mut report, manifest.map(|(manifest, _)| (manifest.bytes(), 0)))?;
        for store in version.hash_stores() {
            let entry = store.entry();
            note(&mut report, store.verify().map(|()| (entry.bytes, entry.entries)))?;
            done += entry.bytes;
            progress(done, total);
        }
        for store in version.sorted_stores() {
            let entry = store.entry();
            note(&mut report, store.verify().map(|()| (entry.bytes, entry.entries)))?;
            done += entry.bytes;
            progress(done, total);
        }
        for number in self.background.lock().logs.clone() {
            let name = Kind::Log.name(number);
            match self.media.open(&name, Mode::Read) {
                // A log that was converted meanwhile is gone, and rightly so.
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
                Ok(_) => note(&mut report, self.verify_log(&name, number))?,
            }
        }
        Ok(report)
    }

    fn verify_log(&self, name: &str, number: u64) -> Result<(u64, u64)> {
        let mut reader = LogReader::open(self.media.as_ref(), name, number, LogMode::Recover)?;
        let mut entries = 0;
        while let Some(record) = reader.next()? {
            let position = record.position;
            match Record::decode(record.bytes) {
                Ok(Record::Operation { .. }) => entries += 1,
                Ok(Record::Link(_)) => {}
                Err(reason) => return Err(Error::corruption(name, position, reason)),
            }
        }
        Ok((reader.valid_bytes(), entries))
    }
}

/// Adds what a check found: bytes and entries, or damage. Other errors are failures to check.
fn note(report: &mut VerifyReport, checked: Result<(u64, u64)>) -> Result<()> {
    report.files += 1;
    match checked {
        Ok((bytes, entries)) => {
            report.bytes += bytes;
            report.entries += entries;
        }
        Err(Error::Corruption { file, offset, reason }) => {
            report.damage.push(Damage { file, offset, reason });
        }
        Err(other) => return Err(other),
    }
    Ok(())
}

//! Drivers of verification and inspection: the parts that are the same for every engine.
//!
//! Verification reads every byte of an open table; inspection describes one file. Engines check
//! their own files; manifest, logs and reports are handled here.
//!
//! Invariant: damage goes into the report; an error means that something could not be examined.

use std::sync::Arc;

use siltstone_engine::{Error, Inspection, Result, Stats, VerifyReport};
use siltstone_table::Manifest;
use siltstone_table::log::verify_logs;
use siltstone_vfs::Vfs;

use crate::core::LogStructured;
use crate::{VersionEdit, VersionState};

/// Verification and warnings of an open table.
pub trait Report: LogStructured {
    /// Reads the manifest, every file of the current version, and every log.
    ///
    /// # Errors
    /// `Closed`; failures to check.
    fn verify(&self, progress: &mut dyn FnMut(u64, u64)) -> Result<VerifyReport>;

    /// Counters and sizes.
    fn stats(&self) -> Stats;

    /// Auxiliary data (filters, indexes) that was rebuilt when it was read, and why.
    fn warnings(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The verification of an open table.
pub struct Verification<'a> {
    report: VerifyReport,
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Verification<'a> {
    /// Checks the manifest; files of `total` bytes follow.
    ///
    /// # Errors
    /// `Closed`; failures to check.
    pub fn begin<T: LogStructured>(
        table: &T,
        total: u64,
        progress: &'a mut dyn FnMut(u64, u64),
    ) -> Result<Self> {
        let core = table.core();
        core.background.check_open()?;
        let mut report = VerifyReport::default();
        report.note(core.versions.verify_manifest(&core.vfs).map(|bytes| (bytes, 0)))?;
        Ok(Verification { report, done: 0, total, progress })
    }

    /// Checks a file of `bytes` bytes; `check` gets a function to report its own progress to, in
    /// bytes, and returns how many entries the file has.
    ///
    /// # Errors
    /// Failures to check.
    pub fn file(
        &mut self,
        bytes: u64,
        check: impl FnOnce(&mut dyn FnMut(u64)) -> Result<u64>,
    ) -> Result<()> {
        let (done, total) = (self.done, self.total);
        let checked = check(&mut |bytes| (self.progress)(done + bytes, total));
        self.report.note(checked.map(|entries| (bytes, entries)))?;
        self.done += bytes;
        (self.progress)(self.done, total);
        Ok(())
    }

    /// Checks the logs, and ends the verification; `operations` counts those of a record, or
    /// returns what is malformed.
    ///
    /// # Errors
    /// Failures to check.
    pub fn logs<T: LogStructured>(
        mut self,
        table: &T,
        operations: impl Fn(&[u8]) -> std::result::Result<u64, String>,
    ) -> Result<VerifyReport> {
        let core = table.core();
        let logs = core.background.lock().logs.clone();
        verify_logs(core.vfs.as_ref(), &logs, &mut self.report, operations)?;
        Ok(self.report)
    }
}

/// Inspects one file by `look`, which returns whether the file belongs to the engine. Damage
/// becomes part of the inspection.
///
/// # Errors
/// I/O errors.
pub fn inspect_by(
    look: impl FnOnce(&mut Inspection) -> Result<bool>,
) -> Result<Option<Inspection>> {
    let mut inspection = Inspection::default();
    match look(&mut inspection) {
        Ok(true) => Ok(Some(inspection)),
        Ok(false) => Ok(None),
        Err(error @ (Error::Corruption { .. } | Error::Refused { .. })) => {
            inspection.damage = Some(error.to_string());
            Ok(Some(inspection))
        }
        Err(other) => Err(other),
    }
}

/// Inspects the manifest of an engine.
///
/// # Errors
/// Corruption; I/O errors.
pub fn inspect_manifest<V: VersionState>(
    vfs: &Arc<dyn Vfs>,
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    let describe = |edit: &[u8]| Ok(V::Edit::decode(edit)?.to_string());
    Manifest::inspect(vfs.clone(), V::ENGINE, limit, inspection, describe)
}

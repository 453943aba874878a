//! Drivers of verification, inspection and repair: what they do for the files of every engine.
//!
//! Verification reads every byte of an open table; inspection describes one file; repair rebuilds a
//! table that does not open. Engines check their own files; manifest, logs and reports are handled
//! here.
//!
//! Invariant: damage goes into the report; an error means that something could not be examined.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Inspection, Result, VerifyReport};
use siltstone_table::log::verify_logs;
use siltstone_table::{LogSalvage, Manifest, SalvageItem};
use siltstone_vfs::Vfs;

use crate::core::LogStructured;
use crate::{VersionEdit, VersionState};

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
        let manifest = Manifest::open(core.vfs.clone(), T::Version::ENGINE);
        report.note(manifest.map(|(manifest, _)| (manifest.bytes(), 0)))?;
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

    /// Checks the logs, and ends the verification; `operations` counts those of a record, or returns
    /// what is malformed.
    ///
    /// # Errors
    /// Failures to check.
    pub fn logs<T: LogStructured>(
        mut self,
        table: &T,
        operations: impl Fn(&[u8]) -> std::result::Result<u64, String>,
    ) -> Result<VerifyReport> {
        let core = table.core();
        let logs = table.background().lock().logs.clone();
        verify_logs(core.vfs.as_ref(), &logs, &mut self.report, operations)?;
        Ok(self.report)
    }
}

/// Inspects one file by `look`, which returns whether the file is one of the engine. Damage becomes
/// part of the inspection.
///
/// # Errors
/// Those of the medium.
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
/// Corruption; those of the medium.
pub fn inspect_manifest<V: VersionState>(
    vfs: &Arc<dyn Vfs>,
    limit: usize,
    inspection: &mut Inspection,
) -> Result<()> {
    let describe = |edit: &[u8]| Ok(V::Edit::decode(edit)?.to_string());
    Manifest::inspect(vfs.clone(), V::ENGINE, limit, inspection, describe)
}

/// What repair finds in a log.
pub enum LogItem<'a> {
    /// Bytes whose checksum does not match, or that are missing.
    Gap(Range<u64>),
    /// The bytes of a record that has a valid checksum and that the visitor found malformed.
    Malformed(Range<u64>),
    /// A record.
    Record(&'a [u8]),
}

/// What became of a log in a repair.
pub enum LogOutcome {
    /// All of it was read: the log is not needed any more.
    Replayed,
    /// It is missing.
    Missing,
    /// It is damaged, and this is its file.
    Damaged(String),
}

/// Visits everything that is readable in a log; returns where it is damaged first, and how. If `visit`
/// returns why a record is malformed, it is called again with its position.
///
/// # Errors
/// Those of the medium and of `visit`.
pub fn salvage_records(
    vfs: &dyn Vfs,
    log: &LogSalvage,
    mut visit: impl FnMut(LogItem<'_>) -> Result<std::result::Result<(), String>>,
) -> Result<Option<(u64, String)>> {
    let mut malformed = None;
    log.visit(vfs, |salvaged| {
        let (position, bytes) = match salvaged {
            SalvageItem::Gap(bytes) => return visit(LogItem::Gap(bytes)).map(drop),
            SalvageItem::Record { position, bytes } => (position, bytes),
        };
        if let Err(reason) = visit(LogItem::Record(bytes))? {
            malformed.get_or_insert((position, reason));
            let _ = visit(LogItem::Malformed(position..position + bytes.len() as u64))?;
        }
        Ok(())
    })?;
    Ok(log.damage.clone().or(malformed))
}

/// What became of a log, and how the report of a repair says it: `replayed` if all of it was read, else
/// the damage and `saved`.
pub fn log_outcome(
    log: &LogSalvage,
    damage: Option<(u64, String)>,
    replayed: &str,
    saved: &str,
) -> (LogOutcome, String) {
    let name = log.name();
    match (damage, &log.file) {
        (None, _) => (LogOutcome::Replayed, format!("{name}: {replayed}")),
        (Some((_, reason)), None) => (LogOutcome::Missing, format!("{name}: {reason}")),
        (Some((at, reason)), Some(file)) => {
            let note = format!("{name} is damaged at byte {at} ({reason}): {saved}");
            (LogOutcome::Damaged(file.clone()), note)
        }
    }
}

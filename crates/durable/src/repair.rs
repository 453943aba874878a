//! Repair: the parts that all engines share, for the manifest, the logs and damaged files.
//!
//! ```text
//!   KnownManifest ─ the engine saves what its files contain ─ salvage_records of the logs
//!     ─ ReplacedFiles: link damaged files as *.damaged ─ new manifest ─ remove replaced files
//! ```
//!
//! Invariant: until the new manifest is durable every file stays as it is, so an interrupted repair
//! can be run again; no damaged file is deleted.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Error, Loss, Purpose, RepairReport, Result};
use siltstone_table::{LogSalvage, Manifest, SalvageItem, quarantine, salvage_chain};
use siltstone_vfs::Vfs;

use crate::{EditHeader, VersionEdit, VersionState, replay_edits};

/// The manifest of a damaged table, as far as it can be read.
pub struct KnownManifest<V: VersionState> {
    /// All edits merged into one; `None` if no manifest can be read.
    pub edit: Option<V::Edit>,
    /// The manifest and `CURRENT` are undamaged.
    pub is_intact: bool,
    name: Option<String>,
    /// The damaged file, and the reason.
    damage: Option<(String, String)>,
}

impl<V: VersionState> KnownManifest<V> {
    /// Reads the manifest in any condition.
    ///
    /// # Errors
    /// I/O errors; a newer format. Damage is not an error.
    pub fn read(vfs: &Arc<dyn Vfs>) -> Result<Self> {
        let salvaged = Manifest::salvage(vfs, V::ENGINE)?;
        let (edit, damage) = match salvaged.edits.as_ref().map(|edits| replay_edits(edits)) {
            Some(Ok(edit)) => (Some(edit), salvaged.damage),
            Some(Err(Error::Corruption { file, reason, .. })) => (None, Some((file, reason))),
            Some(Err(other)) => return Err(other),
            None => (None, salvaged.damage),
        };
        let is_intact = edit.is_some() && damage.is_none() && !salvaged.is_torn;
        Ok(KnownManifest { edit, is_intact, name: salvaged.name, damage })
    }

    /// The name of the manifest that was read.
    pub fn name(&self) -> &str {
        self.name.as_deref().unwrap_or("MANIFEST")
    }

    /// Reports damage of a manifest that is still usable.
    pub fn report_damage(&self, report: &mut RepairReport) {
        if let Some((file, reason)) = &self.damage {
            report.note(format!(
                "{file} is damaged ({reason}): the newest manifest is undamaged and is used"
            ));
        }
    }

    /// Reports that the manifest cannot be used, and what is done `instead`: the order of writes
    /// may be lost.
    pub fn report_unusable(&self, instead: &str, report: &mut RepairReport) {
        let mismatch = "it does not match the files in the directory";
        let (file, reason) = match &self.damage {
            Some((file, reason)) => (file.as_str(), reason.as_str()),
            None => (self.name(), mismatch),
        };
        report.note(format!("the manifest is unusable ({file}: {reason}): {instead}"));
        report.record_loss(Loss::order(file));
    }
}

/// The logs that a manifest with this header needs, in any condition.
///
/// # Errors
/// Those of the file system.
pub fn salvage_logs(vfs: &dyn Vfs, header: &EditHeader) -> Result<Vec<LogSalvage>> {
    salvage_chain(vfs, Some(header.first_log.unwrap_or(0)), header.sealed_log, header.synced_log)
}

/// The files that are not needed once the new manifest is durable.
#[derive(Default)]
pub struct ReplacedFiles {
    damaged: BTreeSet<String>,
    obsolete: BTreeSet<String>,
}

impl ReplacedFiles {
    /// Keeps a damaged file as `NAME.damaged`, and reports it.
    pub fn keep(&mut self, name: String, report: &mut RepairReport) {
        report.note(format!("{name} is kept as {name}.damaged"));
        self.damaged.insert(name);
    }

    /// Keeps damaged files that the report names elsewhere.
    pub fn keep_reported(&mut self, names: impl IntoIterator<Item = String>) {
        self.damaged.extend(names);
    }

    /// Removes a file whose content was saved in another one.
    pub fn remove(&mut self, name: String) {
        self.obsolete.insert(name);
    }

    /// Takes a removal back: the new manifest names the file.
    pub fn retain(&mut self, name: &str) {
        self.obsolete.remove(name);
    }

    /// Writes a new manifest with the content `edit`, and replaces the files. `directories` are all
    /// directories of the table, that of the manifest first.
    ///
    /// # Errors
    /// I/O errors. The repair can be run again.
    pub fn replace_manifest<V: VersionState>(
        &self,
        directories: &[&Arc<dyn Vfs>],
        edit: &V::Edit,
        is_intact: bool,
    ) -> Result<()> {
        self.for_each_damaged(directories, quarantine::link_quarantined)?;
        Manifest::replace(directories[0], V::ENGINE, &edit.encode(), is_intact)?;
        let obsolete = self.obsolete.difference(&self.damaged);
        obsolete.into_iter().try_for_each(|name| directories[0].remove(name))?;
        self.for_each_damaged(directories, quarantine::finish_quarantine)
    }

    /// Treats the damaged files, and makes the names in all directories durable.
    fn for_each_damaged(
        &self,
        directories: &[&Arc<dyn Vfs>],
        treat: fn(&dyn Vfs, &str) -> Result<()>,
    ) -> Result<()> {
        for vfs in directories {
            for name in &self.damaged {
                if vfs.exists(name)? {
                    treat(vfs.as_ref(), name)?;
                }
            }
            vfs.sync_dir(Purpose::Maintenance)?;
        }
        Ok(())
    }
}

/// An item that a repair finds in a log.
pub enum LogItem<'a> {
    /// Bytes whose checksum does not match, or that are missing.
    Gap(Range<u64>),
    /// The bytes of a record that has a valid checksum and that the visitor found malformed.
    Malformed(Range<u64>),
    /// A record.
    Record(&'a [u8]),
}

/// The outcome of the repair of one log.
pub enum LogOutcome {
    /// All of it was read, so the log is no longer needed.
    Replayed,
    /// It is missing.
    Missing,
    /// It is damaged, and this is its file.
    Damaged(String),
}

/// Visits everything that is readable in a log; returns where it is damaged first, and how. If
/// `visit` returns why a record is malformed, it is called again with its position.
///
/// # Errors
/// I/O errors; those of `visit`.
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

/// The outcome of a log's repair, and its line in the report: the text `replayed` if all of the log
/// was read, else the damage and the text `saved`.
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

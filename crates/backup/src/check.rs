//! Checks a repository, quarantines damaged blobs, and removes old backups.
//!
//! A check reads each blob once, however many backups name it, and compares it with its hash.

use std::collections::{BTreeMap, BTreeSet};

use siltstone_engine::{Error, Result};

pub use crate::archive_upkeep::DamagedSegment;
use crate::blobs::{self, Unusable};
use crate::repository::{Backup, Repository};

/// The result of [`Repository::check`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CheckReport {
    /// The names of the backups that can be restored.
    pub intact: Vec<String>,
    /// The others.
    pub damaged: Vec<DamagedBackup>,
    /// The hashes of blobs whose content does not match.
    pub damaged_blobs: Vec<String>,
    /// Blobs that match their hashes.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments of the archive that match their hashes and follow one another.
    pub segments: u64,
    /// The others: the moments behind them cannot be restored from backups before them.
    pub damaged_segments: Vec<DamagedSegment>,
}

/// A backup that cannot be restored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedBackup {
    /// Its name.
    pub id: String,
    /// The missing or damaged blobs, one line each.
    pub reasons: Vec<String>,
}

/// The result of [`Repository::keep_newest`]: what it removed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Removal {
    /// The names of the backups.
    pub backups: Vec<String>,
    /// Blobs that no backup needs any more.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Segments of the archive that were older than the oldest backup.
    pub segments: u64,
}

impl Repository {
    /// Reads every blob that a backup names and every segment, and compares it with its hash.
    /// `progress` is called with the number of bytes read so far. Cost: a read of the repository.
    ///
    /// # Errors
    /// I/O errors. Damage is not an error; it is in the report.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<CheckReport> {
        let _lock = self.lock()?;
        let storage = self.storage.as_ref();
        let mut report = CheckReport::default();
        let mut readable = Vec::new();
        for id in self.ids()? {
            match self.backup(&id) {
                Ok(backup) => readable.push(backup),
                Err(error) if error.is_corruption() => {
                    let reasons = vec![error.to_string()];
                    report.damaged.push(DamagedBackup { id, reasons });
                }
                Err(error) => return Err(error),
            }
        }
        let files = readable.iter().flat_map(|backup| &backup.manifest.files);
        let hashes: BTreeSet<&String> = files.flat_map(|file| &file.blobs).collect();
        let hashes: Vec<String> = hashes.into_iter().cloned().collect();
        let mut unusable = BTreeMap::new();
        for (hash, content) in hashes.iter().zip(blobs::read_each(storage, hashes.clone())) {
            match content? {
                Ok(content) => {
                    report.blobs += 1;
                    report.bytes += content.len() as u64;
                    progress(report.bytes);
                }
                Err(reason) => drop(unusable.insert(hash.as_str(), reason)),
            }
        }
        for Backup { id, manifest } in readable {
            let mut reasons = Vec::new();
            for file in &manifest.files {
                for hash in &file.blobs {
                    if let Some(reason) = unusable.get(hash.as_str()) {
                        let blob = blobs::display(storage, hash);
                        reasons.push(format!("{}: {blob} is {reason}", file.path));
                    }
                }
            }
            match reasons.is_empty() {
                true => report.intact.push(id),
                false => report.damaged.push(DamagedBackup { id, reasons }),
            }
        }
        let damaged = unusable.into_iter().filter(|&(_, reason)| reason == Unusable::Damaged);
        report.damaged_blobs = damaged.map(|(hash, _)| hash.to_owned()).collect();
        let read = report.bytes;
        let check = self.check_segments(&mut |bytes| progress(read + bytes))?;
        (report.segments, report.damaged_segments) = (check.segments, check.damaged);
        Ok(report)
    }

    /// Quarantines the damaged blobs of a report: renames them to `HASH.damaged`. Nothing is
    /// deleted, and the next backup with the same content stores it again. Damaged segments are
    /// renamed, too; the archive then has a gap there.
    ///
    /// # Errors
    /// I/O errors.
    pub fn set_aside(&self, report: &CheckReport) -> Result<()> {
        let _lock = self.lock()?;
        for hash in &report.damaged_blobs {
            blobs::set_aside(self.storage.as_ref(), hash)?;
        }
        self.set_aside_segments(&report.damaged_segments)?;
        self.storage.sync()
    }

    /// Removes all backups but the newest `count`, the blobs that only they need, and the segments
    /// that are older than the oldest backup that is kept of their store.
    ///
    /// # Errors
    /// `Invalid` if `count` is 0; `Corruption` if the manifest of a backup that is kept is damaged:
    /// which blobs it needs is unknown then, and nothing is removed. I/O errors.
    pub fn keep_newest(&self, count: usize) -> Result<Removal> {
        if count == 0 {
            return Err(Error::Invalid("at least one backup must be kept".into()));
        }
        let _lock = self.lock()?;
        let mut ids = self.ids()?;
        let kept = ids.split_off(ids.len().saturating_sub(count));
        let (mut needed, mut links) = (BTreeSet::new(), Vec::new());
        for id in &kept {
            let manifest = self.backup(id)?.manifest;
            needed.extend(manifest.files.into_iter().flat_map(|file| file.blobs));
            links.push((manifest.taken_at, manifest.archive));
        }
        // Manifests first: a blob is never missing in a backup that is listed.
        self.remove(&ids)?;
        let (blobs, bytes) = blobs::retain(self.storage.as_ref(), |hash| needed.contains(hash))?;
        let segments = self.remove_segments(&links)?;
        Ok(Removal { backups: ids, blobs, bytes, segments })
    }
}

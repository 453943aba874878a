//! Checks a repository, quarantines damaged blobs, and removes old backups.
//!
//! A check reads each blob once, however many backups name it, and compares it with its hash.

use std::collections::BTreeSet;

use siltstone_engine::{Error, Result};

use crate::repository::Repository;

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
}

impl Repository {
    /// Reads every blob that a backup names, and compares it with its hash. `progress` is called
    /// with the number of bytes read so far. Cost: a read of the repository.
    ///
    /// # Errors
    /// I/O errors. Damage is not an error; it is in the report.
    pub fn check(&self, progress: &mut dyn FnMut(u64)) -> Result<CheckReport> {
        let _lock = self.lock()?;
        let blobs = self.blobs()?;
        let mut report = CheckReport::default();
        let (mut intact, mut damaged) = (BTreeSet::new(), BTreeSet::new());
        let mut done = 0;
        for id in self.ids()? {
            let manifest = match self.backup(&id) {
                Ok(backup) => backup.manifest,
                Err(error) if error.is_corruption() => {
                    let reasons = vec![error.to_string()];
                    report.damaged.push(DamagedBackup { id, reasons });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let mut reasons = Vec::new();
            for file in &manifest.files {
                for hash in &file.blobs {
                    if !intact.contains(hash) && !damaged.contains(hash) {
                        match blobs.read(hash) {
                            Ok(content) => {
                                report.blobs += 1;
                                done += content.len() as u64;
                                progress(done);
                                intact.insert(hash.clone());
                            }
                            Err(error) if error.is_corruption() => {
                                damaged.insert(hash.clone());
                            }
                            Err(error) => return Err(error),
                        }
                    }
                    if damaged.contains(hash) {
                        let state = if blobs.contains(hash) { "damaged" } else { "missing" };
                        reasons.push(format!("{}: {} is {state}", file.path, blobs.path(hash)));
                    }
                }
            }
            match reasons.is_empty() {
                true => report.intact.push(id),
                false => report.damaged.push(DamagedBackup { id, reasons }),
            }
        }
        report.bytes = done;
        report.damaged_blobs = damaged.into_iter().filter(|hash| blobs.contains(hash)).collect();
        Ok(report)
    }

    /// Quarantines the damaged blobs of a report: renames them to `HASH.damaged`. Nothing is
    /// deleted, and the next backup with the same content stores it again.
    ///
    /// # Errors
    /// I/O errors.
    pub fn set_aside(&self, report: &CheckReport) -> Result<()> {
        let _lock = self.lock()?;
        self.blobs()?.set_aside(&report.damaged_blobs)
    }

    /// Removes all backups but the newest `count`, and the blobs that only they need.
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
        let mut needed = BTreeSet::new();
        for id in &kept {
            needed.extend(self.backup(id)?.manifest.files.into_iter().flat_map(|file| file.blobs));
        }
        // Manifests first: a blob is never missing in a backup that is listed.
        self.remove(&ids)?;
        let (blobs, bytes) = self.blobs()?.retain(|hash| needed.contains(hash))?;
        Ok(Removal { backups: ids, blobs, bytes })
    }
}

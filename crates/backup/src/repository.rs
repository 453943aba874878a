//! The directory of backups: its format, its lock and the list of backups.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Disk, LockGuard, Mode, Vfs};

use crate::blobs::Blobs;
use crate::manifest::Manifest;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT: &str = "siltstone backups 1\n";
const LOCK: &str = "LOCK";
const BACKUPS: &str = "backups";
const BLOBS: &str = "blobs";
const DRAFT: &str = ".partial";
/// How long another process may take to create a repository.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A repository of backups. Every change is made under its lock.
pub struct Repository {
    pub(crate) vfs: Arc<dyn Vfs>,
    manifests: Arc<dyn Vfs>,
}

/// A backup in a repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backup {
    /// Its name: the UTC time at which it was taken, such as `20261126T053000Z`, and a number if
    /// there is another of that second. The newest has the greatest.
    pub id: String,
    /// Its files, and the store they come from.
    pub manifest: Manifest,
}

impl std::fmt::Debug for Repository {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Repository").field(&self.vfs.name()).finish()
    }
}

impl Repository {
    /// Opens the repository in the directory `path`.
    ///
    /// # Errors
    /// `Refused` if it is not a repository, or of another format; I/O errors.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_vfs(Arc::new(Disk::open(path.as_ref())?))
    }

    /// Opens the repository in the directory `path`, or creates it there if the directory is
    /// missing or empty.
    ///
    /// # Errors
    /// `Refused` if the directory holds anything else; I/O errors.
    pub fn open_or_create(path: impl AsRef<Path>) -> Result<Self> {
        Self::open_or_create_vfs(Arc::new(Disk::create(path.as_ref())?))
    }

    /// [`open`](Self::open) in any file system.
    ///
    /// # Errors
    /// As from it.
    pub fn open_vfs(vfs: Arc<dyn Vfs>) -> Result<Self> {
        let refused = |reason: String| Error::Refused { path: vfs.name(), reason };
        if !vfs.exists(FORMAT_FILE)? {
            return Err(refused("it is no repository of backups: it has no file FORMAT".into()));
        }
        let found = read(vfs.as_ref(), FORMAT_FILE)?;
        if found != FORMAT.as_bytes() {
            let (found, known) = (String::from_utf8_lossy(&found), FORMAT.trim_end());
            let reason =
                format!("its format is {:?}, and this program reads {known:?}", found.trim());
            return Err(refused(reason));
        }
        let manifests = vfs.subdirectory(BACKUPS)?;
        Ok(Repository { vfs, manifests })
    }

    /// [`open_or_create`](Self::open_or_create) in any file system.
    ///
    /// # Errors
    /// As from it.
    pub fn open_or_create_vfs(vfs: Arc<dyn Vfs>) -> Result<Self> {
        if !vfs.exists(FORMAT_FILE)? {
            let ours = |name: &String| name == LOCK || name.starts_with(FORMAT_FILE);
            let unknown = vfs.list()?.into_iter().find(|name| !ours(name));
            let unknown = unknown.or_else(|| vfs.subdirectories().ok()?.into_iter().next());
            if let Some(name) = unknown {
                let reason = format!(
                    "a repository of backups needs an empty directory; this one has {name:?}"
                );
                return Err(Error::Refused { path: vfs.name(), reason });
            }
            create(vfs.as_ref())?;
        }
        Self::open_vfs(vfs)
    }

    /// All backups, oldest first.
    ///
    /// # Errors
    /// `Corruption` if a manifest is damaged: [`check`](Self::check) lists the backups that can be
    /// restored. I/O errors.
    pub fn backups(&self) -> Result<Vec<Backup>> {
        self.ids()?.into_iter().map(|id| self.backup(&id)).collect()
    }

    /// The backup `id`.
    ///
    /// # Errors
    /// `Invalid` if there is none; `Corruption` if its manifest is damaged; I/O errors.
    pub fn backup(&self, id: &str) -> Result<Backup> {
        let ids = self.ids()?;
        if !ids.iter().any(|known| known == id) {
            let known = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            let reason =
                format!("there is no backup {id:?} in {}; there is {known}", self.vfs.name());
            return Err(Error::Invalid(reason));
        }
        let bytes = read(self.manifests.as_ref(), id)?;
        let manifest = Manifest::decode(&format!("{}/{id}", self.manifests.name()), &bytes)?;
        Ok(Backup { id: id.to_owned(), manifest })
    }

    /// The names of all backups, oldest first.
    ///
    /// # Errors
    /// I/O errors.
    pub fn ids(&self) -> Result<Vec<String>> {
        Ok(self.manifests.list()?.into_iter().filter(|name| !name.ends_with(DRAFT)).collect())
    }

    pub(crate) fn lock(&self) -> Result<LockGuard> {
        self.vfs.lock(LOCK)
    }

    /// Keeps others from changing the repository.
    pub(crate) fn share_lock(&self) -> Result<LockGuard> {
        self.vfs.share_lock(LOCK)
    }

    pub(crate) fn blobs(&self) -> Result<Blobs> {
        Blobs::open(self.vfs.subdirectory(BLOBS)?)
    }

    /// Adds a backup, durably, and returns its name. The caller has the lock.
    pub(crate) fn add(&self, manifest: &Manifest) -> Result<String> {
        let newest = self.ids()?.pop().unwrap_or_default();
        let mut id = utc(manifest.taken_at);
        // After a backup of the same second, or with a clock that has gone back.
        for number in 2.. {
            if id > newest {
                break;
            }
            let base = newest.split('-').next().unwrap_or_default().to_owned();
            id = format!("{base}-{number:04}");
        }
        write_new(self.manifests.as_ref(), &id, &manifest.encode()?)?;
        Ok(id)
    }

    /// Removes the manifests `ids`, durably. The caller has the lock.
    pub(crate) fn remove(&self, ids: &[String]) -> Result<()> {
        for id in ids {
            self.manifests.remove(id)?;
        }
        self.manifests.sync_dir(Purpose::Maintenance)
    }
}

/// Makes an empty directory a repository. Several servers may begin to share it at once: the others
/// wait for the one that is creating it.
fn create(vfs: &dyn Vfs) -> Result<()> {
    let began = Instant::now();
    loop {
        match vfs.lock(LOCK) {
            Ok(_lock) if vfs.exists(FORMAT_FILE)? => return Ok(()),
            Ok(_lock) => return write_new(vfs, FORMAT_FILE, FORMAT.as_bytes()),
            Err(Error::Locked { .. }) if began.elapsed() < CREATION_TIMEOUT => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(error) => return Err(error),
        }
    }
}

fn read(vfs: &dyn Vfs, name: &str) -> Result<Vec<u8>> {
    let file = vfs.open(name, Mode::Read)?;
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(0, &mut bytes, Purpose::Maintenance)?;
    Ok(bytes)
}

/// Writes a file that appears under its name when it is complete and durable.
fn write_new(vfs: &dyn Vfs, name: &str, bytes: &[u8]) -> Result<()> {
    let draft = format!("{name}{DRAFT}");
    if vfs.exists(&draft)? {
        vfs.remove(&draft)?;
    }
    let file = vfs.create(&draft)?;
    file.write_at(0, bytes, Purpose::Maintenance)?;
    file.sync(Purpose::Maintenance)?;
    vfs.rename(&draft, name)?;
    vfs.sync_dir(Purpose::Maintenance)
}

/// A UTC time such as `20261126T053000Z`.
///
/// Source: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", `civil_from_days`.
fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_formatted_in_utc() {
        for (seconds, expected) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (1_795_671_000, "20261126T053000Z"),
            (4_107_542_400, "21000301T000000Z"),
        ] {
            assert_eq!(utc(seconds), expected);
        }
    }
}

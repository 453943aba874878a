//! The repository of backups: its format, its lock and the list of backups.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_engine::{Error, Result};
use siltstone_vfs::{LockGuard, Vfs};

use crate::blobs::Blobs;
use crate::manifest::Manifest;
use crate::storage::{self, Directory, Storage, is_partial};
use crate::utc::utc;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT: &str = "siltstone backups 1\n";
const BACKUPS: &str = "backups";
/// How long another process may take to create a repository.
const CREATION_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A repository of backups. Every change is made under its lock.
pub struct Repository {
    pub(crate) storage: Arc<dyn Storage>,
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
        f.debug_tuple("Repository").field(&self.storage.name()).finish()
    }
}

impl Repository {
    /// Opens the repository at `place`: a directory, or a URL such as `s3://bucket/prefix`.
    ///
    /// # Errors
    /// `Refused` if it is not a repository, or of another format; I/O errors.
    pub fn open(place: impl AsRef<Path>) -> Result<Self> {
        Self::open_in(storage::at(place.as_ref(), false)?)
    }

    /// Opens the repository at `place`, or creates it there if the directory is missing or empty,
    /// or if the URL names no objects.
    ///
    /// # Errors
    /// `Refused` if the directory holds anything else; I/O errors.
    pub fn open_or_create(place: impl AsRef<Path>) -> Result<Self> {
        Self::open_or_create_in(storage::at(place.as_ref(), true)?)
    }

    /// [`open`](Self::open) in any file system.
    ///
    /// # Errors
    /// As from it.
    pub fn open_vfs(vfs: Arc<dyn Vfs>) -> Result<Self> {
        Self::open_in(Arc::new(Directory::new(vfs)))
    }

    /// [`open_or_create`](Self::open_or_create) in any file system.
    ///
    /// # Errors
    /// As from it.
    pub fn open_or_create_vfs(vfs: Arc<dyn Vfs>) -> Result<Self> {
        Self::open_or_create_in(Arc::new(Directory::new(vfs)))
    }

    /// [`open`](Self::open) in any storage.
    ///
    /// # Errors
    /// As from it.
    pub fn open_in(storage: Arc<dyn Storage>) -> Result<Self> {
        let format = storage.read(FORMAT_FILE)?;
        Self::with_format(storage, format)
    }

    fn with_format(storage: Arc<dyn Storage>, format: Option<Vec<u8>>) -> Result<Self> {
        let refused = |reason: String| Error::Refused { path: storage.name(), reason };
        let Some(found) = format else {
            return Err(refused("it is no repository of backups: it has no file FORMAT".into()));
        };
        if found != FORMAT.as_bytes() {
            let (found, known) = (String::from_utf8_lossy(&found), FORMAT.trim_end());
            let reason =
                format!("its format is {:?}, and this program reads {known:?}", found.trim());
            return Err(refused(reason));
        }
        Ok(Repository { storage })
    }

    /// [`open_or_create`](Self::open_or_create) in any storage.
    ///
    /// # Errors
    /// As from it.
    pub fn open_or_create_in(storage: Arc<dyn Storage>) -> Result<Self> {
        let format = storage.read(FORMAT_FILE)?;
        if format.is_some() {
            return Self::with_format(storage, format);
        }
        storage.list("", &mut |file| match is_ours(file.path) {
            true => Ok(()),
            false => Err(Error::Refused {
                path: storage.name(),
                reason: format!(
                    "a repository of backups needs an empty directory; this one has {:?}",
                    file.path
                ),
            }),
        })?;
        create(storage.as_ref())?;
        Self::open_in(storage)
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
        // Not a path that leads elsewhere.
        let is_name = !id.is_empty() && !id.contains(['/', '.', '\0']);
        let bytes = if is_name { self.storage.read(&path(id))? } else { None };
        let name = self.storage.name();
        let Some(bytes) = bytes else {
            let ids = self.ids()?;
            let known = if ids.is_empty() { "none".to_owned() } else { ids.join(", ") };
            return Err(Error::Invalid(format!(
                "there is no backup {id:?} in {name}; there is {known}"
            )));
        };
        let manifest = Manifest::decode(&format!("{name}/{}", path(id)), &bytes)?;
        Ok(Backup { id: id.to_owned(), manifest })
    }

    /// The names of all backups, oldest first.
    ///
    /// # Errors
    /// I/O errors.
    pub fn ids(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        self.storage.list(BACKUPS, &mut |file| {
            if !is_partial(file.path) {
                ids.push(file.path.to_owned());
            }
            Ok(())
        })?;
        ids.sort_unstable();
        Ok(ids)
    }

    pub(crate) fn lock(&self) -> Result<LockGuard> {
        self.storage.lock()
    }

    /// Keeps others from changing the repository.
    pub(crate) fn share_lock(&self) -> Result<LockGuard> {
        self.storage.share_lock()
    }

    pub(crate) fn blobs(&self) -> Result<Blobs> {
        Blobs::open(self.storage.clone())
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
        self.storage.write(&path(&id), &manifest.encode()?)?;
        self.storage.sync()?;
        Ok(id)
    }

    /// Removes the manifests `ids`, durably. The caller has the lock.
    pub(crate) fn remove(&self, ids: &[String]) -> Result<()> {
        self.storage.remove(&ids.iter().map(|id| path(id)).collect::<Vec<_>>())?;
        self.storage.sync()
    }
}

/// Makes an empty directory a repository. Several servers may begin to share it at once: the others
/// wait for the one that is creating it.
fn create(storage: &dyn Storage) -> Result<()> {
    let began = Instant::now();
    loop {
        match storage.lock() {
            Ok(_lock) if storage.read(FORMAT_FILE)?.is_some() => return Ok(()),
            Ok(_lock) => {
                storage.write(FORMAT_FILE, FORMAT.as_bytes())?;
                return storage.sync();
            }
            Err(Error::Locked { .. }) if began.elapsed() < CREATION_TIMEOUT => {
                std::thread::sleep(POLL_INTERVAL);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether the file may be there before the repository is created: a process that is creating it
/// has written it.
fn is_ours(path: &str) -> bool {
    path.starts_with(FORMAT_FILE) || storage::is_lock(path)
}

/// The path of a manifest.
fn path(id: &str) -> String {
    format!("{BACKUPS}/{id}")
}

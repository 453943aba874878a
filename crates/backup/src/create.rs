//! Backs up an open store, or a running node of a cluster: takes a checkpoint, and adds the blobs of
//! the files that have changed since the previous backup.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use siltstone::Db;
use siltstone_engine::{Error, Result};
use siltstone_vfs::{Disk, LockGuard, Mode, Vfs};

use crate::manifest::{ArchiveLink, BackupFile, Manifest};
use crate::position_file::PositionFile;
use crate::repository::Repository;

/// The lock file of a store, and so of a checkpoint.
const LOCK: &str = "LOCK";

/// The result of [`Repository::back_up`].
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BackupReport {
    /// The name of the backup.
    pub id: String,
    /// The number of files of the store.
    pub files: u64,
    /// The bytes of these files.
    pub bytes: u64,
    /// Files that were read; the others had not changed since the previous backup.
    pub read_files: u64,
    /// Pieces of files that the repository did not have.
    pub new_blobs: u64,
    /// Their bytes.
    pub new_bytes: u64,
}

impl Repository {
    /// Takes a backup of `db`, which may be written meanwhile. `progress` is called with the bytes
    /// done so far and the bytes of the store.
    ///
    /// The backup has the content of a checkpoint ([`Db::checkpoint`]), so tables on `mica` are
    /// empty in it, and it has the libraries of functions of a server. Cost: hard links in a
    /// temporary directory beside the store, and one read of each file that has changed since the
    /// previous backup of this store.
    ///
    /// # Errors
    /// `Refused` if the store is not in a directory of the operating system's file system, or if
    /// the name of the temporary checkpoint directory beside it is taken; `Locked` if another
    /// backup runs; errors of the checkpoint, and I/O errors. The repository then has the same
    /// backups as before.
    pub fn back_up(&self, db: &Db, progress: &mut dyn FnMut(u64, u64)) -> Result<BackupReport> {
        let dir = db.path().ok_or_else(|| Error::Refused {
            path: db.vfs().name(),
            reason: "only a store in a directory can be backed up; use export".into(),
        })?;
        let take = |target: &Path| db.checkpoint(target);
        let store = Some(db.vfs());
        self.back_up_archived(dir, dir.display().to_string(), &take, store, progress)
    }

    /// Takes a backup of a checkpoint of what is in `dir`, which `take` makes in the directory that
    /// it is given, beside `dir`. `source` is shown with the backup; the previous one with the same
    /// has the files that are not read again.
    ///
    /// # Errors
    /// As from [`back_up`](Self::back_up), and those of `take`.
    pub fn back_up_checkpoint(
        &self,
        dir: &Path,
        source: String,
        take: &dyn Fn(&Path) -> Result<()>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupReport> {
        self.back_up_archived(dir, source, take, None, progress)
    }

    /// The same. With the directory of a store the backup is linked to its archive.
    fn back_up_archived(
        &self,
        dir: &Path,
        source: String,
        take: &dyn Fn(&Path) -> Result<()>,
        store: Option<&Arc<dyn Vfs>>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<BackupReport> {
        let _lock = self.lock()?;
        let taken_at = unix_time().as_secs();
        let position = store.map(PositionFile::read).transpose()?.flatten();
        let checkpoint = Checkpoint::take(dir, take)?;
        let from = unix_time().as_millis() as u64;
        let archive = position.map(|position| self.link(position, from)).transpose()?;
        let store = source;
        let known = self.newest_files_of(&store)?;
        let mut blobs = self.blobs()?;
        let mut report = BackupReport::default();
        let mut files = files_in(&checkpoint.path)?;
        let total: u64 = files.iter().map(|(_, file)| file.bytes).sum();
        let mut done = 0;
        for (directory, file) in &mut files {
            let previous = known
                .get(&file.path)
                .filter(|previous| previous.is_unchanged(file))
                .filter(|previous| previous.blobs.iter().all(|hash| blobs.contains(hash)));
            if let Some(previous) = previous {
                file.blobs.clone_from(&previous.blobs);
                done += file.bytes;
                progress(done, total);
            } else {
                let opened = directory.open(file.place().1, Mode::Read)?;
                let stored = blobs.store(opened.as_ref(), &mut |bytes| {
                    done += bytes;
                    progress(done, total);
                })?;
                report.read_files += 1;
                report.new_blobs += stored.new_blobs;
                report.new_bytes += stored.new_bytes;
                file.blobs = stored.hashes;
            }
        }
        let files = files.into_iter().map(|(_, file)| file).collect();
        let mut manifest = Manifest::new(store, taken_at, files);
        manifest.archive = archive;
        self.finish(&manifest, report)
    }

    /// The place in the archive of a backup whose state was complete at `from`. The position was
    /// read before.
    fn link(&self, position: PositionFile, from: u64) -> Result<ArchiveLink> {
        let head = self.series(&position.series).head()?;
        // Otherwise it may not be written, and another one may get its number.
        let is_written = head.is_some_and(|head| {
            head.number == position.number && position.is_hash_of_last(&head.hash)
        });
        let after = position.number - u64::from(!is_written);
        Ok(ArchiveLink { series: position.series, after, from })
    }

    /// Makes the blobs durable and adds the manifest.
    fn finish(&self, manifest: &Manifest, report: BackupReport) -> Result<BackupReport> {
        self.storage.sync()?;
        let id = self.add(manifest)?;
        let (files, bytes) = (manifest.files.len() as u64, manifest.bytes());
        Ok(BackupReport { id, files, bytes, ..report })
    }

    /// The files of the newest undamaged backup of a store, by path.
    fn newest_files_of(&self, store: &str) -> Result<BTreeMap<String, BackupFile>> {
        for id in self.ids()?.iter().rev() {
            match self.backup(id) {
                Ok(backup) if backup.manifest.store == store => {
                    let files = backup.manifest.files.into_iter();
                    return Ok(files.map(|file| (file.path.clone(), file)).collect());
                }
                Ok(_) => {}
                // All files are read then. `check` reports the damage.
                Err(error) if error.is_corruption() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(BTreeMap::new())
    }
}

/// The time since 1970.
fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A checkpoint beside the store, where files can be linked. Removed when it is dropped.
struct Checkpoint {
    path: PathBuf,
    /// Shows to a backup into another repository that this one reads the files.
    _lock: LockGuard,
}

impl Checkpoint {
    fn take(store: &Path, take: &dyn Fn(&Path) -> Result<()>) -> Result<Self> {
        let mut name = OsString::from(".");
        name.push(store.file_name().unwrap_or(store.as_os_str()));
        name.push(".siltstone-backup");
        let path = store.with_file_name(name);
        // A killed backup may have left a checkpoint. The lock of the repository does not show
        // whether a backup into another repository runs, but then the checkpoint's own lock does.
        if path.is_dir() {
            let copy = Disk::open(&path)?;
            let _lock = copy.lock(LOCK)?;
            remove(&path)?;
        }
        take(&path)?;
        let lock = Disk::open(&path)?.lock(LOCK)?;
        Ok(Checkpoint { path, _lock: lock })
    }
}

impl Drop for Checkpoint {
    fn drop(&mut self) {
        // If it fails, the next backup removes it.
        let _ = remove(&self.path);
    }
}

fn remove(path: &Path) -> Result<()> {
    std::fs::remove_dir_all(path)
        .map_err(|error| Error::io("remove directory", path.display().to_string(), &error))
}

/// The files of a checkpoint with their directories, without their blobs. The lock file is left
/// out.
fn files_in(checkpoint: &Path) -> Result<Vec<(Arc<dyn Vfs>, BackupFile)>> {
    let mut files = Vec::new();
    add_files(&(Arc::new(Disk::open(checkpoint)?) as Arc<dyn Vfs>), checkpoint, "", &mut files)?;
    files.retain(|(_, file)| file.path != LOCK);
    Ok(files)
}

/// Adds the files of a directory, whose path in the checkpoint is empty or ends in a slash.
fn add_files(
    directory: &Arc<dyn Vfs>,
    checkpoint: &Path,
    prefix: &str,
    files: &mut Vec<(Arc<dyn Vfs>, BackupFile)>,
) -> Result<()> {
    for name in directory.list()? {
        let path = format!("{prefix}{name}");
        let metadata = std::fs::metadata(checkpoint.join(&path))
            .map_err(|error| Error::io("look up", &path, &error))?;
        let modified = metadata.modified().ok().and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let file = BackupFile {
            bytes: directory.open(&name, Mode::Read)?.len()?,
            path,
            blobs: Vec::new(),
            modified_ns: modified.map_or(0, |since| since.as_nanos()),
            inode: metadata.ino(),
        };
        files.push((directory.clone(), file));
    }
    for name in directory.subdirectories()? {
        add_files(&directory.subdirectory(&name)?, checkpoint, &format!("{prefix}{name}/"), files)?;
    }
    Ok(())
}

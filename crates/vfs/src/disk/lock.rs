//! An exclusive or shared lock on a lock file.
//!
//! The lock of the standard library (`flock` on Unix, `LockFileEx` on Windows) excludes other
//! processes, and the system releases it when this process ends. A set of the paths locked by this
//! process also excludes a second lock in the same process, even on file systems that convert
//! `flock` to per-process locks (NFS does).
//!
//! Invariant: a path is in the set while its lock is held, acquired or released, so no two threads
//! of the process are between the two locks at once. The file stays when the lock is released: if
//! it were removed, two processes could lock two files of the same name.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::path::PathBuf;

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};

use super::open_files::OpenFiles;
use crate::system;

static LOCKED_PATHS: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A path in [`LOCKED_PATHS`]; removed from it on drop.
struct PathClaim(PathBuf);

impl PathClaim {
    fn new(path: PathBuf) -> Option<Self> {
        let fresh = LOCKED_PATHS.lock().insert(path.clone());
        // Lazily: dropping a claim that was not made would release another's.
        fresh.then(|| PathClaim(path))
    }
}

impl Drop for PathClaim {
    fn drop(&mut self) {
        LOCKED_PATHS.lock().remove(&self.0);
    }
}

/// An acquired lock; released on drop.
pub(super) struct FileLock {
    file: File,
    // After the file: the path stays claimed until the lock is released.
    _claim: PathClaim,
}

impl FileLock {
    /// The lock file, open for reading and writing.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file would not release the lock if a forked child still has the descriptor.
        // If this fails, closing the file is all that can be done.
        let _ = self.file.unlock();
    }
}

/// Locks the file at a canonical path exclusively; creates it if it does not exist.
pub(super) fn lock(files: &OpenFiles, path: PathBuf) -> Result<FileLock> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    take(files, path, &options, File::try_lock)
}

/// Locks the file shared with other processes; `None` if it does not exist.
pub(super) fn share(files: &OpenFiles, path: PathBuf) -> Result<Option<FileLock>> {
    match take(files, path, OpenOptions::new().read(true), File::try_lock_shared) {
        Err(error) if error.is_not_found() => Ok(None),
        taken => taken.map(Some),
    }
}

fn take(
    files: &OpenFiles,
    path: PathBuf,
    options: &OpenOptions,
    try_lock: fn(&File) -> std::result::Result<(), TryLockError>,
) -> Result<FileLock> {
    let name = path.display().to_string();
    let Some(claim) = PathClaim::new(path) else {
        return Err(Error::Locked { path: name, holder: Some(std::process::id()) });
    };
    let file = files.retry(|| options.open(&claim.0));
    let file = file.map_err(|error| Error::io("lock", &*name, &error))?;
    loop {
        match try_lock(&file) {
            Ok(()) => return Ok(FileLock { file, _claim: claim }),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Interrupted => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::Locked { path: name, holder: system::lock_holder(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(Error::io("lock", name, &error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path set would reject a second lock before the file does, so this test bypasses the set:
    /// for the lock, another open file of the same process is like another process.
    #[test]
    fn lock_excludes_other_open_files_until_the_lock_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let files = OpenFiles::new(1);
        let held = lock(&files, path.clone()).unwrap();
        let other = File::open(&path).unwrap();
        assert!(matches!(other.try_lock(), Err(TryLockError::WouldBlock)));
        drop(held);
        other.try_lock().unwrap();
        // The other process is this one.
        let holder = match lock(&files, path.clone()).map(drop) {
            Err(Error::Locked { holder, .. }) => holder,
            other => panic!("{other:?}"),
        };
        let is_listed = std::path::Path::new("/proc/locks").exists() && system::HAS_LOCK_HOLDERS;
        assert_eq!(holder, is_listed.then(std::process::id));
        other.unlock().unwrap();
        lock(&files, path).unwrap();
    }
}

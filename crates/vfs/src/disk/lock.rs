//! An exclusive or shared lock on a lock file.
//!
//! `flock` excludes other processes, and the kernel releases it when this process ends. A set of
//! the paths locked by this process also excludes a second lock in the same process, even on file
//! systems that convert `flock` to per-process locks (NFS does).
//!
//! Invariant: a path is in the set while its lock is held, acquired or released, so no two threads
//! of the process are between the two locks at once. The file stays when the lock is released: if
//! it were removed, two processes could lock two files of the same name.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use siltstone_engine::{Error, Result};

use super::open_files::OpenFiles;

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
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Locks the file at a canonical path exclusively; creates it if it does not exist.
pub(super) fn lock(files: &OpenFiles, path: PathBuf) -> Result<FileLock> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    take(files, path, &options, FlockOperation::NonBlockingLockExclusive)
}

/// Locks the file shared with other processes; `None` if it does not exist.
pub(super) fn share(files: &OpenFiles, path: PathBuf) -> Result<Option<FileLock>> {
    let operation = FlockOperation::NonBlockingLockShared;
    match take(files, path, OpenOptions::new().read(true), operation) {
        Err(error) if error.is_not_found() => Ok(None),
        taken => taken.map(Some),
    }
}

fn take(
    files: &OpenFiles,
    path: PathBuf,
    options: &OpenOptions,
    operation: FlockOperation,
) -> Result<FileLock> {
    let name = path.display().to_string();
    let Some(claim) = PathClaim::new(path) else {
        return Err(Error::Locked { path: name, holder: Some(std::process::id()) });
    };
    let file = files.retry(|| options.open(&claim.0));
    let file = file.map_err(|error| Error::io("lock", &*name, &error))?;
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(FileLock { file, _claim: claim }),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Locked { path: name, holder: holder(&file) });
            }
            Err(errno) => return Err(Error::io("lock", name, &errno.into())),
        }
    }
}

/// The process that holds the lock of a file, if Linux lists it in `/proc/locks`:
///
/// ```text
/// 7: FLOCK  ADVISORY  WRITE 4711 fe:00:613 0 EOF       device in hexadecimal, inode in decimal
/// ```
fn holder(file: &File) -> Option<u32> {
    let file = file.metadata().ok()?;
    let device = rustix::fs::major(file.dev());
    let place = format!("{device:02x}:{:02x}:{}", rustix::fs::minor(file.dev()), file.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let of_line = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, process, at, ..] if at == place => process.parse().ok(),
            _ => None,
        }
    };
    locks.lines().find_map(of_line)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The path set would reject a second lock before `flock`, so this test bypasses the set: for
    /// `flock`, another open file of the same process is like another process.
    #[test]
    fn flock_excludes_other_open_files_until_the_lock_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let files = OpenFiles::new(1);
        let held = lock(&files, path.clone()).unwrap();
        let other = File::open(&path).unwrap();
        let attempt = || flock(&other, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(attempt(), Err(Errno::WOULDBLOCK));
        drop(held);
        attempt().unwrap();
        // The other process is this one.
        let holder = match lock(&files, path.clone()).map(drop) {
            Err(Error::Locked { holder, .. }) => holder,
            other => panic!("{other:?}"),
        };
        assert_eq!(holder, std::path::Path::new("/proc/locks").exists().then(std::process::id));
        flock(&other, FlockOperation::Unlock).unwrap();
        lock(&files, path).unwrap();
    }
}

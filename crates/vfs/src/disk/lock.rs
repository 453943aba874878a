//! A lock file that one process holds, once.
//!
//! `flock` keeps other processes out, and the kernel frees it when this one dies. A set of the
//! paths held by this process keeps a second open in the same process out too, even on file systems
//! that turn `flock` into locks that belong to the process (NFS does).
//!
//! Invariant: a path is in the set while its lock is held or being taken or freed, so no two
//! threads are between the two locks at once.
//!
//! Source: ours. The file stays when the lock is freed: removing it would let two processes lock
//! two files of one name.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use parking_lot::Mutex;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use siltstone_engine::{Error, Result};

static HELD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());

/// A path in [`HELD`]; leaves it when dropped.
struct Claim(PathBuf);

impl Claim {
    fn new(path: PathBuf) -> Option<Self> {
        let fresh = HELD.lock().insert(path.clone());
        // Lazily: a claim that was not made must not be dropped, that would free another's.
        fresh.then(|| Claim(path))
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        HELD.lock().remove(&self.0);
    }
}

/// A lock that is held; freed when dropped.
pub(super) struct Held {
    file: File,
    // After the file: the path stays claimed until the lock is free.
    _claim: Claim,
}

impl Held {
    /// The lock file itself, open for reading and writing.
    pub(super) fn file(&self) -> &File {
        &self.file
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // Closing alone would leave the lock with a child that was forked and has not yet executed.
        // If this fails, closing is what remains.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// Takes the lock file at a canonical path, created if it is not there.
pub(super) fn lock(path: PathBuf) -> Result<Held> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    take(path, &options, FlockOperation::NonBlockingLockExclusive)
}

/// Takes the lock file along with other processes that do so; `None` if there is none.
pub(super) fn share(path: PathBuf) -> Result<Option<Held>> {
    match take(path, OpenOptions::new().read(true), FlockOperation::NonBlockingLockShared) {
        Err(error) if error.is_not_found() => Ok(None),
        taken => taken.map(Some),
    }
}

fn take(path: PathBuf, options: &OpenOptions, operation: FlockOperation) -> Result<Held> {
    let name = path.display().to_string();
    let Some(claim) = Claim::new(path) else {
        return Err(Error::Locked { path: name, holder: Some(std::process::id()) });
    };
    let file = options.open(&claim.0).map_err(|error| Error::io("lock", &*name, &error))?;
    loop {
        match flock(&file, operation) {
            Ok(()) => return Ok(Held { file, _claim: claim }),
            Err(Errno::INTR) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(Error::Locked { path: name, holder: holder(&file) });
            }
            Err(errno) => return Err(Error::io("lock", name, &errno.into())),
        }
    }
}

/// The process that holds the lock of a file, where Linux tells in `/proc/locks`, a line a lock:
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

    /// The set answers before `flock` is asked, so this goes around it: another open file of the
    /// same process is to `flock` what another process is.
    #[test]
    fn the_operating_system_refuses_it_too_until_the_guard_is_dropped() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("LOCK");
        let held = lock(path.clone()).unwrap();
        let stranger = File::open(&path).unwrap();
        let attempt = || flock(&stranger, FlockOperation::NonBlockingLockExclusive);
        assert_eq!(attempt(), Err(Errno::WOULDBLOCK));
        drop(held);
        attempt().unwrap();
        // Here and now another process is this one.
        let holder = match lock(path.clone()).map(drop) {
            Err(Error::Locked { holder, .. }) => holder,
            other => panic!("{other:?}"),
        };
        assert_eq!(holder, std::path::Path::new("/proc/locks").exists().then(std::process::id));
        flock(&stranger, FlockOperation::Unlock).unwrap();
        lock(path).unwrap();
    }
}

//! A directory that appears under its name only when it is complete.
//!
//! ```text
//!   DIR.partial/  LOCK, table-*/ …   ── tables, then functions-*.log, then CATALOG ──▶
//!   rename to DIR/, sync the parent
//! ```
//!
//! A process that ends early leaves `DIR.partial` without a catalogue, which is not a store. The
//! next [`PartialDirectory::create`] for the same directory removes it.
//!
//! Invariants:
//! - A directory with anything but a lock, a catalogue's draft, companion files and directories of
//!   tables or groups is never removed.
//! - A directory with a catalogue is a store and is never removed. One with `CLUSTER-ORIGIN` is a
//!   restored node of a replicated table, and is not removed either.

use std::path::{Path, PathBuf};

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Disk, LockGuard, Vfs};

use crate::catalogue::Catalogue;
use crate::names::{CLUSTER_ORIGIN, GROUP_PREFIX, LOCK, TABLE_PREFIX, is_companion};

/// A directory under construction. If it is dropped before [`commit`](Self::commit), it is removed.
pub struct PartialDirectory {
    path: PathBuf,
    target: PathBuf,
    vfs: Disk,
    /// Held until the directory is complete, so that nobody opens a part of it.
    lock: Option<LockGuard>,
}

impl std::fmt::Debug for PartialDirectory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PartialDirectory").field(&self.path).finish()
    }
}

impl PartialDirectory {
    /// Begins the directory that will be `target`, and removes what an interrupted attempt left.
    ///
    /// # Errors
    /// [`Error::Refused`] if `target` exists or names no directory, or if the partial directory
    /// holds unknown files; [`Error::Locked`] if another process is writing it.
    pub fn create(target: &Path) -> Result<Self> {
        if target.symlink_metadata().is_ok() {
            let reason = "a copy of a store needs a new directory, and this one exists";
            return Err(refused(target, reason.to_owned()));
        }
        let Some(name) = target.file_name() else {
            return Err(refused(target, "it does not end with the name of a directory".to_owned()));
        };
        let mut partial_name = name.to_owned();
        partial_name.push(".partial");
        let path = target.with_file_name(partial_name);
        if path.symlink_metadata().is_ok() {
            remove_remainder(&path)?;
        }
        let vfs = Disk::create(&path)?;
        let lock = Some(vfs.lock(LOCK)?);
        Ok(PartialDirectory { path, target: target.to_owned(), vfs, lock })
    }

    /// The directory's path, until it is complete.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory's file system.
    pub fn vfs(&self) -> &Disk {
        &self.vfs
    }

    /// Gives the directory its name, durably. Its content must be durable already.
    ///
    /// # Errors
    /// Those of the file system; the directory is then removed, unless only the sync failed.
    pub fn commit(mut self) -> Result<()> {
        self.lock = None;
        let fault = |error| Error::io("rename", self.path.display().to_string(), &error);
        std::fs::rename(&self.path, &self.target).map_err(fault)?;
        let parent = match self.target.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        Disk::open(parent)?.sync_dir(Purpose::Maintenance)
    }
}

impl Drop for PartialDirectory {
    fn drop(&mut self) {
        // After a commit there is none. If the removal fails, the next attempt removes it.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Removes the directory of an interrupted attempt, unless it holds anything else.
fn remove_remainder(path: &Path) -> Result<()> {
    let vfs = Disk::open(path)?;
    let _lock = vfs.lock(LOCK)?;
    if Catalogue::exists(&vfs)? || vfs.exists(CLUSTER_ORIGIN)? {
        let reason = "it is a complete copy whose checkpoint ended before it was renamed; move it or remove it";
        return Err(refused(path, reason.to_owned()));
    }
    let is_known_file =
        |name: &String| name == LOCK || Catalogue::is_draft(name) || is_companion(name);
    let is_known_directory =
        |name: &str| name.starts_with(TABLE_PREFIX) || name.starts_with(GROUP_PREFIX);
    let files = vfs.list()?;
    let directories = vfs.subdirectories()?;
    let unknown = (files.iter().find(|name| !is_known_file(name)))
        .or_else(|| directories.iter().find(|name| !is_known_directory(name)));
    if let Some(name) = unknown {
        let reason = format!("it is in the way of a checkpoint and holds {name:?}; move it away");
        return Err(refused(path, reason));
    }
    std::fs::remove_dir_all(path)
        .map_err(|error| Error::io("remove directory", path.display().to_string(), &error))
}

fn refused(path: &Path, reason: String) -> Error {
    Error::Refused { path: path.display().to_string(), reason }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partial_directory_dropped_leaves_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("copy");
        drop(PartialDirectory::create(&target).unwrap());
        assert_eq!(scratch.path().read_dir().unwrap().count(), 0);
    }

    #[test]
    fn partial_directory_in_use_is_locked() {
        let scratch = tempfile::tempdir().unwrap();
        let target = scratch.path().join("copy");
        let first = PartialDirectory::create(&target).unwrap();
        let second = PartialDirectory::create(&target).map(|_| ());
        assert!(matches!(second, Err(Error::Locked { .. })), "{second:?}");
        first.commit().unwrap();
        assert!(target.is_dir());
    }

    #[test]
    fn remainder_with_companion_files_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let remainder = scratch.path().join("copy.partial");
        std::fs::create_dir_all(remainder.join("table-default")).unwrap();
        std::fs::create_dir_all(remainder.join("group-000/table-000001")).unwrap();
        let companions = ["functions.rdb", "functions-000002.log"].map(|name| remainder.join(name));
        companions.iter().for_each(|file| std::fs::write(file, "half").unwrap());
        let partial = PartialDirectory::create(&scratch.path().join("copy")).unwrap();
        assert!(companions.iter().all(|file| !file.exists()));
        partial.commit().unwrap();
    }

    #[test]
    fn unknown_or_complete_directory_in_the_way_is_refused_and_kept() {
        for name in ["notes.txt", "CATALOG", "CLUSTER-ORIGIN"] {
            let scratch = tempfile::tempdir().unwrap();
            let in_the_way = scratch.path().join("copy.partial");
            std::fs::create_dir(&in_the_way).unwrap();
            std::fs::write(in_the_way.join(name), "mine").unwrap();
            let created = PartialDirectory::create(&scratch.path().join("copy")).map(|_| ());
            assert!(matches!(created, Err(Error::Refused { .. })), "{created:?}");
            assert_eq!(std::fs::read(in_the_way.join(name)).unwrap(), b"mine");
        }
    }
}

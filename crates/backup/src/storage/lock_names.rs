//! The names of the locks of a repository.

/// The lock file of a repository in a directory.
pub(super) const LOCK: &str = "LOCK";
/// The lock file of the archive of changes there.
pub(super) const ARCHIVE_LOCK: &str = "LOCK-ARCHIVE";
/// The directory of the locks of a repository in an object store.
pub(super) const LOCKS: &str = "locks";

/// Whether the file is a lock.
pub(crate) fn is_lock(path: &str) -> bool {
    [LOCK, ARCHIVE_LOCK].contains(&path)
        || path.split_once('/').is_some_and(|(directory, _)| directory == LOCKS)
}

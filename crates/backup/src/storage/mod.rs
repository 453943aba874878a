//! Where a repository lies: files that are read and written whole.
//!
//! ```text
//!   repository, blobs, manifests ─ Storage ─┬─ Directory       a directory of a file system
//!                                           └─ ObjectStorage   s3://…, gs://…, az://…
//! ```
//!
//! Invariants:
//! - A file appears whole or not at all, whatever interrupts [`Storage::write`].
//! - After [`Storage::sync`] what was written, renamed or removed before is durable, and so is each
//!   file that a list has shown.

mod directory;
mod lock_names;
#[cfg(feature = "object-store")]
pub mod objects;

use std::path::Path;
use std::sync::Arc;

use siltstone_engine::Result;
use siltstone_vfs::{Disk, LockGuard};

pub(crate) use directory::{Directory, is_partial};
pub(crate) use lock_names::is_lock;

/// The files of a repository. A path is a name, or names with slashes between them.
pub trait Storage: Send + Sync {
    /// The directory or URL, for messages.
    fn name(&self) -> String;

    /// Calls `visit` with each file below a directory, or below the root if `directory` is empty.
    /// Its error ends the list.
    ///
    /// # Errors
    /// I/O errors, and those of `visit`.
    fn list(
        &self,
        directory: &str,
        visit: &mut dyn FnMut(ListedFile<'_>) -> Result<()>,
    ) -> Result<()>;

    /// Reads files, in the order of `paths`; `None` for a missing one. Several may be read ahead.
    fn read_each(&self, paths: Vec<String>) -> Contents<'_>;

    /// The content of a file; `None` if it is missing.
    ///
    /// # Errors
    /// I/O errors.
    fn read(&self, path: &str) -> Result<Option<Vec<u8>>> {
        self.read_each(vec![path.to_owned()]).next().unwrap_or(Ok(None))
    }

    /// Writes a file, or replaces it. It may return before the file is complete: then
    /// [`sync`](Self::sync) waits for it and returns its error.
    ///
    /// # Errors
    /// I/O errors, of this write or of an earlier one.
    fn write(&self, path: &str, content: &[u8]) -> Result<()>;

    /// Makes everything durable that was done before.
    ///
    /// # Errors
    /// I/O errors, of this call or of an earlier write.
    fn sync(&self) -> Result<()>;

    /// Removes files.
    ///
    /// # Errors
    /// I/O errors; some may be removed then.
    fn remove(&self, paths: &[String]) -> Result<()>;

    /// Renames a file.
    ///
    /// # Errors
    /// I/O errors.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Takes the lock that every change needs.
    ///
    /// # Errors
    /// `Locked` if anyone holds it, exclusively or shared; I/O errors.
    fn lock(&self) -> Result<LockGuard>;

    /// Takes the lock together with others who change nothing.
    ///
    /// # Errors
    /// `Locked` if anyone holds it exclusively; I/O errors.
    fn share_lock(&self) -> Result<LockGuard>;

    /// Takes the lock of the archive of changes, which is written while others change or read the
    /// backups.
    ///
    /// # Errors
    /// `Locked` if anyone holds it; I/O errors.
    fn lock_archive(&self) -> Result<LockGuard>;
}

/// The contents of files, or `None` for missing ones.
pub type Contents<'s> = Box<dyn Iterator<Item = Result<Option<Vec<u8>>>> + 's>;

/// A file of a [list](Storage::list).
#[derive(Clone, Copy)]
pub struct ListedFile<'l> {
    /// Its path below the directory that is listed.
    pub path: &'l str,
    /// Looks up its length in bytes: free in an object store, an open file in a directory.
    pub len: &'l dyn Fn() -> Result<u64>,
}

impl std::fmt::Debug for ListedFile<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ListedFile").field(&self.path).finish()
    }
}

/// The storage at `place`: a directory, which may be created, or a URL, of which nothing is
/// requested.
///
/// # Errors
/// `Refused` and `Invalid` for a URL that this program cannot use; I/O errors.
pub fn at(place: &Path, is_created: bool) -> Result<Arc<dyn Storage>> {
    if let Some(url) = place.to_str().filter(|_| is_url(place)) {
        return at_url(url);
    }
    let disk = if is_created { Disk::create(place)? } else { Disk::open(place)? };
    Ok(Arc::new(Directory::new(Arc::new(disk))))
}

/// Whether `place` is a URL and no directory.
pub fn is_url(place: &Path) -> bool {
    place.to_str().is_some_and(|place| place.contains("://"))
}

#[cfg(feature = "object-store")]
fn at_url(url: &str) -> Result<Arc<dyn Storage>> {
    Ok(Arc::new(objects::ObjectStorage::open(url)?))
}

#[cfg(not(feature = "object-store"))]
fn at_url(_: &str) -> Result<Arc<dyn Storage>> {
    let reason = "this program was built without object stores: take one of the release packages, \
                  or build it by `cargo build --release -p siltstone-cli --features object-store`";
    Err(siltstone_engine::Error::Invalid(reason.into()))
}

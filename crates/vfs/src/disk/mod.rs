//! A directory of the operating system's file system.
//!
//! Positioned reads and writes, so any number of threads share a handle. The operating-system file
//! of a handle may be closed while it is idle, and is opened again by its name:
//! [`DiskOptions::max_open_files`] bounds the open files of a directory and its subdirectories.
//! With [`DiskOptions::direct`] reads bypass the page cache.
//!
//! | module | content |
//! | --- | --- |
//! | `descriptor` | one file that may be closed and opened again |
//! | `open_files` | the budget: what is closed when there are too many |
//! | `file` | positioned I/O |
//! | `append_file`, `preallocator` | files that grow by small appends |
//! | `direct` | reads that bypass the page cache |
//! | `map`, `lock`, `deferred_close` | mappings, lock files, removed files |
//!
//! Invariant: nothing is reported durable before the system call that makes it so returned: a file
//! after `fdatasync`, names after `fsync` of their directory. A failed sync is reported, never
//! retried: the second would succeed over lost pages.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?",
//! ATC 2020.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
#[cfg(all(target_os = "linux", not(siltstone_portable)))]
use std::sync::atomic::AtomicBool;

use siltstone_engine::{Error, Purpose, Result};

use crate::names::check;
use crate::system::{self, Directory};
use crate::{File, LockGuard, Mapping, Mode, OpenFileCounts, Vfs};

#[cfg(all(target_os = "linux", not(siltstone_portable)))]
mod append_file;
mod deferred_close;
mod descriptor;
mod direct;
mod fault;
mod file;
mod lock;
mod map;
mod open_files;
#[cfg(all(target_os = "linux", not(siltstone_portable)))]
mod preallocator;

#[cfg(all(target_os = "linux", not(siltstone_portable)))]
use append_file::AppendFile;
use deferred_close::{RemovedFile, close_later};
use descriptor::{Access, Descriptor};
use fault::{disk_fault, display};
use file::DiskFile;
use open_files::{HeldDescriptor, OpenFiles};

/// I/O options of a [`Disk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// Read from the device (`O_DIRECT`) instead of the page cache, so that a measurement counts
    /// the device's work. A read is widened to 4 KiB boundaries and copied once. Writes stay in the
    /// page cache until they are synced; the kernel keeps both coherent by writing back first.
    ///
    /// Opening a file fails if the file system does not support it, so that the page cache is never
    /// measured by mistake. Linux only.
    pub direct: bool,
    /// Copy appends of [`Vfs::create_append`] files into a memory mapping instead of calling
    /// `write`, on file systems known to support it (ext4, XFS, tmpfs on Linux). It is faster and
    /// does not wait for page allocation; the file's bytes are the same.
    pub map_appends: bool,
    /// The maximum number of files that are open, in this directory and all directories opened
    /// through it. Idle files beyond it are closed, and opened again when they are used. Logs with
    /// unsynced bytes are closed only beyond twice the maximum, after a sync. Files in use, other
    /// files that are written to, and removed files that are still read are not closed, so these
    /// may exceed it. Up to half of it is for the directories, which stay open, and for removed files
    /// until they are closed; further ones, lock files and mapped files do not count.
    ///
    /// If the process's limit (RLIMIT_NOFILE) is lower, the maximum is that limit minus 32, and 16
    /// at least; logs with unsynced bytes and directories leave 16 of the limit. If an open fails
    /// because of it nevertheless, files are closed, synced before if necessary, and the open is
    /// tried again.
    pub max_open_files: usize,
}

impl DiskOptions {
    /// The default of [`max_open_files`](Self::max_open_files).
    pub const DEFAULT_MAX_OPEN_FILES: usize = 256;
}

impl Default for DiskOptions {
    fn default() -> Self {
        let max_open_files = Self::DEFAULT_MAX_OPEN_FILES;
        DiskOptions { direct: false, map_appends: true, max_open_files }
    }
}

/// A directory of the operating system's file system.
pub struct Disk {
    path: PathBuf,
    /// Held open: a sync of the directory must not fail for lack of a descriptor.
    handle: Directory,
    /// For a directory that was opened through another one.
    _count: Option<HeldDescriptor>,
    options: DiskOptions,
    files: Arc<OpenFiles>,
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    /// Whether [`AppendFile`]s of this directory are synced often, for the next one.
    has_frequent_syncs: Arc<AtomicBool>,
}

impl Disk {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// `Io` if it cannot be opened, of kind `NotFound` if it does not exist and `NotADirectory` if
    /// it is not a directory.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let (path, options) = (path.into(), DiskOptions::default());
        let files = Arc::new(OpenFiles::new(options.max_open_files));
        let handle = open_directory(&files, &path)?;
        Ok(Disk::new(path, handle, None, options, files))
    }

    /// A directory that shares the budget of this one.
    fn open_other(&self, path: PathBuf) -> Result<Self> {
        let (options, files) = (self.options, self.files.clone());
        let count = Some(HeldDescriptor::new(&files));
        let handle = open_directory(&files, &path)?;
        Ok(Disk::new(path, handle, count, options, files))
    }

    fn new(
        path: PathBuf,
        handle: Directory,
        count: Option<HeldDescriptor>,
        options: DiskOptions,
        files: Arc<OpenFiles>,
    ) -> Self {
        Disk {
            path,
            handle,
            _count: count,
            options,
            files,
            #[cfg(all(target_os = "linux", not(siltstone_portable)))]
            has_frequent_syncs: Arc::default(),
        }
    }

    /// Opens a directory; creates it, durably and with its parents, if it does not exist.
    ///
    /// # Errors
    /// `Io` as from [`open`](Disk::open), or if a directory cannot be created.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        create_durably(&path)?;
        Self::open(path)
    }

    /// The same directory with other options, for files opened later.
    pub fn with_options(self, options: DiskOptions) -> Self {
        let files = match options.max_open_files == self.options.max_open_files {
            true => self.files,
            false => Arc::new(OpenFiles::new(options.max_open_files)),
        };
        Disk { options, files, ..self }
    }

    /// The canonical path of a file, which is the same for every process.
    fn canonical(&self, operation: &'static str, name: &str) -> Result<PathBuf> {
        self.join(operation, name)?;
        let directory = std::fs::canonicalize(&self.path);
        Ok(directory.map_err(|error| disk_fault(operation, &self.path, error))?.join(name))
    }

    fn join(&self, operation: &'static str, name: &str) -> Result<PathBuf> {
        check(operation, &self.name(), name)?;
        Ok(self.path.join(name))
    }

    /// Opens the file `name`, or creates it.
    fn open_file(&self, name: &str, mode: Mode, is_new: bool) -> Result<DiskFile> {
        let operation = if is_new { "create" } else { "open" };
        let path = self.join(operation, name)?;
        let access = Access { write: mode == Mode::ReadWrite, direct: self.options.direct };
        let opened = Descriptor::open(&self.files, operation, &path, access, is_new);
        opened.map(DiskFile::new)
    }

    /// The names of the entries that are `wanted`. Names that are not UTF-8 are skipped: no engine
    /// creates them.
    fn entries(&self, wanted: fn(&std::fs::FileType) -> bool) -> Result<Vec<String>> {
        let fault = |error| disk_fault("list", &self.path, error);
        let mut names = Vec::new();
        let entries = self.files.retry(|| std::fs::read_dir(&self.path));
        for entry in entries.map_err(fault)? {
            let entry = entry.map_err(fault)?;
            if wanted(&entry.file_type().map_err(fault)?) {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether `metadata` finds something at `name`, and `wanted`.
    fn has(
        &self,
        name: &str,
        metadata: fn(PathBuf) -> io::Result<std::fs::Metadata>,
        wanted: fn(&std::fs::Metadata) -> bool,
    ) -> Result<bool> {
        let path = self.join("look up", name)?;
        match metadata(path.clone()) {
            Ok(found) => Ok(wanted(&found)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(disk_fault("look up", &path, error)),
        }
    }

    fn sync_directory(&self) -> Result<()> {
        self.handle.sync().map_err(|e| disk_fault("sync directory", &self.path, e))
    }
}

impl Vfs for Disk {
    fn name(&self) -> String {
        display(&self.path)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(name, Mode::ReadWrite, true)?))
    }

    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        if !self.options.map_appends || !system::supports_mapped_appends(&self.handle) {
            return self.create(name);
        }
        let file = self.open_file(name, Mode::ReadWrite, true)?;
        Ok(Arc::new(AppendFile::new(file, self.has_frequent_syncs.clone())))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.open_file(name, mode, false)?))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.has(name, std::fs::metadata, std::fs::Metadata::is_file)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.entries(std::fs::FileType::is_file)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.join("remove", name)?;
        let mut change = self.files.begin_change(&path)?;
        // Some file systems of Windows keep the name until the last handle is closed.
        let may_hold = cfg!(not(windows)) && self.files.may_hold_one();
        let open = || std::fs::File::open(&path).ok().map(Arc::new);
        let held = change.file.take().or_else(|| may_hold.then(open)?);
        std::fs::remove_file(&path).map_err(|e| disk_fault("remove", &path, e))?;
        if let Some(file) = held.filter(|_| may_hold) {
            close_later(RemovedFile::new(&self.files, file));
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.join("rename", from)?, self.join("rename", to)?);
        // What is open under either name cannot be opened again by it.
        let _changes = [self.files.begin_change(&from)?, self.files.begin_change(&to)?];
        std::fs::rename(&from, &to).map_err(|e| disk_fault("rename", &from, e))
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        self.sync_directory()
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let path = self.join("create directory", name)?;
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(disk_fault("create directory", &path, error));
            }
            // An existing directory may be from a process that crashed before its sync.
            _ => self.sync_directory()?,
        }
        Ok(Arc::new(self.open_other(path)?))
    }

    fn existing_subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        Ok(Arc::new(self.open_other(self.join("open directory", name)?)?))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.entries(std::fs::FileType::is_dir)
    }

    fn has_subdirectory(&self, name: &str) -> Result<bool> {
        // As in a list, a link to a directory is none.
        self.has(name, std::fs::symlink_metadata, std::fs::Metadata::is_dir)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        let path = self.join("remove directory", name)?;
        self.files.pin_below(&path);
        let removed = self.files.retry(|| std::fs::remove_dir_all(&path));
        removed.map_err(|e| disk_fault("remove directory", &path, e))
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        lock::lock(&self.files, self.canonical("lock", name)?).map(LockGuard::new)
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        lock::share(&self.files, self.canonical("lock", name)?).map(LockGuard::new)
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let Some(target_path) = target.path() else { return Ok(false) };
        let from = self.join("link", name)?;
        check("link", &target.name(), to_name)?;
        let to = target_path.join(to_name);
        match std::fs::hard_link(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if system::cannot_link(&error) => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(disk_fault("link", &from, error))
            }
            Err(error) => Err(disk_fault("link", &to, error)),
        }
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        map::map(&self.files, &self.canonical("map", name)?, bytes)
    }

    fn map_private(&self, name: &str, bytes: u64) -> Result<Option<Mapping>> {
        map::map_private(&self.files, &self.canonical("map", name)?, bytes)
    }

    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        create_durably(path)?;
        Ok(Arc::new(self.open_other(path.to_owned())?))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn open_files(&self) -> Option<OpenFileCounts> {
        Some(self.files.counts())
    }
}

impl std::fmt::Debug for Disk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Disk").field("path", &self.path).finish_non_exhaustive()
    }
}

fn open_directory(files: &OpenFiles, path: &Path) -> Result<Directory> {
    let opened = files.retry(|| Directory::open(path));
    opened.map_err(|error| disk_fault("open directory", path, error))
}

/// Creates a directory and its parents, syncing each in its parent before the next. One that exists
/// is synced, too: the process that created it may have crashed before its sync.
fn create_durably(path: &Path) -> Result<()> {
    create_and_sync(path, &sync_path)
}

/// As [`create_durably`]; `sync` makes the names in a directory durable.
fn create_and_sync(path: &Path, sync: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    if path.is_dir() {
        return match sync(parent) {
            // Who may not read the parent has not created the directory.
            Err(Error::Io { kind: ErrorKind::PermissionDenied, .. }) => Ok(()),
            synced => synced,
        };
    }
    create_and_sync(parent, sync)?;
    let made = std::fs::create_dir(path);
    let is_new = made.is_ok();
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(disk_fault("create directory", path, error));
        }
        _ => {}
    }
    let synced = sync(parent);
    if synced.is_err() && is_new {
        let _ = std::fs::remove_dir(path);
    }
    synced
}

/// Makes the names in a directory durable.
fn sync_path(path: &Path) -> Result<()> {
    let handle = Directory::open(path);
    let handle = handle.map_err(|error| disk_fault("open directory", path, error))?;
    handle.sync().map_err(|error| disk_fault("sync directory", path, error))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn every_created_directory_and_an_existing_one_are_synced_in_their_parents() {
        let root = tempfile::tempdir().unwrap();
        let synced = RefCell::new(Vec::new());
        let create = |path: &Path| {
            synced.borrow_mut().clear();
            let sync = |path: &Path| {
                synced.borrow_mut().push(path.to_owned());
                Ok(())
            };
            create_and_sync(path, &sync).unwrap();
            synced.borrow().clone()
        };
        let (a, b) = (root.path().join("a"), root.path().join("a/b"));
        let above = root.path().parent().unwrap();
        assert_eq!(create(&b), [above, root.path(), a.as_path()]);
        assert!(b.is_dir());
        // As if the process that created it had crashed before the sync.
        assert_eq!(create(&b), [a.as_path()]);
        let fail = |path: &Path| Err(disk_fault("sync directory", path, ErrorKind::Other.into()));
        assert!(create_and_sync(&b, &fail).is_err());
        let denied =
            |path: &Path| Err(disk_fault("open", path, ErrorKind::PermissionDenied.into()));
        create_and_sync(&b, &denied).unwrap();
        let fail_in_root = |path: &Path| if path == root.path() { fail(path) } else { Ok(()) };
        assert!(create_and_sync(&root.path().join("c"), &fail_in_root).is_err());
        assert!(!root.path().join("c").exists());
    }
}

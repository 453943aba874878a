//! A directory of the operating system's file system.
//!
//! One operating-system file for each [`File`]; positioned reads and writes, so any
//! number of threads share a handle. The directory itself is held open, to be synced. With
//! [`DiskOptions::direct`] reads bypass the page cache.
//!
//! Invariant: nothing is reported durable before the system call that makes it so returned: a file
//! after `fdatasync`, names after `fsync` of their directory. A failed sync is reported, never
//! retried: the second would succeed over lost pages.
//!
//! Source: Rebello et al., "Can Applications Recover from fsync Failures?",
//! ATC 2020.

use std::fs::OpenOptions;
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::OFlags;
use rustix::io::Errno;
use siltstone_engine::{Error, Purpose, Result};

use crate::names::check;
use crate::{File, LockGuard, Mapping, Mode, Vfs};

mod append_file;
mod deferred_close;
mod direct;
mod file;
mod lock;
mod map;
mod preallocator;

use append_file::AppendFile;
use file::DiskFile;

/// The magic number of tmpfs, a file system in memory.
const TMPFS: u64 = 0x0102_1994;

/// I/O options of a [`Disk`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// Read from the device (`O_DIRECT`) instead of the page cache, so that a measurement counts
    /// the device's work. A read is widened to 4 KiB boundaries and copied once. Writes stay in the
    /// page cache until they are synced; the kernel keeps both coherent by writing back first.
    ///
    /// Opening a file fails if the file system does not support it, so that the page cache is never
    /// measured by mistake.
    pub direct: bool,
    /// Copy appends of [`Vfs::create_append`] files into a memory mapping instead of calling
    /// `write`, on file systems known to support it (ext4, XFS, tmpfs). It is faster and does not
    /// wait for page allocation; the file's bytes are the same.
    pub map_appends: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { direct: false, map_appends: true }
    }
}

/// A directory of the operating system's file system.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    handle: std::fs::File,
    options: DiskOptions,
    /// Whether [`AppendFile`]s of this directory are synced often, for the next one.
    has_frequent_syncs: Arc<AtomicBool>,
}

impl Disk {
    /// Opens an existing directory.
    ///
    /// # Errors
    /// `Io` if it cannot be opened, of kind `NotFound` if it does not exist and `NotADirectory` if
    /// it is no directory.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let handle = open_directory(&path)?;
        let options = DiskOptions::default();
        Ok(Disk { path, handle, options, has_frequent_syncs: Arc::default() })
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
        Disk { options, ..self }
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

    fn open_file(
        &self,
        operation: &'static str,
        path: &Path,
        options: &mut OpenOptions,
    ) -> Result<DiskFile> {
        let fault = |error| disk_fault(operation, path, error);
        let file = options.open(path).map_err(fault)?;
        // Linux opens a directory for reading without an error.
        if !file.metadata().map_err(fault)?.is_file() {
            return Err(fault(ErrorKind::IsADirectory.into()));
        }
        let direct = match self.options.direct {
            true => {
                let mut options = OpenOptions::new();
                options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
                let handle = options.open(path);
                Some(handle.map_err(|e| disk_fault("open for direct reads", path, e))?)
            }
            false => None,
        };
        Ok(DiskFile::new(display(path), file, direct))
    }

    /// The names of the entries that are `wanted`. Names that are not UTF-8 are skipped: no engine
    /// creates them.
    fn entries(&self, wanted: fn(&std::fs::FileType) -> bool) -> Result<Vec<String>> {
        let fault = |error| disk_fault("list", &self.path, error);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.path).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            if wanted(&entry.file_type().map_err(fault)?) {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_handle(&self) -> Result<()> {
        self.handle.sync_all().map_err(|e| disk_fault("sync directory", &self.path, e))
    }
}

impl Vfs for Disk {
    fn name(&self) -> String {
        display(&self.path)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let path = self.join("create", name)?;
        let file = self.open_file("create", &path, &mut new_file())?;
        Ok(Arc::new(file))
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        if !self.options.map_appends || !supports_mapped_appends(&self.handle) {
            return self.create(name);
        }
        let path = self.join("create", name)?;
        let file = self.open_file("create", &path, &mut new_file())?;
        Ok(Arc::new(AppendFile::new(file, self.has_frequent_syncs.clone())))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        let path = self.join("open", name)?;
        let write = mode == Mode::ReadWrite;
        let file = self.open_file("open", &path, OpenOptions::new().read(true).write(write))?;
        Ok(Arc::new(file))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.join("look up", name)?;
        match std::fs::metadata(&path) {
            Ok(metadata) => Ok(metadata.is_file()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(disk_fault("look up", &path, error)),
        }
    }

    fn list(&self) -> Result<Vec<String>> {
        self.entries(std::fs::FileType::is_file)
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.join("remove", name)?;
        let held = std::fs::File::open(&path);
        std::fs::remove_file(&path).map_err(|e| disk_fault("remove", &path, e))?;
        held.into_iter().for_each(deferred_close::close_later);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.join("rename", from)?, self.join("rename", to)?);
        std::fs::rename(&from, &to).map_err(|e| disk_fault("rename", &from, e))
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        self.sync_handle()
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let path = self.join("create directory", name)?;
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => {
                return Err(disk_fault("create directory", &path, error));
            }
            // An existing directory may be from a process that crashed before its sync.
            _ => self.sync_handle()?,
        }
        Ok(Arc::new(Disk::open(path)?.with_options(self.options)))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.entries(std::fs::FileType::is_dir)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        let path = self.join("remove directory", name)?;
        std::fs::remove_dir_all(&path).map_err(|e| disk_fault("remove directory", &path, e))
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        lock::lock(self.canonical("lock", name)?).map(LockGuard::new)
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        lock::share(self.canonical("lock", name)?).map(LockGuard::new)
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let Some(target_path) = target.path() else { return Ok(false) };
        let from = self.join("link", name)?;
        check("link", &target.name(), to_name)?;
        let to = target_path.join(to_name);
        match std::fs::hard_link(&from, &to) {
            Ok(()) => Ok(true),
            Err(error) if cannot_link(&error) => Ok(false),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                Err(disk_fault("link", &from, error))
            }
            Err(error) => Err(disk_fault("link", &to, error)),
        }
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        map::map(&self.canonical("map", name)?, bytes)
    }

    fn map_private(&self, name: &str, bytes: u64) -> Result<Option<Mapping>> {
        map::map_private(&self.canonical("map", name)?, bytes)
    }

    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        Ok(Arc::new(Disk::create(path)?.with_options(self.options)))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }
}

fn new_file() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true);
    options
}

/// Whether reserved space is sure to be available to stores. A copy-on-write file system may still
/// run out of space, and then a store kills the process.
fn supports_mapped_appends(directory: &std::fs::File) -> bool {
    const KNOWN: [u64; 3] = [0xef53, 0x5846_5342, TMPFS];
    rustix::fs::fstatfs(directory).is_ok_and(|system| KNOWN.contains(&(system.f_type as u64)))
}

/// Whether a file can only be copied: another device, no support for links, or too many links.
fn cannot_link(error: &io::Error) -> bool {
    [Errno::XDEV, Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM, Errno::MLINK]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

fn open_directory(path: &Path) -> Result<std::fs::File> {
    OpenOptions::new()
        .read(true)
        .custom_flags(OFlags::DIRECTORY.bits() as i32)
        .open(path)
        .map_err(|error| disk_fault("open directory", path, error))
}

/// Creates a directory and its parents, syncing each in its parent before the next.
fn create_durably(path: &Path) -> Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        None => return Ok(()),
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
    };
    create_durably(parent)?;
    match std::fs::create_dir(path) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            return Err(disk_fault("create directory", path, error));
        }
        _ => {}
    }
    let parent_handle = open_directory(parent)?;
    parent_handle.sync_all().map_err(|error| disk_fault("sync directory", parent, error))
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

fn disk_fault(operation: &'static str, path: &Path, error: io::Error) -> Error {
    Error::io(operation, display(path), &error)
}

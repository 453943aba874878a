//! A directory of the machine's file system.
//!
//! One operating-system file for each [`File`]; positioned reads and writes, so any
//! number of threads share a handle. The directory itself is held open, to be synced. With
//! [`DiskOptions::direct`] reads bypass the page cache.
//!
//! Invariant: nothing is reported durable before the system call that makes it so returned: a file
//! after `fdatasync`, names after `fsync` of their directory. A failed sync is reported, never
//! retried: the second would succeed over lost pages.
//!
//! Source: ours; on failed syncs, Rebello et al., "Can Applications Recover from fsync Failures?",
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

mod ahead;
mod direct;
mod file;
mod growing;
mod lock;
mod map;
mod removed;

use file::DiskFile;
use growing::AppendFile;

/// The number of the file system whose files lie in memory.
const TMPFS: u64 = 0x0102_1994;

/// How a [`Disk`] does its I/O.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskOptions {
    /// Reads go to the device (`O_DIRECT`) instead of the page cache, so that a measurement counts
    /// what the device did. Each is widened to 4 KiB boundaries and copied once. Writes stay in the
    /// page cache until synced; the kernel keeps the two coherent by writing back first.
    ///
    /// Opening a file fails where the file system cannot do this: a measurement of the page cache
    /// must not pass for one of the device.
    pub direct: bool,
    /// Appends to growing files are stored to mapped pages instead of being written, where the file
    /// system is known to take that (ext4, XFS, tmpfs). Faster, and without waits for pages; the bytes in
    /// the file are the same.
    pub stores_appends: bool,
}

impl Default for DiskOptions {
    fn default() -> Self {
        DiskOptions { direct: false, stores_appends: true }
    }
}

/// A directory of the machine's file system.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    handle: std::fs::File,
    options: DiskOptions,
    /// What [`AppendFile`]s find out about syncs, for the next one.
    has_frequent_syncs: Arc<AtomicBool>,
}

impl Disk {
    /// A directory that is there.
    ///
    /// # Errors
    /// `Io` if it cannot be opened, of kind `NotFound` if it is not there and `NotADirectory` if it
    /// is something else.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let handle = open_directory(&path)?;
        let options = DiskOptions::default();
        Ok(Disk { path, handle, options, has_frequent_syncs: Arc::default() })
    }

    /// A directory that is created, durably and with its parents, if it is not there.
    ///
    /// # Errors
    /// `Io` as from [`open`](Disk::open), or if a directory cannot be created.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        create_durably(&path)?;
        Self::open(path)
    }

    /// The same directory with other options, for files opened from now on.
    pub fn with_options(self, options: DiskOptions) -> Self {
        Disk { options, ..self }
    }

    /// The path of a file by which every process knows it.
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
        // Linux opens a directory for reading without a word.
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
        Ok(DiskFile::new(show(path), file, direct))
    }

    /// The entries that are `wanted`, by name. Names that are not UTF-8 are not ours and are left
    /// out.
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
        show(&self.path)
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        let path = self.join("create", name)?;
        let file = self.open_file("create", &path, &mut new_file())?;
        Ok(Arc::new(file))
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        if !self.options.stores_appends || !can_be_stored_to(&self.handle) {
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
        held.into_iter().for_each(removed::let_go);
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
            // One that is there may be the work of a process that died before its sync.
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

/// Whether space once reserved is there for stores: a file system that copies on write may run out of
/// it all the same, and a store that finds none kills the process.
fn can_be_stored_to(directory: &std::fs::File) -> bool {
    const KNOWN: [u64; 3] = [0xef53, 0x5846_5342, TMPFS];
    rustix::fs::fstatfs(directory).is_ok_and(|system| KNOWN.contains(&(system.f_type as u64)))
}

/// Another device, a file system without links, or too many of them: a copy will do.
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

/// Creates from the top down, each synced in its parent before the next.
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

fn show(path: &Path) -> String {
    path.display().to_string()
}

fn disk_fault(operation: &'static str, path: &Path, error: io::Error) -> Error {
    Error::io(operation, show(path), &error)
}

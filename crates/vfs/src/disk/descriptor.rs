//! One open file whose operating-system file may be closed and opened again.
//!
//! ```text
//!               get ─────────────▶ slot holds an open file: a shared lock, no system call
//!                │                     ▲                 │
//!                │ slot is empty       │ reopen by name  │ evicted (see `open_files`)
//!                └─────────────────────┘                 ▼
//!                                                    slot is empty
//! ```
//!
//! A request holds the slot's shared lock, so a file that is in use is never closed. A file is
//! evicted only while the slot's exclusive lock is free, never by waiting for it.
//!
//! A file for writing is closed only if its user allows it (see [`crate::File::allow_close`]).
//!
//! Invariants:
//! - A file that is opened again is the same file, with the id of the first open.
//! - A pinned file is never closed before its handle: its name is, or may soon be, gone.
//! - A file with bytes that no sync has covered is closed only after a successful sync. Else the
//!   kernel could forget that writing them back failed. A failed sync pins the file, and every
//!   later sync reports the failure.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering};

use parking_lot::{MappedRwLockReadGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use siltstone_engine::{Error, Result};

use super::fault::disk_fault;
use super::open_files::{NOT_IN_RING, OpenFiles};
use crate::system::{self, FileId};

/// How a file is opened again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Access {
    /// Also for writing.
    pub(super) write: bool,
    /// Reads bypass the page cache.
    pub(super) direct: bool,
}

impl Access {
    /// The number of operating-system descriptors.
    pub(super) fn descriptors(self) -> usize {
        if self.write && self.direct { 2 } else { 1 }
    }
}

/// The open file of a slot.
pub(super) struct OpenFile {
    /// Shared with the preallocator thread, which has no descriptor of its own: while the process's
    /// descriptor table grows, opening a file waits for all CPUs.
    pub(super) file: Arc<File>,
    /// The same file opened for direct reads, if `file` is not.
    direct: Option<File>,
    access: Access,
}

impl OpenFile {
    /// The file for reads that bypass the page cache, if reads do.
    pub(super) fn direct(&self) -> Option<&File> {
        self.access.direct.then(|| self.direct.as_ref().unwrap_or(&self.file))
    }
}

/// A file that stays the same while it is closed and opened again.
pub(super) struct Descriptor {
    files: Arc<OpenFiles>,
    path: Arc<Path>,
    access: Access,
    /// `None` if the system does not identify files: then it is never closed before its handle.
    id: Option<FileId>,
    slot: RwLock<Slot>,
    /// Its position in the ring of [`OpenFiles`], whose lock guards it.
    pub(super) ring_position: AtomicUsize,
    /// Whether it may be closed before its handle.
    is_closable: AtomicBool,
    /// Used since the clock's hand passed.
    is_referenced: AtomicBool,
    /// There may be bytes that no sync has covered.
    has_unsynced: AtomicBool,
    /// The error of a sync before an eviction; 0 if there was none.
    failed_sync: AtomicI32,
}

#[derive(Default)]
struct Slot {
    open: Option<OpenFile>,
    is_pinned: bool,
}

/// The open file; it is not closed while the guard lives.
pub(super) type OpenFileGuard<'a> = MappedRwLockReadGuard<'a, OpenFile>;

impl Descriptor {
    /// Opens `path`, or creates it.
    ///
    /// # Errors
    /// `Io`, also if it is not a file.
    pub(super) fn open(
        files: &Arc<OpenFiles>,
        operation: &'static str,
        path: &Path,
        access: Access,
        is_new: bool,
    ) -> Result<Arc<Self>> {
        let fault = |error| disk_fault(operation, path, error);
        let mut options = OpenOptions::new();
        options.read(true).write(access.write).create_new(is_new);
        let permit = files.permit(access.descriptors());
        let file = files.retry(|| options.open(path)).map_err(fault)?;
        let metadata = file.metadata().map_err(fault)?;
        // Linux opens a directory for reading without an error.
        if !metadata.is_file() {
            return Err(fault(ErrorKind::IsADirectory.into()));
        }
        let id = system::file_id(&metadata);
        let open = with_direct(files, file, path, access)?;
        let descriptor = Arc::new(Descriptor {
            files: files.clone(),
            path: path.into(),
            access,
            id,
            slot: RwLock::new(Slot { open: Some(open), is_pinned: false }),
            ring_position: AtomicUsize::new(NOT_IN_RING),
            is_closable: AtomicBool::new(!access.write && id.is_some()),
            is_referenced: AtomicBool::new(true),
            // Another handle may have left dirty pages, which a sync through this one covers.
            has_unsynced: AtomicBool::new(access.write && !is_new),
            failed_sync: AtomicI32::new(0),
        });
        files.register(&descriptor, permit);
        Ok(descriptor)
    }

    /// A file without a name, for tests.
    #[cfg(test)]
    pub(super) fn unnamed(file: File) -> Arc<Self> {
        let access = Access { write: true, direct: false };
        let id = file.metadata().ok().as_ref().and_then(system::file_id);
        let open = OpenFile { file: Arc::new(file), direct: None, access };
        Arc::new(Descriptor {
            files: Arc::new(OpenFiles::new(1)),
            path: Path::new("unnamed").into(),
            access,
            id,
            slot: RwLock::new(Slot { open: Some(open), is_pinned: true }),
            ring_position: AtomicUsize::new(NOT_IN_RING),
            is_closable: AtomicBool::new(false),
            is_referenced: AtomicBool::new(false),
            has_unsynced: AtomicBool::new(false),
            failed_sync: AtomicI32::new(0),
        })
    }

    pub(super) fn path(&self) -> &Arc<Path> {
        &self.path
    }

    pub(super) fn access(&self) -> Access {
        self.access
    }

    pub(super) fn files(&self) -> &OpenFiles {
        &self.files
    }

    /// The open file, opened again if it was evicted. Cost otherwise: a shared lock of this file.
    ///
    /// # Errors
    /// `Io` if it cannot be opened again; `Corruption` if another file has its name.
    #[inline]
    pub(super) fn get(self: &Arc<Self>) -> Result<OpenFileGuard<'_>> {
        loop {
            let slot = self.slot.read();
            if let Ok(open) = RwLockReadGuard::try_map(slot, |slot| slot.open.as_ref()) {
                // A store only if it changes something: threads share the cache line.
                if !self.is_referenced.load(Ordering::Relaxed) {
                    self.is_referenced.store(true, Ordering::Relaxed);
                }
                return Ok(open);
            }
            self.reopen(&mut self.slot.write())?;
        }
    }

    /// Opens the file again if it is closed.
    #[cold]
    fn reopen(self: &Arc<Self>, slot: &mut RwLockWriteGuard<'_, Slot>) -> Result<()> {
        if slot.open.is_some() {
            return Ok(());
        }
        let permit = self.files.permit(self.access.descriptors());
        let fault = |error| disk_fault(Error::OPEN_AGAIN, &self.path, error);
        let mut options = OpenOptions::new();
        options.read(true).write(self.access.write);
        let file = self.files.retry_with_pauses(|| options.open(&self.path)).map_err(fault)?;
        let metadata = file.metadata().map_err(fault)?;
        if system::file_id(&metadata) != self.id {
            let reason = "another file has taken the name of this open one: put the former file back, or restore the \
                          directory from a copy";
            return Err(Error::corruption(self.path.display().to_string(), 0, reason));
        }
        slot.open = Some(with_direct(&self.files, file, &self.path, self.access)?);
        self.is_referenced.store(true, Ordering::Relaxed);
        self.files.admit(self, permit);
        Ok(())
    }

    /// Keeps the file open from now on; opens it if it is closed. Returns the file.
    ///
    /// # Errors
    /// As from [`get`](Self::get).
    pub(super) fn pin(self: &Arc<Self>) -> Result<Option<Arc<File>>> {
        let mut slot = self.slot.write();
        self.reopen(&mut slot)?;
        slot.is_pinned = true;
        Ok(slot.open.as_ref().map(|open| open.file.clone()))
    }

    /// Keeps the file open from now on if it is open now.
    pub(super) fn pin_if_open(&self) {
        let mut slot = self.slot.write();
        slot.is_pinned = slot.open.is_some();
    }

    /// Keeps a file that no one else knows yet open.
    pub(super) fn pin_new(&self) {
        self.slot.write().is_pinned = true;
    }

    /// Closes the file for eviction if nobody uses it and every byte is synced. The caller drops
    /// the file outside of locks.
    pub(super) fn try_close(&self) -> Option<OpenFile> {
        if !self.is_closable() || self.has_unsynced.load(Ordering::Acquire) {
            return None;
        }
        let mut slot = self.slot.try_write()?;
        let is_evictable = slot.is_evictable() && !self.has_unsynced.load(Ordering::Acquire);
        if is_evictable { slot.open.take() } else { None }
    }

    /// The same after a sync, if there are unsynced bytes. A failed sync is reported by the next
    /// [`sync`](Self::sync).
    pub(super) fn sync_and_close(&self) -> Option<OpenFile> {
        if !self.is_closable() {
            return None;
        }
        let mut slot = self.slot.try_write()?;
        if !slot.is_evictable() {
            return None;
        }
        if self.has_unsynced.swap(false, Ordering::AcqRel)
            && let Some(open) = &slot.open
            && let Err(error) = self.sync_data(&open.file)
        {
            let errno = error.raw_os_error().unwrap_or(system::IO_ERROR_CODE);
            self.failed_sync.store(errno, Ordering::Release);
            self.has_unsynced.store(true, Ordering::Release);
            slot.is_pinned = true;
            return None;
        }
        // With the slot locked: nobody opens it again meanwhile.
        self.files.take_out(self);
        slot.open.take()
    }

    /// Used since the last call.
    pub(super) fn take_reference(&self) -> bool {
        self.is_referenced.swap(false, Ordering::Relaxed)
    }

    /// Notes that bytes may have changed. The caller has the guard of [`get`](Self::get) since
    /// before the change, and calls this after it: a concurrent sync may not have covered the
    /// change.
    pub(super) fn mark_unsynced(&self) {
        self.has_unsynced.store(self.access.write, Ordering::Release);
    }

    pub(super) fn is_closable(&self) -> bool {
        self.is_closable.load(Ordering::Relaxed)
    }

    /// Allows that it is closed while it is idle.
    pub(super) fn allow_close(&self) {
        self.is_closable.store(self.id.is_some(), Ordering::Relaxed);
    }

    /// `fdatasync`. A closed file has nothing to sync.
    ///
    /// # Errors
    /// Its error, or that of an earlier sync before an eviction.
    pub(super) fn sync(&self) -> Result<()> {
        let fault = |error| disk_fault("sync", &self.path, error);
        let slot = self.slot.read();
        let errno = self.failed_sync.load(Ordering::Acquire);
        if errno != 0 {
            return Err(fault(io::Error::from_raw_os_error(errno)));
        }
        let Some(open) = &slot.open else { return Ok(()) };
        // A write that this swap sees is complete, so that the sync covers it.
        self.has_unsynced.swap(false, Ordering::AcqRel);
        self.sync_data(&open.file).map_err(|error| {
            self.has_unsynced.store(true, Ordering::Release);
            fault(error)
        })
    }

    fn sync_data(&self, file: &File) -> io::Result<()> {
        system::sync_data(file, &self.path, self.access.write)
    }

    /// Whether the file has lost its name; `None` if it is open, and the file itself shows it.
    ///
    /// # Errors
    /// `Io`.
    pub(super) fn is_removed_while_closed(&self) -> Result<Option<bool>> {
        if self.slot.read().open.is_some() {
            return Ok(None);
        }
        match std::fs::metadata(&self.path) {
            Ok(now) => Ok(Some(system::file_id(&now) != self.id)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Some(true)),
            Err(error) => Err(disk_fault("look up", &self.path, error)),
        }
    }
}

impl Slot {
    /// Whether nothing but a sync may be needed to close it.
    fn is_evictable(&self) -> bool {
        // The preallocator thread may have the other reference.
        !self.is_pinned && self.open.as_ref().is_some_and(|open| Arc::strong_count(&open.file) == 1)
    }
}

/// The file, and a second one for direct reads if it needs one.
fn with_direct(files: &OpenFiles, file: File, path: &Path, access: Access) -> Result<OpenFile> {
    if !access.direct {
        return Ok(OpenFile { file: Arc::new(file), direct: None, access });
    }
    let direct = files.retry(|| system::open_direct(path));
    let direct = direct.map_err(|error| disk_fault("open for direct reads", path, error))?;
    Ok(match access.write {
        true => OpenFile { file: Arc::new(file), direct: Some(direct), access },
        false => OpenFile { file: Arc::new(direct), direct: None, access },
    })
}

#[cfg(all(test, unix))]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    fn closable(file: File) -> Arc<Descriptor> {
        let descriptor = Descriptor::unnamed(file);
        descriptor.slot.write().is_pinned = false;
        descriptor.allow_close();
        descriptor.mark_unsynced();
        descriptor
    }

    #[test]
    fn failed_sync_before_an_eviction_is_reported_by_every_later_sync() {
        let synced = closable(tempfile::tempfile().unwrap());
        assert!(synced.try_close().is_none());
        assert!(synced.sync_and_close().is_some());
        synced.sync().unwrap();
        // A socket cannot be synced.
        let (socket, _other) = UnixStream::pair().unwrap();
        let failing = closable(File::from(OwnedFd::from(socket)));
        assert!(failing.sync_and_close().is_none());
        for _ in 0..2 {
            let error = failing.sync().unwrap_err();
            assert!(matches!(error, Error::Io { kind: ErrorKind::InvalidInput, .. }), "{error}");
            assert!(failing.sync_and_close().is_none() && failing.get().is_ok());
        }
    }

    #[test]
    fn file_in_use_is_not_closed() {
        let descriptor = closable(tempfile::tempfile().unwrap());
        descriptor.sync().unwrap();
        let guard = descriptor.get().unwrap();
        assert!(descriptor.try_close().is_none() && descriptor.sync_and_close().is_none());
        let shared = guard.file.clone();
        drop(guard);
        assert!(descriptor.try_close().is_none(), "the preallocator has it");
        drop(shared);
        assert!(descriptor.try_close().is_some());
    }
}

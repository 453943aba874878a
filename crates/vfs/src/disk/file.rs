//! A file of the operating system's file system.
//!
//! Positioned I/O on a [`Descriptor`], which may be closed between requests and opened again. The
//! standard library's `read_exact_at` and `write_all_at` continue after interrupts and short
//! transfers; the calls that it lacks are retried here. With direct reads, reads use a second
//! descriptor of the operating system, or, for a file that is only read, the only one.
//!
//! Invariant: a read that returned `Ok` filled the whole buffer; a write that returned `Ok` passed
//! all bytes to the kernel.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use siltstone_engine::{Error, Purpose, Result};

use super::descriptor::{Descriptor, OpenFile, OpenFileGuard};
use super::fault::disk_fault;
use crate::File;

/// A read from the page cache costs about as much as reading this many further bytes.
const SEEK_COST_BYTES: u64 = 16 << 10;

pub(super) struct DiskFile {
    descriptor: Arc<Descriptor>,
    /// The offset up to which the kernel has been asked to write back.
    written_back_to: AtomicU64,
}

impl DiskFile {
    pub(super) fn new(descriptor: Arc<Descriptor>) -> Self {
        DiskFile { descriptor, written_back_to: AtomicU64::new(0) }
    }

    /// The open file, which stays open while the guard lives.
    ///
    /// # Errors
    /// Those of opening it again.
    pub(super) fn open(&self) -> Result<OpenFileGuard<'_>> {
        self.descriptor.get()
    }

    /// Its name in messages.
    pub(super) fn name(&self) -> String {
        self.descriptor.path().display().to_string()
    }

    /// Writes to the open file of this one.
    pub(super) fn write(&self, open: &OpenFile, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = open.file.write_all_at(bytes, offset);
        self.descriptor.mark_unsynced();
        written.map_err(|error| self.fault("write", error))
    }

    /// Notes that bytes were stored through a mapping, while the guard of [`open`](Self::open) was
    /// held.
    pub(super) fn mark_unsynced(&self) {
        self.descriptor.mark_unsynced();
    }

    fn fault(&self, operation: &'static str, error: impl Into<std::io::Error>) -> Error {
        disk_fault(operation, self.descriptor.path(), error.into())
    }

    /// Runs `change` on the open file.
    fn change<T>(&self, change: impl FnOnce(&std::fs::File) -> T) -> Result<T> {
        let open = self.open()?;
        let changed = change(&open.file);
        self.descriptor.mark_unsynced();
        Ok(changed)
    }
}

/// Calls `fallocate` for a non-empty range; repeats it after signals.
fn allocate(
    file: &std::fs::File,
    flags: FallocateFlags,
    offset: u64,
    len: u64,
) -> Result<(), Errno> {
    loop {
        match fallocate(file, flags, offset, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Reserves space for the first `len` bytes, more than 0; does nothing if the file system cannot.
pub(super) fn reserve(file: &std::fs::File, len: u64) -> Result<(), Errno> {
    match allocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => reserved,
    }
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.descriptor.files().unregister(&self.descriptor);
    }
}

impl File for DiskFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        let open = self.open()?;
        match open.direct() {
            None => open.file.read_exact_at(buf, offset),
            Some(direct) => super::direct::read_exact_at(direct, offset, buf),
        }
        .map_err(|error| self.fault("read", error))
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        let open = self.open()?;
        self.write(&open, offset, bytes)
    }

    /// `fdatasync`: the bytes and the metadata needed to read them, including the length.
    fn sync(&self, _purpose: Purpose) -> Result<()> {
        self.descriptor.sync()
    }

    /// Asks for the link count alone. A request for the modification time (as `File::metadata`
    /// makes) would have the kernel give the next write a timestamp of its own (Linux 6.13 and
    /// later), and each sync would then write the inode, too.
    fn is_removed(&self) -> Result<bool> {
        if let Some(is_removed) = self.descriptor.is_removed_while_closed()? {
            return Ok(is_removed);
        }
        let open = self.open()?;
        #[cfg(target_os = "linux")]
        let links = {
            let status = statx(&open.file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
            status.map_err(|errno| self.fault("get links of", errno))?.stx_nlink
        };
        #[cfg(not(target_os = "linux"))]
        let links = {
            use std::os::unix::fs::MetadataExt;
            open.file.metadata().map_err(|error| self.fault("get links of", error))?.nlink()
        };
        Ok(links == 0)
    }

    fn allow_close(&self) {
        self.descriptor.allow_close();
    }

    fn begin_sync(&self) {
        let Ok(open) = self.open() else { return };
        let len = open.file.metadata().map_or(0, |metadata| metadata.len());
        let begun = self.written_back_to.swap(len, Relaxed);
        if begun < len {
            super::preallocator::start_write_back(&open.file, begun, len - begun);
        }
    }

    fn seek_cost_bytes(&self) -> u64 {
        SEEK_COST_BYTES
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.open()?.file.metadata();
        Ok(metadata.map_err(|error| self.fault("get length of", error))?.len())
    }

    /// All other I/O is positioned, so moving the descriptor's own position is harmless.
    fn next_data(&self, offset: u64) -> Result<u64> {
        let sought = seek(&self.open()?.file, SeekFrom::Data(offset));
        match sought {
            Ok(data) => Ok(data),
            Err(Errno::NXIO) => self.len(),
            // The file system does not report holes.
            Err(_) => Ok(offset),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change(|file| file.set_len(len))?.map_err(|error| self.fault("set length of", error))
    }

    /// Does nothing if the file system cannot reserve. Reports a full disk.
    fn reserve(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let reserved = reserve(&self.open()?.file, len);
        reserved.map_err(|errno| self.fault("reserve space for", errno))
    }

    /// An error without effect if the file system has no holes. Writing zeros would not free space.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punched = self.change(|file| allocate(file, flags, offset, len))?;
        punched.map_err(|errno| match errno {
            // Mapped to the kind that the contract requires.
            Errno::OPNOTSUPP | Errno::NOSYS => {
                let reason = "the file system has no holes";
                let kind = std::io::ErrorKind::Unsupported;
                self.fault("punch hole in", std::io::Error::new(kind, reason))
            }
            errno => self.fault("punch hole in", errno),
        })
    }
}

//! A file of the operating system's file system.
//!
//! Positioned I/O on one descriptor. The standard library's `read_exact_at` and `write_all_at`
//! continue after interrupts and short transfers; the calls that it lacks are retried here. With
//! direct reads, reads use a second descriptor.
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

use crate::File;

/// A read from the page cache costs about as much as reading this many further bytes.
const SEEK_COST_BYTES: u64 = 16 << 10;

pub(super) struct DiskFile {
    pub(super) name: String,
    /// Shared with the preallocator thread, which has no descriptor of its own: while the process's
    /// descriptor table grows, opening a file waits for all CPUs.
    pub(super) file: Arc<std::fs::File>,
    /// The same file opened for direct reads.
    pub(super) direct: Option<std::fs::File>,
    /// The offset up to which the kernel has been asked to write back.
    written_back_to: AtomicU64,
}

impl DiskFile {
    pub(super) fn new(name: String, file: std::fs::File, direct: Option<std::fs::File>) -> Self {
        DiskFile { name, file: Arc::new(file), direct, written_back_to: AtomicU64::new(0) }
    }

    fn fault(&self, operation: &'static str, error: impl Into<std::io::Error>) -> Error {
        Error::io(operation, &*self.name, &error.into())
    }

    /// Calls `fallocate` for a non-empty range; repeats it after signals.
    fn allocate(&self, flags: FallocateFlags, offset: u64, len: u64) -> Result<(), Errno> {
        loop {
            match fallocate(&self.file, flags, offset, len) {
                Err(Errno::INTR) => {}
                done => return done,
            }
        }
    }
}

impl File for DiskFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        match &self.direct {
            None => self.file.read_exact_at(buf, offset),
            Some(direct) => super::direct::read_exact_at(direct, offset, buf),
        }
        .map_err(|error| self.fault("read", error))
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|error| self.fault("write", error))
    }

    /// `fdatasync`: the bytes and the metadata needed to read them, including the length.
    fn sync(&self, _purpose: Purpose) -> Result<()> {
        self.file.sync_data().map_err(|error| self.fault("sync", error))
    }

    /// Asks for the link count alone. A request for the modification time (as `File::metadata`
    /// makes) would have the kernel give the next write a timestamp of its own (Linux 6.13 and
    /// later), and each sync would then write the inode, too.
    fn is_removed(&self) -> Result<bool> {
        #[cfg(target_os = "linux")]
        let links = {
            let status = statx(&self.file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK);
            status.map_err(|errno| self.fault("get links of", errno))?.stx_nlink
        };
        #[cfg(not(target_os = "linux"))]
        let links = {
            use std::os::unix::fs::MetadataExt;
            self.file.metadata().map_err(|error| self.fault("get links of", error))?.nlink()
        };
        Ok(links == 0)
    }

    fn begin_sync(&self) {
        let len = self.len().unwrap_or(0);
        let begun = self.written_back_to.swap(len, Relaxed);
        if begun < len {
            super::preallocator::start_write_back(&self.file, begun, len - begun);
        }
    }

    fn seek_cost_bytes(&self) -> u64 {
        SEEK_COST_BYTES
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(|error| self.fault("get length of", error))?;
        Ok(metadata.len())
    }

    /// All other I/O is positioned, so moving the descriptor's own position is harmless.
    fn next_data(&self, offset: u64) -> Result<u64> {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(data),
            Err(Errno::NXIO) => self.len(),
            // The file system does not report holes.
            Err(_) => Ok(offset),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| self.fault("set length of", error))
    }

    /// Does nothing if the file system cannot reserve. Reports a full disk.
    fn reserve(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match self.allocate(FallocateFlags::KEEP_SIZE, 0, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.fault("reserve space for", errno)),
        }
    }

    /// An error without effect if the file system has no holes. Writing zeros would not free space.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.allocate(flags, offset, len).map_err(|errno| match errno {
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

//! One file of the machine's file system.
//!
//! Positioned I/O on one descriptor. The standard library's `read_exact_at` and `write_all_at` go
//! on after interrupts and short transfers; the calls that it lacks are retried here. With a second
//! descriptor for direct reads, reads go through that one. What jobs write goes in steps, between which
//! writers pass (see [`yield_point`]).
//!
//! Invariant: a read that returned `Ok` filled the whole buffer, a write that returned `Ok` handed
//! all bytes to the kernel.
//!
//! Source: ours.

use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

#[cfg(target_os = "linux")]
use rustix::fs::{AtFlags, StatxFlags, statx};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::yield_point;

use crate::File;

/// A call to read from the page cache takes as long as reading on for about this.
const REQUEST_BYTES: u64 = 16 << 10;

/// A job that hands over more than this does so in steps: for a new page the system takes a microsecond or
/// several, and a writer that waits for the thread is not to wait for a megabyte.
const STEP: usize = 256 << 10;

pub(super) struct DiskFile {
    pub(super) name: String,
    /// Shared with the threads that make it ready, without a descriptor of their own: while the table of
    /// descriptors grows, who asks for one waits for all processors.
    pub(super) file: Arc<std::fs::File>,
    /// The same file opened for direct reads.
    pub(super) direct: Option<std::fs::File>,
    /// The system has been asked to begin to write back what lies before.
    begun: AtomicU64,
}

impl DiskFile {
    pub(super) fn new(name: String, file: std::fs::File, direct: Option<std::fs::File>) -> Self {
        DiskFile { name, file: Arc::new(file), direct, begun: AtomicU64::new(0) }
    }

    fn fault(&self, operation: &'static str, error: impl Into<std::io::Error>) -> Error {
        Error::io(operation, &*self.name, &error.into())
    }

    /// `fallocate` of a range that is not empty, until no signal interrupts it.
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

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        let write = |bytes, offset| {
            self.file.write_all_at(bytes, offset).map_err(|error| self.fault("write", error))
        };
        // Whoever writes a log or a manifest may hold what writers wait for.
        if !matches!(purpose, Purpose::Flush | Purpose::Compaction) {
            return write(bytes, offset);
        }
        for (i, step) in bytes.chunks(STEP).enumerate() {
            if i > 0 {
                yield_point();
            }
            write(step, offset + (i * STEP) as u64)?;
        }
        Ok(())
    }

    /// `fdatasync`: the bytes and what is needed to read them, the length among it.
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
        // The system finds a place on the medium for each page first.
        let len = self.len().unwrap_or(0);
        let begun = self.begun.swap(len, Relaxed);
        for start in (begun..len).step_by(4 * STEP) {
            super::ahead::begin_to_write_back(&self.file, start, 4 * STEP as u64);
            yield_point();
        }
    }

    fn seek_cost_bytes(&self) -> u64 {
        REQUEST_BYTES
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.file.metadata().map_err(|error| self.fault("get length of", error))?;
        Ok(metadata.len())
    }

    /// All I/O is positioned, so that the descriptor's own position may move.
    fn next_data(&self, offset: u64) -> Result<u64> {
        match seek(&self.file, SeekFrom::Data(offset)) {
            Ok(data) => Ok(data),
            Err(Errno::NXIO) => self.len(),
            // A file system that does not tell.
            Err(_) => Ok(offset),
        }
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len).map_err(|error| self.fault("set length of", error))
    }

    /// Does nothing where the file system cannot reserve. A full disk is reported: that is what
    /// one reserves for.
    fn reserve(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match self.allocate(FallocateFlags::KEEP_SIZE, 0, len) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.fault("reserve space for", errno)),
        }
    }

    /// Where the file system has no holes this is an error and nothing has changed: writing zeros
    /// instead would cost what the caller wants to save.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.allocate(flags, offset, len).map_err(|errno| match errno {
            // With the kind that the contract promises, whatever the library makes of them.
            Errno::OPNOTSUPP | Errno::NOSYS => {
                let reason = "the file system has no holes";
                let kind = std::io::ErrorKind::Unsupported;
                self.fault("punch hole in", std::io::Error::new(kind, reason))
            }
            errno => self.fault("punch hole in", errno),
        })
    }
}

//! The form for Linux.
//!
//! Calls that a signal interrupts are repeated.
//!
//! Source: the manual pages of the calls; mmap(2) on MAP_SYNC.

use std::fs::{File, OpenOptions};
use std::io;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::ptr::{self, NonNull};

use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, SeekFrom, StatxFlags, fadvise, fallocate, fstatfs, seek, statx,
};
use rustix::io::Errno;
use rustix::mm::{
    Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap,
};
use rustix::process::{Resource, getrlimit};

use super::shared::{MAP_BYTES, has_no_holes};
#[cfg(feature = "encryption")]
pub(crate) use super::unix::foreign_access;
pub(crate) use super::unix::{FileId, file_id, read_at, read_exact_at, sync_data, write_all_at};

/// The magic number of tmpfs, a file system in memory.
const TMPFS: u64 = 0x0102_1994;
/// The magic numbers of ext4 and XFS.
const EXT4: u64 = 0xef53;
const XFS: u64 = 0x5846_5342;

/// The error code of a failing device.
pub(crate) const IO_ERROR_CODE: i32 = Errno::IO.raw_os_error();

/// The number of names of a file. Asks for the link count alone. A request for the modification
/// time (as `File::metadata` makes) would have the kernel give the next write a timestamp of its
/// own (Linux 6.13 and later), and each sync would then write the inode, too.
pub(crate) fn links(file: &File) -> io::Result<Option<u64>> {
    let status = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::NLINK)?;
    Ok(Some(status.stx_nlink.into()))
}

/// Opens a file for reads that bypass the page cache.
pub(crate) fn open_direct(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(OFlags::DIRECT.bits() as i32).open(path)
}

/// An open directory.
pub(crate) struct Directory(File);

impl Directory {
    /// Opens an existing directory.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.read(true).custom_flags(OFlags::DIRECTORY.bits() as i32);
        options.open(path).map(Directory)
    }

    /// Makes the names in it durable.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }
}

/// Whether reserved space is sure to be available to stores. A copy-on-write file system may still
/// run out of space, and then a store kills the process.
pub(crate) fn supports_mapped_appends(directory: &Directory) -> bool {
    const KNOWN: [u64; 3] = [EXT4, XFS, TMPFS];
    fstatfs(&directory.0).is_ok_and(|system| KNOWN.contains(&(system.f_type as u64)))
}

/// Free space of the file system; 0 for one in memory, where a reservation would use memory at
/// once.
pub(crate) fn free_space(file: &File) -> u64 {
    fstatfs(file).map_or(0, |system| match system.f_type as u64 {
        TMPFS => 0,
        _ => system.f_bavail.saturating_mul(system.f_bsize as u64),
    })
}

/// The page size of the machine.
pub(crate) fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// Calls `fallocate` for a non-empty range.
fn fallocate_all(file: &File, flags: FallocateFlags, offset: u64, len: u64) -> Result<(), Errno> {
    loop {
        match fallocate(file, flags, offset, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
}

/// Reserves space for the first `len` bytes, more than 0, without changing the length; does nothing
/// if the file system cannot.
pub(crate) fn reserve(file: &File, len: u64) -> io::Result<()> {
    match fallocate_all(file, FallocateFlags::KEEP_SIZE, 0, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
        reserved => Ok(reserved?),
    }
}

/// Allocates space for a non-empty range, and extends the file to its end.
///
/// # Errors
/// Of kind `Unsupported` if the file system cannot.
pub(crate) fn allocate(file: &File, offset: u64, len: u64) -> io::Result<()> {
    match fallocate_all(file, FallocateFlags::empty(), offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(io::ErrorKind::Unsupported.into()),
        done => Ok(done?),
    }
}

/// Deallocates a non-empty range, which then reads as zeros.
///
/// # Errors
/// Of kind `Unsupported`, without effect, if the file system has no holes.
pub(crate) fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    match fallocate_all(file, flags, offset, len) {
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Err(has_no_holes()),
        done => Ok(done?),
    }
}

/// The first offset at or after `offset` that is not in a hole; `None` if there is none. All other
/// I/O is positioned, so moving the descriptor's own position is harmless.
pub(crate) fn next_data(file: &File, offset: u64) -> Option<u64> {
    match seek(file, SeekFrom::Data(offset)) {
        Ok(data) => Some(data),
        Err(Errno::NXIO) => None,
        // The file system does not report holes.
        Err(_) => Some(offset),
    }
}

/// Starts writeback of a part of a file, up to its end if `bytes` is 0. Errors are ignored: a later
/// sync reports them.
pub(crate) fn start_write_back(file: &File, start: u64, bytes: u64) {
    let (start, bytes) = (start as libc::off64_t, bytes as libc::off64_t);
    // SAFETY: the descriptor is open while `file` lives, and the call takes no pointer.
    let _ = unsafe {
        libc::sync_file_range(file.as_raw_fd(), start, bytes, libc::SYNC_FILE_RANGE_WRITE)
    };
}

/// Starts reading a part of a file into the page cache.
pub(crate) fn start_read(file: &File, start: u64, bytes: u64) {
    let _ = fadvise(file, start, NonZeroU64::new(bytes), rustix::fs::Advice::WillNeed);
}

/// The maximum number of open files of the process.
pub(crate) fn open_file_limit() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Whether a file can only be copied: another device, no support for links, or too many links.
pub(crate) fn cannot_link(error: &io::Error) -> bool {
    [Errno::XDEV, Errno::OPNOTSUPP, Errno::NOSYS, Errno::PERM, Errno::MLINK]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// Whether [`lock_holder`] may know the holder.
#[cfg(test)]
pub(crate) const HAS_LOCK_HOLDERS: bool = true;

/// The process that holds the lock of a file, if it is listed in `/proc/locks`:
///
/// ```text
/// 7: FLOCK  ADVISORY  WRITE 4711 fe:00:613 0 EOF       device in hexadecimal, inode in decimal
/// ```
pub(crate) fn lock_holder(file: &File) -> Option<u32> {
    let file = file.metadata().ok()?;
    let device = rustix::fs::major(file.dev());
    let place = format!("{device:02x}:{:02x}:{}", rustix::fs::minor(file.dev()), file.ino());
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let of_line = |line: &str| {
        let fields: Vec<_> = line.split_whitespace().collect();
        match fields[..] {
            [_, "FLOCK", _, _, process, at, ..] if at == place => process.parse().ok(),
            _ => None,
        }
    };
    locks.lines().find_map(of_line)
}

/// Pages of memory, unmapped on drop.
///
/// Invariant: `base` is a live, page-aligned mapping of `bytes` bytes, more than 0.
pub(crate) struct Pages {
    base: NonNull<u8>,
    bytes: usize,
}

impl Pages {
    /// Whether pages of a file are the file's, and not a copy.
    pub(crate) const ARE_OF_FILE: bool = true;

    /// Zeros. Memory that is never touched costs nothing. `bytes` is a multiple of a page.
    pub(crate) fn anonymous(bytes: usize) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the kernel chooses the address, so no memory in use is mapped over.
        let base = unsafe { mmap_anonymous(ptr::null_mut(), bytes, protection, flags)? };
        Self::new(base.cast(), bytes)
    }

    /// The first `len` bytes of a file on persistent memory, whose metadata is durable already.
    /// `bytes` is `len` rounded up to a page.
    pub(crate) fn persistent(file: &File, _len: usize, bytes: usize) -> io::Result<Self> {
        Self::map(file, 0, bytes, MapFlags::SHARED_VALIDATE | MapFlags::SYNC)
    }

    /// The first `len` bytes of a file that is not shorter.
    pub(crate) fn of_file(file: &File, _len: usize, bytes: usize) -> io::Result<Self> {
        Self::map(file, 0, bytes, MapFlags::SHARED)
    }

    /// A private (copy-on-write) mapping of the first bytes of a file. The file need not be
    /// writable.
    pub(crate) fn private(file: &File, bytes: usize) -> io::Result<Option<Self>> {
        Self::map(file, 0, bytes, MapFlags::PRIVATE | MapFlags::NORESERVE).map(Some)
    }

    /// Bytes of a file from `offset` on. Populated pages are dirty, and no store to them faults
    /// until a sync has written them.
    pub(crate) fn window(
        file: &File,
        offset: u64,
        bytes: usize,
        is_populated: bool,
    ) -> io::Result<Self> {
        let pages = Self::map(file, offset, bytes, MapFlags::SHARED)?;
        if is_populated {
            let base = pages.base.as_ptr().cast();
            // Kernels before 5.14 do not support it; then stores fault the pages in.
            // SAFETY: the mapping just created, and it changes no byte.
            let _ = unsafe { madvise(base, bytes, Advice::LinuxPopulateWrite) };
        }
        Ok(pages)
    }

    fn map(file: &File, offset: u64, bytes: usize, flags: MapFlags) -> io::Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the kernel chooses the address, so no memory in use is mapped over; the file's
        // lock, or its only writer, ensures that nobody else changes the file.
        let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, offset)? };
        Self::new(base.cast(), bytes)
    }

    fn new(base: *mut u8, bytes: usize) -> io::Result<Self> {
        let base = NonNull::new(base).ok_or(Errno::FAULT)?;
        Ok(Pages { base, bytes })
    }

    /// The first byte, aligned to a page, and so to words. It and the others live as long as the
    /// pages.
    #[inline]
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Makes the pages of a range durable; it is within the mapping and not empty.
    pub(crate) fn sync(&self, range: Range<usize>) -> io::Result<()> {
        debug_assert!(range.start < range.end && range.end <= self.bytes);
        let from = range.start - range.start % MAP_BYTES;
        let len = (range.end - from).next_multiple_of(MAP_BYTES);
        // SAFETY: in the mapping, which ends at a page; msync changes no byte of it.
        unsafe { msync(self.base.as_ptr().add(from).cast(), len, MsyncFlags::SYNC)? };
        Ok(())
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: mapped by the callers of `new` with this length, and nobody uses it any more. A
        // failure would leave it mapped, which is harmless.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.bytes) };
    }
}

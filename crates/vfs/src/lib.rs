//! A virtual file system: the storage interface of the engines.
//!
//! A [`Vfs`] is a directory of named files with positioned reads and writes, syncs, atomic rename
//! and hole punching; a [`File`] is one of them. Every request names its [`Purpose`]. Durability is
//! part of the contract:
//!
//! * Bytes written to a file are durable after [`File::sync`] has returned.
//! * Created, renamed and removed names are durable after [`Vfs::sync_dir`] has returned. Syncing a
//!   file does not make its name durable.
//! * A power cut may keep any subset of the sectors (512 bytes) written since the last sync, in any
//!   order. If a file grew and a sector of the new part was not kept, it may have any content.
//! * After a failed sync, the state of everything it covers is unknown. A later successful sync
//!   does not change that.
//!
//! [`Vfs::map`] maps a file as byte-addressable memory, with its own rules: see [`pmem`].
//!
//! | module | content |
//! | --- | --- |
//! | [`disk`] | [`Disk`]: a directory of the operating system's file system |
//! | [`ram`] | [`Ram`]: a directory in memory, with copy-on-write forks |
//! | [`overlay`] | [`Overlay`]: a read-only view of a directory that keeps writes in memory |
//! | [`pinned`] | [`PinnedDirectory`]: a directory as of one moment, in open files |
//! | [`fail_stop`] | [`FailStopVfs`]: after a failed sync of a directory no later one succeeds |
//! | `encrypted` | `EncryptedVfs`: encryption at rest (feature `encryption`) |
//! | [`metered`] | [`MeteredVfs`]: counts requests and bytes by purpose |
//! | [`directory_sink`] | [`DirectorySink`]: a checkpoint of a table in another directory |
//! | [`device`] | [`Device`]: a model of the busy time of a device from counted requests |
//! | [`backend`] | shared parts for crates that implement [`Vfs`] |
//! | `zeros` | [`is_zero`]: whether bytes are zeros |
//! | `system` | what the operating system offers, in one module per form: Linux, and portable |
//! | [`pmem`] | [`Mapping`] and [`PmemPool`]: byte-addressable memory, persist barriers, pages |

use std::any::Any;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Error, IoCounters, Purpose, Result};

pub mod backend;
mod bytes;
pub mod device;
pub mod directory_sink;
pub mod disk;
#[cfg(feature = "encryption")]
pub mod encrypted;
pub mod fail_stop;
pub mod metered;
mod names;
pub mod overlay;
pub mod pinned;
pub mod pmem;
pub mod ram;
mod system;
mod zeros;

use bytes::end_of;
use names::fault;

pub use device::Device;
pub use directory_sink::DirectorySink;
pub use disk::{Disk, DiskOptions};
#[cfg(feature = "encryption")]
pub use encrypted::EncryptedVfs;
pub use fail_stop::FailStopVfs;
pub use metered::MeteredVfs;
pub use overlay::Overlay;
pub use pinned::PinnedDirectory;
pub use pmem::{Mapping, Page, PageClaims, PageMut, PmemPool};
pub use ram::Ram;
pub use zeros::is_zero;

/// The magic number of an encrypted file.
pub const ENCRYPTED_MAGIC: &[u8; 8] = b"SILTCRYP";

/// Where an encrypted file has its magic number, twice, so that one survives damage.
pub const ENCRYPTED_MAGIC_OFFSETS: [u64; 2] = [64, 2112];

/// What [`File::read_lossy_at`] fills damaged ranges with.
pub const FILLER: u8 = 0xEE;

/// A directory of named files.
///
/// A name has 1 to 255 bytes without `/` or NUL, and is neither `.` nor `..`; any other name is
/// rejected with `Io` of kind `InvalidInput`. The supertrait `Any` lets [`link`](Vfs::link) check
/// whether its target is of the same type.
pub trait Vfs: Any + Send + Sync {
    /// The directory's name in messages.
    fn name(&self) -> String;

    /// Creates an empty file for reading and writing. Fails if `name` exists.
    fn create(&self, name: &str) -> Result<Arc<dyn File>>;

    /// Creates a file that grows by many small appends, such as a log. Space past its end may be
    /// preallocated: until [`File::trim_preallocation`], and permanently after a crash, other
    /// handles may see zeros past its end.
    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        self.create(name)
    }

    /// Opens an existing file for reading, or for reading and writing.
    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>>;

    /// Whether the file exists.
    fn exists(&self, name: &str) -> Result<bool>;

    /// The names of all files, sorted. Subdirectories are not listed.
    fn list(&self) -> Result<Vec<String>>;

    /// Removes a file. Open handles can still read it.
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames a file, atomically replacing a file of the new name.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Makes creations, renames and removals in this directory durable.
    fn sync_dir(&self, purpose: Purpose) -> Result<()>;

    /// The subdirectory `name`, created (durably, in this directory) if it does not exist.
    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>>;

    /// The existing subdirectory `name`. Nothing is created.
    fn existing_subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        match self.has_subdirectory(name)? {
            true => self.subdirectory(name),
            false => {
                Err(fault("open directory", names::join(&self.name(), name), ErrorKind::NotFound))
            }
        }
    }

    /// The names of all subdirectories, sorted.
    fn subdirectories(&self) -> Result<Vec<String>>;

    /// Whether there is a subdirectory `name`.
    fn has_subdirectory(&self, name: &str) -> Result<bool> {
        Ok(self.subdirectories()?.iter().any(|found| found == name))
    }

    /// Removes a subdirectory and its contents. Reads through open handles of its files may fail
    /// from then on.
    fn remove_subdirectory(&self, name: &str) -> Result<()>;

    /// Takes an exclusive lock on the lock file `name`, held until the guard is dropped. The
    /// operating system releases it when the process ends.
    ///
    /// # Errors
    /// [`Error::Locked`] if another process holds it, or this one.
    fn lock(&self, name: &str) -> Result<LockGuard>;

    /// Takes a shared lock on the lock file `name`, where the backend supports it. Nothing is
    /// written: if there is no lock file, there is no holder.
    ///
    /// # Errors
    /// [`Error::Locked`] if the lock is held exclusively.
    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        if self.exists(name)? { self.lock(name) } else { Ok(LockGuard::new(())) }
    }

    /// Links the file `name` as `to_name` in `target` without copying, if both are of the same type
    /// and support it (`false`: copy it). The bytes must not change afterwards. The new name is
    /// durable once `target` is synced.
    ///
    /// # Errors
    /// `Io`: no such file, or `to_name` exists.
    fn link(&self, _name: &str, _target: &dyn Vfs, _to_name: &str) -> Result<bool> {
        Ok(false)
    }

    /// The directory that this one wraps, where files are linked to; `None`: this one itself.
    fn link_target(&self) -> Option<&dyn Vfs> {
        None
    }

    /// Maps the file `name` as byte-addressable memory of `bytes` bytes. A missing file is created
    /// with zeros; a shorter one (left by a power cut during creation) is extended with zeros.
    /// Earlier writes to the file are made durable; a new name is durable after
    /// [`sync_dir`](Vfs::sync_dir). While the mapping exists, the file can be read through
    /// [`open`](Vfs::open), where words change one by one, and must not be written; backends reject
    /// that if they can detect it.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is mapped already, here or by another process; `Refused` if it is
    /// longer; `Io` of kind `StorageFull` if there is no space for the file, and of kind
    /// `Unsupported` if the backend has no such memory.
    fn map(&self, name: &str, _bytes: u64) -> Result<Mapping> {
        let reason = "this directory has no byte-addressable memory";
        let source = std::io::Error::new(std::io::ErrorKind::Unsupported, reason);
        Err(Error::io("map", name, &source))
    }

    /// Maps an existing file of exactly `bytes` bytes privately (copy on write): stores do not
    /// change the file, and pages that are not stored to take no memory. Needs only read access,
    /// and others may map it at the same time. `None` if the backend does not support it.
    ///
    /// # Errors
    /// As from [`map`](Vfs::map).
    fn map_private(&self, _name: &str, _bytes: u64) -> Result<Option<Mapping>> {
        Ok(None)
    }

    /// A directory elsewhere in the operating system's file system, created (durably, with its
    /// parents) if it does not exist, and accessed like this one: with the same options, and
    /// unmodified if this is an overlay.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        Ok(Arc::new(Disk::create(path)?))
    }

    /// Whether files only grow, by writes at their end: all other writes are rejected.
    fn is_append_only(&self) -> bool {
        false
    }

    /// The path in the operating system's file system, if there is one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Counts of requests and bytes, if this backend counts them.
    fn counters(&self) -> Option<Arc<IoCounters>> {
        None
    }

    /// The files that the operating system has open for this directory and those that share its
    /// limit, if there is one.
    fn open_files(&self) -> Option<OpenFileCounts> {
        None
    }
}

/// Open files of the operating system: see [`DiskOptions::max_open_files`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OpenFileCounts {
    /// Files that are open now.
    pub open: u64,
    /// The maximum, as far as idle and synced files are concerned.
    pub max_open: u64,
    /// Files that were closed because there were too many.
    pub evictions: u64,
    /// Files that were opened again.
    pub reopens: u64,
}

impl OpenFileCounts {
    /// The counts by their names in the statistics of a table. They are those of the store.
    pub fn counters(self) -> [(&'static str, u64); 4] {
        [
            ("store_open_files", self.open),
            ("store_max_open_files", self.max_open),
            ("store_file_evictions", self.evictions),
            ("store_file_reopens", self.reopens),
        ]
    }
}

/// A file with positioned I/O, for any number of concurrent threads.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `Io` of kind `UnexpectedEof` if the range ends past the end of the file.
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()>;

    /// As [`read_at`](File::read_at), for a reader that looks for what is intact, as the recovery
    /// of a log does: where the backend itself finds damage, in place of an error the bytes are
    /// [`FILLER`].
    ///
    /// # Errors
    /// As from [`read_at`](File::read_at).
    fn read_lossy_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.read_at(offset, buf, purpose)
    }

    /// Writes all of `bytes` at `offset`. Past the end the file grows; a gap reads as zeros.
    ///
    /// # Errors
    /// After an error the range may hold any mix of old and new sectors.
    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Makes all earlier writes to the file and its length durable.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Whether the file has been removed by anyone, so that its content is lost with the last
    /// handle. Backends that cannot detect it return `false`.
    fn is_removed(&self) -> Result<bool> {
        Ok(false)
    }

    /// Allows the backend to close the underlying file while it is idle and every byte is synced,
    /// or could be synced just before, and to open it again when it is used. A write that fails
    /// because of that ([`Error::is_failed_reopen`]) has changed nothing. Files that are opened for
    /// reading are always treated so.
    fn allow_close(&self) {}

    /// Starts writing dirty data to the device, so that a later [`sync`](File::sync) has less to
    /// do. A hint: it makes nothing durable, its errors are reported by the sync, and backends may
    /// do nothing.
    fn begin_sync(&self) {}

    /// Starts reading a range from the device, so that a later read of it waits less. A hint, as
    /// [`begin_sync`](File::begin_sync) is. Cost: where the bytes are in memory, that of a system
    /// call.
    fn begin_read(&self, _offset: u64, _bytes: u64) {}

    /// The fixed cost of a read request, as the number of further bytes that could be read in the
    /// same time. A reader of several pieces reads over gaps that are smaller than this. Small
    /// where a read is a copy, larger where it is a system call.
    fn seek_cost_bytes(&self) -> u64 {
        2 << 10
    }

    /// The length in bytes.
    fn len(&self) -> Result<u64>;

    /// The offset of the first byte at or after `offset` that may be non-zero; the length if there
    /// is none. The skipped range was never written, or was deallocated by
    /// [`punch_hole`](File::punch_hole). Backends that do not know return `offset`.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }

    /// Whether the length is zero.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Truncates, or extends with zeros, to `len` bytes.
    fn set_len(&self, len: u64) -> Result<()>;

    /// Announces that about `bytes` will be appended to this empty file in small pieces, so that
    /// the backend can preallocate them, the first `now` of them before it returns. A hint for
    /// files of
    /// [`Vfs::create_append`]; others do nothing.
    fn preallocate(&self, _bytes: u64, _now: u64) {}

    /// Releases the space preallocated past the end, because the file will not grow for now.
    fn trim_preallocation(&self) -> Result<()> {
        Ok(())
    }

    /// Reserves space for the first `len` bytes without changing the length. A hint: backends that
    /// cannot reserve do nothing.
    fn reserve(&self, len: u64) -> Result<()>;

    /// Deallocates a range, which then reads as zeros. The length is unchanged.
    ///
    /// # Errors
    /// `Io` of kind `Unsupported` if the backend cannot do it; nothing has changed.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()>;
}

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// For reading only.
    Read,
    /// For reading and writing.
    ReadWrite,
}

impl Mode {
    /// Checks that a file opened in this mode may change in `len` bytes from `offset` on.
    ///
    /// # Errors
    /// [`Error::Io`] if it is opened for reading only, or the end is not a valid length.
    pub fn check_change(
        self,
        operation: &'static str,
        name: &str,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        match self {
            Mode::Read => Err(fault(operation, name, ErrorKind::PermissionDenied)),
            Mode::ReadWrite if end_of(offset, len).is_none() => {
                Err(fault(operation, name, ErrorKind::InvalidInput))
            }
            Mode::ReadWrite => Ok(()),
        }
    }
}

/// A lock, released when it is dropped.
pub struct LockGuard {
    _hold: Box<dyn Any + Send + Sync>,
}

impl LockGuard {
    /// For backends: a guard that releases the lock by dropping `hold`.
    pub fn new(hold: impl Any + Send + Sync) -> Self {
        LockGuard { _hold: Box::new(hold) }
    }
}

/// The error of a sync of a file that was removed while it was open: its content is lost.
pub fn removed_error(file: &str) -> Error {
    let reason = "it was removed while it was open, and what is written to it is lost: stop the process, and \
                  restore the directory from a copy";
    Error::io("sync", file, &std::io::Error::new(std::io::ErrorKind::NotFound, reason))
}

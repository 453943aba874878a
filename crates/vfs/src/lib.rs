//! Where bytes live.
//!
//! A [`Vfs`] is a directory of named files with positioned reads and writes, syncs, atomic rename
//! and hole punching; a [`File`] is one of them. Every request names its [`Purpose`]. What follows
//! a crash is part of the contract:
//!
//! * Bytes written to a file are durable after its [`File::sync`] returned.
//! * Creating, renaming and removing names is durable after [`Vfs::sync_dir`] returned; a file's
//!   bytes don't make its name durable.
//! * Between syncs a power cut may keep any subset of the written sectors (512 bytes), in any order. Where a file became
//!   longer and what was written there is not kept there may be anything.
//! * After a failed sync nothing is known of what it covered; a later success doesn't repair that.
//!
//! [`Vfs::map`] makes byte-addressable memory of a file, with rules of its own: see [`pmem`].
//!
//! | module | one idea |
//! | --- | --- |
//! | [`disk`] | [`Disk`]: a directory of the machine's file system |
//! | [`ram`] | [`Ram`]: the same in memory, forked in no time |
//! | [`overlay`] | [`Overlay`]: any medium, left as it is: what is written is kept in memory |
//! | [`metered`] | [`Metered`]: any medium, with requests and bytes counted by purpose |
//! | [`device`] | [`Device`]: from counted requests to the time a device would have been busy |
//! | [`backend`] | shared parts for crates that implement [`Vfs`] |
//! | [`pmem`] | [`Mapping`] and [`PmemPool`]: byte-addressable memory, persist barriers, pages |

use std::any::Any;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Error, IoCounters, Purpose, Result};

pub mod backend;
mod bytes;
pub mod device;
pub mod disk;
pub mod metered;
mod names;
pub mod overlay;
pub mod pmem;
pub mod ram;

pub use device::Device;
pub use disk::{Disk, DiskOptions};
pub use metered::Metered;
pub use overlay::Overlay;
pub use pmem::{Mapping, Page, PageClaims, PageMut, PmemPool};
pub use ram::Ram;

/// A directory of named files.
///
/// A name is one to 255 bytes without `/` or NUL, and neither `.` nor `..`; any other is refused
/// with `Io` of kind `InvalidInput`. `Any` is there so that [`link`](Vfs::link) can tell whether
/// its target is of its own kind.
pub trait Vfs: Any + Send + Sync {
    /// What to call this directory in messages.
    fn name(&self) -> String;

    /// Creates an empty file for reading and writing. Fails if `name` is there.
    fn create(&self, name: &str) -> Result<Arc<dyn File>>;

    /// The same for a file that will grow by many small appends, as a log does. The medium may have more
    /// of it ready than was written: until [`File::trim_preallocation`], and for ever if the process dies before,
    /// whoever opens it may find zeros behind its end.
    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        self.create(name)
    }

    /// Opens a file that is there, for reading, and for writing if `mode` says so.
    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>>;

    /// Whether the file is there.
    fn exists(&self, name: &str) -> Result<bool>;

    /// The names of all files, sorted. Subdirectories are not listed.
    fn list(&self) -> Result<Vec<String>>;

    /// Removes a file. Open handles go on reading it.
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames a file, atomically replacing what bore the new name.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// Makes creations, renames and removals in this directory durable.
    fn sync_dir(&self, purpose: Purpose) -> Result<()>;

    /// The subdirectory `name`, created (durably, in this directory) if it is not there.
    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>>;

    /// The names of all subdirectories, sorted.
    fn subdirectories(&self) -> Result<Vec<String>>;

    /// Removes a subdirectory and all in it.
    fn remove_subdirectory(&self, name: &str) -> Result<()>;

    /// Takes the lock file `name`, which no other process (nor this one twice) can have until the
    /// guard is dropped. The operating system frees it when the process dies.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is taken.
    fn lock(&self, name: &str) -> Result<LockGuard>;

    /// Takes the lock file `name` along with others who do so, where the medium can; nobody has it for himself
    /// meanwhile. Nothing is changed: where there is no such file there is nobody to keep out.
    ///
    /// # Errors
    /// [`Error::Locked`] if somebody has it for himself.
    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        if self.exists(name)? { self.lock(name) } else { Ok(LockGuard::new(())) }
    }

    /// Gives this directory's file `name` a second name `to_name` in `target` without copying, if
    /// both are the same kind of medium and it can (`false`: copy). The bytes must not change
    /// afterwards; the new name is durable once `target` was synced.
    ///
    /// # Errors
    /// `Io`: no such file, or `to_name` is taken.
    fn link(&self, _name: &str, _target: &dyn Vfs, _to_name: &str) -> Result<bool> {
        Ok(false)
    }

    /// Maps the file `name` as byte-addressable memory of `bytes` bytes: created with zeros if it is
    /// not there, extended with zeros if it is shorter (a power cut while it was created). What was
    /// written to it before is durable; a new name is after [`sync_dir`](Vfs::sync_dir). Until the
    /// mapping is dropped the file can be read through [`open`](Vfs::open), word by word as it
    /// changes, and must not be written; media refuse that where they can tell.
    ///
    /// # Errors
    /// [`Error::Locked`] if it is mapped already, here or by another process; `Refused` if it is
    /// longer; `Io`: the medium's, of kind `StorageFull` if it has no room for the file and
    /// `Unsupported` if it has no such memory.
    fn map(&self, name: &str, _bytes: u64) -> Result<Mapping> {
        let reason = "this medium has no byte-addressable memory";
        let source = std::io::Error::new(std::io::ErrorKind::Unsupported, reason);
        Err(Error::io("map", name, &source))
    }

    /// As [`map`](Vfs::map), of a file that is there with as many bytes, for the caller alone: nothing that is
    /// stored changes the file, and what is not stored to takes no memory. Rights to read it are enough, and others
    /// may do the same meanwhile. `None` if the medium cannot.
    ///
    /// # Errors
    /// As from [`map`](Vfs::map).
    fn map_private(&self, _name: &str, _bytes: u64) -> Result<Option<Mapping>> {
        Ok(None)
    }

    /// A directory somewhere else on the machine's file system, created (durably, with its parents) if it is not
    /// there, and used as this medium is used: with the same options, left as it is if this one is.
    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        Ok(Arc::new(Disk::create(path)?))
    }

    /// The path on the machine's file system, if there is one.
    fn path(&self) -> Option<&Path> {
        None
    }

    /// Requests and bytes so far, where this medium counts them.
    fn counters(&self) -> Option<Arc<IoCounters>> {
        None
    }
}

/// One file: positioned I/O, any number of threads at once.
pub trait File: Send + Sync {
    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// `Io` of kind `UnexpectedEof` if the file ends before.
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()>;

    /// Writes all of `bytes` at `offset`; past the end the file grows (a gap reads as zeros).
    ///
    /// # Errors
    /// After an error the range may hold any mix of old and new sectors.
    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()>;

    /// Makes everything written to the file so far durable, its length too.
    fn sync(&self, purpose: Purpose) -> Result<()>;

    /// Whether the file was removed, by whomever: it has no name any more, and nobody will find it
    /// when this handle is gone. Vfs that cannot tell answer `false`.
    fn is_removed(&self) -> Result<bool> {
        Ok(false)
    }

    /// Has the medium begin to write what is there, so that a later [`sync`](File::sync) finds less to do.
    /// A hint: nothing is durable by it, what fails is told by the sync, and media may do nothing.
    fn begin_sync(&self) {}

    /// What a request for bytes to read costs beside the bytes: about as many as could be read on in the same
    /// time. Whoever wants pieces that lie closer together than this reads over the gap. Little where
    /// reading is copying, more where it is a call.
    fn seek_cost_bytes(&self) -> u64 {
        2 << 10
    }

    /// The length in bytes.
    fn len(&self) -> Result<u64>;

    /// Where the first byte at `offset` or behind it is that may not be zero; the length if there is none. What
    /// is skipped was never written, or given back by [`punch_hole`](File::punch_hole). Vfs that do not know
    /// answer `offset`.
    fn next_data(&self, offset: u64) -> Result<u64> {
        Ok(offset)
    }

    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends (with zeros) to `len` bytes.
    fn set_len(&self, len: u64) -> Result<()>;

    /// About `bytes` will be appended to this file, which is empty, in small pieces: the medium may begin
    /// to make them ready, the first `now` of them before it returns. A hint for files of
    /// [`Vfs::create_append`]; others do nothing.
    fn preallocate(&self, _bytes: u64, _now: u64) {}

    /// It grows no more for now: gives back what was ready behind its end.
    fn trim_preallocation(&self) -> Result<()> {
        Ok(())
    }

    /// Reserves space on the medium for the first `len` bytes without changing the length. A hint:
    /// media that cannot do it do nothing.
    fn reserve(&self, len: u64) -> Result<()>;

    /// Gives the space of a range back; it reads as zeros. The length stays.
    ///
    /// # Errors
    /// `Io` of kind `Unsupported` if the medium cannot; nothing has changed.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()>;
}

/// What a file is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Reading alone.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// Holds a lock file until it is dropped.
pub struct LockGuard {
    _hold: Box<dyn Any + Send + Sync>,
}

impl LockGuard {
    /// For media: a guard that releases the lock by dropping `hold`.
    pub fn new(hold: impl Any + Send + Sync) -> Self {
        LockGuard { _hold: Box::new(hold) }
    }
}

/// That a file was removed by somebody else while it was written to: what is synced to it is lost.
pub fn removed(file: &str) -> Error {
    let reason = "it was removed while it was open, and what is written to it is lost: stop the process, and \
                  restore the directory from a copy";
    Error::io("sync", file, &std::io::Error::new(std::io::ErrorKind::NotFound, reason))
}

//! A file of the operating system's file system as byte-addressable memory.
//!
//! The file is locked, extended to its length with all space reserved (on persistent memory a store
//! without space cannot fail but kills the process), synced, and mapped.
//!
//! If the file is not on persistent memory, reads use the mapping and stores are `pwrite`s, which
//! are coherent. A store through the mapping would cost a page fault per page and, at each persist,
//! an interrupt of every CPU that uses the mapping. A table in memory has a thousand pages, and
//! writers waited for these interrupts (`siltstone-experiments repro run write-stalls`). In the
//! portable form reads use a copy of the file in memory, which stores change, too.
//!
//! Invariant: the lock is held from before the mapping is created until it is gone, so a file has
//! one mapping among all processes that follow this protocol. (A process that does not, and
//! truncates the file, kills those that have it mapped.)

use std::io::ErrorKind;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};

use super::fault::disk_fault;
use super::lock::{self, FileLock};
use super::open_files::OpenFiles;
use crate::pmem::{Backing, MappedMemory, Mapping, Memory, VolatileBacking, narrow, too_long};
use crate::system;

/// Maps the file at a canonical path.
pub(super) fn map(files: &OpenFiles, path: &Path, bytes: u64) -> Result<Mapping> {
    let fault = |operation: &'static str| move |error| disk_fault(operation, path, error);
    let held = lock::lock(files, path.to_owned())?;
    let file = held.file();
    let metadata = file.metadata().map_err(fault("get length of"))?;
    let name = path.display().to_string();
    if metadata.len() > bytes {
        return Err(too_long(&name, metadata.len(), bytes));
    }
    if metadata.len() < bytes {
        reserve(file, bytes).map_err(fault("reserve space for"))?;
        file.set_len(bytes).map_err(fault("set length of"))?;
    }
    file.sync_all().map_err(fault("sync"))?;
    let len = usize::try_from(bytes).map_err(|_| fault("map")(ErrorKind::OutOfMemory.into()))?;
    let memory = Memory::of_file(file, len).map_err(fault("map"))?;
    let backing = DiskBacking { name: name.clone(), held };
    Ok(Mapping::new(name, Arc::new(memory), Box::new(backing)))
}

/// Maps the file at a canonical path privately, shared with other private mappings. `None` if there
/// is no file of this length.
pub(super) fn map_private(files: &OpenFiles, path: &Path, bytes: u64) -> Result<Option<Mapping>> {
    let fault = |operation: &'static str| move |error| disk_fault(operation, path, error);
    let Some(held) = lock::share(files, path.to_owned())? else { return Ok(None) };
    if held.file().metadata().map_err(fault("get length of"))?.len() != bytes {
        return Ok(None);
    }
    let len = usize::try_from(bytes).map_err(|_| fault("map")(ErrorKind::OutOfMemory.into()))?;
    let Some(memory) = Memory::private(held.file(), len).map_err(fault("map"))? else {
        return Ok(None);
    };
    let name = path.display().to_string();
    Ok(Some(Mapping::new(name, Arc::new(memory), Box::new(VolatileBacking(held)))))
}

/// Reserves space. If the file system cannot, the file has holes and a store reports a full disk.
fn reserve(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    match system::allocate(file, 0, bytes) {
        Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
        done => done,
    }
}

struct DiskBacking {
    name: String,
    held: FileLock,
}

impl Backing for DiskBacking {
    fn store(
        &self,
        memory: &MappedMemory<'_>,
        offset: u64,
        bytes: &[u8],
        _purpose: Purpose,
    ) -> Result<()> {
        if memory.is_persistent() {
            memory.store(offset, bytes);
            return Ok(());
        }
        let done = system::write_all_at(self.held.file(), bytes, offset);
        done.map_err(|error| disk_fault("store to", Path::new(&self.name), error))?;
        if memory.is_copy() {
            memory.store(offset, bytes);
        }
        Ok(())
    }

    fn persist(
        &self,
        memory: &MappedMemory<'_>,
        ranges: &[Range<u64>],
        _purpose: Purpose,
    ) -> Result<()> {
        let done = match memory.is_copy() {
            true => self.held.file().sync_data(),
            false => memory.write_back(&narrow(ranges)),
        };
        done.map_err(|error| disk_fault("persist", Path::new(&self.name), error))
    }
}

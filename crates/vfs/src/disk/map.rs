//! A file of the machine's file system as byte-addressable memory.
//!
//! The file is locked, brought to its length with all its space reserved (on persistent memory a store that
//! finds no space cannot fail, it kills the process), synced, and mapped.
//!
//! Where the file is not on persistent memory, the mapping is read, and stores are writes to the file, which
//! both show at once. A page that is stored to through a mapping costs more than its bytes: a fault when it is
//! first touched, and, when it is made durable, an interrupt of each other processor that has it mapped. A row has a
//! thousand pages, and a writer waited for them (`siltstone repro run write-stalls`).
//!
//! Invariant: the lock is held from before the mapping is made until after it is gone, so a file has
//! one mapping among all processes that keep to this. (One that does not, and cuts the file, kills
//! those that have it mapped: that is how the system works.)
//!
//! Source: ours.

use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;
use siltstone_engine::{Purpose, Result};

use super::disk_fault;
use super::lock::{self, Held};
use crate::pmem::{Backing, Holding, MappedMemory, Mapping, Memory, narrow, too_long};

/// Maps the file at a canonical path.
pub(super) fn map(path: &Path, bytes: u64) -> Result<Mapping> {
    let fault = |operation: &'static str| move |error| disk_fault(operation, path, error);
    let held = lock::lock(path.to_owned())?;
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
    let len = usize::try_from(bytes).map_err(|_| fault("map")(Errno::NOMEM.into()))?;
    let memory = Memory::of_file(file, len).map_err(fault("map"))?;
    let backing = DiskBacking { name: name.clone(), held };
    Ok(Mapping::new(name, Arc::new(memory), Box::new(backing)))
}

/// Maps the file at a canonical path along with others who do so, and stores nothing to it; `None` if there is none
/// of so many bytes.
pub(super) fn map_private(path: &Path, bytes: u64) -> Result<Option<Mapping>> {
    let fault = |operation: &'static str| move |error| disk_fault(operation, path, error);
    let Some(held) = lock::share(path.to_owned())? else { return Ok(None) };
    if held.file().metadata().map_err(fault("get length of"))?.len() != bytes {
        return Ok(None);
    }
    let len = usize::try_from(bytes).map_err(|_| fault("map")(Errno::NOMEM.into()))?;
    let memory = Memory::apart(held.file(), len).map_err(fault("map"))?;
    let name = path.display().to_string();
    Ok(Some(Mapping::new(name, Arc::new(memory), Box::new(Holding(held)))))
}

/// Where the file system cannot reserve, the file has holes, and a full disk is known by the store that meets it.
fn reserve(file: &std::fs::File, bytes: u64) -> std::io::Result<()> {
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

struct DiskBacking {
    name: String,
    held: Held,
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
        let done = self.held.file().write_all_at(bytes, offset);
        done.map_err(|error| disk_fault("store to", Path::new(&self.name), error))
    }

    fn persist(
        &self,
        memory: &MappedMemory<'_>,
        ranges: &[Range<u64>],
        _purpose: Purpose,
    ) -> Result<()> {
        let done = memory.write_back(&narrow(ranges));
        done.map_err(|error| disk_fault("persist", Path::new(&self.name), error))
    }
}

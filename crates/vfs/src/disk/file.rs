//! A file of the operating system's file system.
//!
//! Positioned I/O on a [`Descriptor`], which may be closed between requests and opened again. Calls
//! continue after interrupts and short transfers. With direct reads, reads use a second
//! descriptor of the operating system, or, for a file that is only read, the only one.
//!
//! Invariant: a read that returned `Ok` filled the whole buffer; a write that returned `Ok` passed
//! all bytes to the kernel.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use siltstone_engine::{Error, Purpose, Result};

use super::descriptor::{Descriptor, OpenFile, OpenFileGuard};
use super::fault::disk_fault;
use crate::{File, system};

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
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    pub(super) fn name(&self) -> String {
        self.descriptor.path().display().to_string()
    }

    /// Writes to the open file of this one.
    pub(super) fn write(&self, open: &OpenFile, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = system::write_all_at(&open.file, bytes, offset);
        self.descriptor.mark_unsynced();
        written.map_err(|error| self.fault("write", error))
    }

    /// Notes that bytes were stored through a mapping, while the guard of [`open`](Self::open) was
    /// held.
    #[cfg(all(target_os = "linux", not(siltstone_portable)))]
    pub(super) fn mark_unsynced(&self) {
        self.descriptor.mark_unsynced();
    }

    fn fault(&self, operation: &'static str, error: std::io::Error) -> Error {
        disk_fault(operation, self.descriptor.path(), error)
    }

    /// Runs `change` on the open file.
    fn change<T>(&self, change: impl FnOnce(&std::fs::File) -> T) -> Result<T> {
        let open = self.open()?;
        let changed = change(&open.file);
        self.descriptor.mark_unsynced();
        Ok(changed)
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
            None => system::read_exact_at(&open.file, buf, offset),
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

    fn is_removed(&self) -> Result<bool> {
        if let Some(is_removed) = self.descriptor.is_removed_while_closed()? {
            return Ok(is_removed);
        }
        let links = system::links(&self.open()?.file);
        Ok(links.map_err(|error| self.fault("get links of", error))? == Some(0))
    }

    fn allow_close(&self) {
        self.descriptor.allow_close();
    }

    fn begin_sync(&self) {
        let Ok(open) = self.open() else { return };
        let len = open.file.metadata().map_or(0, |metadata| metadata.len());
        let begun = self.written_back_to.swap(len, Relaxed);
        if begun < len {
            system::start_write_back(&open.file, begun, len - begun);
        }
    }

    /// Nothing with direct reads: the page cache is not read.
    fn begin_read(&self, offset: u64, bytes: u64) {
        if let Ok(open) = self.open()
            && open.direct().is_none()
        {
            system::start_read(&open.file, offset, bytes);
        }
    }

    fn seek_cost_bytes(&self) -> u64 {
        SEEK_COST_BYTES
    }

    fn len(&self) -> Result<u64> {
        let metadata = self.open()?.file.metadata();
        Ok(metadata.map_err(|error| self.fault("get length of", error))?.len())
    }

    fn next_data(&self, offset: u64) -> Result<u64> {
        let data = system::next_data(&self.open()?.file, offset);
        data.map_or_else(|| self.len(), Ok)
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.change(|file| file.set_len(len))?.map_err(|error| self.fault("set length of", error))
    }

    /// Does nothing if the file system cannot reserve. Reports a full disk.
    fn reserve(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let reserved = system::reserve(&self.open()?.file, len);
        reserved.map_err(|error| self.fault("reserve space for", error))
    }

    /// An error without effect if the file system has no holes. Writing zeros would not free space.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let punched = self.change(|file| system::punch_hole(file, offset, len))?;
        punched.map_err(|error| self.fault("punch hole in", error))
    }
}

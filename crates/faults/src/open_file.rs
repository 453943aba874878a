//! An open file: each request asks the fault plan for a verdict, and succeeds or fails accordingly.
//!
//! Invariant: bytes change only under the shared lock, which is taken before the request gets its
//! number.

use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};
use siltstone_vfs::backend::{end_of, fault};
use siltstone_vfs::{File, Mode};

use super::FaultKind;
use super::file::{FileState, Preallocation, SharedFile, parts};
use super::file_system::FileSystem;
use super::plan::Verdict;

pub(super) struct FaultyFile {
    pub(super) fs: Arc<Mutex<FileSystem>>,
    pub(super) state: SharedFile,
    pub(super) name: String,
    pub(super) mode: Mode,
    /// This handle appends: it alone sees the end of the written bytes.
    pub(super) grows: bool,
}

/// Zeros that other handles see past the end of an append file.
const VISIBLE_PREALLOCATION_BYTES: u64 = 5000;

impl FaultyFile {
    /// The length of the file as seen through this handle, in bytes.
    fn visible_len(&self, file: &FileState) -> u64 {
        let has_more = file.preallocation == Preallocation::Present && !self.grows;
        file.current.len() + if has_more { VISIBLE_PREALLOCATION_BYTES } else { 0 }
    }

    /// Returns an error if the file is mapped: then it changes only through its mapping.
    fn check_free(&self, operation: &'static str, file: &FileState) -> Result<()> {
        match file.mapped.strong_count() {
            0 => Ok(()),
            _ => Err(fault(operation, &*self.name, ErrorKind::ResourceBusy)),
        }
    }

    /// Applies a change, unless the request fails.
    fn change(
        &self,
        operation: &'static str,
        change: impl FnOnce(&mut FileState, u64),
    ) -> Result<()> {
        let mut fs = self.fs.lock();
        fs.plan.admit(FaultKind::Write).or_fail(operation, &self.name)?;
        let mut file = self.state.lock();
        self.check_free(operation, &file)?;
        change(&mut file, fs.next_sequence());
        Ok(())
    }
}

/// Writes a random subset of the sectors.
fn write_some(fs: &mut FileSystem, file: &mut FileState, offset: u64, bytes: &[u8]) {
    let sequence = fs.next_sequence();
    for part in parts(offset, bytes.len() as u64) {
        if fs.plan.random.coin() {
            file.write(sequence, part.offset(), &bytes[part.within(offset)]);
        }
    }
}

/// Writes the sectors that fit, in order.
fn write_prefix(fs: &mut FileSystem, file: &mut FileState, offset: u64, bytes: &[u8], room: u64) {
    let (mut room, mut fits) = (room, 0);
    for part in parts(offset, bytes.len() as u64) {
        let missing = file.current.missing_bytes(part.offset(), part.len());
        let Some(left) = room.checked_sub(missing) else { break };
        (room, fits) = (left, part.within(offset).end);
    }
    file.write(fs.next_sequence(), offset, &bytes[..fits]);
}

impl File for FaultyFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], _purpose: Purpose) -> Result<()> {
        let mut fs = self.fs.lock();
        fs.plan.admit(FaultKind::Read).or_fail("read", &self.name)?;
        let file = self.state.lock();
        let end = end_of(offset, buf.len() as u64).filter(|&end| end <= self.visible_len(&file));
        let there = file.current.len().saturating_sub(offset).min(buf.len() as u64) as usize;
        let (bytes, behind) = buf.split_at_mut(there);
        behind.fill(0);
        match end.is_some() && (bytes.is_empty() || file.current.read(offset, bytes)) {
            true => Ok(()),
            false => Err(fault("read", &*self.name, ErrorKind::UnexpectedEof)),
        }
    }

    fn write_at(&self, offset: u64, bytes: &[u8], _purpose: Purpose) -> Result<()> {
        self.mode.check_change("write", &self.name, offset, bytes.len() as u64)?;
        let mut fs = self.fs.lock();
        let verdict = fs.plan.admit(FaultKind::Write);
        // Before the file is locked: the computation locks every file.
        let room = fs.room();
        let mut file = self.state.lock();
        self.check_free("write", &file)?;
        match verdict {
            Verdict::Go => {
                if file.current.missing_bytes(offset, bytes.len() as u64) > room {
                    if fs.plan.torn_on_full {
                        write_prefix(&mut fs, &mut file, offset, bytes, room);
                    }
                    return Err(fault("write", &*self.name, ErrorKind::StorageFull));
                }
                file.write(fs.next_sequence(), offset, bytes);
            }
            // Survivors decide which of its sectors were written.
            Verdict::Cut => file.write(fs.next_sequence(), offset, bytes),
            Verdict::Fail(_) => write_some(&mut fs, &mut file, offset, bytes),
            Verdict::Off => {}
        }
        verdict.or_fail("write", &self.name)
    }

    fn sync(&self, _purpose: Purpose) -> Result<()> {
        let mut fs = self.fs.lock();
        let verdict = fs.plan.admit(FaultKind::Sync);
        let mut file = self.state.lock();
        match verdict {
            Verdict::Go => file.sync(),
            Verdict::Fail(_) => file.poison(),
            // Pending changes stay pending: any of them may have been written.
            Verdict::Cut | Verdict::Off => {}
        }
        drop(file);
        FileSystem::end_sync(fs, verdict, "sync", &self.name)
    }

    fn len(&self) -> Result<u64> {
        let fs = self.fs.lock();
        if fs.plan.power_is_off {
            Verdict::Off.or_fail("get length of", &self.name)?;
        }
        Ok(self.visible_len(&self.state.lock()))
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.mode.check_change("set length of", &self.name, len, 0)?;
        self.change("set length of", |file, sequence| {
            file.set_len(sequence, len);
            file.trim_preallocation();
        })
    }

    fn trim_preallocation(&self) -> Result<()> {
        self.state.lock().trim_preallocation();
        Ok(())
    }

    /// Only checks the free space; it is not reserved.
    fn reserve(&self, len: u64) -> Result<()> {
        self.mode.check_change("reserve space for", &self.name, 0, len)?;
        let mut fs = self.fs.lock();
        fs.plan.admit(FaultKind::Write).or_fail("reserve space for", &self.name)?;
        let room = fs.room();
        if room < u64::MAX && self.state.lock().current.missing_bytes(0, len) > room {
            return Err(fault("reserve space for", &*self.name, ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.mode.check_change("punch hole in", &self.name, offset, len)?;
        self.change("punch hole in", |file, sequence| file.punch_hole(sequence, offset, len))
    }
}

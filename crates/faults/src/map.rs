//! A file as byte-addressable memory.
//!
//! Views need memory that does not change, so the bytes are kept twice: in flat memory for readers,
//! and in the file's state, which knows what a power cut leaves. Corruption is applied to the state
//! and visible when the file is mapped again; changing bytes under a view would be undefined
//! behaviour.
//!
//! Mapping an existing file is one operation (a sync); mapping a missing one is three (create, set
//! the length, sync). A store and a persist are one operation each.
//!
//! Invariant: the flat bytes equal those of the state, except for corruption.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::Mapping;
use siltstone_vfs::backend::{Backing, MappedMemory, Node, fault, join, too_long};

use super::file::{FileState, SharedFile, parts};
use super::file_system::FileSystem;
use super::plan::Verdict;
use super::{FaultKind, FaultyVfs};

pub(super) fn map(vfs: &FaultyVfs, name: &str, bytes: u64) -> Result<Mapping> {
    let state = state_of(vfs, name)?;
    let name = join(&vfs.name, name);
    let is_short = {
        let file = state.lock();
        if file.mapped.strong_count() > 0 {
            return Err(Error::Locked { path: name, holder: Some(std::process::id()) });
        }
        if file.current.len() > bytes {
            return Err(too_long(&name, file.current.len(), bytes));
        }
        file.current.len() < bytes
    };
    let mut fs = vfs.fs.lock();
    if is_short {
        let operation = "set length of";
        fs.plan.admit(FaultKind::Write).or_fail(operation, &name)?;
        let room = fs.room();
        let mut file = state.lock();
        if file.current.missing_bytes(0, bytes) > room {
            return Err(fault("reserve space for", name, ErrorKind::StorageFull));
        }
        file.set_len(fs.next_sequence(), bytes);
    }
    let verdict = fs.plan.admit(FaultKind::Sync);
    let mut file = state.lock();
    // Checked again, because another thread may have mapped the file meanwhile.
    if file.mapped.strong_count() > 0 {
        return Err(Error::Locked { path: name, holder: Some(std::process::id()) });
    }
    match verdict {
        Verdict::Go => file.sync(),
        Verdict::Fail(_) => file.poison(),
        Verdict::Cut | Verdict::Off => {}
    }
    verdict.or_fail("sync", &name)?;
    let token = Arc::new(());
    let backing = FaultyBacking {
        fs: vfs.fs.clone(),
        state: state.clone(),
        name: name.clone(),
        _token: token.clone(),
    };
    let mapping = Mapping::anonymous(name, &file.current, bytes, Box::new(backing))?;
    file.mapped = Arc::downgrade(&token);
    Ok(mapping)
}

/// The file `name`, created if it does not exist.
fn state_of(vfs: &FaultyVfs, name: &str) -> Result<SharedFile> {
    let found = {
        let _lock = vfs.begin(FaultKind::Read, "map", name)?;
        let directory = vfs.directory.lock();
        match directory.current.get(name) {
            Some(_) => Some(directory.current.file("map", &vfs.name, name)?),
            None => None,
        }
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let (mut fs, mut directory) = vfs.begin_change("map", name)?;
    directory.current.check_free("map", &vfs.name, name)?;
    let state = SharedFile::new(Mutex::new(FileState::new(fs.next_id())));
    directory.bind(fs.next_sequence(), name, Some(Node::File(state.clone())));
    Ok(state)
}

struct FaultyBacking {
    fs: Arc<Mutex<FileSystem>>,
    state: SharedFile,
    name: String,
    _token: Arc<()>,
}

impl FaultyBacking {
    fn put(&self, fs: &mut FileSystem, memory: &MappedMemory<'_>, offset: u64, bytes: &[u8]) {
        memory.store(offset, bytes);
        self.state.lock().store(fs.next_sequence(), offset, bytes);
    }
}

impl Backing for FaultyBacking {
    fn store(
        &self,
        memory: &MappedMemory<'_>,
        offset: u64,
        bytes: &[u8],
        _purpose: Purpose,
    ) -> Result<()> {
        let mut fs = self.fs.lock();
        let verdict = fs.plan.admit(FaultKind::Write);
        match verdict {
            // Survivors decide which of its lines and words were written back.
            Verdict::Go | Verdict::Cut => self.put(&mut fs, memory, offset, bytes),
            Verdict::Fail(_) => {
                for part in parts(offset, bytes.len() as u64) {
                    if fs.plan.random.coin() {
                        let piece = &bytes[part.within(offset)];
                        self.put(&mut fs, memory, part.offset(), piece);
                    }
                }
            }
            Verdict::Off => {}
        }
        verdict.or_fail("store to", &self.name)
    }

    fn persist(
        &self,
        _memory: &MappedMemory<'_>,
        ranges: &[Range<u64>],
        _purpose: Purpose,
    ) -> Result<()> {
        let mut fs = self.fs.lock();
        let verdict = fs.plan.admit(FaultKind::Sync);
        let mut file = self.state.lock();
        match verdict {
            Verdict::Go => file.persist(ranges),
            Verdict::Fail(_) => file.poison_stores(ranges),
            // Pending stores stay pending: any of them may have been written back.
            Verdict::Cut | Verdict::Off => {}
        }
        verdict.or_fail("persist", &self.name)
    }
}

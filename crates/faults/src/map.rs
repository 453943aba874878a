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
use super::plan::Verdict;
use super::{FaultKind, FaultyVfs, World};

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
    let mut world = vfs.world.lock();
    if is_short {
        let operation = "set length of";
        world.plan.admit(FaultKind::Write).or_fail(operation, &name)?;
        let room = world.room();
        let mut file = state.lock();
        if file.current.missing_bytes(0, bytes) > room {
            return Err(fault("reserve space for", name, ErrorKind::StorageFull));
        }
        file.set_len(world.next_sequence(), bytes);
    }
    let verdict = world.plan.admit(FaultKind::Sync);
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
        world: vfs.world.clone(),
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
        let _world = vfs.begin(FaultKind::Read, "map", name)?;
        let directory = vfs.directory.lock();
        match directory.current.get(name) {
            Some(_) => Some(directory.current.file("map", &vfs.name, name)?),
            None => None,
        }
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let (mut world, mut directory) = vfs.begin_change("map", name)?;
    directory.current.check_free("map", &vfs.name, name)?;
    let state = SharedFile::new(Mutex::new(FileState::new(world.next_id())));
    directory.bind(world.next_sequence(), name, Some(Node::File(state.clone())));
    Ok(state)
}

struct FaultyBacking {
    world: Arc<Mutex<World>>,
    state: SharedFile,
    name: String,
    _token: Arc<()>,
}

impl FaultyBacking {
    fn put(&self, world: &mut World, memory: &MappedMemory<'_>, offset: u64, bytes: &[u8]) {
        memory.store(offset, bytes);
        self.state.lock().store(world.next_sequence(), offset, bytes);
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
        let mut world = self.world.lock();
        let verdict = world.plan.admit(FaultKind::Write);
        match verdict {
            // Survivors decide which of its lines and words were written back.
            Verdict::Go | Verdict::Cut => self.put(&mut world, memory, offset, bytes),
            Verdict::Fail(_) => {
                for part in parts(offset, bytes.len() as u64) {
                    if world.plan.random.coin() {
                        let piece = &bytes[part.within(offset)];
                        self.put(&mut world, memory, part.offset(), piece);
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
        let mut world = self.world.lock();
        let verdict = world.plan.admit(FaultKind::Sync);
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

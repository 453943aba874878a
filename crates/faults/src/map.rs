//! A file of a faulty medium as byte-addressable memory.
//!
//! Views need memory that stands still, so the bytes are kept twice: flat, for those who read them in
//! place, and in the file's state, which knows what a power cut leaves. Damage is done to the state,
//! and seen when the file is mapped anew: a medium that changed bytes under a view would break what
//! Rust promises, not what the medium does.
//!
//! Mapping a file that is there is one operation (a sync); one that is not, three (create, set the
//! length, sync). A store and a persist are one each.
//!
//! Invariant: the flat bytes are those of the state, but for damage.
//!
//! Source: ours.

use std::io::ErrorKind;
use std::ops::Range;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::Mapping;
use siltstone_vfs::backend::{Backing, MappedMemory, Node, fault, join, too_long};

use super::file::{FileState, SharedFile, parts};
use super::plan::Verdict;
use super::{FaultKind, Faulty, World};

pub(super) fn map(medium: &Faulty, name: &str, bytes: u64) -> Result<Mapping> {
    let state = state_of(medium, name)?;
    let name = join(&medium.name, name);
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
    let mut world = medium.world.lock();
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
    // Again: another thread may have been quicker.
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
        world: medium.world.clone(),
        state: state.clone(),
        name: name.clone(),
        _token: token.clone(),
    };
    let mapping = Mapping::anonymous(name, &file.current, bytes, Box::new(backing))?;
    file.mapped = Arc::downgrade(&token);
    Ok(mapping)
}

/// The file of that name, created if it is not there.
fn state_of(medium: &Faulty, name: &str) -> Result<SharedFile> {
    let found = {
        let _world = medium.begin(FaultKind::Read, "map", name)?;
        let directory = medium.directory.lock();
        match directory.current.get(name) {
            Some(_) => Some(directory.current.file("map", &medium.name, name)?),
            None => None,
        }
    };
    if let Some(found) = found {
        return Ok(found);
    }
    let (mut world, mut directory) = medium.begin_change("map", name)?;
    directory.current.check_free("map", &medium.name, name)?;
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
            // The survivors decide which of its lines and words got in.
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
            // What is pending stays pending: any of it may have got in.
            Verdict::Cut | Verdict::Off => {}
        }
        verdict.or_fail("persist", &self.name)
    }
}

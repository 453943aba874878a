//! A virtual file system in memory that loses power, fails, fills up and corrupts data on request,
//! reproducibly.
//!
//! Only tests link this crate. [`FaultyVfs`] keeps the current state, the durable state, and the
//! ordered changes between the two:
//!
//! ```text
//!   a file      current bytes   = durable bytes + every pending change, in order
//!               pending         = [ #7 write 0..600 | #9 set_len 2000 | #12 write 512..1024 ]
//!               durable bytes     `sync` applies the pending changes here
//!
//!   a directory current names   = durable names + every change of the journal, in order
//!               journal         = [ #6 create tmp | #13 rename tmp → CURRENT ]
//!               durable names     `sync_dir` applies the journal here, and nothing else does
//!
//!   power cut ─▶ survivors(seed): durable state + a subset of the pending changes
//!
//!     LoseAll      none
//!     KeepPrefix   all before a random one, over all files and directories; that one is torn by
//!                    sector
//!     KeepAll      all
//!     Random       each 512-byte sector: any value since the last sync
//!                  each 64-byte line of a mapping: any value since it was persisted; some are torn
//!                    between words of eight bytes
//!                  each file length: one since then, or the end of a sector between two of them
//!                    (parts that were extended but not written read as zeros or garbage)
//!                  each name: any state since then, both names of a rename together
//! ```
//!
//! The effects of faults:
//!
//! * *Power cut.* [`cut_power_at`](FaultyVfs::cut_power_at)`(n)`: operation `n` (a request that
//!   changes or syncs something, counted from 0 in all directories) fails without effect, except
//!   that a write becomes a pending change. All later requests fail with "power is off".
//! * *I/O error.* A failed write leaves a random subset of its sectors. A failed sync makes nothing
//!   durable and *poisons* the pending changes: later successful syncs skip them, as Linux marks
//!   pages clean that it failed to write. A poisoned sector becomes durable if it is written and
//!   synced again; a poisoned length, name or rename by a later change of the same.
//! * *Disk full.* A write that needs more sectors than are free writes nothing or, with
//!   [`set_torn_on_full`](FaultyVfs::set_torn_on_full), the sectors that fit. Only named files use
//!   space; overwriting needs none.
//! * *Process crash.* [`after_crash`](FaultyVfs::after_crash) is the state for the next process:
//!   everything written, still pending, and zeros past the end of append files.
//! * [`subdirectory`](Vfs::subdirectory) is two operations, creation and sync, and makes only that
//!   name durable. [`remove_subdirectory`](Vfs::remove_subdirectory) is one operation per file and
//!   directory, all pending.
//! * A *mapping* keeps its stores in the same way, by cache line instead of sector; a failed
//!   persist poisons the lines it covered. A store is an operation; a failed one leaves any part of
//!   itself. The space of a mapped file is checked when it is mapped, not at stores.
//!
//! Invariant: the state, the counters and every survivor are functions of the calls and the seeds;
//! synced bytes under synced names are in every survivor.
//!
//! Source: Pillai et al., "All File Systems Are Not Created Equal", OSDI 2014 (ALICE; the states
//! that a power cut may leave); Rebello et al., "Can Applications Recover from fsync Failures?",
//! ATC 2020 (the state after a failed sync).

use std::any::Any;
use std::io::ErrorKind;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::backend::{Node, check, fault, join};
use siltstone_vfs::{File, LockGuard, Mapping, Mode, Vfs};

mod controls;
mod damage;
mod directory;
mod file;
mod file_system;
mod map;
mod open_file;
mod plan;
mod process_crash;
mod stores;
mod survivors;

pub use damage::StoredFile;
pub use plan::{FaultError, FaultKind};
pub use survivors::Survival;

use directory::{Directory, SharedDirectory};
use file::{FileState, Preallocation, SharedFile};
use file_system::FileSystem;
use open_file::FaultyFile;
use plan::{FaultPlan, Request, Verdict};

/// The operations that need a file descriptor.
const TAKES_DESCRIPTOR: [&str; 6] = ["create", "create directory", "open", "list", "lock", "map"];

/// A directory of a file system with injected faults. Clones are the same directory; faults are
/// planned for the whole file system through any handle.
#[derive(Clone)]
pub struct FaultyVfs {
    fs: Arc<Mutex<FileSystem>>,
    directory: SharedDirectory,
    name: String,
}

impl FaultyVfs {
    /// An empty file system without faults. The seed draws what failed writes leave and which
    /// requests an error rate affects.
    pub fn new(seed: u64) -> Self {
        let root = SharedDirectory::new(Mutex::new(Directory::new(0)));
        Self::from_parts(FaultPlan::new(seed), root, 0)
    }

    fn from_parts(plan: FaultPlan, root: SharedDirectory, next_id: u64) -> Self {
        let fs = FileSystem { plan, root: root.clone(), sequence: 0, next_id };
        FaultyVfs { fs: Arc::new(Mutex::new(fs)), directory: root, name: "faulty:".into() }
    }

    /// Counts a request; returns an error if the plan fails it.
    fn begin(
        &self,
        kind: FaultKind,
        operation: &'static str,
        name: &str,
    ) -> Result<MutexGuard<'_, FileSystem>> {
        let takes_descriptor = TAKES_DESCRIPTOR.contains(&operation);
        let mut fs = self.fs.lock();
        let verdict = fs.plan.admit(Request { kind, takes_descriptor });
        verdict.or_fail(operation, &join(&self.name, name))?;
        Ok(fs)
    }

    /// As [`begin`](Self::begin), for a change of names; fails if the directory was removed.
    fn begin_change(
        &self,
        operation: &'static str,
        name: &str,
    ) -> Result<(MutexGuard<'_, FileSystem>, MutexGuard<'_, Directory>)> {
        let fs = self.begin(FaultKind::Names, operation, name)?;
        let directory = self.directory.lock();
        match directory.removed {
            true => Err(fault(operation, join(&self.name, name), ErrorKind::NotFound)),
            false => Ok((fs, directory)),
        }
    }

    fn handle(&self, name: &str, state: SharedFile, mode: Mode) -> FaultyFile {
        let name = join(&self.name, name);
        FaultyFile { fs: self.fs.clone(), state, name, mode, grows: false }
    }

    fn make(&self, name: &str, preallocation: Preallocation) -> Result<FaultyFile> {
        let (mut fs, mut directory) = self.begin_change("create", name)?;
        directory.current.check_free("create", &self.name, name)?;
        let mut state = FileState::new(fs.next_id());
        state.preallocation = preallocation;
        let state = SharedFile::new(Mutex::new(state));
        directory.bind(fs.next_sequence(), name, Some(Node::File(state.clone())));
        Ok(self.handle(name, state, Mode::ReadWrite))
    }

    fn child(&self, name: &str, directory: SharedDirectory) -> FaultyVfs {
        FaultyVfs { fs: self.fs.clone(), directory, name: join(&self.name, name) }
    }

    /// Removes everything in this directory, one operation each.
    fn clear(&self) -> Result<()> {
        let (files, directories) = {
            let names = &self.directory.lock().current;
            (names.files(), names.directories())
        };
        files.iter().try_for_each(|name| self.remove(name))?;
        directories.iter().try_for_each(|name| self.remove_subdirectory(name))
    }
}

impl Vfs for FaultyVfs {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(Arc::new(self.make(name, Preallocation::None)?))
    }

    /// Other handles see preallocated zeros past the end, also after a crash or a power cut.
    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        Ok(Arc::new(FaultyFile { grows: true, ..self.make(name, Preallocation::Present)? }))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        let _lock = self.begin(FaultKind::Read, "open", name)?;
        let state = self.directory.lock().current.file("open", &self.name, name)?;
        Ok(Arc::new(self.handle(name, state, mode)))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let _lock = self.begin(FaultKind::Read, "look up", name)?;
        check("look up", &self.name, name)?;
        Ok(matches!(self.directory.lock().current.get(name), Some(Node::File(_))))
    }

    fn list(&self) -> Result<Vec<String>> {
        let _lock = self.begin(FaultKind::Read, "list", "")?;
        Ok(self.directory.lock().current.files())
    }

    fn remove(&self, name: &str) -> Result<()> {
        let (mut fs, mut directory) = self.begin_change("remove", name)?;
        directory.current.file("remove", &self.name, name)?;
        directory.bind(fs.next_sequence(), name, None);
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (mut fs, mut directory) = self.begin_change("rename", from)?;
        let state = directory.current.renamed(&self.name, from, to)?;
        directory.rename(fs.next_sequence(), from, to, Node::File(state));
        Ok(())
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        let mut fs = self.fs.lock();
        let verdict = fs.plan.admit(FaultKind::DirSync);
        let mut directory = self.directory.lock();
        match verdict {
            Verdict::Go => directory.sync(),
            Verdict::Fail(_) => directory.poison(),
            Verdict::Cut | Verdict::Off => {}
        }
        drop(directory);
        FileSystem::end_sync(fs, verdict, "sync directory", &self.name)
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        const OPERATION: &str = "create directory";
        let found = {
            let _lock = self.begin(FaultKind::Read, OPERATION, name)?;
            self.directory.lock().current.directory(OPERATION, &self.name, name)?
        };
        let found = match found {
            Some(found) => found,
            None => {
                let (mut fs, mut directory) = self.begin_change(OPERATION, name)?;
                // Another thread may have created it meanwhile.
                match directory.current.directory(OPERATION, &self.name, name)? {
                    Some(found) => found,
                    None => {
                        let fresh = Directory::new(fs.next_id());
                        let fresh = SharedDirectory::new(Mutex::new(fresh));
                        let node = Node::Directory(fresh.clone());
                        directory.bind(fs.next_sequence(), name, Some(node));
                        fresh
                    }
                }
            }
        };
        let mut fs = self.fs.lock();
        let mut directory = self.directory.lock();
        if directory.is_pending(name) {
            let verdict = fs.plan.admit(FaultKind::DirSync);
            if matches!(verdict, Verdict::Fail(_)) {
                directory.poison();
            }
            verdict.or_fail("sync directory", &self.name)?;
            directory.sync_name(name);
        }
        Ok(Arc::new(self.child(name, found)))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        let _lock = self.begin(FaultKind::Read, "list", "")?;
        Ok(self.directory.lock().current.directories())
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        const OPERATION: &str = "remove directory";
        let found = {
            let _lock = self.begin(FaultKind::Read, OPERATION, name)?;
            self.directory.lock().current.directory(OPERATION, &self.name, name)?
        };
        let Some(found) = found else {
            return Err(fault(OPERATION, join(&self.name, name), ErrorKind::NotFound));
        };
        self.child(name, found.clone()).clear()?;
        let (mut fs, mut directory) = self.begin_change(OPERATION, name)?;
        directory.bind(fs.next_sequence(), name, None);
        found.lock().removed = true;
        Ok(())
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        if !self.exists(name)? {
            match self.create(name) {
                // Another thread has created it: both compete for the lock.
                Err(Error::Io { kind: ErrorKind::AlreadyExists, .. }) => {}
                created => drop(created?),
            }
        }
        let _lock = self.begin(FaultKind::Read, "lock", name)?;
        if !self.directory.lock().locked.insert(name.to_owned()) {
            return Err(Error::Locked {
                path: join(&self.name, name),
                holder: Some(std::process::id()),
            });
        }
        Ok(LockGuard::new(FaultyLock { directory: self.directory.clone(), name: name.to_owned() }))
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let target: &dyn Any = target;
        let Some(target) = target.downcast_ref::<FaultyVfs>() else { return Ok(false) };
        if !Arc::ptr_eq(&self.fs, &target.fs) {
            return Ok(false);
        }
        let (mut fs, mut directory) = target.begin_change("link", to_name)?;
        directory.current.check_free("link", &target.name, to_name)?;
        let state = match Arc::ptr_eq(&self.directory, &target.directory) {
            true => directory.current.file("link", &self.name, name)?,
            false => self.directory.lock().current.file("link", &self.name, name)?,
        };
        directory.bind(fs.next_sequence(), to_name, Some(Node::File(state)));
        Ok(true)
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        map::map(self, name, bytes)
    }
}

struct FaultyLock {
    directory: SharedDirectory,
    name: String,
}

impl Drop for FaultyLock {
    fn drop(&mut self) {
        self.directory.lock().locked.remove(&self.name);
    }
}

//! The state after a process crash: every byte and name is visible, with the same durability.
//!
//! ```text
//!   kill -9 ─▶ after_crash(seed)   the same current bytes and names, the same pending changes
//!                                  append files: zeros past their ends
//! ```
//!
//! The next process sees everything written and cannot distinguish it from what was synced; a power
//! cut may still remove it. So recovery must not treat what it reads as durable.
//!
//! Invariant: a survivor of the copy is a survivor of the original, except for zeros past the end
//! of append files.
//!
//! Source: after Pillai et al., OSDI 2014.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_structures::SplitMix64;
use siltstone_vfs::backend::Node;

use super::FaultyVfs;
use super::directory::{Binding, Bindings, Directory, NameChange, SharedDirectory};
use super::file::{FileState, Preallocation, SharedFile};
use super::plan::FaultPlan;
use super::survivors::MAX_PREALLOCATION_BYTES;

impl FaultyVfs {
    /// The whole file system as the next process finds it after a crash of this one: power is on,
    /// no faults are planned, counters are 0, nothing is locked or mapped, the capacity is the
    /// same, and pending changes are still pending. The original is unchanged.
    pub fn after_crash(&self, seed: u64) -> FaultyVfs {
        let fs = self.fs.lock();
        let mut copier = Copier {
            seed,
            sequence: fs.sequence,
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
        };
        let root = copier.directory(&fs.root);
        let mut plan = FaultPlan::new(SplitMix64::stream(seed, u64::MAX - 1).next_u64());
        plan.capacity_bytes = fs.plan.capacity_bytes;
        plan.torn_on_full = fs.plan.torn_on_full;
        let vfs = FaultyVfs::from_parts(plan, root, fs.next_id);
        vfs.fs.lock().sequence = copier.sequence;
        vfs
    }
}

/// Copies a tree; each file and directory once.
struct Copier {
    seed: u64,
    sequence: u64,
    files: BTreeMap<u64, SharedFile>,
    directories: BTreeMap<u64, SharedDirectory>,
}

impl Copier {
    fn directory(&mut self, directory: &SharedDirectory) -> SharedDirectory {
        let directory = directory.lock();
        if let Some(known) = self.directories.get(&directory.id) {
            return known.clone();
        }
        let mut copy = Directory::new_durable(directory.id, self.bindings(&directory.durable));
        copy.current = self.bindings(&directory.current);
        copy.removed = directory.removed;
        for change in &directory.journal {
            let bind = |(name, node): &(String, Option<Binding>)| {
                (name.clone(), node.as_ref().map(|node| self.node(node)))
            };
            let bindings = change.bindings.iter().map(bind).collect();
            let NameChange { sequence, poisoned, .. } = *change;
            copy.journal.push(NameChange { sequence, poisoned, bindings });
        }
        let copy = Arc::new(Mutex::new(copy));
        self.directories.insert(directory.id, copy.clone());
        copy
    }

    fn bindings(&mut self, names: &Bindings) -> Bindings {
        let mut copy = Bindings::default();
        names.iter().for_each(|(name, node)| copy.set(name, Some(self.node(node))));
        copy
    }

    fn node(&mut self, node: &Binding) -> Binding {
        match node {
            Node::File(file) => Node::File(self.file(&file.lock())),
            Node::Directory(directory) => Node::Directory(self.directory(directory)),
        }
    }

    fn file(&mut self, file: &FileState) -> SharedFile {
        if let Some(known) = self.files.get(&file.id) {
            return known.clone();
        }
        let mut copy = file.copy_for_next_process();
        if copy.preallocation == Preallocation::Present {
            self.sequence += 1;
            let more = SplitMix64::stream(self.seed, file.id).below(MAX_PREALLOCATION_BYTES);
            copy.set_len(self.sequence, copy.current.len() + more);
            copy.preallocation = Preallocation::None;
        }
        let copy = Arc::new(Mutex::new(copy));
        self.files.insert(file.id, copy.clone());
        copy
    }
}

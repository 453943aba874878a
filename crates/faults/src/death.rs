//! What the death of a process leaves: every byte and name that it saw, none of it any more durable.
//!
//! ```text
//!   kill -9 ─▶ after_death(seed)   the same current bytes and names, the same changes pending
//!                                  files that grew: zeros behind their ends
//! ```
//!
//! Whoever opens the medium next sees what was written and cannot tell it from what was synced; a
//! power cut may still take it. So an opening must not build on what it reads as if a cut had left it.
//!
//! Invariant: a survivor of the copy is a survivor of the original, but for zeros behind the end of
//! what grew.
//!
//! Source: ours, after Pillai et al., OSDI 2014.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_structures::SplitMix64;
use siltstone_vfs::backend::Node;

use super::Faulty;
use super::directory::{Binding, Bindings, Directory, NameChange, SharedDirectory};
use super::file::{Behind, FileState, SharedFile};
use super::plan::Plan;
use super::survivors::MOST_BEHIND;

impl Faulty {
    /// The whole medium as the next process finds it if this one died now (or when power is said to have
    /// gone off): power on, no faults planned, counters at 0, nothing locked or mapped, the same capacity, and
    /// still pending what was. The original stays as it is.
    pub fn after_death(&self, seed: u64) -> Faulty {
        let world = self.world.lock();
        let mut heir = Heir {
            seed,
            sequence: world.sequence,
            files: BTreeMap::new(),
            directories: BTreeMap::new(),
        };
        let root = heir.directory(&world.root);
        let mut plan = Plan::new(SplitMix64::stream(seed, u64::MAX - 1).next_u64());
        plan.capacity_bytes = world.plan.capacity_bytes;
        plan.torn_on_full = world.plan.torn_on_full;
        let medium = Faulty::from_parts(plan, root, world.next_id);
        medium.world.lock().sequence = heir.sequence;
        medium
    }
}

/// Copies a tree, each file and directory once.
struct Heir {
    seed: u64,
    sequence: u64,
    files: BTreeMap<u64, SharedFile>,
    directories: BTreeMap<u64, SharedDirectory>,
}

impl Heir {
    fn directory(&mut self, directory: &SharedDirectory) -> SharedDirectory {
        let directory = directory.lock();
        if let Some(known) = self.directories.get(&directory.id) {
            return known.clone();
        }
        let mut copy = Directory::settled(directory.id, self.bindings(&directory.durable));
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
        let mut copy = file.inherited();
        if copy.behind == Behind::Ready {
            self.sequence += 1;
            let more = SplitMix64::stream(self.seed, file.id).below(MOST_BEHIND);
            copy.set_len(self.sequence, copy.current.len() + more);
            copy.behind = Behind::Nothing;
        }
        let copy = Arc::new(Mutex::new(copy));
        self.files.insert(file.id, copy.clone());
        copy
    }
}

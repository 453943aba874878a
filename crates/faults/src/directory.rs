//! The state of a directory: current names, durable names, and a journal of the changes between.
//!
//! A change binds one name, or two in a rename, to a file, a directory or nothing.
//!
//! ```text
//! current = durable + journal[0] + journal[1] + …
//! ```
//!
//! Invariant: a change becomes durable only together with all earlier changes that share a name
//! with it. So each name goes through its states in order, and both names of a rename change
//! atomically.
//!
//! Source: Pillai et al., OSDI 2014, table 1: this allows what the weakest file systems there do,
//! directory operations in any order, each atomic.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_vfs::backend::{Names, Node};

use super::file::SharedFile;

pub(super) type SharedDirectory = Arc<Mutex<Directory>>;
pub(super) type Binding = Node<SharedFile, SharedDirectory>;
pub(super) type Bindings = Names<SharedFile, SharedDirectory>;

pub(super) struct Directory {
    pub(super) id: u64,
    pub(super) current: Bindings,
    pub(super) durable: Bindings,
    pub(super) journal: Vec<NameChange>,
    /// The locked lock files.
    pub(super) locked: BTreeSet<String>,
    /// Whether the directory was removed while there are handles.
    pub(super) removed: bool,
}

/// New bindings of one or two names.
pub(super) struct NameChange {
    pub(super) sequence: u64,
    /// Whether a failed sync covered the change.
    pub(super) poisoned: bool,
    pub(super) bindings: Vec<(String, Option<Binding>)>,
}

impl Directory {
    pub(super) fn new(id: u64) -> Self {
        Self::new_durable(id, Bindings::default())
    }

    /// A directory whose names are all durable.
    pub(super) fn new_durable(id: u64, names: Bindings) -> Self {
        Directory {
            id,
            current: names.clone(),
            durable: names,
            journal: Vec::new(),
            locked: BTreeSet::new(),
            removed: false,
        }
    }

    /// Binds a name to a node, or removes it.
    pub(super) fn bind(&mut self, sequence: u64, name: &str, to: Option<Binding>) {
        self.change(sequence, vec![(name.to_owned(), to)]);
    }

    pub(super) fn rename(&mut self, sequence: u64, from: &str, to: &str, node: Binding) {
        // In this order, a rename to the same name changes nothing.
        self.change(sequence, vec![(from.to_owned(), None), (to.to_owned(), Some(node))]);
    }

    fn change(&mut self, sequence: u64, bindings: Vec<(String, Option<Binding>)>) {
        let change = NameChange { sequence, poisoned: false, bindings };
        change.apply(&mut self.current);
        self.journal.push(change);
    }

    /// Whether a power cut may undo a change of this name.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.journal.iter().any(|change| change.names().any(|n| n == name))
    }

    /// Makes all changes durable, except those that a failed sync covered.
    pub(super) fn sync(&mut self) {
        let fresh = self.journal.iter().filter(|change| !change.poisoned);
        self.make_durable(fresh.flat_map(NameChange::names).cloned().collect());
    }

    /// Makes one name durable, with the changes that it depends on.
    pub(super) fn sync_name(&mut self, name: &str) {
        self.make_durable([name.to_owned()].into());
    }

    /// Excludes the pending changes from later syncs.
    pub(super) fn poison(&mut self) {
        self.journal.iter_mut().for_each(|change| change.poisoned = true);
    }

    /// Makes the current bindings of these names durable, with every earlier change that shares a
    /// name with them, transitively.
    fn make_durable(&mut self, mut names: BTreeSet<String>) {
        let mut durable = Vec::new();
        let mut pending = Vec::new();
        // In reverse order, because a rename adds the history of its other name.
        for change in self.journal.drain(..).rev() {
            if change.names().any(|name| names.contains(name)) {
                names.extend(change.names().cloned());
                durable.push(change);
            } else {
                pending.push(change);
            }
        }
        durable.iter().rev().for_each(|change| change.apply(&mut self.durable));
        self.journal.extend(pending.into_iter().rev());
    }
}

impl NameChange {
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.bindings.iter().map(|(name, _)| name)
    }

    pub(super) fn apply(&self, to: &mut Bindings) {
        for (name, node) in &self.bindings {
            to.set(name, node.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::file::FileState;
    use super::*;

    fn file() -> Option<Binding> {
        Some(Node::File(Arc::new(Mutex::new(FileState::new(0)))))
    }

    #[test]
    fn syncing_a_name_makes_only_dependent_changes_durable() {
        let mut directory = Directory::new(0);
        directory.bind(1, "other", file());
        directory.bind(2, "tmp", file());
        directory.rename(3, "tmp", "final", file().unwrap());
        directory.bind(4, "tmp", file());
        directory.sync_name("final");
        assert_eq!(directory.durable.files(), ["final"]);
        let pending: Vec<u64> = directory.journal.iter().map(|change| change.sequence).collect();
        assert_eq!(pending, [1, 4], "the first tmp became final, so it cannot come back as tmp");
        directory.sync();
        assert_eq!(directory.durable.files(), ["final", "other", "tmp"]);
    }

    #[test]
    fn poisoned_name_becomes_durable_by_a_later_change() {
        let mut directory = Directory::new(0);
        directory.bind(1, "a", file());
        directory.bind(2, "b", file());
        directory.poison();
        directory.sync();
        assert!(directory.durable.files().is_empty());
        directory.rename(3, "a", "c", file().unwrap());
        directory.sync();
        assert_eq!(directory.durable.files(), ["c"]);
        assert!(directory.is_pending("b"));
    }
}

//! The state of one directory: the names that are seen, those that are durable, and a journal of
//! the changes between the two.
//!
//! A change binds one name, or two for a rename, to a file, a directory or nothing.
//!
//! ```text
//! current = durable + journal[0] + journal[1] + …
//! ```
//!
//! Invariant: changes reach the durable names only together with all earlier ones that share a name
//! with them. So each name goes through its states in order, and a rename's two names change at one
//! moment.
//!
//! Source: ours; it allows what the weakest file systems in Pillai et al., OSDI 2014, table 1 do:
//! directory operations out of order, each atomic.

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
    /// The lock files that are held.
    pub(super) locked: BTreeSet<String>,
    /// Whether the directory was removed while handles to it remain.
    pub(super) removed: bool,
}

/// What one or two names are bound to from now on.
pub(super) struct NameChange {
    pub(super) sequence: u64,
    /// Whether a failed sync covered it.
    pub(super) poisoned: bool,
    pub(super) bindings: Vec<(String, Option<Binding>)>,
}

impl Directory {
    pub(super) fn new(id: u64) -> Self {
        Self::settled(id, Bindings::default())
    }

    /// A directory all of whose names are durable.
    pub(super) fn settled(id: u64, names: Bindings) -> Self {
        Directory {
            id,
            current: names.clone(),
            durable: names,
            journal: Vec::new(),
            locked: BTreeSet::new(),
            removed: false,
        }
    }

    /// Binds a name to something or to nothing.
    pub(super) fn bind(&mut self, sequence: u64, name: &str, to: Option<Binding>) {
        self.change(sequence, vec![(name.to_owned(), to)]);
    }

    pub(super) fn rename(&mut self, sequence: u64, from: &str, to: &str, node: Binding) {
        // In this order a rename to the same name changes nothing.
        self.change(sequence, vec![(from.to_owned(), None), (to.to_owned(), Some(node))]);
    }

    fn change(&mut self, sequence: u64, bindings: Vec<(String, Option<Binding>)>) {
        let change = NameChange { sequence, poisoned: false, bindings };
        change.apply(&mut self.current);
        self.journal.push(change);
    }

    /// Whether a power cut may take this name back to what it was.
    pub(super) fn is_pending(&self, name: &str) -> bool {
        self.journal.iter().any(|change| change.names().any(|n| n == name))
    }

    /// Makes all changes durable that no failed sync covered.
    pub(super) fn sync(&mut self) {
        let fresh = self.journal.iter().filter(|change| !change.poisoned);
        self.settle(fresh.flat_map(NameChange::names).cloned().collect());
    }

    /// Makes one name durable, and what it hangs together with.
    pub(super) fn sync_name(&mut self, name: &str) {
        self.settle([name.to_owned()].into());
    }

    /// Marks what is pending as passed over by later syncs.
    pub(super) fn poison(&mut self) {
        self.journal.iter_mut().for_each(|change| change.poisoned = true);
    }

    /// Makes these names durable as they are, with every earlier change that shares a name with
    /// what is made durable.
    fn settle(&mut self, mut names: BTreeSet<String>) {
        let mut settled = Vec::new();
        let mut doubtful = Vec::new();
        // Backwards, since a rename draws in the past of its other name.
        for change in self.journal.drain(..).rev() {
            if change.names().any(|name| names.contains(name)) {
                names.extend(change.names().cloned());
                settled.push(change);
            } else {
                doubtful.push(change);
            }
        }
        settled.iter().rev().for_each(|change| change.apply(&mut self.durable));
        self.journal.extend(doubtful.into_iter().rev());
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
    fn one_name_can_be_synced_and_takes_along_only_what_it_hangs_together_with() {
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
    fn a_poisoned_name_waits_for_a_change_of_its_own() {
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

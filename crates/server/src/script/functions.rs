//! Libraries of functions that FUNCTION LOAD has brought.
//!
//! A library is code that registers functions when it runs. Each interpreter runs it before the
//! first call of one of its functions. Libraries are in memory. A change is kept before it takes
//! effect: in a log beside the tables ([`super::library_log`]), or in rows of a replicated group
//! ([`named_rows`]), which all nodes follow. There [`Functions::plan`] makes the rows.
//!
//! Names of libraries and functions are compared without regard to case, as in Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use siltstone_engine::{Result as EngineResult, WriteBatch};
use siltstone_rdb::libraries;

use super::cache::Script;
use super::function_library::{Library, LoadedLibrary};
use super::library_log::LibraryLog;
use crate::replication::function_rows::FUNCTION_PREFIX;
use crate::replication::named_rows;

/// The error reply for a library that is not there.
pub(crate) const NO_LIBRARY: &str = "ERR Library not found";

/// For how long [`Functions::take_removal`] knows that another node has removed a library.
const KNOWN_REMOVAL: Duration = Duration::from_secs(10);

/// What FUNCTION RESTORE does with libraries that exist.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestorePolicy {
    /// It fails if one has the name of a new one.
    Append,
    /// New ones replace those with the same name.
    Replace,
    /// All are removed.
    Flush,
}

/// What a command does to the libraries.
pub(crate) enum LibraryEdit {
    /// Adds one, or replaces the one with its name.
    Load { loaded: LoadedLibrary, replaces: bool },
    /// Removes the one with this name.
    Remove(Vec<u8>),
    /// Removes all.
    Flush,
    /// Adds all of these, or none.
    Restore { all: Vec<LoadedLibrary>, policy: RestorePolicy },
}

/// A change of the libraries: all of it takes effect, or nothing. Names are in lower case.
#[derive(Default)]
pub(crate) struct Change {
    /// Those that are removed, and not replaced.
    pub(crate) removed: BTreeSet<String>,
    /// Those that are added, or replace others.
    pub(crate) added: BTreeMap<String, LoadedLibrary>,
}

impl Change {
    /// The names and the code of those that are added.
    fn codes(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.added.iter().map(code)
    }

    /// Whether nothing changes.
    pub(crate) fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.added.is_empty()
    }

    /// The rows of a replicated group.
    pub(crate) fn to_rows(&self) -> WriteBatch {
        let mut batch = WriteBatch::new();
        for name in &self.removed {
            named_rows::remove(&mut batch, FUNCTION_PREFIX, name.as_bytes());
        }
        for (name, code) in self.codes() {
            named_rows::put(&mut batch, FUNCTION_PREFIX, name.as_bytes(), code);
        }
        batch
    }

    /// Whether it removes or replaces a library.
    fn affects(&self, name: &str) -> bool {
        self.removed.contains(name) || self.added.contains_key(name)
    }
}

/// The name and the code of a library.
fn code<'s>((name, loaded): (&'s String, &'s LoadedLibrary)) -> (&'s str, &'s [u8]) {
    (name, &loaded.library.code)
}

/// Where changes are kept.
#[derive(Default)]
pub(crate) enum Storage {
    /// Nowhere.
    #[default]
    Memory,
    Log(LibraryLog),
}

/// All libraries.
///
/// Invariant: the libraries that are in force are those that are kept, unless the last change
/// failed.
#[derive(Default)]
pub(crate) struct Functions {
    state: Mutex<State>,
    /// Locked during a change.
    storage: Mutex<Storage>,
    /// When libraries were removed that [`follow`](Self::follow) has removed, by name in lower
    /// case.
    followed_removals: Mutex<BTreeMap<String, Instant>>,
}

#[derive(Default)]
struct State {
    /// By name in lower case.
    libraries: BTreeMap<String, LoadedLibrary>,
    /// By name in lower case.
    functions: BTreeMap<String, Arc<Script>>,
    /// Bytes of the code of all libraries.
    code_bytes: u64,
}

impl Functions {
    /// No libraries.
    pub(crate) fn new(storage: Storage) -> Self {
        Functions { storage: Mutex::new(storage), ..Functions::default() }
    }

    /// Changes the libraries, or nothing if the change is refused or cannot be kept. Cost: that of
    /// the libraries that change.
    pub(crate) fn edit(&self, edit: LibraryEdit) -> Result<(), String> {
        let mut storage = self.storage.lock();
        let change = self.plan(edit, false)?;
        if change.is_empty() {
            return Ok(());
        }
        // Calls of functions do not wait for the device.
        self.keep(&mut storage, &change)
            .map_err(|error| format!("ERR the libraries cannot be kept: {error}"))?;
        self.state.lock().apply(change);
        Ok(())
    }

    /// What an edit changes. With `repeats` a library that is there with the same code is none that
    /// exists already: programs for Redis Cluster load each at all masters.
    pub(crate) fn plan(&self, edit: LibraryEdit, repeats: bool) -> Result<Change, String> {
        let state = self.state.lock();
        let change = state.plan(edit, repeats)?;
        state.check(&change)?;
        Ok(change)
    }

    /// Keeps a change. The caller has locked `storage`, so nobody else changes the state.
    fn keep(&self, storage: &mut Storage, change: &Change) -> EngineResult<()> {
        match storage {
            Storage::Memory => Ok(()),
            Storage::Log(log) => {
                let all = {
                    let state = self.state.lock();
                    let is_outdated = log.is_outdated(state.code_bytes_after(change));
                    is_outdated.then(|| state.libraries.clone())
                };
                let Some(all) = all else { return log.append(&change.removed, change.codes()) };
                let unchanged = all.iter().filter(|(name, _)| !change.affects(name));
                log.replace(unchanged.map(code).chain(change.codes()))
            }
        }
    }

    /// Puts in force what is kept already: as a server starts, or as another node has changed it.
    pub(crate) fn follow(&self, change: Change) {
        let _storage = self.storage.lock();
        let mut state = self.state.lock();
        let mut removals = self.followed_removals.lock();
        removals.retain(|name, at| !change.affects(name) && at.elapsed() < KNOWN_REMOVAL);
        let removed = change.removed.iter().filter(|name| state.libraries.contains_key(*name));
        removals.extend(removed.map(|name| (name.clone(), Instant::now())));
        state.apply(change);
    }

    /// Whether a library was removed lately because another node was asked to, and nobody has asked
    /// here. Then somebody has.
    pub(crate) fn take_removal(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name).to_lowercase();
        let removed = self.followed_removals.lock().remove(&name);
        removed.is_some_and(|at| at.elapsed() < KNOWN_REMOVAL)
    }

    /// Forgets all removals: somebody has asked for them here.
    pub(crate) fn take_removals(&self) {
        self.followed_removals.lock().clear();
    }

    /// The library with a name, which is in lower case.
    pub(crate) fn library(&self, name: &str) -> Option<Arc<Library>> {
        self.state.lock().libraries.get(name).map(|loaded| loaded.library.clone())
    }

    /// The payload of all libraries.
    pub(crate) fn dump(&self) -> Vec<u8> {
        self.state.lock().dump()
    }

    /// The function with a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        let name = std::str::from_utf8(name).ok()?.to_lowercase();
        self.state.lock().functions.get(&name).cloned()
    }

    /// All libraries, by name.
    pub(crate) fn all(&self) -> Vec<LoadedLibrary> {
        self.state.lock().libraries.values().cloned().collect()
    }

    /// Number of libraries, and of functions.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.libraries.len(), state.functions.len())
    }
}

impl State {
    fn plan(&self, edit: LibraryEdit, repeats: bool) -> Result<Change, String> {
        let is_there = |key: &str, loaded: &LoadedLibrary| {
            let known = self.libraries.get(key);
            repeats && known.is_some_and(|known| known.library.code == loaded.library.code)
        };
        let mut change = Change::default();
        let all = || self.libraries.keys().cloned().collect();
        match edit {
            LibraryEdit::Load { loaded, replaces } => {
                let key = loaded.library.name.to_lowercase();
                if is_there(&key, &loaded) {
                    return Ok(change);
                }
                if self.libraries.contains_key(&key) && !replaces {
                    return Err(format!("ERR Library '{}' already exists", loaded.library.name));
                }
                change.added.insert(key, loaded);
            }
            LibraryEdit::Remove(name) => {
                let name = String::from_utf8_lossy(&name).to_lowercase();
                if !self.libraries.contains_key(&name) {
                    return Err(NO_LIBRARY.to_owned());
                }
                change.removed.insert(name);
            }
            LibraryEdit::Flush => change.removed = all(),
            LibraryEdit::Restore { all: restored, policy } => {
                if policy == RestorePolicy::Flush {
                    change.removed = all();
                }
                for loaded in restored {
                    let (name, key) = (&loaded.library.name, loaded.library.name.to_lowercase());
                    change.removed.remove(&key);
                    let is_twice = change.added.contains_key(&key);
                    if !is_twice && is_there(&key, &loaded) {
                        continue;
                    }
                    let exists =
                        policy != RestorePolicy::Flush && self.libraries.contains_key(&key);
                    if (exists || is_twice) && policy != RestorePolicy::Replace {
                        return Err(format!("ERR Library {name} already exists"));
                    }
                    change.added.insert(key, loaded);
                }
            }
        }
        Ok(change)
    }

    /// Checks that the names of functions stay unique.
    fn check(&self, change: &Change) -> Result<(), String> {
        let mut new = BTreeSet::new();
        for function in change.added.values().flat_map(|loaded| &loaded.functions) {
            let key = function.name.to_lowercase();
            let library = self.functions.get(&key).and_then(|script| script.library.as_ref());
            let stays = library.is_some_and(|of| !change.affects(&of.name.to_lowercase()));
            if stays || !new.insert(key) {
                return Err(format!("ERR Function {} already exists", function.name));
            }
        }
        Ok(())
    }

    /// Bytes of the code of all libraries after a change.
    fn code_bytes_after(&self, change: &Change) -> u64 {
        let affected = change.removed.iter().chain(change.added.keys());
        let bytes = |(_, code): (&str, &[u8])| code.len() as u64;
        let gone: u64 = affected
            .filter_map(|name| self.libraries.get_key_value(name))
            .map(code)
            .map(bytes)
            .sum();
        self.code_bytes - gone + change.codes().map(bytes).sum::<u64>()
    }

    fn apply(&mut self, change: Change) {
        self.code_bytes = self.code_bytes_after(&change);
        for name in change.removed.iter().chain(change.added.keys()) {
            let removed = self.libraries.remove(name);
            for function in removed.iter().flat_map(|removed| &removed.functions) {
                self.functions.remove(&function.name.to_lowercase());
            }
        }
        for loaded in change.added.values() {
            for function in &loaded.functions {
                let is_read_only = function.flags.contains(&"no-writes");
                let script = Script::function(&function.name, loaded.library.clone(), is_read_only);
                self.functions.insert(function.name.to_lowercase(), Arc::new(script));
            }
        }
        self.libraries.extend(change.added);
    }

    fn dump(&self) -> Vec<u8> {
        libraries::dump(self.libraries.values().map(|loaded| loaded.library.code.as_slice()))
    }
}

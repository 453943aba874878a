//! Libraries of functions that FUNCTION LOAD has brought.
//!
//! A library is code that registers functions when it runs. Each interpreter runs it before the
//! first call of one of its functions. Libraries are in memory. A change is kept before it takes
//! effect: in a log beside the tables ([`super::library_log`]), or in rows of a replicated group
//! ([`named_rows`]), which the other nodes follow.
//!
//! Names of libraries and functions are compared without regard to case, as in Redis.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Durability, Engine, Result as EngineResult, WriteBatch};
use siltstone_rdb::libraries;

use super::cache::Script;
use super::function_library::{Library, LoadedLibrary};
use super::library_log::LibraryLog;
use crate::replication::function_rows::FUNCTION_PREFIX;
use crate::replication::named_rows;

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
    /// In rows of a replicated group.
    Rows(Arc<dyn Engine>),
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
    fn change(&self, plan: impl FnOnce(&State) -> Result<Change, String>) -> Result<(), String> {
        let mut storage = self.storage.lock();
        let state = self.state.lock();
        let change = plan(&state)?;
        if change.removed.is_empty() && change.added.is_empty() {
            return Ok(());
        }
        state.check(&change)?;
        // Calls of functions do not wait for the device.
        drop(state);
        self.keep(&mut storage, &change)
            .map_err(|error| format!("ERR the libraries cannot be kept: {error}"))?;
        self.state.lock().apply(change);
        Ok(())
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
            Storage::Rows(engine) => {
                let mut batch = WriteBatch::new();
                for name in &change.removed {
                    named_rows::remove(&mut batch, FUNCTION_PREFIX, name.as_bytes());
                }
                for (name, code) in change.codes() {
                    named_rows::put(&mut batch, FUNCTION_PREFIX, name.as_bytes(), code);
                }
                engine.write(&batch, Durability::Buffered)
            }
        }
    }

    /// Adds a library, or replaces one.
    pub(crate) fn add(&self, loaded: LoadedLibrary, replaces: bool) -> Result<(), String> {
        self.change(|state| {
            let name = loaded.library.name.to_lowercase();
            if state.libraries.contains_key(&name) && !replaces {
                return Err(format!("ERR Library '{}' already exists", loaded.library.name));
            }
            Ok(Change { added: BTreeMap::from([(name, loaded)]), ..Change::default() })
        })
    }

    /// Removes a library. Returns whether it existed.
    pub(crate) fn remove(&self, name: &[u8]) -> Result<bool, String> {
        let name = String::from_utf8_lossy(name).to_lowercase();
        let mut existed = false;
        self.change(|state| {
            existed = state.libraries.contains_key(&name);
            let removed = BTreeSet::from_iter(existed.then_some(name));
            Ok(Change { removed, ..Change::default() })
        })?;
        Ok(existed)
    }

    /// Removes all libraries.
    pub(crate) fn flush(&self) -> Result<(), String> {
        self.change(|state| {
            let removed = state.libraries.keys().cloned().collect();
            Ok(Change { removed, ..Change::default() })
        })
    }

    /// Adds all of these libraries, or none.
    pub(crate) fn restore(
        &self,
        all: Vec<LoadedLibrary>,
        policy: RestorePolicy,
    ) -> Result<(), String> {
        self.change(|state| {
            let mut change = Change::default();
            if policy == RestorePolicy::Flush {
                change.removed = state.libraries.keys().cloned().collect();
            }
            for loaded in all {
                let (name, key) = (&loaded.library.name, loaded.library.name.to_lowercase());
                change.removed.remove(&key);
                let exists = policy != RestorePolicy::Flush && state.libraries.contains_key(&key)
                    || change.added.contains_key(&key);
                if exists && policy != RestorePolicy::Replace {
                    return Err(format!("ERR Library {name} already exists"));
                }
                change.added.insert(key, loaded);
            }
            Ok(change)
        })
    }

    /// Puts in force what is kept already: as a server starts, or as another node has changed it.
    pub(crate) fn follow(&self, change: Change) {
        let _storage = self.storage.lock();
        self.state.lock().apply(change);
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

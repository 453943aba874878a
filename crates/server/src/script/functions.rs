//! Libraries of functions that FUNCTION LOAD has brought.
//!
//! A library is code that registers functions when it runs. Each interpreter runs it before the
//! first call of one of its functions. Libraries are in memory and, for the next start, in a file:
//! the payload of FUNCTION DUMP ([`siltstone_rdb::libraries`]). Each change replaces the file
//! before it takes effect.
//!
//! Names of libraries and functions are compared without regard to case, as in Redis.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_rdb::libraries;

use super::cache::Script;
use super::digest::sha1_hex;
use crate::replace_file::replace_file;

/// Mode of a new file of libraries: they may have secrets.
const NEW_FILE_MODE: u32 = 0o600;

/// A library.
#[derive(Debug)]
pub(crate) struct Library {
    pub(crate) name: String,
    /// As it was loaded.
    pub(crate) code: Vec<u8>,
    /// The code without its first line, but with the line end.
    pub(crate) body: Vec<u8>,
    /// SHA-1 of the code.
    pub(crate) id: String,
}

/// A function as its library registers it.
#[derive(Debug, Clone)]
pub(crate) struct FunctionDefinition {
    pub(crate) name: String,
    pub(crate) description: Option<String>,
    pub(crate) flags: Vec<&'static str>,
}

/// Flags of functions.
pub(super) const FLAGS: [&str; 5] =
    ["no-writes", "allow-oom", "allow-stale", "no-cluster", "allow-cross-slot-keys"];

/// Whether a name may be that of a library or function.
pub(super) fn check_name(name: &str) -> Result<(), String> {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    match !name.is_empty() && name.bytes().all(is_valid) {
        true => Ok(()),
        false => Err("ERR Library names can only contain letters, numbers, or underscores(_) and \
                      must be at least one character long"
            .to_owned()),
    }
}

/// A word without the quotes around it.
fn unquoted(word: &str) -> &str {
    let inside = |quote| word.strip_prefix(quote)?.strip_suffix(quote);
    inside('"').or_else(|| inside('\'')).unwrap_or(word)
}

impl Library {
    /// Parses the first line: `#!lua name=mylib`.
    pub(crate) fn parse(code: &[u8]) -> Result<Self, String> {
        if !code.starts_with(b"#!") {
            return Err("ERR Missing library metadata".to_owned());
        }
        let end = code.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| "ERR Invalid library metadata".to_owned())?;
        let line = String::from_utf8_lossy(&code[2..end]);
        let (engine, words) = line.split_once(char::is_whitespace).unwrap_or((&line, ""));
        let mut name = None;
        for word in words.split_whitespace() {
            let word = unquoted(word);
            let Some(given) = word.strip_prefix("name=").map(unquoted) else {
                return Err(format!("ERR Invalid metadata value given: {word}"));
            };
            if name.replace(given).is_some() {
                return Err(
                    "ERR Invalid metadata value, name argument was given multiple times".to_owned()
                );
            }
        }
        let name = name.ok_or_else(|| "ERR Library name was not given".to_owned())?;
        check_name(name)?;
        if !engine.eq_ignore_ascii_case("lua") {
            return Err(format!("ERR Engine '{engine}' not found"));
        }
        Ok(Library {
            name: name.to_owned(),
            code: code.to_vec(),
            body: code[end..].to_vec(),
            id: sha1_hex(code),
        })
    }
}

/// A library with its functions.
#[derive(Clone)]
pub(crate) struct LoadedLibrary {
    pub(crate) library: Arc<Library>,
    pub(crate) functions: Vec<FunctionDefinition>,
}

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

/// All libraries.
///
/// Invariant: the file has the libraries that are in force, unless its last write failed.
#[derive(Default)]
pub(crate) struct Functions {
    state: Mutex<State>,
    /// Held during a change, which writes the file.
    changing: Mutex<()>,
    /// Where they are kept over restarts, if anywhere: a payload of FUNCTION DUMP.
    file: Option<PathBuf>,
}

#[derive(Default, Clone)]
struct State {
    /// By name in lower case.
    libraries: BTreeMap<String, LoadedLibrary>,
    /// By name in lower case.
    functions: BTreeMap<String, Arc<Script>>,
}

impl Functions {
    /// No libraries. Changes are kept in a file, if there is one.
    pub(crate) fn new(file: Option<PathBuf>) -> Self {
        Functions { file, ..Functions::default() }
    }

    /// Changes the libraries, or nothing if `edit` or the write of the file fails.
    fn change<T>(&self, edit: impl FnOnce(&mut State) -> Result<T, String>) -> Result<T, String> {
        let _changing = self.changing.lock();
        let before = self.state.lock().clone();
        let mut next = before.clone();
        let result = edit(&mut next)?;
        let payload = next.dump();
        if let Some(file) = self.file.as_ref().filter(|_| payload != before.dump()) {
            replace_file(file, &payload, NEW_FILE_MODE).map_err(|error| {
                format!("ERR the libraries cannot be written to '{}': {error}", file.display())
            })?;
        }
        *self.state.lock() = next;
        Ok(result)
    }

    /// Adds a library, or replaces one.
    pub(crate) fn add(&self, loaded: LoadedLibrary, replaces: bool) -> Result<(), String> {
        self.change(|state| state.add(loaded, replaces))
    }

    /// Removes a library. Returns whether it existed.
    pub(crate) fn remove(&self, name: &[u8]) -> Result<bool, String> {
        let name = String::from_utf8_lossy(name).to_lowercase();
        self.change(|state| Ok(state.remove(&name)))
    }

    /// Removes all libraries.
    pub(crate) fn flush(&self) -> Result<(), String> {
        self.change(|state| {
            *state = State::default();
            Ok(())
        })
    }

    /// Adds all of these libraries, or none.
    pub(crate) fn restore(
        &self,
        all: Vec<LoadedLibrary>,
        policy: RestorePolicy,
    ) -> Result<(), String> {
        self.change(|state| {
            if policy == RestorePolicy::Flush {
                *state = State::default();
            }
            for one in all {
                let name = &one.library.name;
                let exists = state.libraries.contains_key(&name.to_lowercase());
                if exists && policy == RestorePolicy::Append {
                    return Err(format!("ERR Library {name} already exists"));
                }
                state.add(one, policy == RestorePolicy::Replace)?;
            }
            Ok(())
        })
    }

    /// Puts the libraries of the file in force, as a server starts.
    pub(crate) fn begin(&self, all: Vec<LoadedLibrary>) -> Result<(), String> {
        let mut state = self.state.lock();
        all.into_iter().try_for_each(|one| state.add(one, false))
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
    fn add(&mut self, loaded: LoadedLibrary, replaces: bool) -> Result<(), String> {
        let LoadedLibrary { library, functions } = &loaded;
        let key = library.name.to_lowercase();
        let old = self.libraries.get(&key);
        if old.is_some() && !replaces {
            return Err(format!("ERR Library '{}' already exists", library.name));
        }
        let is_old = |name: &str| {
            old.is_some_and(|old| old.functions.iter().any(|f| f.name.eq_ignore_ascii_case(name)))
        };
        for function in functions {
            let name = &function.name;
            if self.functions.contains_key(&name.to_lowercase()) && !is_old(name) {
                return Err(format!("ERR Function {name} already exists"));
            }
        }
        self.remove(&key);
        for function in functions {
            let is_read_only = function.flags.contains(&"no-writes");
            let script = Script::function(&function.name, library.clone(), is_read_only);
            self.functions.insert(function.name.to_lowercase(), Arc::new(script));
        }
        self.libraries.insert(key, loaded);
        Ok(())
    }

    fn remove(&mut self, key: &str) -> bool {
        let Some(removed) = self.libraries.remove(key) else { return false };
        for function in removed.functions {
            self.functions.remove(&function.name.to_lowercase());
        }
        true
    }

    fn dump(&self) -> Vec<u8> {
        libraries::dump(self.libraries.values().map(|loaded| loaded.library.code.as_slice()))
    }
}

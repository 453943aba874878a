//! Libraries of functions that FUNCTION LOAD has brought.
//!
//! A library is code that registers functions when it runs. Each interpreter runs it before the
//! first call of one of its functions. Libraries are in memory: a restart forgets them.
//!
//! Names of libraries and functions are compared without regard to case, as in Redis.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::cache::Script;
use super::sha1::sha1_hex;

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
pub(crate) struct Registered {
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

impl Library {
    /// Parses the first line: `#!lua name=mylib`.
    pub(crate) fn parse(code: &[u8]) -> Result<Self, String> {
        if !code.starts_with(b"#!") {
            return Err("ERR Missing library metadata".to_owned());
        }
        let end = code.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| "ERR Invalid library metadata".to_owned())?;
        let line = String::from_utf8_lossy(&code[2..end]);
        let mut words = line.split_whitespace();
        let engine = words.next().unwrap_or_default();
        let mut name = None;
        for word in words {
            let Some(given) = word.strip_prefix("name=") else {
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
pub(crate) struct Loaded {
    pub(crate) library: Arc<Library>,
    pub(crate) functions: Vec<Registered>,
}

/// All libraries.
#[derive(Default)]
pub(crate) struct Functions {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By name in lower case.
    libraries: BTreeMap<String, Loaded>,
    /// By name in lower case.
    functions: BTreeMap<String, Arc<Script>>,
}

impl Functions {
    /// Adds a library, or replaces one.
    pub(crate) fn add(
        &self,
        library: Arc<Library>,
        functions: Vec<Registered>,
        replaces: bool,
    ) -> Result<(), String> {
        let mut state = self.state.lock();
        let key = library.name.to_lowercase();
        let old = state.libraries.get(&key);
        if old.is_some() && !replaces {
            return Err(format!("ERR Library '{}' already exists", library.name));
        }
        let is_old = |name: &str| {
            old.is_some_and(|old| old.functions.iter().any(|f| f.name.eq_ignore_ascii_case(name)))
        };
        for function in &functions {
            let name = &function.name;
            if state.functions.contains_key(&name.to_lowercase()) && !is_old(name) {
                return Err(format!("ERR Function {name} already exists"));
            }
        }
        state.remove(&key);
        for function in &functions {
            let is_read_only = function.flags.contains(&"no-writes");
            let script = Script::function(&function.name, library.clone(), is_read_only);
            state.functions.insert(function.name.to_lowercase(), Arc::new(script));
        }
        state.libraries.insert(key, Loaded { library, functions });
        Ok(())
    }

    /// Removes a library. Returns whether it existed.
    pub(crate) fn remove(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name).to_lowercase();
        self.state.lock().remove(&name)
    }

    /// Removes all libraries.
    pub(crate) fn flush(&self) {
        *self.state.lock() = State::default();
    }

    /// The function with a name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<Arc<Script>> {
        let name = std::str::from_utf8(name).ok()?.to_lowercase();
        self.state.lock().functions.get(&name).cloned()
    }

    /// All libraries, by name.
    pub(crate) fn all(&self) -> Vec<Loaded> {
        self.state.lock().libraries.values().cloned().collect()
    }

    /// Number of libraries, and of functions.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.libraries.len(), state.functions.len())
    }
}

impl State {
    fn remove(&mut self, key: &str) -> bool {
        let Some(removed) = self.libraries.remove(key) else { return false };
        for function in removed.functions {
            self.functions.remove(&function.name.to_lowercase());
        }
        true
    }
}

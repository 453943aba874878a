//! Known scripts, by the SHA-1 of their text, and by the text itself.
//!
//! EVAL names a script by its text: a fast hash of it, and a comparison, cost less than a SHA-1.
//!
//! Scripts of SCRIPT LOAD stay until SCRIPT FLUSH. Of the scripts that only EVAL has sent, the
//! latest [`MAX_EVALUATED`] are kept, and fewer if all scripts are large. A restart forgets all.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::digest::sha1_hex;
use super::function_library::Library;

/// Number of scripts kept that were not loaded.
const MAX_EVALUATED: usize = 500;

/// Bytes of scripts above which those that were not loaded go.
const MAX_EVALUATED_BYTES: usize = 64 << 20;

/// A script, or a function of a library.
#[derive(Debug)]
pub(crate) struct Script {
    /// SHA-1 of the text; the name of a function.
    pub(crate) sha: String,
    /// Of a function.
    pub(crate) library: Option<Arc<Library>>,
    text: Vec<u8>,
    /// Where the shebang ends.
    body_start: usize,
    pub(crate) has_shebang: bool,
    /// It promises not to write.
    pub(crate) is_read_only: bool,
    /// It has used keys that it did not declare.
    pub(crate) needs_store: AtomicBool,
    /// Its last run was long.
    pub(crate) is_long: AtomicBool,
    is_loaded: AtomicBool,
}

impl Script {
    /// A function of a library.
    pub(super) fn function(name: &str, library: Arc<Library>, is_read_only: bool) -> Self {
        Script {
            sha: name.to_owned(),
            library: Some(library),
            text: Vec::new(),
            body_start: 0,
            has_shebang: true,
            is_read_only,
            needs_store: AtomicBool::new(false),
            is_long: AtomicBool::new(false),
            is_loaded: AtomicBool::new(true),
        }
    }

    /// Parses the shebang, if there is one: `#!lua flags=no-writes,allow-stale`.
    pub(crate) fn parse(text: &[u8]) -> Result<Self, String> {
        let mut script = Script {
            sha: sha1_hex(text),
            library: None,
            text: text.to_vec(),
            body_start: 0,
            has_shebang: text.starts_with(b"#!"),
            is_read_only: false,
            needs_store: AtomicBool::new(false),
            is_long: AtomicBool::new(false),
            is_loaded: AtomicBool::new(false),
        };
        if !script.has_shebang {
            return Ok(script);
        }
        let end = text.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or_else(|| "ERR Invalid script shebang".to_owned())?;
        let line = String::from_utf8_lossy(&text[..end]);
        let mut words = line.split_whitespace();
        let engine = words.next().unwrap_or_default();
        if engine != "#!lua" {
            return Err(format!("ERR Unexpected engine in script shebang: {engine}"));
        }
        for word in words {
            let Some(flags) = word.strip_prefix("flags=") else {
                return Err(format!("ERR Unknown lua shebang option: {word}"));
            };
            for flag in flags.split(',').filter(|flag| !flag.is_empty()) {
                match flag {
                    "no-writes" => script.is_read_only = true,
                    "allow-oom" | "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                    flag => return Err(format!("ERR Unexpected flag in script shebang: {flag}")),
                }
            }
        }
        script.body_start = end;
        Ok(script)
    }

    /// Text without the shebang, but with its line end, so that lines keep their numbers.
    pub(super) fn body(&self) -> &[u8] {
        &self.text[self.body_start..]
    }
}

/// Known scripts.
pub(crate) struct ScriptCache {
    state: Mutex<State>,
    /// Number of SCRIPT FLUSH calls.
    generation: AtomicU64,
    /// Seed of the hashes of texts, so that clients cannot choose texts of one hash.
    seed: u64,
}

impl Default for ScriptCache {
    fn default() -> Self {
        let seed = RandomState::new().hash_one(0);
        ScriptCache { state: Mutex::default(), generation: AtomicU64::new(0), seed }
    }
}

#[derive(Default)]
struct State {
    by_sha: HashMap<String, Arc<Script>>,
    /// By the hash of the text. Of texts with one hash, the one that came last.
    by_text: HashMap<u64, Arc<Script>>,
    /// Those that were not loaded, in the order of their arrival.
    evaluated: VecDeque<String>,
    bytes: usize,
}

impl ScriptCache {
    /// The script with a SHA-1, given in any case.
    pub(crate) fn find(&self, sha: &[u8]) -> Option<Arc<Script>> {
        let sha = std::str::from_utf8(sha).ok()?.to_ascii_lowercase();
        self.state.lock().by_sha.get(&sha).cloned()
    }

    /// The script with a text.
    pub(crate) fn find_text(&self, text: &[u8]) -> Option<Arc<Script>> {
        let hash = self.hash(text);
        let state = self.state.lock();
        state.by_text.get(&hash).filter(|script| script.text == text).cloned()
    }

    fn hash(&self, text: &[u8]) -> u64 {
        xxh3_64_with_seed(text, self.seed)
    }

    /// Adds a script that has been compiled.
    pub(crate) fn add(&self, script: Arc<Script>, is_loaded: bool) {
        let mut state = self.state.lock();
        let State { by_sha, by_text, evaluated, bytes } = &mut *state;
        let known = by_sha.entry(script.sha.clone()).or_insert_with(|| {
            *bytes += script.text.len();
            by_text.insert(self.hash(&script.text), script.clone());
            if !is_loaded {
                evaluated.push_back(script.sha.clone());
            }
            script.clone()
        });
        if is_loaded {
            known.is_loaded.store(true, Relaxed);
        }
        while state.evaluated.len() > MAX_EVALUATED || state.bytes > MAX_EVALUATED_BYTES {
            let Some(oldest) = state.evaluated.pop_front() else { break };
            let is_loaded = |script: &Arc<Script>| script.is_loaded.load(Relaxed);
            if !state.by_sha.get(&oldest).is_some_and(is_loaded)
                && let Some(removed) = state.by_sha.remove(&oldest)
            {
                state.bytes -= removed.text.len();
                let hash = self.hash(&removed.text);
                if state.by_text.get(&hash).is_some_and(|script| Arc::ptr_eq(script, &removed)) {
                    state.by_text.remove(&hash);
                }
            }
        }
    }

    /// Forgets all scripts.
    pub(crate) fn flush(&self) {
        *self.state.lock() = State::default();
        self.generation.fetch_add(1, Relaxed);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }

    /// Number of scripts, and bytes of their texts.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.by_sha.len(), state.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_latest_evaluated_scripts_stay() {
        let cache = ScriptCache::default();
        let script = |number: usize| Script::parse(format!("return {number}").as_bytes()).unwrap();
        let shas: Vec<String> = (0..MAX_EVALUATED + 10).map(|number| script(number).sha).collect();
        cache.add(Arc::new(script(0)), true);
        for number in 1..shas.len() {
            cache.add(Arc::new(script(number)), false);
        }
        // One that came by EVAL first, and was loaded later.
        cache.add(Arc::new(script(20)), true);
        cache.add(Arc::new(script(shas.len() + 1)), false);
        let known = |number: usize| {
            let by_text = cache.find_text(format!("return {number}").as_bytes());
            let by_sha = cache.find(shas[number].as_bytes());
            assert_eq!(by_text.map(|it| it.sha.clone()), by_sha.as_ref().map(|it| it.sha.clone()));
            by_sha.is_some()
        };
        assert!(known(0) && known(20) && known(shas.len() - 1));
        assert!(!known(1) && !known(10));
        assert_eq!(cache.counts().0, MAX_EVALUATED + 1);
        cache.flush();
        assert_eq!((cache.counts(), cache.generation()), ((0, 0), 1));
    }

    #[test]
    fn shebang_has_flags() {
        let script = Script::parse(b"#!lua flags=no-writes,allow-stale\nreturn 1").unwrap();
        assert!(script.is_read_only && script.has_shebang);
        assert_eq!(script.body(), b"\nreturn 1");
        assert!(!Script::parse(b"return 1").unwrap().has_shebang);
    }
}

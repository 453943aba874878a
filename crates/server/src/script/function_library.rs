//! A library of functions: its code, and the functions that the code registers.
//!
//! Source: the documentation of Redis's functions; error texts of Redis 7.0.

use std::sync::Arc;

use super::digest::sha1_hex;

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

//! Small files of text that state their own hash.
//!
//! ```text
//!   {"version":1, …}\n      one line of JSON
//!   HASH\n                  64 hex digits: BLAKE3 of the line before, with its end
//! ```

use serde::Serialize;
use serde::de::DeserializeOwned;
use siltstone_engine::{Error, Result};

/// The bytes of a file with this content.
pub(crate) fn seal(content: &impl Serialize) -> Result<Vec<u8>> {
    let mut text = serde_json::to_string(content).map_err(|e| Error::Invalid(e.to_string()))?;
    text.push('\n');
    let hash = blake3::hash(text.as_bytes()).to_hex();
    text.push_str(&hash);
    text.push('\n');
    Ok(text.into_bytes())
}

/// The line of JSON in the file `name`.
///
/// # Errors
/// `Corruption` if it does not match its hash.
pub(crate) fn unseal<'b>(name: &str, bytes: &'b [u8]) -> Result<&'b [u8]> {
    let damaged = |reason| Error::corruption(name, 0, reason);
    let end =
        bytes.iter().position(|&byte| byte == b'\n').ok_or_else(|| damaged("it has no line"))?;
    let (text, hash) = bytes.split_at(end + 1);
    match hash.strip_suffix(b"\n") == Some(blake3::hash(text).to_hex().as_bytes()) {
        true => Ok(text),
        false => Err(damaged("it does not match its hash")),
    }
}

/// The content of the file `name`.
///
/// # Errors
/// `Corruption` if it does not match its hash or is malformed.
pub(crate) fn parse<T: DeserializeOwned>(name: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(unseal(name, bytes)?)
        .map_err(|error| Error::corruption(name, 0, error.to_string()))
}

//! The content of a file, as text.

#[cfg(feature = "serde")]
use serde::Serialize;

/// A file's kind and content.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct Inspection {
    /// The kind of the file.
    pub kind: &'static str,
    /// Its properties: name and value.
    pub properties: Vec<(String, String)>,
    /// Its first entries, records or edits.
    pub items: Vec<String>,
    /// How many items are not listed.
    pub more: u64,
    /// The damage found, if any.
    pub damage: Option<String>,
}

impl Inspection {
    /// Adds a property.
    pub fn property(&mut self, name: &str, value: impl ToString) {
        self.properties.push((name.to_owned(), value.to_string()));
    }

    /// Adds an item, or counts it if there are `limit` items already.
    pub fn item(&mut self, limit: usize, item: impl FnOnce() -> String) {
        if self.items.len() < limit {
            self.items.push(item());
        } else {
            self.more += 1;
        }
    }
}

/// Bytes for a terminal: escaped, and truncated if they are long.
pub fn shown(bytes: &[u8]) -> String {
    const MAX_DISPLAY_BYTES: usize = 48;
    let text = bytes[..bytes.len().min(MAX_DISPLAY_BYTES)].escape_ascii();
    match bytes.len() > MAX_DISPLAY_BYTES {
        true => format!("{text}… ({} bytes)", bytes.len()),
        false => text.to_string(),
    }
}

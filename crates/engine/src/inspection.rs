//! What is in one of an engine's files, told for people.

use serde::Serialize;

/// What a file is and holds.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Inspection {
    /// What kind of file it is.
    pub kind: &'static str,
    /// What it says of itself.
    pub properties: Vec<(String, String)>,
    /// Its first entries, records or edits.
    pub items: Vec<String>,
    /// How many more of them there are.
    pub more: u64,
    /// What does not hold, if anything.
    pub damage: Option<String>,
}

impl Inspection {
    /// Adds a property.
    pub fn property(&mut self, name: &str, value: impl ToString) {
        self.properties.push((name.to_owned(), value.to_string()));
    }

    /// Adds an item, unless `limit` of them are there.
    pub fn item(&mut self, limit: usize, item: impl FnOnce() -> String) {
        if self.items.len() < limit {
            self.items.push(item());
        } else {
            self.more += 1;
        }
    }
}

/// Bytes for a terminal: escaped, and cut where they are long.
pub fn shown(bytes: &[u8]) -> String {
    const LONGEST: usize = 48;
    let text = bytes[..bytes.len().min(LONGEST)].escape_ascii();
    match bytes.len() > LONGEST {
        true => format!("{text}… ({} bytes)", bytes.len()),
        false => text.to_string(),
    }
}

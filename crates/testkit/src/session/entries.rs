//! All entries of an engine, for comparisons.

use std::collections::BTreeMap;

use siltstone_engine::{Cursor, Engine, Entry};

use crate::CheckError;
use crate::oracle::show;

/// All entries of an engine.
///
/// # Errors
/// The engine's, or a key that comes twice.
pub fn contents(engine: &dyn Engine) -> Result<BTreeMap<Vec<u8>, Entry>, CheckError> {
    entries_of(engine.iter()?)
}

/// All entries of a cursor.
///
/// # Errors
/// The engine's, or a key that comes twice.
pub fn entries_of(mut cursor: Box<dyn Cursor>) -> Result<BTreeMap<Vec<u8>, Entry>, CheckError> {
    let mut entries = BTreeMap::new();
    let mut is_valid = cursor.first()?;
    while is_valid {
        let entry = Entry { value: cursor.value().to_vec(), expires_at: cursor.expires_at() };
        if entries.insert(cursor.key().to_vec(), entry).is_some() {
            let what = format!("a scan returns key {} twice", show(cursor.key()));
            return Err(CheckError::Mismatch(what));
        }
        is_valid = cursor.next()?;
    }
    Ok(entries)
}

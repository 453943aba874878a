//! Names in the directory of a store, and paths.

use std::path::{Path, PathBuf};

use siltstone_engine::{Error, Result};

/// The file that is locked while the store is open.
pub(crate) const LOCK: &str = "LOCK";
/// The directory of a table is named by this and the table's name.
pub(crate) const TABLE_PREFIX: &str = "table-";

/// Whether a file beside the tables belongs to the content of a store: the libraries of functions
/// of a server, in logs `functions-000001.log`, and by earlier programs in `functions.rdb`. A log
/// grows, and a newer one replaces it. Any of its beginnings is a state of the libraries.
pub(crate) fn is_companion(name: &str) -> bool {
    name == "functions.rdb" || name.starts_with("functions-") && name.ends_with(".log")
}

/// The directory of a table.
pub(crate) fn directory(table: &str) -> String {
    format!("{TABLE_PREFIX}{table}")
}

/// The file that lists the tables.
pub(crate) const CATALOGUE: &str = "CATALOG";

/// How a catalogue begins that is not encrypted.
pub(crate) const CATALOGUE_MAGIC: &str = "siltstone-catalogue";

/// The absolute path: the engine takes relative ones as within the table's directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Error::io("make absolute", path.display().to_string(), &error))
}

//! Names in the directory of a store.

/// The file that is locked while the store is open.
pub(crate) const LOCK: &str = "LOCK";
/// The directory of a table is named by this and the table's name.
pub(crate) const TABLE_PREFIX: &str = "table-";

/// The directory of a table.
pub(crate) fn directory(table: &str) -> String {
    format!("{TABLE_PREFIX}{table}")
}

/// The file that lists the tables.
pub(crate) const CATALOGUE: &str = "CATALOG";

/// How a catalogue begins that is not encrypted.
pub(crate) const CATALOGUE_MAGIC: &str = "siltstone-catalogue";

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

/// The file of a backup of a replicated table, which is no store and has no catalogue: the name of
/// the cluster that it comes from (crate `siltstone-server`).
pub const CLUSTER_ORIGIN: &str = "CLUSTER-ORIGIN";
/// The files of which a directory of a node of a replicated table has at least one, and how they
/// begin if they are not encrypted: the ids of nodes (crate `siltstone-cluster`), and the origin.
pub const NODE_FILES: [(&str, &[u8]); 2] =
    [("NODE-IDENTITIES", b"SILTPEER"), (CLUSTER_ORIGIN, b"SILTORIG")];
/// The file that is locked while a node runs.
#[cfg(feature = "encryption")]
pub(crate) const NODE_LOCK: &str = "NODE-LOCK";
/// The directories of the groups of a replicated table begin with this.
pub(crate) const GROUP_PREFIX: &str = "group-";

/// The directory of a table; `name` is the table's name, or its [spare](spare_name) name.
pub(crate) fn directory(name: &str) -> String {
    format!("{TABLE_PREFIX}{name}")
}

/// Tables have no dot in their names.
const SPARE_SUFFIX: &str = ".1";

/// The other name of a table's directory: a table that moves to another engine goes from the
/// directory with one name to the one with the other.
pub(crate) fn spare_name(table: &str) -> String {
    format!("{table}{SPARE_SUFFIX}")
}

/// The table of which this is the spare name of the directory.
pub(crate) fn spare_of(directory: &str) -> Option<&str> {
    directory.strip_suffix(SPARE_SUFFIX)
}

/// The file that lists the tables.
pub(crate) const CATALOGUE: &str = "CATALOG";

/// The file whose space a store uses to drop or clear a table when the disk is full.
pub(crate) const RESERVE: &str = "RESERVE";

/// How a catalogue begins that is not encrypted.
pub(crate) const CATALOGUE_MAGIC: &str = "siltstone-catalogue";

/// The absolute path: the engine takes relative ones as within the table's directory.
pub(crate) fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path)
        .map_err(|error| Error::io("make absolute", path.display().to_string(), &error))
}

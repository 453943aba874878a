//! Dumps one file of a store, whichever engine or part of the store it belongs to.
//!
//! Each engine is asked in turn whether it knows the file by its name. Files are opened over an
//! overlay in memory.
//!
//! Invariant: inspection changes no file.

use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Error, Inspection, Result};
use siltstone_vfs::{Disk, Overlay, Vfs};

use crate::catalogue::Catalogue;
use crate::encryption::Keys;
use crate::names::TABLE_PREFIX;

/// Dumps up to `limit` items of one file of a store; `None` if it is not a file of a store.
///
/// # Errors
/// I/O errors; damage is in the returned value.
pub fn inspect(path: &Path, limit: usize) -> Result<Option<Inspection>> {
    inspect_with(path, limit, &Keys::default())
}

/// The same for a file of a store with these keys.
///
/// # Errors
/// The same, and those of keys that do not fit.
pub fn inspect_with(path: &Path, limit: usize, keys: &Keys) -> Result<Option<Inspection>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    // Over an overlay, so that nothing that an engine does to open a file changes it.
    let vfs: Arc<dyn Vfs> = Arc::new(Overlay::new(directory_of(directory, keys)?));
    let name = name.to_string_lossy();
    if Catalogue::owns(&name) {
        return catalogue(vfs.as_ref()).map(Some);
    }
    type Inspect = fn(&Arc<dyn Vfs>, &str, usize) -> Result<Option<Inspection>>;
    let engines: &[Inspect] = &[
        #[cfg(feature = "skimpy")]
        siltstone_skimpy::inspect,
        #[cfg(feature = "silt")]
        siltstone_silt::inspect,
        #[cfg(feature = "trie")]
        siltstone_trie::inspect,
        #[cfg(feature = "lsm")]
        siltstone_lsm::inspect,
    ];
    for inspect in engines {
        if let Some(inspection) = inspect(&vfs, &name, limit)? {
            return Ok(Some(inspection));
        }
    }
    Ok(None)
}

/// The directory of a file of a store. A file of a table is encrypted under the table's name, so
/// its directory is opened as a part of the store's.
fn directory_of(directory: &Path, keys: &Keys) -> Result<Arc<dyn Vfs>> {
    let absolute = std::path::absolute(directory)
        .map_err(|error| Error::io("find", directory.display().to_string(), &error))?;
    let name = absolute.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match absolute.parent().filter(|_| name.starts_with(TABLE_PREFIX)) {
        Some(store) => keys.wrap(Arc::new(Disk::open(store)?)).subdirectory(name),
        None => Ok(keys.wrap(Arc::new(Disk::open(directory)?))),
    }
}

fn catalogue(vfs: &dyn Vfs) -> Result<Inspection> {
    let mut inspection = Inspection { kind: "catalogue", ..Inspection::default() };
    match Catalogue::read(vfs) {
        Ok(catalogue) => inspection.items.extend(catalogue.tables.iter().map(|(name, spec)| {
            format!("table {name} on {} with {:?}", spec.engine, spec.options)
        })),
        Err(error @ (Error::Corruption { .. } | Error::Refused { .. })) => {
            inspection.damage = Some(error.to_string());
        }
        Err(other) => return Err(other),
    }
    Ok(inspection)
}

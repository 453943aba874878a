//! Pins a store that another process writes: opens its files as of one moment.
//!
//! ```text
//!   1  CATALOG                     bytes
//!   2  manifest of each table      bytes; all of them before any log
//!   3  files of each table         open
//!   4  manifest of each table      has the table flushed a log since 2? then again from 1
//!      CATALOG                     has it changed since 1? then again from 1
//!   5  logs of each table          up to the last whole record; the newest log first
//! ```
//!
//! A flush removes logs only after its manifest edit, so step 4 shows whether one was missed. A
//! compaction removes other files: the open of a table that misses one fails, and the caller pins
//! the store again. A drop and a move to another engine remove a directory file by file, but change
//! the catalogue first. Steps 2 to 4 only open files, so a writer that flushes often leaves time for
//! them; whatever it does during step 5 changes nothing.
//!
//! Logs grow while they are read. A log that has a successor is complete, so with the newest read
//! first, what is pinned is a prefix of the writes of each table.
//!
//! A batch over several tables may be pinned in some of them; opening the store removes it, as
//! after a crash. A manifest that states that a batch is durable in all tables was read before the
//! logs, so they have all of it. The pinned parts of a log are not read again from the growing
//! file, so all steps of opening see the same.
//!
//! Invariant: a later pin of the same store has at least the writes of an earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_table::{
    FileKind, FileNumber, LogEnd, LogMode, LogReader, Manifest, parse_file_name,
};
use siltstone_vfs::{File, Mode, PinnedDirectory, Vfs};

use crate::catalogue::Catalogue;
use crate::engines;
use crate::names::directory;

/// A store as of one moment.
pub(crate) struct PinnedStore {
    pub(crate) directory: PinnedDirectory,
    pub(crate) state: StoreState,
    /// The tables that cannot be pinned, with their engines.
    pub(crate) refused: BTreeMap<String, &'static str>,
}

/// A fingerprint of the store: it differs after every write and every change of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct StoreState {
    catalogue: Catalogue,
    /// The lengths of manifests and of the logs that are needed, by table and name.
    lengths: BTreeMap<(String, String), u64>,
}

/// A table with its manifest pinned.
struct PinnedTable {
    name: String,
    engine: String,
    vfs: Arc<dyn Vfs>,
    files: PinnedDirectory,
    first_log: u64,
    /// The logs that are needed, by number.
    logs: BTreeMap<u64, Arc<dyn File>>,
}

/// Pins the store in `vfs`.
///
/// # Errors
/// `Corruption`, `Refused` and `Io`, also if the writer has removed or replaced a file meanwhile.
pub(crate) fn pin(vfs: &dyn Vfs) -> Result<PinnedStore> {
    let mut catalogue = Catalogue::read(vfs)?;
    let mut state = StoreState { catalogue: catalogue.clone(), ..StoreState::default() };
    let mut refused = BTreeMap::new();
    catalogue.pending.clear();
    catalogue.tables.retain(|name, spec| match engines::check_reader(spec) {
        Ok(()) => true,
        Err(engine) => {
            refused.insert(name.clone(), engine);
            false
        }
    });
    let mut tables = Vec::new();
    for (name, spec) in &catalogue.tables {
        let directory = directory(catalogue.directory_of(name));
        tables.push(pin_manifest(vfs, &directory, name, &spec.engine, &mut state)?);
    }
    for table in &mut tables {
        open_files(table)?;
    }
    // What a drop or a move to another engine removes, the catalogue does not name any more then.
    if Catalogue::read(vfs)? != state.catalogue {
        return Err(was_removed("pin", vfs));
    }
    for table in &mut tables {
        read_logs(table, &mut state)?;
    }
    let mut pinned = PinnedDirectory::of(vfs);
    pinned.add_bytes(Catalogue::NAME, catalogue.format());
    for table in tables {
        pinned.add_directory(&directory(catalogue.directory_of(&table.name)), table.files);
    }
    Ok(PinnedStore { directory: pinned, state, refused })
}

fn pin_manifest(
    store: &dyn Vfs,
    directory: &str,
    name: &str,
    engine: &str,
    state: &mut StoreState,
) -> Result<PinnedTable> {
    let vfs = store.existing_subdirectory(directory)?;
    let mut files = PinnedDirectory::of(vfs.as_ref());
    // CURRENT is before MANIFEST in this order: a manifest that it names is complete from then on.
    for file in vfs.list()?.into_iter().filter(|file| Manifest::owns(file)) {
        let Some(bytes) = read(vfs.as_ref(), &file)? else { continue };
        state.lengths.insert((name.to_owned(), file.clone()), bytes.len() as u64);
        files.add_bytes(&file, bytes);
    }
    // As pinned, since the files of the directory may be newer.
    let manifest: Arc<dyn Vfs> = Arc::new(files.clone());
    let first_log = engines::first_log(engine, &manifest)?;
    let (name, engine) = (name.to_owned(), engine.to_owned());
    Ok(PinnedTable { name, engine, vfs, files, first_log, logs: BTreeMap::new() })
}

/// Opens all files of a table but its manifest.
fn open_files(table: &mut PinnedTable) -> Result<()> {
    let PinnedTable { engine, vfs, files, first_log, logs, .. } = table;
    for name in vfs.list()?.into_iter().filter(|name| !Manifest::owns(name)) {
        let file = match vfs.open(&name, Mode::Read) {
            // Below, or when the table is opened, it is found out whether it is needed.
            Err(error) if error.is_not_found() => continue,
            opened => opened?,
        };
        match parse_file_name(&name) {
            Some((FileKind::Log, number)) if number.0 >= *first_log => {
                logs.insert(number.0, file);
            }
            _ => files.add_file(&name, file),
        }
    }
    if engines::first_log(engine, vfs)? != *first_log {
        return Err(was_removed("pin the logs of", vfs.as_ref()));
    }
    Ok(())
}

/// The writer has removed or replaced files: the caller tries again.
fn was_removed(operation: &'static str, vfs: &dyn Vfs) -> Error {
    Error::io(operation, vfs.name(), &std::io::Error::from(std::io::ErrorKind::NotFound))
}

/// Finds the end of each log.
fn read_logs(table: &mut PinnedTable, state: &mut StoreState) -> Result<()> {
    for (&number, file) in table.logs.iter().rev() {
        let name = FileKind::Log.name(FileNumber(number));
        let mut reader = LogReader::from_file(file.clone(), &name, number, LogMode::Recover)?;
        while reader.next()?.is_some() {}
        let end = reader.valid_bytes();
        state.lengths.insert((table.name.clone(), name.clone()), end);
        match reader.end() {
            Some(LogEnd::Sealed) => table.files.add_file(&name, file.clone()),
            _ => table.files.add_prefix(&name, file.clone(), end),
        }
    }
    Ok(())
}

/// The content of a file; `None` if it was removed.
fn read(vfs: &dyn Vfs, name: &str) -> Result<Option<Vec<u8>>> {
    let file = match vfs.open(name, Mode::Read) {
        Err(error) if error.is_not_found() => return Ok(None),
        opened => opened?,
    };
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(0, &mut bytes, Purpose::Recovery)?;
    Ok(Some(bytes))
}

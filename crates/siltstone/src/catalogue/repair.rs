//! Rebuilds a damaged or missing catalogue from the directories of the tables.
//!
//! ```text
//!   table-NAME/   the engine: from the manifest, or from file names that only one engine uses
//!   CATALOG       the options: from what is still legible, if it names that engine
//!   flash, UPPER  the size of skimpy's device and the directory of trie's upper levels; these win
//! ```
//!
//! Every table directory is listed, or nothing is written. A table that the damaged file lists as
//! pending is left alone: damaged data never justifies a removal. The damaged file is kept as
//! `CATALOG.damaged`. An intact catalogue that lacks tables, as a restored older one does, gets
//! them added. Directories that are not tables are left alone.

use std::path::Path;
use std::sync::Arc;

use siltstone_engine::{Error, Purpose, Result};
use siltstone_vfs::{Disk, Mode, Vfs};

use super::{Catalogue, MAX_BYTES, NAME, TableSpec, json};
use crate::encryption::Keys;
use crate::engines;
use crate::names::{LOCK, TABLE_PREFIX, spare_of};

const QUARANTINED_NAME: &str = "CATALOG.damaged";

/// Rebuilds the catalogue of the store in `dir` if it is damaged, or missing beside tables, and
/// adds unlisted tables to it. Returns a log of what was done, by line, which is empty for an
/// intact catalogue with all tables.
///
/// # Errors
/// [`Error::Refused`] if there are no tables, if the engine of a table is unknown or missing in
/// this build, or for a catalogue of a newer version; [`Error::Locked`]; I/O errors.
pub fn repair(dir: &Path) -> Result<Vec<String>> {
    repair_with(dir, &Keys::default())
}

/// The same for a store with these keys.
pub(crate) fn repair_with(dir: &Path, keys: &Keys) -> Result<Vec<String>> {
    repair_vfs(keys.open(Arc::new(Disk::open(dir)?))?.as_ref())
}

fn repair_vfs(vfs: &dyn Vfs) -> Result<Vec<String>> {
    let tables = || Catalogue::default().unlisted(vfs);
    if !Catalogue::exists(vfs)? && tables()?.is_empty() {
        let reason = "not a siltstone store: it has neither CATALOG nor a table".to_owned();
        return Err(Error::Refused { path: vfs.name(), reason });
    }
    // Before anything is read: without the lock another process may create tables or a catalogue.
    let _lock = vfs.lock(LOCK)?;
    let damage = match Catalogue::read(vfs) {
        Ok(intact) => return add_unlisted(vfs, intact),
        Err(damage @ Error::Corruption { .. }) => damage.to_string(),
        Err(missing) if missing.is_not_found() => format!("{NAME} is missing"),
        Err(other) => return Err(other),
    };
    let mut log = vec![format!("{damage}: it is rebuilt from the table directories")];
    let known = read_legible(vfs)?;
    let mut catalogue = Catalogue::default();
    for name in tables()? {
        if known.pending.contains(&name) {
            log.push(format!(
                "table {name} was being created or dropped: its directory is left as it is; run repair again to list it"
            ));
            continue;
        }
        let Some(table) = table_of(&name, &known, &catalogue, &mut log) else { continue };
        let spec = recover_spec(vfs, &table, &name, &known, &mut log)?;
        catalogue.set_directory(&table, name);
        catalogue.tables.insert(table, spec);
    }
    for name in known.tables.keys().filter(|name| !catalogue.tables.contains_key(*name)) {
        log.push(format!("table {name} has no directory: it is left out"));
    }
    if Catalogue::exists(vfs)? {
        quarantine(vfs)?;
        log.push(format!("the damaged file is kept as {QUARANTINED_NAME}"));
    }
    catalogue.write(vfs)?;
    Ok(log)
}

/// Adds unlisted tables to an intact catalogue.
fn add_unlisted(vfs: &dyn Vfs, mut catalogue: Catalogue) -> Result<Vec<String>> {
    let mut log = Vec::new();
    let before = catalogue.tables.len();
    for name in catalogue.unlisted(vfs)? {
        let nothing = Catalogue::default();
        let Some(table) = table_of(&name, &nothing, &catalogue, &mut log) else { continue };
        match recover_spec(vfs, &table, &name, &nothing, &mut log) {
            Ok(spec) => {
                catalogue.set_directory(&table, name);
                catalogue.tables.insert(table, spec);
            }
            Err(Error::Refused { reason, .. }) => {
                log.push(format!("the directory {TABLE_PREFIX}{name} is left as it is: {reason}"));
            }
            Err(other) => return Err(other),
        }
    }
    if !log.is_empty() {
        log.insert(0, format!("{NAME} did not list all tables of the store"));
    }
    if catalogue.tables.len() > before {
        catalogue.write(vfs)?;
    }
    Ok(log)
}

/// Keeps the damaged catalogue under a second name. The first name stays until the new catalogue
/// replaces it, so that a repair after an interrupted one finds the legible parts again.
fn quarantine(vfs: &dyn Vfs) -> Result<()> {
    if vfs.exists(QUARANTINED_NAME)? {
        vfs.remove(QUARANTINED_NAME)?;
    }
    if vfs.link(NAME, vfs, QUARANTINED_NAME)? {
        return Ok(());
    }
    let bytes = content(vfs)?;
    let copy = vfs.create(QUARANTINED_NAME)?;
    copy.write_at(0, &bytes, Purpose::Manifest)?;
    copy.sync(Purpose::Manifest)
}

/// The table that a directory belongs to, whose name is without the prefix. `None` if the table has
/// another directory: a crash has interrupted its move to another engine.
fn table_of(
    directory: &str,
    known: &Catalogue,
    repaired: &Catalogue,
    log: &mut Vec<String>,
) -> Option<String> {
    let table = spare_of(directory).unwrap_or(directory);
    let recorded = known.tables.contains_key(table).then(|| known.directory_of(table));
    if repaired.tables.contains_key(table) || recorded.is_some_and(|known| known != directory) {
        log.push(format!(
            "the directory {TABLE_PREFIX}{directory} is left as it is: it is of a move of table \
             {table}, which has another directory; move it away if the table is complete"
        ));
        return None;
    }
    Some(table.to_owned())
}

/// The engine and options of a table, as far as they can be determined.
fn recover_spec(
    vfs: &dyn Vfs,
    name: &str,
    directory: &str,
    known: &Catalogue,
    log: &mut Vec<String>,
) -> Result<TableSpec> {
    let directory = vfs.subdirectory(&format!("{TABLE_PREFIX}{directory}"))?;
    let engine = engines::detect(directory.as_ref())?;
    let fits = |spec: &&TableSpec| {
        engine.is_none_or(|engine| engine == spec.engine)
            && engines::check(&spec.engine, &spec.options).is_ok()
    };
    let found = known.tables.get(name).filter(fits);
    let Some(engine) = found.map(|spec| &*spec.engine).or(engine) else {
        return Err(Error::Refused {
            path: directory.name(),
            reason: format!(
                "the engine of this table is unknown: restore {NAME} from a copy, or move the \
                 directory away"
            ),
        });
    };
    // Without it the files do not tell which options are required.
    if let Some(reason) = engines::missing(engine) {
        return Err(Error::Refused { path: directory.name(), reason });
    }
    let required = engines::required_options(engine, directory.as_ref())?;
    if let Some(spec) =
        found.filter(|spec| engines::has_required_options(engine, &spec.options, &required))
    {
        log.push(format!("table {name} is on {engine} with {:?}", spec.options));
        return Ok(spec.clone());
    }
    let mut options = found.map(|spec| spec.options.clone()).unwrap_or_default();
    engines::set_required_options(engine, &mut options, required);
    log.push(match (found, options.is_empty()) {
        (Some(_), _) => format!(
            "table {name} is on {engine} with {options:?}: its files override what is legible of {NAME}"
        ),
        (None, true) => format!(
            "table {name} is on {engine}; its options are unknown: it has the defaults"
        ),
        (None, false) => format!(
            "table {name} is on {engine} with {options:?} from its files; its other options are unknown: \
             they have the defaults"
        ),
    });
    Ok(TableSpec { engine: engine.to_owned(), options })
}

/// The legible part of the catalogue, whatever its checksum and whatever follows it.
fn read_legible(vfs: &dyn Vfs) -> Result<Catalogue> {
    if !Catalogue::exists(vfs)? {
        return Ok(Catalogue::default());
    }
    let bytes = content(vfs)?;
    let body = bytes.iter().position(|&byte| byte == b'{').map_or(&[][..], |at| &bytes[at..]);
    Ok(json::parse_first(body).unwrap_or_default())
}

fn content(vfs: &dyn Vfs) -> Result<Vec<u8>> {
    let file = vfs.open(NAME, Mode::Read)?;
    let mut bytes = vec![0; file.len()?.min(MAX_BYTES) as usize];
    file.read_lossy_at(0, &mut bytes, Purpose::Recovery)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use siltstone_engine::ManualClock;
    use siltstone_faults::FaultyVfs;
    use siltstone_runtime::Env;

    use super::*;
    use crate::{Db, DbOptions};

    fn sample() -> Catalogue {
        let options = [("memtable".to_owned(), "64KiB".to_owned())].into();
        let tables = [("t".to_owned(), TableSpec { engine: "lsm".into(), options })].into();
        Catalogue { tables, ..Catalogue::default() }
    }

    /// A store with one table and a catalogue changed by `damage`.
    fn damaged(seed: u64, damage: impl Fn(&mut Vec<u8>)) -> FaultyVfs {
        let vfs = FaultyVfs::new(seed);
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let options = DbOptions { env, ..DbOptions::default() };
        let db = Db::create_vfs(Arc::new(vfs.clone()), options).unwrap();
        let spec = &sample().tables["t"];
        db.table_or_create("t", &spec.engine, &spec.options).unwrap().put(b"k", b"v").unwrap();
        db.close().unwrap();
        let mut bytes = content(&vfs).unwrap();
        damage(&mut bytes);
        vfs.remove(NAME).unwrap();
        let file = vfs.create(NAME).unwrap();
        file.write_at(0, &bytes, Purpose::Manifest).unwrap();
        file.sync(Purpose::Manifest).unwrap();
        vfs.sync_dir(Purpose::Manifest).unwrap();
        vfs
    }

    fn damage_checksum(bytes: &mut [u8]) {
        let at = bytes.iter().position(|&byte| byte == b'=').unwrap();
        bytes[at + 1] = b'x';
    }

    #[test]
    fn repair_interrupted_at_any_operation_loses_no_options() {
        let (mut cut, mut is_done) = (0, false);
        while !is_done {
            let vfs = damaged(cut, |bytes| damage_checksum(bytes));
            vfs.cut_power_at(vfs.operations() + cut);
            is_done = repair_vfs(&vfs).is_ok();
            for seed in 0..8 {
                let vfs = vfs.survivors(seed);
                repair_vfs(&vfs).unwrap();
                assert_eq!(Catalogue::read(&vfs).unwrap(), sample(), "cut at {cut}, {seed}");
            }
            cut += 1;
        }
        assert!(cut > 5, "{cut}");
    }

    /// With a damaged name the list of pending tables may name another table's directory.
    #[test]
    fn damaged_catalogue_never_causes_a_removal() {
        let vfs = damaged(1, |bytes| {
            let pending = Catalogue { pending: ["t".to_owned()].into(), ..Catalogue::default() };
            *bytes = pending.format();
            damage_checksum(bytes);
        });
        let log = repair_vfs(&vfs).unwrap();
        assert!(log.iter().any(|line| line.contains("left as it is")), "{log:?}");
        let env = Env::replayable(Arc::new(ManualClock::at(1)), 1);
        let open = || {
            let options = DbOptions { env: env.clone(), ..DbOptions::default() };
            Db::open_vfs(Arc::new(vfs.clone()), options).unwrap()
        };
        let db = open();
        assert_eq!(db.unlisted_tables().unwrap(), ["t"]);
        db.close().unwrap();
        repair_vfs(&vfs).unwrap();
        assert_eq!(open().table("t").unwrap().get(b"k").unwrap().as_deref(), Some(&b"v"[..]));
    }

    #[test]
    fn legible_options_are_recovered_before_trailing_garbage() {
        for trailing in [&[0; 512][..], b"}", b"garbage"] {
            let vfs = damaged(1, |bytes| bytes.extend_from_slice(trailing));
            repair_vfs(&vfs).unwrap();
            assert_eq!(Catalogue::read(&vfs).unwrap(), sample());
        }
    }
}

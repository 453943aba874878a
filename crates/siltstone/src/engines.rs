//! The engines by name: the one place where a name becomes an engine.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

pub use siltstone_engine::Inspection;
use siltstone_engine::names::unknown as unknown_name;
use siltstone_engine::{
    Engine, Error, InvalidOption, MAX_VALUE_BYTES, RepairReport, Result, VerifyReport,
};
use siltstone_runtime::Env;
use siltstone_skimpy::flash::Emulator;
use siltstone_table::Manifest;
use siltstone_vfs::{Disk, Overlay, Vfs};

use crate::catalogue::Catalogue;

/// The names of all engines, as the command line and the catalogue write them.
pub const NAMES: &[&str] = &["lsm", "trie", "silt", "mica", "skimpy"];

/// Opens the engine `name` over `media`, making a new table there if there is none.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unknown engine or options that cannot be; what opening finds
/// otherwise.
pub fn open(
    name: &str,
    vfs: Arc<dyn Vfs>,
    env: &Env,
    options: &BTreeMap<String, String>,
) -> Result<Arc<dyn Engine>> {
    match name {
        "lsm" => {
            let options = siltstone_lsm::Options::from_map(options)?;
            Ok(Arc::new(siltstone_lsm::Lsm::open(vfs, env.clone(), options)?))
        }
        "trie" => {
            let options = siltstone_trie::Options::from_map(options)?;
            Ok(Arc::new(siltstone_trie::Trie::open(vfs, env.clone(), options)?))
        }
        "silt" => {
            let options = siltstone_silt::Options::from_map(options)?;
            Ok(Arc::new(siltstone_silt::Silt::open(vfs, env.clone(), options)?))
        }
        "mica" => {
            // In memory: its directory stays empty.
            let options = siltstone_mica::Options::from_map(options)?;
            Ok(Arc::new(siltstone_mica::Mica::open(env.clone(), options)?))
        }
        "skimpy" => {
            let options = siltstone_skimpy::Options::from_map(options)?;
            Ok(Arc::new(siltstone_skimpy::Skimpy::open(vfs, env.clone(), options)?))
        }
        _ => Err(unknown(name)),
    }
}

/// Checks an engine's name and options without opening anything.
///
/// # Errors
/// [`Error::InvalidOptions`], all mistakes at once.
pub fn check(name: &str, options: &BTreeMap<String, String>) -> Result<()> {
    match name {
        "lsm" => siltstone_lsm::Options::from_map(options).map(drop),
        "trie" => siltstone_trie::Options::from_map(options).map(drop),
        "silt" => siltstone_silt::Options::from_map(options).map(drop),
        "mica" => siltstone_mica::Options::from_map(options).map(drop),
        "skimpy" => siltstone_skimpy::Options::from_map(options).map(drop),
        _ => Err(unknown(name)),
    }
}

/// Whether tables on this engine have files.
pub fn keeps_files(name: &str) -> bool {
    name != "mica"
}

/// The longest value that a table on this engine with these options takes, without opening one.
///
/// # Errors
/// As [`check`].
pub fn max_value_bytes(name: &str, options: &BTreeMap<String, String>) -> Result<usize> {
    match name {
        "mica" => Ok(siltstone_mica::Options::from_map(options)?.max_value_bytes()),
        "skimpy" => Ok(siltstone_skimpy::Options::from_map(options)?.max_value_bytes()),
        _ => check(name, options).map(|()| MAX_VALUE_BYTES),
    }
}

/// Takes out of the options what can be one table's only, so that a copy of the table, which has all of
/// its files in its own directory, is opened without it.
pub fn leave_to_original(name: &str, options: &mut BTreeMap<String, String>) {
    if name == "trie" {
        // What a table does not name on its second medium it removes there.
        options.remove("upper");
    }
}

/// Removes what the table in the directory `media`, on whichever engine, keeps outside of it, durably. It is
/// closed and about to be removed; after a crash this may be called again.
///
/// # Errors
/// [`Error::Locked`] if someone has that open; failures of the media.
pub fn remove_elsewhere(vfs: &dyn Vfs) -> Result<()> {
    siltstone_trie::remove_elsewhere(vfs)
}

/// The engine of the table in the directory `media`, by its manifest or by names that one engine alone gives;
/// `None` if nothing tells.
///
/// # Errors
/// Failures of the medium.
pub fn recognise(vfs: &dyn Vfs) -> Result<Option<&'static str>> {
    if let Some(engine) = Manifest::engine_of(vfs)? {
        return Ok(NAMES.iter().copied().find(|name| *name == engine));
    }
    let names = vfs.list()?;
    if names.is_empty() {
        return Ok(Some("mica"));
    }
    const TELLING: [(&str, &str); 7] = [
        (".sst", "lsm"),
        (".htable", "trie"),
        (".bloom", "trie"),
        (".hash", "silt"),
        (".sorted", "silt"),
        ("flash", "skimpy"),
        ("packing", "skimpy"),
    ];
    let tells = |(end, _): &&(&str, &str)| names.iter().any(|name| name.ends_with(end));
    Ok(TELLING.iter().find(tells).map(|(_, engine)| *engine))
}

/// The options of a table without which it does not open, as far as its own files tell them.
///
/// # Errors
/// Failures of the medium.
pub fn told(name: &str, vfs: &dyn Vfs) -> Result<BTreeMap<String, String>> {
    let mut told = BTreeMap::new();
    if name == "trie"
        && let Some(upper) = siltstone_trie::upper_of(vfs)?
    {
        told.insert("upper".to_owned(), upper.display().to_string());
    }
    if name == "skimpy"
        && let Ok(device) = Emulator::geometry_of(vfs, "flash")
    {
        let (page, block) = (device.page_bytes() as u64, u64::from(device.pages_per_block()));
        let bytes = page * block * u64::from(device.blocks());
        let numbers = [("page", page), ("block", block), ("capacity", bytes)];
        told.extend(numbers.map(|(option, number)| (option.to_owned(), number.to_string())));
    }
    Ok(told)
}

/// Whether a table that is kept with these options opens with them, as far as that was [`told`].
pub fn agree(
    name: &str,
    options: &BTreeMap<String, String>,
    told: &BTreeMap<String, String>,
) -> bool {
    let device = |options| siltstone_skimpy::Options::from_map(options)?.geometry();
    match name {
        "trie" => options.get("upper") == told.get("upper"),
        "skimpy" if !told.is_empty() => device(options).ok() == device(told).ok(),
        _ => true,
    }
}

/// Checks what can be checked of a table that does not open because of `damage`. For `lsm` that is every file that
/// the table needs; for the others it is what opening has found.
///
/// # Errors
/// `damage` if it is none; failures to check.
pub fn verify_closed(name: &str, vfs: &Arc<dyn Vfs>, damage: Error) -> Result<VerifyReport> {
    let mut report = match name {
        "lsm" => siltstone_lsm::verify_closed(vfs)?,
        _ => VerifyReport::default(),
    };
    if report.is_sound() {
        report.note(Err(damage))?;
    }
    Ok(report)
}

/// Rebuilds what can be saved of a damaged table, which is kept with these options; the answer
/// tells what was done and what is lost.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unknown engine; failures of the medium.
pub fn repair(
    name: &str,
    vfs: &Arc<dyn Vfs>,
    options: &BTreeMap<String, String>,
) -> Result<RepairReport> {
    match name {
        "lsm" => siltstone_lsm::repair(vfs),
        "trie" => siltstone_trie::repair(vfs, &siltstone_trie::Options::from_map(options)?),
        "silt" => siltstone_silt::repair(vfs),
        "mica" => Err(Error::Unsupported { engine: "mica", operation: "repair" }),
        "skimpy" => {
            let options = siltstone_skimpy::Options::from_map(options)?;
            siltstone_skimpy::repair(vfs, Env::system(1), &options)
        }
        _ => Err(unknown(name)),
    }
}

/// Looks into one file of a store; `None` if it is none. Shows at most `limit` of its items.
///
/// # Errors
/// Failures of the medium; damage is in the answer.
pub fn inspect(path: &Path, limit: usize) -> Result<Option<Inspection>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(None);
    };
    let directory = if directory.as_os_str().is_empty() { Path::new(".") } else { directory };
    // Whatever an engine opens a file for, nothing of it changes.
    let vfs: Arc<dyn Vfs> = Arc::new(Overlay::new(Arc::new(Disk::open(directory)?)));
    let name = name.to_string_lossy();
    if Catalogue::owns(&name) {
        return catalogue(vfs.as_ref()).map(Some);
    }
    for look in [
        siltstone_skimpy::inspect,
        siltstone_silt::inspect,
        siltstone_trie::inspect,
        siltstone_lsm::inspect,
    ] {
        if let Some(inspection) = look(&vfs, &name, limit)? {
            return Ok(Some(inspection));
        }
    }
    Ok(None)
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

fn unknown(name: &str) -> Error {
    Error::InvalidOptions(vec![InvalidOption {
        option: "engine".to_owned(),
        reason: unknown_name(name, NAMES),
    }])
}

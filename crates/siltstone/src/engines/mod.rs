//! The engines by name: this module alone maps a name to an engine.
//!
//! | module | contents |
//! | --- | --- |
//! | this one | opening, checks of what an engine supports, detection, verification, repair |
//! | `options` | old names of options, what may change, what the files of a table require |
//! | `inspect` | dumps of files |

// Arguments are for the engines that are there.
#![cfg_attr(
    not(all(
        feature = "lsm",
        feature = "mica",
        feature = "silt",
        feature = "skimpy",
        feature = "trie"
    )),
    allow(unused)
)]

mod inspect;
mod options;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use inspect::{inspect, inspect_with};
pub use options::{
    deprecated_options, has_required_options, option_change, remove_exclusive_options,
    required_options, set_required_options,
};
pub(crate) use options::{differing_options, present_name, with_options};

use siltstone_durable::PartSurvey;
pub use siltstone_engine::Inspection;
use siltstone_engine::names::unknown as unknown_name;
use siltstone_engine::{Engine, Error, MAX_VALUE_BYTES, RepairReport, Result, VerifyReport};
use siltstone_runtime::Env;
use siltstone_table::{BlockCache, Manifest};
use siltstone_vfs::Vfs;

use crate::catalogue::TableSpec;
use crate::encryption::Keys;

/// The names of all engines, as used on the command line and in the catalogue.
pub const NAMES: &[&str] = &["lsm", "trie", "silt", "mica", "skimpy"];

/// The option of `lsm` for the size of the table's own block cache.
const CACHE: &str = "cache";

/// The file in the directory of a table on `trie` that names the directory of its upper levels.
#[cfg(not(feature = "trie"))]
const TRIE_TIER_FILE: &str = "UPPER";

/// What the tables of a store share besides their [`Env`].
#[derive(Clone, Default)]
pub struct SharedResources {
    block_cache: Option<Arc<BlockCache>>,
}

impl std::fmt::Debug for SharedResources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedResources").finish_non_exhaustive()
    }
}

impl SharedResources {
    /// A block cache of `cache_bytes`, if given.
    pub fn new(cache_bytes: Option<u64>) -> Self {
        SharedResources { block_cache: cache_bytes.map(|bytes| Arc::new(BlockCache::new(bytes))) }
    }

    /// Checks that the options of a new table are not those of something that is shared.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`].
    pub fn check(&self, engine: &str, options: &BTreeMap<String, String>) -> Result<()> {
        if self.block_cache.is_none() || engine != "lsm" || !options.contains_key(CACHE) {
            return Ok(());
        }
        let reason = "the tables of this store share one block cache; leave the option out";
        Err(Error::invalid_option(CACHE, reason))
    }

    /// Removes the options of a table that have no effect, because it shares what they describe.
    pub(crate) fn remove_from(&self, engine: &str, options: &mut BTreeMap<String, String>) {
        if self.block_cache.is_some() && engine == "lsm" {
            options.remove(CACHE);
        }
    }
}

/// Opens the engine `name` over `vfs`, creating a table there if there is none. It shares nothing.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unknown engine, one that this build lacks, or invalid options;
/// errors of opening.
pub fn open(
    name: &str,
    vfs: Arc<dyn Vfs>,
    env: &Env,
    options: &BTreeMap<String, String>,
) -> Result<Arc<dyn Engine>> {
    open_shared(name, vfs, env, options, &SharedResources::default())
}

/// The same for a table that shares resources with others.
///
/// # Errors
/// As from [`open`].
pub fn open_shared(
    name: &str,
    vfs: Arc<dyn Vfs>,
    env: &Env,
    options: &BTreeMap<String, String>,
    shared: &SharedResources,
) -> Result<Arc<dyn Engine>> {
    match name {
        #[cfg(feature = "lsm")]
        "lsm" => {
            let options = siltstone_lsm::Options::from_map(options)?;
            Ok(Arc::new(match shared.block_cache.clone() {
                Some(cache) => siltstone_lsm::open_shared(vfs, env.clone(), options, cache)?,
                None => siltstone_lsm::Lsm::open(vfs, env.clone(), options)?,
            }))
        }
        #[cfg(feature = "trie")]
        "trie" => {
            let options = siltstone_trie::Options::from_map(options)?;
            Ok(Arc::new(siltstone_trie::Trie::open(vfs, env.clone(), options)?))
        }
        #[cfg(feature = "silt")]
        "silt" => {
            let options = siltstone_silt::Options::from_map(options)?;
            Ok(Arc::new(siltstone_silt::Silt::open(vfs, env.clone(), options)?))
        }
        #[cfg(feature = "mica")]
        "mica" => {
            // In memory: the directory stays empty.
            let options = siltstone_mica::Options::from_map(options)?;
            Ok(Arc::new(siltstone_mica::Mica::open(env.clone(), options)?))
        }
        #[cfg(feature = "skimpy")]
        "skimpy" => {
            let options = siltstone_skimpy::Options::from_map(options)?;
            Ok(Arc::new(siltstone_skimpy::Skimpy::open(vfs, env.clone(), options)?))
        }
        _ => Err(unknown(name)),
    }
}

/// The parts of batches over several tables in the log of the closed table on `vfs`.
///
/// # Errors
/// [`Error::InvalidOptions`] for an engine that takes no part; [`Error::Corruption`]; I/O errors.
pub(crate) fn survey_parts(name: &str, vfs: &Arc<dyn Vfs>) -> Result<PartSurvey> {
    match name {
        #[cfg(feature = "lsm")]
        "lsm" => siltstone_lsm::Lsm::survey_parts(vfs),
        #[cfg(feature = "trie")]
        "trie" => siltstone_trie::Trie::survey_parts(vfs),
        #[cfg(feature = "silt")]
        "silt" => siltstone_silt::Silt::survey_parts(vfs),
        _ => Err(unknown(name)),
    }
}

/// The first log that recovery of the table on `vfs` needs.
///
/// # Errors
/// [`Error::InvalidOptions`] for an engine without logs; [`Error::Refused`] without a manifest;
/// [`Error::Corruption`]; I/O errors.
pub(crate) fn first_log(name: &str, vfs: &Arc<dyn Vfs>) -> Result<u64> {
    match name {
        #[cfg(feature = "lsm")]
        "lsm" => siltstone_lsm::Lsm::first_log(vfs),
        #[cfg(feature = "trie")]
        "trie" => siltstone_trie::Trie::first_log(vfs),
        #[cfg(feature = "silt")]
        "silt" => siltstone_silt::Silt::first_log(vfs),
        _ => Err(unknown(name)),
    }
}

/// Whether a reader beside the writer can open a table: all of its files are in its directory, and
/// do not change once they are written. The error is the engine's name.
pub(crate) fn check_reader(spec: &TableSpec) -> std::result::Result<(), &'static str> {
    let options = &spec.options;
    match spec.engine.as_str() {
        #[cfg(feature = "lsm")]
        "lsm" => match siltstone_lsm::Options::from_map(options) {
            Ok(options) if options.has_pmem() => Err("lsm with pmem.size"),
            // Opening it reports invalid options.
            _ => Ok(()),
        },
        #[cfg(feature = "trie")]
        "trie" => match siltstone_trie::Options::from_map(options) {
            Ok(options) if options.fast_dir.is_some() => Err("trie with fast_dir"),
            _ => Ok(()),
        },
        #[cfg(feature = "silt")]
        "silt" => Ok(()),
        other => Err(NAMES.iter().copied().find(|name| *name == other).unwrap_or("unknown")),
    }
}

/// Checks an engine's name and options without opening anything.
///
/// # Errors
/// [`Error::InvalidOptions`] with all mistakes.
pub fn check(name: &str, options: &BTreeMap<String, String>) -> Result<()> {
    match name {
        #[cfg(feature = "lsm")]
        "lsm" => siltstone_lsm::Options::from_map(options).map(drop),
        #[cfg(feature = "trie")]
        "trie" => siltstone_trie::Options::from_map(options).map(drop),
        #[cfg(feature = "silt")]
        "silt" => siltstone_silt::Options::from_map(options).map(drop),
        #[cfg(feature = "mica")]
        "mica" => siltstone_mica::Options::from_map(options).map(drop),
        #[cfg(feature = "skimpy")]
        "skimpy" => siltstone_skimpy::Options::from_map(options).map(drop),
        _ => Err(unknown(name)),
    }
}

/// Whether tables on this engine have a change feed ([`Table::changes`](crate::Table::changes)).
pub fn has_change_feed(name: &str) -> bool {
    name == "lsm"
}

/// Whether tables on this engine have files.
pub fn has_files(name: &str) -> bool {
    name != "mica"
}

/// Checks that tables on the engine may have compaction filters.
///
/// # Errors
/// [`Error::Invalid`] that names the table and the engine.
pub fn check_compaction_filter(table: &str, engine: &str) -> Result<()> {
    if engine == "lsm" {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "table '{table}' is on the {engine} engine, which has no compaction filters; remove the \
         table from DbOptions::compaction_filters, or create it on lsm"
    )))
}

/// Checks that tables on the engine may have merge operators.
///
/// # Errors
/// [`Error::Invalid`] that names the table and the engine.
pub fn check_merge_operator(table: &str, engine: &str) -> Result<()> {
    if engine == "lsm" {
        return Ok(());
    }
    Err(Error::Invalid(format!(
        "table '{table}' is on the {engine} engine, which has no merges; remove the table from \
         DbOptions::merge_operators, or create it on lsm"
    )))
}

/// Checks that a store with these keys can have a table on the engine with these options.
///
/// # Errors
/// [`Error::Invalid`] that names the table, the engine and the reason.
pub fn check_encryption(
    keys: &Keys,
    table: &str,
    engine: &str,
    options: &BTreeMap<String, String>,
) -> Result<()> {
    keys.check_table(table, engine, options.keys().map(|option| present_name(engine, option)))
}

/// The longest value that a table on this engine with these options accepts, without opening one.
///
/// # Errors
/// As [`check`].
pub fn max_value_bytes(name: &str, options: &BTreeMap<String, String>) -> Result<usize> {
    match name {
        #[cfg(feature = "mica")]
        "mica" => Ok(siltstone_mica::Options::from_map(options)?.max_value_bytes()),
        #[cfg(feature = "skimpy")]
        "skimpy" => Ok(siltstone_skimpy::Options::from_map(options)?.max_value_bytes()),
        _ => check(name, options).map(|()| MAX_VALUE_BYTES),
    }
}

/// Removes the files that the table in the directory `vfs`, on whichever engine, has in other
/// directories, durably. The table must be closed. After a crash this may be called again.
///
/// # Errors
/// [`Error::Locked`] if another process has the other directory open; [`Error::Refused`] if this
/// build lacks the engine that knows them; I/O errors.
pub fn remove_external_files(vfs: &dyn Vfs) -> Result<()> {
    #[cfg(feature = "trie")]
    return siltstone_trie::remove_fast_tier(vfs);
    // Without the engine they cannot be found.
    #[cfg(not(feature = "trie"))]
    match missing("trie").filter(|_| vfs.exists(TRIE_TIER_FILE).unwrap_or(true)) {
        Some(reason) => Err(Error::Refused { path: vfs.name(), reason }),
        None => Ok(()),
    }
}

/// Whether the table in the directory `vfs` has files in another directory.
///
/// # Errors
/// I/O errors.
pub(crate) fn has_external_files(name: &str, vfs: &dyn Vfs) -> Result<bool> {
    #[cfg(feature = "trie")]
    return Ok(name == "trie" && siltstone_trie::fast_tier_dir(vfs)?.is_some());
    #[cfg(not(feature = "trie"))]
    Ok(name == "trie" && vfs.exists(TRIE_TIER_FILE)?)
}

/// The engine of the table in the directory `vfs`, from its manifest or from file names that only
/// one engine uses; `None` if neither identifies it.
///
/// # Errors
/// I/O errors.
pub fn detect(vfs: &dyn Vfs) -> Result<Option<&'static str>> {
    if let Some(engine) = Manifest::engine_of(vfs)? {
        return Ok(NAMES.iter().copied().find(|name| *name == engine));
    }
    let names = vfs.list()?;
    if names.is_empty() {
        return Ok(Some("mica"));
    }
    const SUFFIXES: [(&str, &str); 7] = [
        (".sst", "lsm"),
        (".htable", "trie"),
        (".bloom", "trie"),
        (".hash", "silt"),
        (".sorted", "silt"),
        ("flash", "skimpy"),
        ("packing", "skimpy"),
    ];
    let is_present = |(suffix, _): &&(&str, &str)| names.iter().any(|name| name.ends_with(suffix));
    Ok(SUFFIXES.iter().find(is_present).map(|(_, engine)| *engine))
}

/// Checks a table that does not open because of `damage`. For `lsm` every file of the table is
/// checked; for the other engines the report is `damage`.
///
/// # Errors
/// `damage` if it is not corruption; failures to check.
pub fn verify_offline(name: &str, vfs: &Arc<dyn Vfs>, damage: Error) -> Result<VerifyReport> {
    let mut report = match name {
        #[cfg(feature = "lsm")]
        "lsm" => siltstone_lsm::verify_closed(vfs)?,
        _ => VerifyReport::default(),
    };
    if report.is_intact() {
        report.note(Err(damage))?;
    }
    Ok(report)
}

/// Rebuilds a damaged table with these options from its intact parts; the report lists the repairs
/// and the losses.
///
/// # Errors
/// [`Error::InvalidOptions`] for an unknown engine; I/O errors.
pub fn repair(
    name: &str,
    vfs: &Arc<dyn Vfs>,
    options: &BTreeMap<String, String>,
) -> Result<RepairReport> {
    match name {
        #[cfg(feature = "lsm")]
        "lsm" => siltstone_lsm::repair(vfs),
        #[cfg(feature = "trie")]
        "trie" => siltstone_trie::repair(vfs, &siltstone_trie::Options::from_map(options)?),
        #[cfg(feature = "silt")]
        "silt" => siltstone_silt::repair(vfs),
        "mica" => Err(Error::Unsupported { engine: "mica", operation: "repair" }),
        #[cfg(feature = "skimpy")]
        "skimpy" => {
            let options = siltstone_skimpy::Options::from_map(options)?;
            siltstone_skimpy::repair(vfs, Env::system(1), &options)
        }
        _ => Err(unknown(name)),
    }
}

/// Why a known engine cannot be used, and what to do: this build lacks it. `None` if it has it.
#[must_use]
pub fn missing(name: &str) -> Option<String> {
    let is_present = match name {
        "lsm" => cfg!(feature = "lsm"),
        "trie" => cfg!(feature = "trie"),
        "silt" => cfg!(feature = "silt"),
        "mica" => cfg!(feature = "mica"),
        "skimpy" => cfg!(feature = "skimpy"),
        _ => true,
    };
    (!is_present).then(|| {
        format!(
            "this program was built without the engine {name}: build it with the feature '{name}' of \
             the crate siltstone; nothing was changed"
        )
    })
}

fn unknown(name: &str) -> Error {
    let reason = missing(name).unwrap_or_else(|| unknown_name(name, NAMES));
    Error::invalid_option("engine", reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deprecated_option_is_known_to_its_engine_under_both_names() {
        for engine in NAMES.iter().filter(|engine| missing(engine).is_none()) {
            for (old, new) in deprecated_options(engine) {
                let given = [*old, *new].map(|option| (option.to_owned(), "1".to_owned()));
                let error = check(engine, &given.into()).unwrap_err().to_string();
                assert!(error.contains(&format!("the old name of '{new}'")), "{engine}: {error}");
            }
        }
    }
}

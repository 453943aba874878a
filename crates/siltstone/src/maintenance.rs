//! Checks and repairs of a whole store.
//!
//! ```text
//!   verify   open read-only ─ catalogue damaged: nothing else can be checked
//!                           └ every table: every byte; a table that does not open, file by file
//!   repair   catalogue first, from the tables' directories ─ then every table from its intact parts
//! ```
//!
//! Damage is in the reports and is not an error; an error means that the store could not be
//! checked or repaired. A repair deletes no damaged file.

use std::collections::BTreeMap;
use std::path::Path;
#[cfg(feature = "encryption")]
use std::sync::Arc;

#[cfg(feature = "serde")]
use serde::Serialize;
use siltstone_engine::{Damage, Error, Loss, RepairReport, Result, VerifyReport};

use crate::catalogue::{self, TableSpec};
#[cfg(feature = "encryption")]
use crate::encryption::{EncryptedVfs, Keys};
#[cfg(feature = "encryption")]
use crate::names::{GROUP_PREFIX, LOCK, NODE_FILES, NODE_LOCK, TABLE_PREFIX};
use crate::{Db, DbOptions, engines, trace};
#[cfg(feature = "encryption")]
use siltstone_vfs::{Disk, Vfs};

/// The result of [`verify`] and [`Db::verify`].
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct StoreVerifyReport {
    /// Damage to the catalogue. The tables are unknown then, and none was checked.
    pub catalogue: Vec<Damage>,
    /// Tables whose directories exist but which the catalogue does not list; they were not checked.
    pub unlisted: Vec<String>,
    /// Damaged headers of files of an encrypted store.
    pub headers: Vec<Damage>,
    /// The reports of the tables, by name.
    pub tables: BTreeMap<String, VerifyReport>,
}

impl StoreVerifyReport {
    /// Whether everything was checked and no damage was found.
    pub fn is_intact(&self) -> bool {
        let are_tables_intact = self.tables.values().all(VerifyReport::is_intact);
        self.catalogue.is_empty()
            && self.unlisted.is_empty()
            && self.headers.is_empty()
            && are_tables_intact
    }
}

/// The result of [`repair`].
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct StoreRepairReport {
    /// What was done to the catalogue, line by line.
    pub catalogue: Vec<String>,
    /// The reports of the tables, by name.
    pub tables: BTreeMap<String, RepairReport>,
}

impl StoreRepairReport {
    /// Whether nothing was lost.
    pub fn is_lossless(&self) -> bool {
        self.tables.values().all(RepairReport::is_lossless)
    }
}

/// Reads and checks every byte of the store in `dir`, which no process has open. Changes nothing.
///
/// # Errors
/// [`Error::Refused`] if `dir` is not a store; [`Error::Locked`]; `Io`: a file could not be read.
pub fn verify(dir: impl AsRef<Path>) -> Result<StoreVerifyReport> {
    verify_with(dir, &DbOptions::default())
}

/// The same for a store that is opened with `options`, which matter if it is encrypted.
///
/// # Errors
/// The same, and those of keys that do not fit.
pub fn verify_with(dir: impl AsRef<Path>, options: &DbOptions) -> Result<StoreVerifyReport> {
    let options = DbOptions { read_only: true, ..options.clone() };
    let db = match Db::open(dir, options) {
        Err(damage) if damage.is_corruption() => {
            let mut report = VerifyReport::default();
            report.note(Err(damage))?;
            let catalogue = report.damage;
            return Ok(StoreVerifyReport { catalogue, ..StoreVerifyReport::default() });
        }
        db => db?,
    };
    let report = db.verify()?;
    db.close()?;
    Ok(report)
}

/// Repairs the store in `dir`, or one table of it, as far as possible. Damaged files are kept
/// beside the repaired ones as `*.damaged`. A damaged or missing catalogue is rebuilt, and tables
/// that it does not list are added.
///
/// ```
/// # use siltstone::{Db, DbOptions};
/// # let scratch = tempfile::tempdir().unwrap();
/// # let dir = scratch.path().join("s");
/// # let db = Db::open_or_create(&dir, DbOptions::default())?;
/// # db.table_or_create("t", "lsm", &Default::default())?.put(b"k", b"v")?;
/// # db.close()?;
/// std::fs::write(dir.join("CATALOG"), "damaged").unwrap();
/// assert!(!siltstone::maintenance::verify(&dir)?.is_intact());
/// assert!(siltstone::maintenance::repair(&dir, None)?.is_lossless());
/// let db = Db::open(&dir, DbOptions::default())?;
/// assert_eq!(db.table("t")?.get(b"k")?.as_deref(), Some(&b"v"[..]));
/// # Ok::<(), siltstone::Error>(())
/// ```
///
/// # Errors
/// [`Error::Refused`] if `dir` is not a store or the engine of a table is unknown;
/// [`Error::Locked`]; [`Error::Invalid`] if there is no such table; `Unsupported` for one table in
/// memory; I/O errors.
pub fn repair(dir: impl AsRef<Path>, table: Option<&str>) -> Result<StoreRepairReport> {
    let mut report = StoreRepairReport::default();
    repair_into(dir, table, &mut report)?;
    Ok(report)
}

/// As [`repair`], but after an error `report` has what was done and lost before it.
///
/// # Errors
/// Those of [`repair`].
pub fn repair_into(
    dir: impl AsRef<Path>,
    table: Option<&str>,
    report: &mut StoreRepairReport,
) -> Result<()> {
    repair_with(dir, table, &DbOptions::default(), report)
}

/// The same for a store that is opened with `options`, which matter if it is encrypted.
///
/// # Errors
/// The same, and those of keys that do not fit.
pub fn repair_with(
    dir: impl AsRef<Path>,
    table: Option<&str>,
    options: &DbOptions,
    report: &mut StoreRepairReport,
) -> Result<()> {
    trace::span!("repair", store = dir.as_ref().display());
    let db = open_for_repair(dir.as_ref(), options, &mut report.catalogue)?;
    let specs = match table {
        Some(name) => [(name.to_owned(), db.spec_of(name)?)].into(),
        None => db.catalogue()?.tables,
    };
    for (name, spec) in specs {
        let repaired = match repair_table(&db, &name, &spec) {
            // A table in memory does not prevent the repair of the others.
            Err(Error::Unsupported { engine, .. }) if table.is_none() => {
                format!("nothing to repair: {engine} has no files").into()
            }
            repaired => repaired?,
        };
        report.tables.insert(name, repaired);
    }
    db.close()
}

/// Opens the store with a catalogue that lists every table; `log` gets what was repaired in it.
fn open_for_repair(dir: &Path, options: &DbOptions, log: &mut Vec<String>) -> Result<Db> {
    let db = match Db::open(dir, options.clone()) {
        Err(damage) if damage.is_corruption() => {
            log.extend(catalogue::repair_with(dir, &options.encryption)?);
            Db::open(dir, options.clone())?
        }
        db => db?,
    };
    if db.unlisted_tables()?.is_empty() {
        return Ok(db);
    }
    db.close()?;
    log.extend(catalogue::repair_with(dir, &options.encryption)?);
    Db::open(dir, options.clone())
}

fn repair_table(db: &Db, name: &str, spec: &TableSpec) -> Result<RepairReport> {
    let are_files_missing = db.are_table_files_missing(name)?;
    let vfs = db.table_vfs(name)?;
    let mut report = RepairReport::default();
    if are_files_missing {
        let env = DbOptions::default().env;
        engines::open(&spec.engine, vfs, &env, &spec.options)?.close()?;
        report.note("all of its files are missing: an empty table is created");
        report.record_loss(Loss::entries(format!("table-{name}"), 0..u64::MAX));
    } else {
        report = engines::repair(&spec.engine, &vfs, &spec.options)?;
    }
    db.note_repaired(name)?;
    Ok(report)
}

/// The result of [`rewrap`].
#[cfg(feature = "encryption")]
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(Serialize))]
pub struct RewrapReport {
    /// The number of files of the store.
    pub files: u64,
    /// Those whose key was wrapped by an earlier master key, and now is by the current one.
    pub rewrapped: u64,
    /// Files whose header is damaged: they were not changed.
    pub damaged: Vec<Damage>,
}

/// Wraps the keys of all files of the closed store in `dir`, or of the node of a replicated table
/// that is stopped, with the current master key of `keys`, durably. Earlier master keys are not
/// needed afterwards. The contents are not read: whoever knows an earlier master key and has an old
/// copy of a header can still read that file. A checkpoint with keys of its own has new keys for
/// all files.
///
/// Files that a checkpoint shares with the store change with it. The call may be repeated after an
/// interruption.
///
/// # Errors
/// [`Error::Refused`] if the store is not encrypted, or with a key that is not among `keys`;
/// [`Error::Locked`]; I/O errors.
#[cfg(feature = "encryption")]
pub fn rewrap(dir: impl AsRef<Path>, keys: &Keys) -> Result<RewrapReport> {
    let disk: Arc<dyn Vfs> = Arc::new(Disk::open(dir.as_ref())?);
    let refuse = |reason: &str| Error::Refused { path: disk.name(), reason: reason.to_owned() };
    let has = |(name, _): &(&str, &[u8])| disk.exists(name);
    let is_node = NODE_FILES.iter().map(has).collect::<Result<Vec<_>>>()?.contains(&true);
    let lock = match catalogue::Catalogue::exists(disk.as_ref())? {
        true => {
            keys.open(disk.clone())?;
            LOCK
        }
        false if is_node => {
            keys.open_directory(disk.clone(), "the node", &NODE_FILES)?;
            NODE_LOCK
        }
        false => {
            return Err(refuse(
                "not a siltstone store (it has no CATALOG file), and no node of a cluster",
            ));
        }
    };
    let _lock = disk.lock(lock)?;
    let Some(root) = keys.encrypted(disk.clone()) else {
        return Err(refuse("the store is not encrypted"));
    };
    let (mut report, mut damage) = (RewrapReport::default(), VerifyReport::default());
    for_each_file(&root, &mut |directory, name| {
        report.files += 1;
        match directory.rewrap(name) {
            Ok(is_changed) => report.rewrapped += u64::from(is_changed),
            // An unrelated file, or one in quarantine, is left as it is.
            Err(error) if error.is_corruption() && !is_of_store(name) => {}
            Err(error) => damage.note(Err(error))?,
        }
        Ok(())
    })?;
    report.damaged = damage.damage;
    Ok(report)
}

/// Whether a file of this name belongs to the catalogue or to a table.
#[cfg(feature = "encryption")]
fn is_of_store(name: &str) -> bool {
    // Files of missing engines are not known here: damaged ones are passed over.
    #[cfg(feature = "silt")]
    if siltstone_silt::owns(name) {
        return true;
    }
    #[cfg(feature = "trie")]
    if siltstone_trie::owns(name) {
        return true;
    }
    let is_of_node = NODE_FILES.iter().any(|(file, _)| *file == name)
        || name.starts_with("raft-") && name.ends_with(".log");
    is_of_node
        || catalogue::Catalogue::owns(name)
        || siltstone_table::parse_file_name(name).is_some()
        || siltstone_table::Manifest::owns(name)
}

/// Calls `visit` with each file of a store or node but the locks, and its directory.
#[cfg(feature = "encryption")]
fn for_each_file(
    root: &EncryptedVfs,
    visit: &mut dyn FnMut(&EncryptedVfs, &str) -> Result<()>,
) -> Result<()> {
    for name in root.list()?.iter().filter(|name| ![LOCK, NODE_LOCK].contains(&name.as_str())) {
        visit(root, name)?;
    }
    let is_known =
        |name: &&String| name.starts_with(TABLE_PREFIX) || name.starts_with(GROUP_PREFIX);
    for name in root.subdirectories()?.iter().filter(is_known) {
        for_each_file(&root.encrypted_subdirectory(name)?, visit)?;
    }
    Ok(())
}

impl Db {
    /// Reads and checks every byte of every table, while the store is in use.
    ///
    /// # Errors
    /// `Io`: a file could not be read.
    pub fn verify(&self) -> Result<StoreVerifyReport> {
        let unlisted = self.unlisted_tables()?;
        let mut report = StoreVerifyReport { unlisted, ..StoreVerifyReport::default() };
        for name in self.table_names()? {
            let table = self.verify_table(&name, &mut |_, _| ())?;
            report.tables.insert(name, table);
        }
        report.headers = self.verify_headers()?;
        Ok(report)
    }

    /// Checks the headers of all files of an encrypted store, both copies of each, on disk. Nothing
    /// is checked in a store that is not encrypted, not in a directory, or open for writing:
    /// headers may be just being written there.
    ///
    /// # Errors
    /// `Io`: a file could not be read.
    pub fn verify_headers(&self) -> Result<Vec<Damage>> {
        #[cfg_attr(not(feature = "encryption"), expect(unused_mut))]
        let mut report = VerifyReport::default();
        #[cfg(feature = "encryption")]
        if self.options().read_only
            && let Some(path) = self.path()
            && let Some(root) = self.options().encryption.encrypted(Arc::new(Disk::open(path)?))
        {
            for_each_file(&root, &mut |directory, name| match is_of_store(name) {
                true => report.note(directory.check_header(name).map(|_| (0, 0))),
                false => Ok(()),
            })?;
        }
        Ok(report.damage)
    }

    /// Reads and checks every byte of one table, even if it does not open because of damage;
    /// `progress` receives the bytes done and the total.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such table; `Io`: a file could not be read.
    pub fn verify_table(
        &self,
        name: &str,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<VerifyReport> {
        trace::span!("verify", table = name);
        match self.table(name) {
            Err(damage) if damage.is_corruption() => {
                let engine = self.spec_of(name)?.engine;
                engines::verify_offline(&engine, &self.table_vfs(name)?, damage)
            }
            table => table?.verify(progress),
        }
    }
}

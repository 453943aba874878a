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

use serde::Serialize;
use siltstone_engine::{Damage, Error, Loss, RepairReport, Result, VerifyReport};

use crate::catalogue::{self, TableSpec};
use crate::{Db, DbOptions, engines};

/// The result of [`verify`] and [`Db::verify`].
#[derive(Debug, Clone, Default, Serialize)]
pub struct StoreVerifyReport {
    /// Damage to the catalogue. The tables are unknown then, and none was checked.
    pub catalogue: Vec<Damage>,
    /// Tables whose directories exist but which the catalogue does not list; they were not checked.
    pub unlisted: Vec<String>,
    /// The reports of the tables, by name.
    pub tables: BTreeMap<String, VerifyReport>,
}

impl StoreVerifyReport {
    /// Whether everything was checked and no damage was found.
    pub fn is_sound(&self) -> bool {
        let are_tables_sound = self.tables.values().all(VerifyReport::is_sound);
        self.catalogue.is_empty() && self.unlisted.is_empty() && are_tables_sound
    }
}

/// The result of [`repair`].
#[derive(Debug, Clone, Default, Serialize)]
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
    let options = DbOptions { read_only: true, ..DbOptions::default() };
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
/// assert!(!siltstone::maintenance::verify(&dir)?.is_sound());
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
    let db = open_for_repair(dir.as_ref(), &mut report.catalogue)?;
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
fn open_for_repair(dir: &Path, log: &mut Vec<String>) -> Result<Db> {
    let db = match Db::open(dir, DbOptions::default()) {
        Err(damage) if damage.is_corruption() => {
            log.extend(catalogue::repair(dir)?);
            Db::open(dir, DbOptions::default())?
        }
        db => db?,
    };
    if db.unlisted_tables()?.is_empty() {
        return Ok(db);
    }
    db.close()?;
    log.extend(catalogue::repair(dir)?);
    Db::open(dir, DbOptions::default())
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
        Ok(report)
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
        match self.table(name) {
            Err(damage) if damage.is_corruption() => {
                let engine = self.spec_of(name)?.engine;
                engines::verify_offline(&engine, &self.table_vfs(name)?, damage)
            }
            table => table?.verify(progress),
        }
    }
}

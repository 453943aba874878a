//! Opening a store from the command line: the directory and the table.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Bound;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clap::Args;
use siltstone::catalogue::{self, Catalogue};
use siltstone::encryption::{KeyRing, Keys};
use siltstone::{Db, DbOptions, DbReader, NODE_FILES, Table, engines};

use crate::outcome::Failure;

/// The default of `--table`.
pub(crate) const DEFAULT_TABLE: &str = "default";

/// Prints the warnings of a table that was opened, e.g. that an index was rebuilt.
pub(crate) fn warn(table: &Table) {
    for warning in table.engine().warnings() {
        eprintln!("siltstone: warning: table {}: {warning}", table.name());
    }
}

/// [`warn`] for a table that is open read-only, where the rebuilt parts are not stored.
pub(crate) fn warn_reader(table: &Table, dir: &Path) {
    warn(table);
    if !table.engine().warnings().is_empty() {
        let dir = dir.display();
        eprintln!("siltstone: that is only in memory: `siltstone repair {dir}` writes it to disk");
    }
}

/// Prints that a store has no tables, in place of an empty list.
pub(crate) fn print_no_tables(dir: &Path) {
    println!("no tables yet: `siltstone put {} KEY VALUE` creates one", dir.display());
}

/// Warns of options that are given under a deprecated name.
pub(crate) fn warn_deprecated_options<'a>(
    engine: &str,
    options: impl IntoIterator<Item = &'a String>,
) {
    let renamed = engines::deprecated_options(engine);
    for option in options {
        if let Some((old, new)) = renamed.iter().find(|(old, _)| old == option) {
            eprintln!("siltstone: warning: option '{old}' is now named '{new}'");
        }
    }
}

/// The store and the table of a command.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The directory of the store
    pub(crate) dir: PathBuf,

    /// The table
    #[arg(long, default_value = DEFAULT_TABLE)]
    pub(crate) table: String,
}

/// How a command that reads a store opens it.
#[derive(Args, Clone, Copy)]
pub(crate) struct ReaderArgs {
    /// Read beside a process that has the store open for writing, e.g. `siltstone serve`: the
    /// entries as of now (tables on lsm)
    #[arg(long)]
    reader: bool,
}

impl ReaderArgs {
    /// Opens a store for reading. With `--reader`, also returns the reader.
    pub(crate) fn open(self, dir: &Path) -> Result<(Db, Option<DbReader>), Failure> {
        if !self.reader {
            return Ok((Db::open(dir, read_only())?, None));
        }
        let reader = Db::open_reader(dir, options())?;
        Ok((reader.db(), Some(reader)))
    }
}

/// The keys of `--key-file`.
static KEYS: OnceLock<Keys> = OnceLock::new();

/// The path of `--key-file`.
static KEY_FILE: OnceLock<PathBuf> = OnceLock::new();

/// Uses the keys of this file for all stores that the command opens.
pub(crate) fn use_key_file(path: &Path) -> Result<(), Failure> {
    let keys = read_key_file(path)?;
    KEYS.get_or_init(|| keys);
    KEY_FILE.get_or_init(|| path.to_owned());
    Ok(())
}

/// `--key-file` for a process of this program that is started, if this one has it.
pub(crate) fn key_file_arguments() -> impl Iterator<Item = &'static OsStr> {
    KEY_FILE.get().into_iter().flat_map(|path| [OsStr::new("--key-file"), path.as_os_str()])
}

/// The keys of a key file.
pub(crate) fn read_key_file(path: &Path) -> Result<Keys, Failure> {
    Ok(Keys::new(Arc::new(KeyRing::read_file(path)?)))
}

/// The keys of `--key-file`, or none.
pub(crate) fn keys() -> Keys {
    KEYS.get().cloned().unwrap_or_default()
}

/// Whether a directory is that of a node of a replicated table, also of one that was restored from
/// a backup and has not been started yet.
pub(crate) fn is_node(dir: &Path) -> bool {
    NODE_FILES.iter().any(|(name, _)| dir.join(name).exists())
}

/// Refuses the directory of a node of a replicated table to a command that copies stores.
pub(crate) fn refuse_node(dir: &Path) -> Result<(), Failure> {
    if !is_node(dir) {
        return Ok(());
    }
    Err(Failure::Usage(format!(
        "{} is the directory of a node of a replicated table: start the node with --backup, and \
         use siltstone cluster backup",
        dir.display()
    )))
}

/// The options of opening a store for writing.
pub(crate) fn options() -> DbOptions {
    DbOptions { encryption: keys(), ..DbOptions::default() }
}

/// Options of commands that only read: nothing of the store changes, and read permission is enough.
pub(crate) fn read_only() -> DbOptions {
    DbOptions { read_only: true, ..options() }
}

/// A range of keys.
#[derive(Args)]
pub(crate) struct RangeArgs {
    /// First key
    #[arg(long, allow_negative_numbers = true)]
    from: Option<std::ffi::OsString>,
    /// End before this key
    #[arg(long, allow_negative_numbers = true)]
    to: Option<std::ffi::OsString>,
}

impl RangeArgs {
    pub(crate) fn bounds(&self) -> (Bound<&[u8]>, Bound<&[u8]>) {
        let from = self.from.as_ref().map(|key| key.as_bytes());
        let to = self.to.as_ref().map(|key| key.as_bytes());
        (
            from.map_or(Bound::Unbounded, Bound::Included),
            to.map_or(Bound::Unbounded, Bound::Excluded),
        )
    }
}

impl StoreArgs {
    /// Opens the existing store and table for reading.
    pub(crate) fn read(&self, reader: ReaderArgs) -> Result<(Db, Table), Failure> {
        let (db, reader) = reader.open(&self.dir)?;
        let table = match &reader {
            Some(reader) => reader.table(&self.table)?,
            None => db.table(&self.table)?,
        };
        warn_reader(&table, &self.dir);
        Ok((db, table))
    }

    /// Opens the existing store and table for writing.
    pub(crate) fn write(&self) -> Result<(Db, Table), Failure> {
        let (db, table) = self.open(options())?;
        warn(&table);
        Ok((db, table))
    }

    fn open(&self, options: DbOptions) -> Result<(Db, Table), Failure> {
        let db = Db::open(&self.dir, options)?;
        let table = db.table(&self.table)?;
        Ok((db, table))
    }
}

/// The store and the table of a command that writes; both are created if they are missing.
#[derive(Args)]
pub(crate) struct NewStoreArgs {
    /// The directory of the store
    dir: PathBuf,

    /// The table; a new one is created on the given engine, or on lsm
    #[arg(long, default_value = DEFAULT_TABLE, value_name = "NAME[=ENGINE[,key=value…]]")]
    table: TableSpec,
}

impl NewStoreArgs {
    /// The maximum length of a value of the table, which need not exist. Nothing is created.
    pub(crate) fn max_value_bytes(&self) -> Result<usize, Failure> {
        let known = match Db::exists(&self.dir)? {
            true => Db::open(&self.dir, read_only())?.catalogue()?,
            false => Catalogue::default(),
        };
        let planned = self.table.planned(&known);
        Ok(siltstone::engines::max_value_bytes(&planned.engine, &planned.options)?)
    }

    /// Whether the table, which need not exist, has an order of keys. Nothing is created.
    pub(crate) fn is_ordered(&self) -> Result<bool, Failure> {
        let known = match Db::exists(&self.dir)? {
            true => Db::open(&self.dir, read_only())?.catalogue()?,
            false => Catalogue::default(),
        };
        Ok(self.table.planned(&known).engine == "lsm")
    }

    /// The directory of the store.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Opens the store and its table, or creates them. Nothing is created for an invalid table.
    pub(crate) fn open_or_create(&self) -> Result<(Db, Table), Failure> {
        self.table.check()?;
        self.table.warn_deprecated_options();
        let db = Db::open_or_create(&self.dir, options())?;
        let table = self.table.open(&db)?;
        warn(&table);
        if !table.engine().capabilities().durable {
            eprintln!(
                "siltstone: warning: table {} is in memory: its contents are lost when this command ends",
                table.name()
            );
        }
        Ok((db, table))
    }
}

/// A table as in `--table` of a command that may create it: `NAME=ENGINE[,key=value…]`, or `NAME`
/// for an existing table on any engine, or a new one on `lsm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    /// The engine, if it is given.
    engine: Option<String>,
    options: BTreeMap<String, String>,
}

impl TableSpec {
    /// An existing table, or a new one on `lsm`.
    pub(crate) fn named(name: &str) -> Self {
        TableSpec { name: name.to_owned(), engine: None, options: BTreeMap::new() }
    }

    /// The table's engine and options: those in the catalogue, if it is listed there.
    pub(crate) fn planned(&self, known: &Catalogue) -> catalogue::TableSpec {
        known.tables.get(&self.name).cloned().unwrap_or_else(|| catalogue::TableSpec {
            engine: self.engine().to_owned(),
            options: self.options.clone(),
        })
    }

    /// The options of a replicated table, which is on `lsm`.
    pub(crate) fn replicated(&self) -> Result<BTreeMap<String, String>, Failure> {
        if self.engine() != "lsm" {
            return Err(Failure::Usage(format!(
                "--table {}: a replicated table cannot use the engine '{}'; use lsm",
                self.name,
                self.engine()
            )));
        }
        Ok(self.options.clone())
    }

    fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or("lsm")
    }

    /// Checks the name and the options, before anything is created.
    pub(crate) fn check(&self) -> siltstone::Result<()> {
        siltstone::catalogue::check_name(&self.name)?;
        engines::check(self.engine(), &self.options)
    }

    pub(crate) fn warn_deprecated_options(&self) {
        warn_deprecated_options(self.engine(), self.options.keys());
    }

    /// Opens the table, or creates it.
    pub(crate) fn open(&self, db: &Db) -> siltstone::Result<Table> {
        let is_name_only = self.engine.is_none() && self.options.is_empty();
        if is_name_only && db.table_names()?.contains(&self.name) {
            db.table(&self.name)
        } else {
            db.table_or_create(&self.name, self.engine(), &self.options)
        }
    }
}

impl std::str::FromStr for TableSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (name, engine) = match head.split_once('=') {
            Some((name, engine)) => (name, Some(engine.to_owned())),
            None => (head, None),
        };
        let pair = |part: &str| {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not key=value, as in words=lsm,cache=1GiB"))?;
            Ok::<_, String>((key.to_owned(), value.to_owned()))
        };
        let options = parts.map(pair).collect::<Result<_, _>>()?;
        Ok(TableSpec { name: name.to_owned(), engine, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_spec_parses() {
        let spec: TableSpec = "words=lsm,cache=1GiB,max_compactions=3".parse().unwrap();
        assert_eq!((spec.name.as_str(), spec.engine.as_deref()), ("words", Some("lsm")));
        assert_eq!(spec.options["cache"], "1GiB");
        let bare: TableSpec = "words".parse().unwrap();
        assert_eq!((bare.engine(), &bare.engine), ("lsm", &None));
        assert!("words=lsm,cache".parse::<TableSpec>().is_err());
    }
}

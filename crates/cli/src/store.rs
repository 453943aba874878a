//! Opening a store from the command line: which directory, which table.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Args;
use siltstone::catalogue::{self, Catalogue};
use siltstone::{Db, DbOptions, Table};

use crate::Failure;

/// The table that commands use when none is named.
pub(crate) const DEFAULT_TABLE: &str = "default";

/// Tells on standard error what of a table had to be made again when it was opened.
pub(crate) fn warn(table: &Table) {
    for warning in table.engine().warnings() {
        eprintln!("siltstone: warning: table {}: {warning}", table.name());
    }
}

/// The same of a table in `dir` that is only looked at: there it stays as it is.
pub(crate) fn warn_reader(table: &Table, dir: &Path) {
    warn(table);
    if !table.engine().warnings().is_empty() {
        let dir = dir.display();
        eprintln!("siltstone: that is so in memory alone: `siltstone repair {dir}` writes it anew");
    }
}

/// Tells that a store has no tables, where otherwise nothing would be said.
pub(crate) fn tell_no_tables(dir: &Path) {
    println!("no tables yet: `siltstone put {} KEY VALUE` makes one", dir.display());
}

/// The store and the table that a command works on.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The directory of the store
    pub(crate) dir: PathBuf,

    /// The table
    #[arg(long, default_value = DEFAULT_TABLE)]
    pub(crate) table: String,
}

/// How commands open a store that they only look at: nothing of it changes, and rights to read are enough.
pub(crate) fn to_read() -> DbOptions {
    DbOptions { read_only: true, ..DbOptions::default() }
}

impl StoreArgs {
    /// Opens the store and its table, both of which must be there, to read.
    pub(crate) fn read(&self) -> Result<(Db, Table), Failure> {
        let (db, table) = self.open(to_read())?;
        warn_reader(&table, &self.dir);
        Ok((db, table))
    }

    /// The same, to write.
    pub(crate) fn write(&self) -> Result<(Db, Table), Failure> {
        let (db, table) = self.open(DbOptions::default())?;
        warn(&table);
        Ok((db, table))
    }

    fn open(&self, options: DbOptions) -> Result<(Db, Table), Failure> {
        let db = Db::open(&self.dir, options)?;
        let table = db.table(&self.table)?;
        Ok((db, table))
    }
}

/// The store and the table that a command writes to; what is missing is made.
#[derive(Args)]
pub(crate) struct NewStoreArgs {
    /// The directory of the store
    dir: PathBuf,

    /// The table; a new one is made on the engine lsm, or as is said here
    #[arg(long, default_value = DEFAULT_TABLE, value_name = "NAME[=ENGINE[,key=value…]]")]
    table: TableSpec,
}

impl NewStoreArgs {
    /// The longest value that the table takes, whether it is there or not. Nothing is made.
    pub(crate) fn max_value_bytes(&self) -> Result<usize, Failure> {
        let known = match Db::exists(&self.dir)? {
            true => Db::open(&self.dir, to_read())?.catalogue()?,
            false => Catalogue::default(),
        };
        let planned = self.table.planned(&known);
        Ok(siltstone::engines::max_value_bytes(&planned.engine, &planned.options)?)
    }

    /// Opens the store and its table. Nothing is made for a table that cannot be.
    pub(crate) fn open_or_create(&self) -> Result<(Db, Table), Failure> {
        self.table.check()?;
        let db = Db::open_or_create(&self.dir, DbOptions::default())?;
        let table = self.table.open(&db)?;
        warn(&table);
        if !table.engine().capabilities().durable {
            eprintln!(
                "siltstone: warning: table {} is in memory alone: nothing of it is left when this command ends",
                table.name()
            );
        }
        Ok((db, table))
    }
}

/// A table as `--table` of a command that may make it names it: `NAME=ENGINE[,key=value…]`, or `NAME`
/// alone for the one that is there on whatever engine, or a new one on `lsm`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    /// The engine, if one is named.
    engine: Option<String>,
    options: BTreeMap<String, String>,
}

impl TableSpec {
    /// The one that is there, or a new one on `lsm`.
    pub(crate) fn named(name: &str) -> Self {
        TableSpec { name: name.to_owned(), engine: None, options: BTreeMap::new() }
    }

    /// How the table will be kept: as it is, if it is among those `known`.
    pub(crate) fn planned(&self, known: &Catalogue) -> catalogue::TableSpec {
        known.tables.get(&self.name).cloned().unwrap_or_else(|| catalogue::TableSpec {
            engine: self.engine().to_owned(),
            options: self.options.clone(),
        })
    }

    fn engine(&self) -> &str {
        self.engine.as_deref().unwrap_or("lsm")
    }

    /// Refuses what cannot be made, before anything is.
    pub(crate) fn check(&self) -> siltstone::Result<()> {
        siltstone::catalogue::check_name(&self.name)?;
        siltstone::engines::check(self.engine(), &self.options)
    }

    /// The table, made if it is not there.
    pub(crate) fn open(&self, db: &Db) -> siltstone::Result<Table> {
        let says_nothing = self.engine.is_none() && self.options.is_empty();
        if says_nothing && db.table_names()?.contains(&self.name) {
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
    fn a_table_reads_as_written() {
        let spec: TableSpec = "words=lsm,cache=1GiB,jobs=3".parse().unwrap();
        assert_eq!((spec.name.as_str(), spec.engine.as_deref()), ("words", Some("lsm")));
        assert_eq!(spec.options["cache"], "1GiB");
        let bare: TableSpec = "words".parse().unwrap();
        assert_eq!((bare.engine(), &bare.engine), ("lsm", &None));
        assert!("words=lsm,cache".parse::<TableSpec>().is_err());
    }
}

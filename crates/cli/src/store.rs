//! Opening a store from the command line: which directory, which table.

use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use siltstone::{Db, DbOptions, Table};

use crate::Failure;

/// The table that commands use when none is named.
pub(crate) const DEFAULT_TABLE: &str = "default";

/// The store and the table that a command works on.
#[derive(Args)]
pub(crate) struct StoreArgs {
    /// The directory of the store
    pub(crate) dir: PathBuf,

    /// The table
    #[arg(long, default_value = DEFAULT_TABLE)]
    pub(crate) table: String,
}

impl StoreArgs {
    /// Opens the store and its table, both of which must be there.
    pub(crate) fn open(&self) -> Result<(Db, Table), Failure> {
        let db = Db::open(&self.dir, DbOptions::default())?;
        let table = db.table(&self.table)?;
        Ok((db, table))
    }

    /// Opens the store and its table; what is missing is made.
    pub(crate) fn open_or_create(&self) -> Result<(Db, Table), Failure> {
        let db = Db::open_or_create(&self.dir, DbOptions::default())?;
        let table = if db.table_names()?.contains(&self.table) {
            db.table(&self.table)?
        } else {
            db.table_or_create(&self.table, "lsm", &BTreeMap::new())?
        };
        Ok((db, table))
    }
}

/// A table as `--table` of `serve` names it: `NAME=ENGINE[,key=value…]`, or `NAME` alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TableSpec {
    pub(crate) name: String,
    pub(crate) engine: String,
    pub(crate) options: BTreeMap<String, String>,
}

impl std::str::FromStr for TableSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.split(',');
        let head = parts.next().unwrap_or_default();
        let (name, engine) = head.split_once('=').unwrap_or((head, "lsm"));
        let pair = |part: &str| {
            let (key, value) = part
                .split_once('=')
                .ok_or_else(|| format!("'{part}' is not key=value, as in words=lsm,cache=1GiB"))?;
            Ok::<_, String>((key.to_owned(), value.to_owned()))
        };
        let options = parts.map(pair).collect::<Result<_, _>>()?;
        Ok(TableSpec { name: name.to_owned(), engine: engine.to_owned(), options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_reads_as_written() {
        let spec: TableSpec = "words=lsm,cache=1GiB,jobs=3".parse().unwrap();
        assert_eq!((spec.name.as_str(), spec.engine.as_str()), ("words", "lsm"));
        assert_eq!(spec.options["cache"], "1GiB");
        let bare: TableSpec = "words".parse().unwrap();
        assert_eq!(bare.engine, "lsm");
        assert!("words=lsm,cache".parse::<TableSpec>().is_err());
    }
}

//! Secondary databases: they read a database that another process, or this one, has open for
//! writing.
//!
//! ```text
//!   primary    writes             secondary   open_as_secondary ─▶ as of then
//!                                             try_catch_up_with_primary ─▶ as of now
//! ```
//!
//! A secondary is a reader of the store (`store::DbReader`): it takes no lock and writes nothing,
//! not even into the directory that RocksDB wants for its log. Iterators and snapshots stay as they
//! are after a catch-up. Writes fail.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::RwLock;
use store::{Db, DbReader, Table};

use crate::failure::Failure;
use crate::layout::TABLE;

/// The store of a database.
#[derive(Debug, Clone)]
pub enum Store {
    /// Its own.
    Own(Db, Table),
    /// That of a primary.
    Secondary(Arc<Secondary>),
}

/// The store of a primary, as of the last catch-up.
#[derive(Debug)]
pub struct Secondary {
    reader: DbReader,
    current: RwLock<(Db, Table)>,
}

impl Secondary {
    /// A secondary of the store that the reader reads.
    pub fn new(reader: DbReader) -> Result<Self, Failure> {
        let current = RwLock::new((reader.db(), reader.table(TABLE)?));
        Ok(Secondary { reader, current })
    }

    /// Shows what the primary has written since.
    pub fn catch_up(&self) -> Result<(), Failure> {
        // One at a time, so that a later one is never replaced by an earlier one.
        let mut current = self.current.write();
        if self.reader.catch_up()? {
            *current = (self.reader.db(), self.reader.table(TABLE)?);
        }
        Ok(())
    }
}

impl Store {
    /// The store; of a secondary as of the last catch-up.
    pub fn db(&self) -> Cow<'_, Db> {
        match self {
            Store::Own(db, _) => Cow::Borrowed(db),
            Store::Secondary(secondary) => Cow::Owned(secondary.current.read().0.clone()),
        }
    }

    /// The table; of a secondary as of the last catch-up.
    pub fn table(&self) -> Cow<'_, Table> {
        match self {
            Store::Own(_, table) => Cow::Borrowed(table),
            Store::Secondary(secondary) => Cow::Owned(secondary.current.read().1.clone()),
        }
    }
}

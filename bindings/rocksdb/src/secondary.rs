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

use parking_lot::{Mutex, RwLock};
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
    /// One catch-up at a time. Reads go on meanwhile.
    catch_up: Mutex<()>,
}

impl Secondary {
    /// A secondary of the store that the reader reads.
    pub fn new(reader: DbReader) -> Result<Self, Failure> {
        let current = RwLock::new(current(&reader)?);
        Ok(Secondary { reader, current, catch_up: Mutex::default() })
    }

    /// Shows what the primary has written since.
    pub fn catch_up(&self) -> Result<(), Failure> {
        let _one = self.catch_up.lock();
        if self.reader.catch_up()? {
            let newer = current(&self.reader)?;
            let older = std::mem::replace(&mut *self.current.write(), newer);
            // Closes its files after the lock is free.
            drop(older);
        }
        Ok(())
    }
}

fn current(reader: &DbReader) -> Result<(Db, Table), Failure> {
    let db = reader.db();
    let table = db.table(TABLE)?;
    Ok((db, table))
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

//! Options of an open table: those in force, and how they change.
//!
//! ```text
//!   set_options ─ check all ─ catalogue (durable) ─ engine: those that change while it is open
//!                     │                        └─ the others: in force from the next open
//!                     └ one bad name or value: nothing changes
//! ```
//!
//! The store implements the change, because it owns the catalogue ([`OptionStore`]).

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};

use super::Table;
use crate::recorded::WriteRecorder;

/// Options by name.
pub(crate) type Options = BTreeMap<String, String>;

/// A store as the owner of its tables' options.
pub(crate) trait OptionStore: Send + Sync {
    /// See [`Table::set_options`].
    fn set_options(self: Arc<Self>, table: &Table, changes: &Options) -> Result<Vec<String>>;

    /// See [`Table::swap_places`].
    fn swap_places(self: Arc<Self>, first: &Table, second: &Table) -> Result<()>;

    /// See [`Table::clear`]: does `clear`, if need be with the space of the store's reserve.
    fn clear(&self, table: &Table, clear: &dyn Fn() -> Result<()>) -> Result<()>;

    /// The store itself.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

/// The options of an open table of a store.
pub(crate) struct TableOptions {
    store: Weak<dyn OptionStore>,
    /// Changed by the store alone, while it has locked its catalogue.
    pub(crate) in_force: Mutex<Options>,
    /// Records what is written while the table moves to another engine.
    pub(crate) recorder: Arc<WriteRecorder>,
}

impl TableOptions {
    pub(crate) fn new(
        store: Weak<dyn OptionStore>,
        in_force: Options,
        recorder: Arc<WriteRecorder>,
    ) -> Self {
        TableOptions { store, in_force: Mutex::new(in_force), recorder }
    }
}

impl Table {
    /// The store of the table, if it is in one that is open.
    pub(crate) fn store(&self) -> Option<Arc<dyn OptionStore>> {
        self.options.as_ref()?.store.upgrade()
    }

    /// The record of the table's writes, if it is in a store.
    pub(crate) fn recorder(&self) -> Option<&Arc<WriteRecorder>> {
        self.options.as_ref().map(|options| &options.recorder)
    }

    /// Exchanges the places in which servers show two tables of one store, atomically and durably
    /// ([`Catalogue::in_place_of`](crate::catalogue::Catalogue::in_place_of)). Their names,
    /// directories and contents stay as they are. Earlier versions refuse the store from then on,
    /// until both are in their own places again.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let old = db.table_or_create("old", "lsm", &Default::default())?;
    /// let new = db.table_or_create("new", "lsm", &Default::default())?;
    /// old.swap_places(&new)?;
    /// assert_eq!(db.catalogue()?.in_place_of("old"), "new");
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Closed`] if one has been dropped or the tables are of two stores; I/O errors:
    /// either state is there then. Tables outside of stores have no places, and nothing is
    /// recorded.
    pub fn swap_places(&self, other: &Table) -> Result<()> {
        let options = match (&self.options, &other.options) {
            (Some(options), Some(_)) => options,
            (None, None) => return Ok(()),
            _ => return Err(Error::Closed),
        };
        let store = options.store.upgrade().ok_or(Error::Closed)?;
        store.swap_places(self, other)
    }

    /// The options in force that were given, by their names at creation or their present ones; the
    /// others have the engine's defaults. Those that are in force from the next open on are in
    /// [`Db::spec_of`](crate::Db::spec_of). Empty for a table outside of a store.
    #[must_use]
    pub fn options(&self) -> BTreeMap<String, String> {
        self.options.as_ref().map(|options| options.in_force.lock().clone()).unwrap_or_default()
    }

    /// Changes options, durably: all of them, or none if one is refused. Returns the names of those
    /// that are in force only when the table is opened next, since they do not change while it is
    /// open. [`engines::option_change`](crate::engines::option_change) and the book's page of
    /// options say when each changes.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// # let table = db.table_or_create("t", "lsm", &Default::default())?;
    /// let later = table.set_options(&[("cache", "256MiB"), ("levels", "64MiB:1GiB:10GiB")])?;
    /// assert_eq!(table.options()["cache"], "256MiB");
    /// assert_eq!(later, ["levels"]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// Cost: one catalogue, written and synced. Does not wait for background work.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] with all mistakes: unknown names, invalid values or combinations,
    /// and options that never change. [`Error::Refused`] in a read-only store. After an I/O error
    /// nothing has changed in the open table, and the next open has the old or the new options.
    pub fn set_options(&self, changes: &[(&str, &str)]) -> Result<Vec<String>> {
        let Some(options) = &self.options else {
            return Err(Error::Invalid(format!(
                "table '{}' is not one of a store: set the options of its engine",
                self.name()
            )));
        };
        let store = options.store.upgrade().ok_or(Error::Closed)?;
        let mut distinct = Options::new();
        for (name, value) in changes {
            if distinct.insert((*name).to_owned(), (*value).to_owned()).is_some() {
                return Err(Error::invalid_option(*name, "is given twice"));
            }
        }
        store.set_options(self, &distinct)
    }
}

//! The store's directory: its lock, its catalogue, its tables.
//!
//! ```text
//! DIR/
//!   LOCK              held while the store is open
//!   CATALOG           the list of tables (see `catalogue`)
//!   RESERVE           space for a drop or a clear when the disk is full (see `reserve`)
//!   table-NAME/       one directory per table, owned by its engine
//! ```
//!
//! To create a table, the store lists it as pending in the catalogue, creates its directory with
//! the engine's files, durably, and then lists it as a table. A drop goes the opposite way:
//! pending, removal of the files, removal from the catalogue. What a crash leaves of a pending
//! table is removed at open: first its files in other directories (`upper=DIR` of `trie`), then
//! its own directory. If the other directory cannot be reached, the table stays pending until a
//! later open.
//!
//! | module | contents |
//! | --- | --- |
//! | `db_options` | the options of opening a store |
//! | `open` | opening and creating a store |
//! | `tables` | opening, creating and dropping tables |
//! | `reserve` | space for a drop or a clear when the disk is full |
//! | `rename` | renaming a table |
//! | `table_move` | moving a table to another engine |
//! | `switch` | the switch of a moved table, and its place in the catalogue |
//! | `all_tables` | operations on every table |
//! | `options` | options of tables that change |
//! | `members` | identities of tables, for batches over several tables |
//! | [`position`] | all tables with their sequence numbers as of one moment |
//!
//! Invariants:
//! - A table directory that the catalogue does not list is never removed, since an older catalogue
//!   may have been restored.
//! - A table is opened only if the catalogue on disk lists it. After a failed change of the
//!   catalogue the one in force is written again before that. Otherwise the next open would remove
//!   the files of a table that was not dropped here, with what has been written to it since.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use siltstone_engine::{Error, Result};
use siltstone_vfs::{LockGuard, Vfs};

use crate::batch::open::OpenBatches;
use crate::catalogue::Catalogue;
use crate::engines::SharedResources;
use crate::names::directory;
use crate::{Table, read_only};

mod all_tables;
#[cfg_attr(not(feature = "lsm"), path = "no_bulk_copy.rs")]
mod bulk_copy;
mod db_options;
mod members;
mod open;
mod options;
mod places;
pub mod position;
mod rename;
mod reserve;
mod switch;
mod table_move;
mod tables;

pub use db_options::DbOptions;
pub(crate) use open::refuse_inside;
use reserve::Reserve;
pub use table_move::{MoveProgress, TableMove};

/// An open store. Clones share it. [`close`](Db::close), or dropping the last clone and table,
/// releases the lock.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

impl fmt::Debug for Db {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Db").field("directory", &self.inner.vfs.name()).finish_non_exhaustive()
    }
}

struct Inner {
    vfs: Arc<dyn Vfs>,
    /// The directory in the operating system's file system, absolute.
    path: Option<PathBuf>,
    options: DbOptions,
    /// What its tables share.
    shared: SharedResources,
    batches: Arc<OpenBatches>,
    reserve: Reserve,
    open: Mutex<OpenTables>,
    /// Held shared while files of tables are looked up by name, exclusively by the switch of a
    /// table to another engine.
    switches: RwLock<()>,
    // Last: the lock is released after everything that uses the directory.
    lock: Mutex<Option<LockGuard>>,
}

#[derive(Default)]
struct OpenTables {
    catalogue: Catalogue,
    tables: BTreeMap<String, Table>,
    /// The targets of tables that are moving to another engine, by name.
    moving: BTreeMap<String, Table>,
    closed: bool,
    /// Whether a failed change of the catalogue may be on disk.
    is_in_doubt: bool,
}

impl OpenTables {
    /// Writes the catalogue again if a failed change of it may be on disk.
    ///
    /// # Errors
    /// I/O errors: the change may still be there.
    fn resolve_doubt(&mut self, vfs: &dyn Vfs) -> Result<()> {
        if self.is_in_doubt {
            self.catalogue.write(vfs)?;
            self.is_in_doubt = false;
        }
        Ok(())
    }

    /// Replaces the catalogue, durably.
    ///
    /// # Errors
    /// I/O errors: the old catalogue stays in force.
    fn replace_catalogue(&mut self, vfs: &dyn Vfs, catalogue: Catalogue) -> Result<()> {
        match catalogue.replace(vfs) {
            Ok(()) => {
                self.catalogue = catalogue;
                self.is_in_doubt = false;
                Ok(())
            }
            Err((error, may_be_there)) => {
                self.is_in_doubt |= may_be_there;
                // If this fails, too, it is tried again before a table is opened.
                let _ = self.resolve_doubt(vfs);
                Err(error)
            }
        }
    }
}

impl Db {
    /// The absolute path of the directory; `None` if it is not in the operating system's file
    /// system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// The names of all tables, sorted.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn table_names(&self) -> Result<Vec<String>> {
        Ok(self.state()?.catalogue.tables.keys().cloned().collect())
    }

    /// A copy of the catalogue: every table with its engine and options.
    ///
    /// # Errors
    /// [`Error::Closed`].
    pub fn catalogue(&self) -> Result<Catalogue> {
        Ok(self.state()?.catalogue.clone())
    }

    /// The file system that the store is on.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.inner.vfs
    }

    /// Finishes background work, makes everything durable, and releases the directory. Tables that
    /// are still in use return [`Error::Closed`] afterwards. Waits until event listeners have heard
    /// everything, unless one of them calls this.
    ///
    /// # Errors
    /// The first error of a table's [`close`](siltstone_engine::Engine::close); all tables are
    /// closed in any case.
    pub fn close(&self) -> Result<()> {
        let mut open = self.inner.open.lock();
        open.closed = true;
        let mut first_error = Ok(());
        let targets = std::mem::take(&mut open.moving).into_values();
        for table in std::mem::take(&mut open.tables).into_values().chain(targets) {
            first_error = first_error.and(table.engine().close());
        }
        self.inner.lock.lock().take();
        // A listener may be waiting for it.
        drop(open);
        self.inner.options.env.events.close();
        first_error
    }

    /// The table's directory, for tools that read its files. It is created if it does not exist.
    ///
    /// # Errors
    /// I/O errors.
    pub fn table_vfs(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let directory = directory(self.state()?.catalogue.directory_of(name));
        self.inner.vfs.subdirectory(&directory)
    }

    /// The same for a table that may be dropped meanwhile: a directory that is created again would
    /// be in the way of the next table of this name.
    pub(crate) fn existing_table_vfs(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let directory = directory(self.state()?.catalogue.directory_of(name));
        self.inner.vfs.existing_subdirectory(&directory)
    }

    pub(crate) fn options(&self) -> &DbOptions {
        &self.inner.options
    }

    /// Keeps tables on their engines until the guard is dropped.
    pub(crate) fn hold_switches(&self) -> RwLockReadGuard<'_, ()> {
        self.inner.switches.read()
    }

    fn state(&self) -> Result<parking_lot::MutexGuard<'_, OpenTables>> {
        let open = self.inner.open.lock();
        if open.closed { Err(Error::Closed) } else { Ok(open) }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.inner.options.read_only {
            Err(read_only::refusal(&self.inner.vfs.name()))
        } else {
            Ok(())
        }
    }
}

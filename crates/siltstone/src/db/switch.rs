//! The place of a moving table in the catalogue: its target, the switch, and what is removed.
//!
//! ```text
//!   CATALOG                                   table-NAME/           table-NAME.1/
//!     begin    pending: NAME.1                the table             the target, being filled
//!     switch   NAME is in NAME.1,             the old table         the table
//!              pending: NAME      (commit)
//!     retire   NAME is in NAME.1              removed               the table
//!     abort    (as before)                    the table             removed
//! ```
//!
//! The next move goes from `table-NAME.1` to `table-NAME`. After a crash the next open removes the
//! pending directory, so it finds the old table before the switch and the new one after it.
//!
//! Invariant: both tables are synced, with every write that has returned, before the catalogue
//! names the target. Syncing the old one syncs the other parts of its batches over several tables.

use siltstone_engine::{Error, Result};

use super::tables::remove_files;
use super::{Db, OpenTables};
use crate::catalogue::TableSpec;
use crate::names::spare_name;
use crate::{Table, engines};

/// The target of a move.
pub(super) struct Target {
    pub(super) table: Table,
    pub(super) spec: TableSpec,
    /// The name of its directory, without the prefix.
    pub(super) directory: String,
}

impl OpenTables {
    /// Refuses what a move of the table is in the way of.
    pub(super) fn check_not_moving(&self, name: &str) -> Result<()> {
        match self.moving.contains_key(name) {
            true => Err(Error::Invalid(format!(
                "table '{name}' is moving to another engine: wait until it has, or cancel the move"
            ))),
            false => Ok(()),
        }
    }

    fn check_listed(&self, table: &Table) -> Result<()> {
        match self.tables.get(table.name()) {
            Some(listed) if listed.is_same(table) => Ok(()),
            _ => Err(Error::Closed),
        }
    }
}

impl Db {
    /// Creates the target, empty and pending.
    pub(super) fn open_target(&self, source: &Table, spec: TableSpec) -> Result<Target> {
        self.check_writable()?;
        let name = source.name();
        engines::check(&spec.engine, &spec.options)?;
        self.inner.shared.check(&spec.engine, &spec.options)?;
        self.check_hooks(name, &spec.engine)?;
        self.check_encryption(name, &spec)?;
        let mut open = self.state()?;
        open.check_listed(source)?;
        open.check_not_moving(name)?;
        let directory = match open.catalogue.directory_of(name) == name {
            true => spare_name(name),
            false => name.to_owned(),
        };
        self.check_not_unlisted(&open, &directory)?;
        let vfs = self.inner.vfs.as_ref();
        let mut catalogue = open.catalogue.clone();
        catalogue.pending.insert(directory.clone());
        open.replace_catalogue(vfs, catalogue)?;
        // What an interrupted move left.
        remove_files(vfs, &directory)?;
        let opened = self.open_table(name, &directory, &spec, None).and_then(|table| match source
            .engine()
            .merge_operator()
        {
            None => Ok(table),
            operator => table.engine().set_merge_operator(operator).map(|()| table),
        });
        let table = opened.inspect_err(|_| {
            // If this fails, the next open removes it.
            let _ = self.remove_pending(&mut open, &directory);
        })?;
        open.moving.insert(name.to_owned(), table.clone());
        Ok(Target { table, spec, directory })
    }

    /// Puts the target in the place of the source, durably. The caller excludes writers. Returns
    /// the directory of the source. After an error the source is as before, or sealed if the
    /// catalogue on disk may already name the target.
    pub(super) fn switch(&self, source: &Table, target: &Target) -> Result<String> {
        let mut open = self.state()?;
        open.check_listed(source)?;
        source.sync()?;
        target.table.sync()?;
        let name = source.name();
        let mut catalogue = open.catalogue.clone();
        let old = catalogue.directory_of(name).to_owned();
        catalogue.tables.insert(name.to_owned(), target.spec.clone());
        catalogue.set_directory(name, target.directory.clone());
        catalogue.pending.remove(&target.directory);
        catalogue.pending.insert(old.clone());
        let id = catalogue.ids.remove(name);
        let switched = open.replace_catalogue(self.inner.vfs.as_ref(), catalogue);
        if switched.is_ok() || open.is_in_doubt {
            source.recorder().into_iter().for_each(|recorder| recorder.seal());
        }
        switched?;
        // Until then other tables depend on its parts of batches.
        id.into_iter().for_each(|id| self.inner.batches.forget(id));
        open.tables.insert(name.to_owned(), target.table.clone());
        open.moving.insert(name.to_owned(), source.clone());
        Ok(old)
    }

    /// Closes the source after the switch, and removes its files.
    pub(super) fn retire(&self, source: &Table, directory: &str) -> Result<()> {
        let closed = match source.engine().close() {
            // Its files are removed anyway.
            Err(Error::ReadOnly { .. } | Error::Closed) => Ok(()),
            closed => closed,
        };
        self.end_move(source.name(), directory).and(closed)
    }

    /// Closes the target, and removes its files. The source is the table.
    pub(super) fn abort(&self, target: &Target) -> Result<()> {
        // Whatever it could not write is removed.
        let _ = target.table.engine().close();
        self.end_move(target.table.name(), &target.directory)
    }

    fn end_move(&self, name: &str, directory: &str) -> Result<()> {
        // The next open of a closed store removes the directory.
        let Ok(mut open) = self.state() else { return Ok(()) };
        let removed = self.remove_pending(&mut open, directory);
        open.moving.remove(name);
        removed
    }

    fn remove_pending(&self, open: &mut OpenTables, directory: &str) -> Result<()> {
        let vfs = self.inner.vfs.as_ref();
        // Otherwise the catalogue on disk may list a table in the directory.
        open.resolve_doubt(vfs)?;
        remove_files(vfs, directory)?;
        let mut catalogue = open.catalogue.clone();
        catalogue.pending.remove(directory);
        open.replace_catalogue(vfs, catalogue)
    }
}

//! Opening, creating and dropping tables.
//!
//! ```text
//!   create   catalogue: pending ─ files ─ catalogue: listed
//!   drop     catalogue: pending ─ files removed ─ catalogue: not listed
//! ```
//!
//! The next open of the store removes the files of pending tables, so both are complete or undone
//! after a crash.
//!
//! Invariant: a listed table has its files, unless its engine keeps none. If they are missing, an
//! open fails and creates no new table.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use siltstone_engine::names::suggest;
use siltstone_engine::{Error, Result};
use siltstone_runtime::Env;
use siltstone_vfs::{MeteredVfs, Vfs};

use super::{Db, Inner, OpenTables};
use crate::batch::member::Member;
use crate::catalogue::{self, TableSpec};
use crate::names::directory;
use crate::observed::ObservedEngine;
use crate::read_only::ReadOnly;
use crate::recorded::{RecordedEngine, WriteRecorder};
use crate::table::TableOptions;
use crate::{Table, engines, trace};

impl Db {
    /// Opens the existing table `name`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, or if the options `compaction_filters` or
    /// `merge_operators` of the store name a table that is not on `lsm`; errors of opening it, and
    /// of [`Table::set_merge_operator`].
    pub fn table(&self, name: &str) -> Result<Table> {
        self.table_locked(&mut *self.state()?, name)
    }

    pub(super) fn table_locked(&self, open: &mut OpenTables, name: &str) -> Result<Table> {
        if let Some(table) = open.tables.get(name) {
            return Ok(table.clone());
        }
        let spec = self.spec(open, name)?;
        open.resolve_doubt(self.inner.vfs.as_ref())?;
        self.check_hooks(name, &spec.engine)?;
        self.check_encryption(name, &spec)?;
        // An engine would create a new table in an empty directory.
        if self.are_files_missing(open.catalogue.directory_of(name), &spec)? {
            let directory = directory(open.catalogue.directory_of(name));
            let path = format!("{}/{directory}", self.inner.vfs.name());
            let reason =
                "the table's files are missing, though CATALOG names it; put them back from a copy";
            return Err(Error::corruption(path, 0, reason));
        }
        let (catalogue, id) = (&open.catalogue, open.catalogue.ids.get(name).copied());
        // A table that is to be cleared must be opened, which takes some space.
        let open_table = || self.open_table(name, catalogue.directory_of(name), &spec, id);
        let table = self.inner.reserve.lend(self.inner.vfs.as_ref(), name, open_table)?;
        open.tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// The engine and options of the table `name`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none.
    pub fn spec_of(&self, name: &str) -> Result<TableSpec> {
        self.spec(&*self.state()?, name)
    }

    pub(super) fn spec(&self, open: &OpenTables, name: &str) -> Result<TableSpec> {
        open.catalogue.tables.get(name).cloned().ok_or_else(|| {
            let names: Vec<_> = open.catalogue.tables.keys().map(String::as_str).collect();
            let others = if names.is_empty() { "none".into() } else { names.join(", ") };
            let suggestion = suggest(name, names.iter().copied());
            Error::Invalid(format!(
                "no table '{name}' in {}{suggestion} (tables: {others})",
                self.inner.vfs.name()
            ))
        })
    }

    /// Opens the table `name`, or creates it on `engine` with `options` if there is none. Options
    /// of an existing table that differ are applied, durably, or refused: those that are fixed at
    /// creation, and those of an open table that only change when it is opened. Options that are
    /// not given stay as they are. See [`engines::option_change`].
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// # let db = Db::open_or_create(scratch.path().join("s"), DbOptions::default())?;
    /// let options = [("memtable".to_owned(), "8MiB".to_owned())].into();
    /// let table = db.table_or_create("events", "lsm", &options)?;
    /// assert_eq!(db.table_names()?, ["events"]);
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`] if the table exists on another engine; [`Error::InvalidOptions`] with all
    /// mistakes and refused options, among them a new `cache` if the store has `cache_bytes`.
    /// Nothing is applied then. [`Error::Refused`] if one differs in a read-only store.
    pub fn table_or_create(
        &self,
        name: &str,
        engine: &str,
        options: &BTreeMap<String, String>,
    ) -> Result<Table> {
        catalogue::check_name(name)?;
        engines::check(engine, options)?;
        let known = self.state()?.catalogue.tables.get(name).map(|spec| spec.engine.clone());
        match known {
            Some(known) if known == engine => return self.table_with(name, options),
            Some(known) => {
                return Err(Error::Invalid(format!(
                    "table '{name}' is on the {known} engine, not on {engine}"
                )));
            }
            None => self.check_writable()?,
        }
        self.inner.shared.check(engine, options)?;
        self.check_hooks(name, engine)?;
        let spec = TableSpec { engine: engine.to_owned(), options: options.clone() };
        self.check_encryption(name, &spec)?;
        let mut open = self.state()?;
        let vfs = self.inner.vfs.as_ref();
        self.check_not_unlisted(&open, name)?;
        let mut catalogue = open.catalogue.clone();
        catalogue.pending.insert(name.to_owned());
        open.replace_catalogue(vfs, catalogue.clone())?;
        // A dropped table or an interrupted creation may have left files.
        remove_files(vfs, name)?;
        let table = self.open_table(name, name, &spec, None)?;
        catalogue.tables.insert(name.to_owned(), spec);
        catalogue.pending.remove(name);
        open.replace_catalogue(vfs, catalogue)?;
        open.tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// Removes the table `name` with all of its files, wherever they are. If that is interrupted
    /// after the catalogue stopped listing the table, the next open removes the rest. On a full
    /// disk it uses the space that the store reserves for that. Handles to the table are closed.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none; I/O errors.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut open = self.state()?;
        open.check_not_moving(name)?;
        let mut catalogue = open.catalogue.clone();
        if catalogue.tables.remove(name).is_none() {
            return Err(Error::Invalid(format!("no table '{name}' to drop")));
        }
        let directory = catalogue.directories.remove(name).unwrap_or_else(|| name.to_owned());
        if let Some(table) = open.tables.remove(name) {
            match table.engine().close() {
                // Its files are removed anyway.
                Err(Error::ReadOnly { .. }) => {}
                Err(error) if error.is_disk_full() => {}
                closed => closed?,
            }
        }
        let id = catalogue.ids.remove(name);
        catalogue.remove_place(name);
        catalogue.pending.insert(directory.clone());
        let vfs = self.inner.vfs.as_ref();
        let unlist = || open.replace_catalogue(vfs, catalogue.clone());
        self.inner.reserve.lend(vfs, name, unlist)?;
        // Until then other tables depend on its parts of batches.
        id.into_iter().for_each(|id| self.inner.batches.forget(id));
        remove_files(vfs, &directory)?;
        catalogue.pending.remove(&directory);
        open.replace_catalogue(vfs, catalogue)?;
        self.inner.reserve.fill(vfs);
        Ok(())
    }

    /// The tables whose directories exist but which the catalogue does not list, sorted, as after
    /// an older catalogue was restored. [`repair`](crate::catalogue::repair) lists them again.
    ///
    /// # Errors
    /// [`Error::Closed`]; I/O errors.
    pub fn unlisted_tables(&self) -> Result<Vec<String>> {
        self.state()?.catalogue.unlisted(self.inner.vfs.as_ref())
    }

    /// Whether all files of the table are missing. A listed table always has files, unless its
    /// engine keeps none.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is no such table; I/O errors.
    pub fn are_table_files_missing(&self, name: &str) -> Result<bool> {
        let open = self.state()?;
        let spec = self.spec(&open, name)?;
        self.are_files_missing(open.catalogue.directory_of(name), &spec)
    }

    fn are_files_missing(&self, directory_name: &str, spec: &TableSpec) -> Result<bool> {
        let (vfs, directory) = (&self.inner.vfs, directory(directory_name));
        if !engines::has_files(&spec.engine) {
            return Ok(false);
        }
        let exists = vfs.has_subdirectory(&directory)?;
        Ok(!exists || vfs.subdirectory(&directory)?.list()?.is_empty())
    }

    /// Refuses the name of a directory, without the prefix, that exists though the catalogue does
    /// not list it.
    pub(super) fn check_not_unlisted(&self, open: &OpenTables, name: &str) -> Result<()> {
        let vfs = self.inner.vfs.as_ref();
        let is_listed = open.catalogue.has_directory(name) || open.catalogue.pending.contains(name);
        if is_listed || !vfs.has_subdirectory(&directory(name))? {
            return Ok(());
        }
        Err(Error::Refused {
            path: format!("{}/{}", vfs.name(), directory(name)),
            reason: "the directory exists but the catalogue does not list it, as after an older CATALOG was \
                     restored; run `siltstone repair` to list it again, or move it away"
                .to_owned(),
        })
    }

    /// Checks that an encrypted store can have the table.
    pub(super) fn check_encryption(&self, name: &str, spec: &TableSpec) -> Result<()> {
        engines::check_encryption(&self.inner.options.encryption, name, &spec.engine, &spec.options)
    }

    /// Checks that the engine has the hooks that the options have for the table.
    pub(super) fn check_hooks(&self, name: &str, engine: &str) -> Result<()> {
        let options = &self.inner.options;
        if options.compaction_filters.contains_key(name) {
            engines::check_compaction_filter(name, engine)?;
        }
        match options.merge_operators.contains_key(name) {
            true => engines::check_merge_operator(name, engine),
            false => Ok(()),
        }
    }

    /// Opens the table in a directory, whose name is without the prefix.
    pub(super) fn open_table(
        &self,
        name: &str,
        directory_name: &str,
        spec: &TableSpec,
        id: Option<u64>,
    ) -> Result<Table> {
        trace::span!("open_table", table = name, engine = spec.engine);
        let vfs = self.inner.vfs.subdirectory(&directory(directory_name))?;
        let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(vfs));
        let options = &self.inner.options;
        let shared = &self.inner.shared;
        let events = options.env.events.for_table(name);
        let env = Env { events: events.clone(), ..options.env.clone() };
        let opened = engines::open_shared(&spec.engine, vfs, &env, &spec.options, shared);
        let engine = opened.inspect_err(|error| events.emit_corruption(error))?;
        let mut engine = ObservedEngine::wrap(engine, &events);
        if let Some(filter) = options.compaction_filters.get(name) {
            engine.set_compaction_filter(Some(filter.clone()))?;
        }
        if let Some(operator) = options.merge_operators.get(name) {
            engine.set_merge_operator(Some(operator.clone()))?;
        }
        if options.read_only {
            engine = Arc::new(ReadOnly::new(engine, self.inner.vfs.name()));
        }
        let recorder: Arc<WriteRecorder> = Arc::default();
        engine = Arc::new(RecordedEngine::new(engine, recorder.clone()));
        let table = Table::with(name, engine, options.env.clock.clone(), &options.transactions);
        let mut in_force = spec.options.clone();
        shared.remove_from(&spec.engine, &mut in_force);
        let store: Weak<Inner> = Arc::downgrade(&self.inner);
        let member = Member::new(id, self.inner.batches.clone());
        Ok(table.of_store(member, TableOptions::new(store, in_force, recorder)))
    }
}

/// Removes a directory of a table, if there is one, and the table's files in other directories. The
/// name is without the prefix.
pub(super) fn remove_files(vfs: &dyn Vfs, directory_name: &str) -> Result<()> {
    let directory = directory(directory_name);
    if !vfs.has_subdirectory(&directory)? {
        return Ok(());
    }
    engines::remove_external_files(vfs.subdirectory(&directory)?.as_ref())?;
    vfs.remove_subdirectory(&directory)
}

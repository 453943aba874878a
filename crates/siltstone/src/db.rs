//! The store's directory: its lock, its catalogue, its tables.
//!
//! ```text
//! DIR/
//!   LOCK              held while the store is open
//!   CATALOG           the list of tables (see `catalogue`)
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
//! | `rename` | renaming a table |
//! | `all_tables` | operations on every table |
//! | `options` | options of tables that change |
//! | `members` | identities of tables, for batches over several tables |
//!
//! Invariant: a table directory that the catalogue does not list is never removed, since an older
//! catalogue may have been restored.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use siltstone_engine::names::suggest;
use siltstone_engine::{CompactionFilter, Error, MergeOperator, Purpose, Result};
use siltstone_runtime::{Env, Scheduler};
use siltstone_vfs::{Disk, DiskOptions, LockGuard, MeteredVfs, Overlay, Vfs};

use crate::batch::member::Member;
use crate::batch::open::OpenBatches;
use crate::batch::recovery;
use crate::catalogue::{self, Catalogue, TableSpec};
use crate::engines::Shared;
use crate::names::{LOCK, TABLE_PREFIX, directory};
use crate::read_only::ReadOnly;
use crate::table::TableOptions;
use crate::{Table, TransactionOptions, engines, read_only};

mod all_tables;
mod members;
mod options;
mod rename;

/// Options of opening a store.
#[derive(Clone)]
pub struct DbOptions {
    /// Clock, seed, scheduler and rate limit, shared by all tables.
    pub env: Env,
    /// Reads with `O_DIRECT`, so that reads bypass the page cache and memory holds only the
    /// engines' own caches. Every read then costs a request to the device.
    pub direct_reads: bool,
    /// Opens the store read-only: no byte changes in its directory or in those of its tables
    /// elsewhere, and read permission is enough. What an engine writes when it opens, e.g. what
    /// recovery flushes, stays in memory; background work is off; writes are refused. Other
    /// processes may have the store open read-only at the same time, none for writing.
    pub read_only: bool,
    /// Limits of transactions and snapshots, for each table.
    pub transactions: TransactionOptions,
    /// The maximum number of files that the store has open: see [`DiskOptions::max_open_files`].
    /// Idle files beyond it are closed and opened again when they are used.
    pub max_open_files: usize,
    /// The size of one block cache for all tables, in place of one per table of the size of its
    /// option `cache`. Tables that exist keep that option without effect; new tables must not have
    /// it.
    pub cache_bytes: Option<u64>,
    /// Compaction filters by the name of the table, which must be on `lsm`. A filter applies from
    /// the table's open on. A renamed table has the filter of its new name. See
    /// [`compaction_filter`](crate::compaction_filter) for what a filter may do.
    pub compaction_filters: BTreeMap<String, Arc<dyn CompactionFilter>>,
    /// Merge operators by the name of the table, which must be on `lsm`. A table's first operator
    /// is recorded in it by name; the built-in ones need to be named here once only, others at
    /// every open. See [`Table::set_merge_operator`] for what they exclude, and
    /// [`merge_operator`](crate::merge_operator) for what an operator must keep to.
    pub merge_operators: BTreeMap<String, Arc<dyn MergeOperator>>,
}

impl fmt::Debug for DbOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DbOptions")
            .field("direct_reads", &self.direct_reads)
            .field("read_only", &self.read_only)
            .field("transactions", &self.transactions)
            .finish_non_exhaustive()
    }
}

impl Default for DbOptions {
    /// The system clock; one thread for flushes, and one per core, up to four, for other jobs.
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        DbOptions {
            env: Env::system(cores.min(4)),
            direct_reads: false,
            read_only: false,
            transactions: TransactionOptions::default(),
            max_open_files: Self::DEFAULT_MAX_OPEN_FILES,
            cache_bytes: None,
            compaction_filters: BTreeMap::new(),
            merge_operators: BTreeMap::new(),
        }
    }
}

impl DbOptions {
    /// The default of [`max_open_files`](Self::max_open_files).
    pub const DEFAULT_MAX_OPEN_FILES: usize = DiskOptions::DEFAULT_MAX_OPEN_FILES;

    fn disk(&self, disk: Disk) -> Disk {
        let (direct, max_open_files) = (self.direct_reads, self.max_open_files);
        disk.with_options(DiskOptions { direct, max_open_files, ..DiskOptions::default() })
    }
}

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
    shared: Shared,
    batches: Arc<OpenBatches>,
    open: Mutex<Open>,
    // Last: the lock is released after everything that uses the directory.
    lock: Mutex<Option<LockGuard>>,
}

#[derive(Default)]
struct Open {
    catalogue: Catalogue,
    tables: BTreeMap<String, Table>,
    closed: bool,
}

impl Db {
    /// Opens the store in `dir`.
    ///
    /// ```
    /// # use siltstone::{Db, DbOptions, Error};
    /// # let scratch = tempfile::tempdir().unwrap();
    /// // A directory that is not a store is refused, and nothing in it is touched.
    /// let refused = Db::open(scratch.path(), DbOptions::default());
    /// assert!(matches!(refused, Err(Error::Refused { .. })));
    /// # Ok::<(), siltstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if `dir` is not a store or has a newer format, [`Error::Locked`] if
    /// another process has it open, and errors of opening its tables.
    pub fn open(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        let refuse = |reason: &str| Error::Refused {
            path: dir.display().to_string(),
            reason: reason.to_owned(),
        };
        match dir.metadata() {
            Ok(found) if found.is_dir() => {}
            Ok(_) => return Err(refuse("not a directory")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(refuse("no such directory"));
            }
            Err(error) => return Err(Error::io("look up", dir.display().to_string(), &error)),
        }
        let vfs: Arc<dyn Vfs> = Arc::new(options.disk(Disk::open(dir)?));
        if !Catalogue::exists(vfs.as_ref())? {
            if vfs.subdirectories()?.iter().any(|name| name.starts_with(TABLE_PREFIX)) {
                let reason = "it is missing, though there are directories of tables";
                return Err(Error::corruption(
                    dir.join("CATALOG").display().to_string(),
                    0,
                    reason,
                ));
            }
            return Err(refuse(
                "not a siltstone store (it has no CATALOG file); name a store, or a new or empty \
                 directory to make one",
            ));
        }
        Self::open_vfs(vfs, options)
    }

    /// Whether `dir` is not empty, so that [`open_or_create`](Self::open_or_create) creates
    /// nothing there.
    ///
    /// # Errors
    /// [`Error::Io`] if `dir` cannot be read.
    pub fn exists(dir: impl AsRef<Path>) -> Result<bool> {
        let dir = dir.as_ref();
        match dir.read_dir() {
            // An interrupted creation leaves the lock file and the draft of the catalogue.
            Ok(mut entries) => Ok(!entries.all(|entry| {
                entry.is_ok_and(|e| e.file_name() == LOCK || e.file_name() == "CATALOG.new")
            })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(true),
            Err(error) => Err(Error::io("read directory", dir.display().to_string(), &error)),
        }
    }

    /// Opens the store in `dir`, or creates one if `dir` is missing or empty.
    ///
    /// # Errors
    /// Those of [`open`](Self::open); [`Error::Refused`] for a directory with other files in it and
    /// for a new directory inside a store. With `read_only` nothing is created.
    pub fn open_or_create(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        if options.read_only || Self::exists(dir)? {
            return Self::open(dir, options);
        }
        refuse_inside(dir)?;
        let disk = options.disk(Disk::create(dir)?);
        Self::create_vfs(Arc::new(disk), options)
    }

    /// Opens the store on any file system; for tests and experiments.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_vfs(mut vfs: Arc<dyn Vfs>, mut options: DbOptions) -> Result<Self> {
        let path = absolute_path(vfs.as_ref())?;
        if options.read_only {
            vfs = Arc::new(Overlay::new(vfs));
            // The output of compactions would be lost. Recovery does not need the scheduler.
            options.env.scheduler = Scheduler::manual();
        }
        let lock = vfs.lock(LOCK)?;
        let catalogue = Catalogue::read(vfs.as_ref())?;
        // The process that replaced it may have crashed before the rename was durable. A power cut
        // would then lose tables that it created and the identities that batches have used, or
        // bring back dropped tables without their files. If a sync of the directory had failed,
        // no later one makes the rename durable, but a copy is.
        match catalogue.write(vfs.as_ref()) {
            Err(error) if error.is_transient() => vfs.sync_dir(Purpose::Manifest)?,
            written => written?,
        }
        Self::with(vfs, path, options, catalogue, lock)
    }

    /// Creates an empty store on any file system, open for writing.
    ///
    /// # Errors
    /// [`Error::Locked`]; I/O errors.
    pub fn create_vfs(vfs: Arc<dyn Vfs>, options: DbOptions) -> Result<Self> {
        let lock = vfs.lock(LOCK)?;
        let catalogue = Catalogue::default();
        catalogue.write(vfs.as_ref())?;
        let path = absolute_path(vfs.as_ref())?;
        Self::with(vfs, path, options, catalogue, lock)
    }

    fn with(
        vfs: Arc<dyn Vfs>,
        path: Option<PathBuf>,
        options: DbOptions,
        mut catalogue: Catalogue,
        lock: LockGuard,
    ) -> Result<Self> {
        for (name, spec) in &catalogue.tables {
            engines::check(&spec.engine, &spec.options).map_err(|e| Error::Refused {
                path: vfs.name(),
                reason: format!("its catalogue cannot be used for table '{name}': {e}"),
            })?;
        }
        let before = catalogue.pending.len();
        catalogue.pending.retain(|name| remove_files(vfs.as_ref(), name).is_err());
        if catalogue.pending.len() < before {
            catalogue.write(vfs.as_ref())?;
        }
        let batches = Arc::new(OpenBatches::after(recovery::remove_incomplete(&vfs, &catalogue)?));
        let open = Open { catalogue, ..Open::default() };
        let shared = Shared::new(options.cache_bytes);
        let (open, lock) = (Mutex::new(open), Mutex::new(Some(lock)));
        let inner = Inner { vfs, path, options, shared, batches, open, lock };
        Ok(Db { inner: Arc::new(inner) })
    }

    /// The absolute path of the directory; `None` if it is not in the operating system's file
    /// system.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.inner.path.as_deref()
    }

    /// Opens the existing table `name`.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none, or if [`DbOptions::compaction_filters`] or
    /// [`DbOptions::merge_operators`] name a table that is not on `lsm`; errors of opening it, and
    /// of [`Table::set_merge_operator`].
    pub fn table(&self, name: &str) -> Result<Table> {
        self.table_locked(&mut *self.state()?, name)
    }

    fn table_locked(&self, open: &mut Open, name: &str) -> Result<Table> {
        if let Some(table) = open.tables.get(name) {
            return Ok(table.clone());
        }
        let spec = self.spec(open, name)?;
        self.check_hooks(name, &spec.engine)?;
        // An engine would create a new table in an empty directory.
        if self.are_files_missing(name, &spec)? {
            let path = format!("{}/{}", self.inner.vfs.name(), directory(name));
            let reason =
                "the table's files are missing, though CATALOG names it; put them back from a copy";
            return Err(Error::corruption(path, 0, reason));
        }
        let table = self.open_table(name, &spec, open.catalogue.ids.get(name).copied())?;
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

    fn spec(&self, open: &Open, name: &str) -> Result<TableSpec> {
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
    /// mistakes and refused options, among them a new `cache` if [`DbOptions::cache_bytes`] is set.
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
        let mut open = self.state()?;
        let vfs = self.inner.vfs.as_ref();
        self.check_not_unlisted(&open, name)?;
        let mut catalogue = open.catalogue.clone();
        catalogue.pending.insert(name.to_owned());
        catalogue.write(vfs)?;
        open.catalogue = catalogue.clone();
        // What a dropped table or an interrupted creation left.
        remove_files(vfs, name)?;
        let spec = TableSpec { engine: engine.to_owned(), options: options.clone() };
        let table = self.open_table(name, &spec, None)?;
        catalogue.tables.insert(name.to_owned(), spec);
        catalogue.pending.remove(name);
        catalogue.write(vfs)?;
        open.catalogue = catalogue;
        open.tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// Removes the table `name` with all of its files, wherever they are. If that is interrupted
    /// after the catalogue stopped listing the table, the next open removes the rest.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none; I/O errors.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut open = self.state()?;
        let mut catalogue = open.catalogue.clone();
        if catalogue.tables.remove(name).is_none() {
            return Err(Error::Invalid(format!("no table '{name}' to drop")));
        }
        if let Some(table) = open.tables.remove(name) {
            match table.engine().close() {
                // Its files are removed anyway.
                Err(Error::ReadOnly { .. }) => {}
                closed => closed?,
            }
        }
        if let Some(id) = catalogue.ids.remove(name) {
            self.inner.batches.forget(id);
        }
        catalogue.pending.insert(name.to_owned());
        let vfs = self.inner.vfs.as_ref();
        catalogue.write(vfs)?;
        open.catalogue = catalogue.clone();
        remove_files(vfs, name)?;
        catalogue.pending.remove(name);
        catalogue.write(vfs)?;
        open.catalogue = catalogue;
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
        let spec = self.spec_of(name)?;
        self.are_files_missing(name, &spec)
    }

    fn are_files_missing(&self, name: &str, spec: &TableSpec) -> Result<bool> {
        let (vfs, directory) = (&self.inner.vfs, directory(name));
        if !engines::has_files(&spec.engine) {
            return Ok(false);
        }
        let exists = vfs.has_subdirectory(&directory)?;
        Ok(!exists || vfs.subdirectory(&directory)?.list()?.is_empty())
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
    /// are still in use return [`Error::Closed`] afterwards.
    ///
    /// # Errors
    /// The first error of a table's [`close`](siltstone_engine::Engine::close); all tables are
    /// closed in any case.
    pub fn close(&self) -> Result<()> {
        let mut open = self.inner.open.lock();
        open.closed = true;
        let mut first_error = Ok(());
        for table in std::mem::take(&mut open.tables).into_values() {
            first_error = first_error.and(table.engine().close());
        }
        self.inner.lock.lock().take();
        first_error
    }

    /// The table's directory, for tools that read its files. It is created if it does not exist.
    ///
    /// # Errors
    /// I/O errors.
    pub fn table_vfs(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        self.inner.vfs.subdirectory(&directory(name))
    }

    fn state(&self) -> Result<parking_lot::MutexGuard<'_, Open>> {
        let open = self.inner.open.lock();
        if open.closed { Err(Error::Closed) } else { Ok(open) }
    }

    /// Refuses a name whose directory exists though the catalogue does not list it.
    fn check_not_unlisted(&self, open: &Open, name: &str) -> Result<()> {
        let vfs = self.inner.vfs.as_ref();
        let is_listed =
            open.catalogue.tables.contains_key(name) || open.catalogue.pending.contains(name);
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

    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.inner.options.read_only {
            Err(read_only::refusal(&self.inner.vfs.name()))
        } else {
            Ok(())
        }
    }

    /// Checks that the engine has the hooks that the options have for the table.
    fn check_hooks(&self, name: &str, engine: &str) -> Result<()> {
        let options = &self.inner.options;
        if options.compaction_filters.contains_key(name) {
            engines::check_compaction_filter(name, engine)?;
        }
        match options.merge_operators.contains_key(name) {
            true => engines::check_merge_operator(name, engine),
            false => Ok(()),
        }
    }

    fn open_table(&self, name: &str, spec: &TableSpec, id: Option<u64>) -> Result<Table> {
        let vfs = self.inner.vfs.subdirectory(&directory(name))?;
        let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(vfs));
        let options = &self.inner.options;
        let shared = &self.inner.shared;
        let mut engine =
            engines::open_shared(&spec.engine, vfs, &options.env, &spec.options, shared)?;
        if let Some(filter) = options.compaction_filters.get(name) {
            engine.set_compaction_filter(Some(filter.clone()))?;
        }
        if let Some(operator) = options.merge_operators.get(name) {
            engine.set_merge_operator(Some(operator.clone()))?;
        }
        if options.read_only {
            engine = Arc::new(ReadOnly::new(engine, self.inner.vfs.name()));
        }
        let table = Table::with(name, engine, options.env.clock.clone(), &options.transactions);
        let mut in_force = spec.options.clone();
        shared.remove_from(&spec.engine, &mut in_force);
        let store: Weak<Inner> = Arc::downgrade(&self.inner);
        let member = Member::new(id, self.inner.batches.clone());
        Ok(table.of_store(member, TableOptions::new(store, in_force)))
    }
}

/// Refuses a new directory inside a store: an engine removes unknown files from its table's
/// directory, and the store would take a directory beside them for a table.
pub(crate) fn refuse_inside(dir: &Path) -> Result<()> {
    let fault = |error| Error::io("look up", dir.display().to_string(), &error);
    let absolute = std::path::absolute(dir).map_err(fault)?;
    // The part of the path that exists, with its links resolved: they may lead into a store.
    let existing =
        absolute.ancestors().find_map(|above| above.canonicalize().ok()).unwrap_or_default();
    let Some(store) = existing.ancestors().find(|above| Catalogue::is_in(above)) else {
        return Ok(());
    };
    Err(Error::Refused {
        path: dir.display().to_string(),
        reason: format!(
            "it is inside the store {}, which removes unknown files; name a directory outside of it",
            store.display()
        ),
    })
}

/// The absolute path of a directory of the operating system's file system.
fn absolute_path(vfs: &dyn Vfs) -> Result<Option<PathBuf>> {
    let path = vfs.path().map(std::path::absolute).transpose();
    path.map_err(|error| Error::io("find", vfs.name(), &error))
}

/// Removes the directory of a table, if there is one, and the table's files in other directories.
fn remove_files(vfs: &dyn Vfs, table: &str) -> Result<()> {
    let directory = directory(table);
    if !vfs.has_subdirectory(&directory)? {
        return Ok(());
    }
    engines::remove_external_files(vfs.subdirectory(&directory)?.as_ref())?;
    vfs.remove_subdirectory(&directory)
}

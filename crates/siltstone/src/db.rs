//! The directory: its lock, its catalogue, its tables.
//!
//! ```text
//! DIR/
//!   LOCK              held while the store is open
//!   CATALOG           which tables there are (see `catalogue`)
//!   table-NAME/       one directory a table, owned by its engine
//! ```
//!
//! A table is made by first making its directory (the engine's own files in it, durably) and then
//! naming it in the catalogue; it is dropped in the opposite order. Meanwhile the catalogue has it as passing, so
//! what a crash leaves of it is known for garbage and removed at open: first what it has
//! elsewhere (`upper=DIR` of `trie`), then itself. If elsewhere cannot be reached it waits for a later open.
//! The directory of a table that the catalogue knows nothing of is never removed: an older catalogue may have been
//! put back.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::names::meant;
use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::{Env, Scheduler};
use siltstone_vfs::{Disk, DiskOptions, LockGuard, Metered, Overlay, Vfs};

use crate::catalogue::{self, Catalogue, TableSpec};
use crate::read_only::ReadOnly;
use crate::{Table, TransactionOptions, engines, read_only};

pub(crate) const LOCK: &str = "LOCK";
pub(crate) const TABLE_PREFIX: &str = "table-";

/// How to open a store.
#[derive(Clone)]
pub struct DbOptions {
    /// Clock, seed, scheduler and rate limit, shared by all tables.
    pub env: Env,
    /// Reads past the page cache, with `O_DIRECT`: so that reads are the device's, and memory is only
    /// what the engines take. Costs every read a request to the device.
    pub direct_reads: bool,
    /// For reading alone: no byte of the directory changes, nor any elsewhere, and rights to read them are
    /// enough. What an engine writes when it opens, e.g. what it recovers, is kept in memory; background work
    /// rests; writes are refused. Others may have the store open for reading meanwhile, none for writing.
    pub read_only: bool,
    /// Limits of transactions and snapshots, for each table.
    pub transactions: TransactionOptions,
}

impl Default for DbOptions {
    /// The machine's clock; one thread for flushes and as many for the rest as there are cores
    /// (at most four).
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        DbOptions {
            env: Env::system(cores.min(4)),
            direct_reads: false,
            read_only: false,
            transactions: TransactionOptions::default(),
        }
    }
}

impl DbOptions {
    fn disk(&self, disk: Disk) -> Disk {
        disk.with_options(DiskOptions { direct: self.direct_reads, ..DiskOptions::default() })
    }
}

/// An open store. Clones share it; closing it, or dropping the last clone and table, frees the lock.
#[derive(Clone)]
pub struct Db {
    inner: Arc<Inner>,
}

struct Inner {
    vfs: Arc<dyn Vfs>,
    options: DbOptions,
    open: Mutex<Open>,
    // Last: the lock outlives everything that uses the directory.
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
    /// [`Error::Refused`] if it is no store or of a newer format, [`Error::Locked`] if another
    /// process has it, and what opening its tables finds.
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
        Self::open_media(vfs, options)
    }

    /// Whether there is something in `dir`, so that [`open_or_create`](Self::open_or_create) makes nothing there.
    pub fn exists(dir: impl AsRef<Path>) -> Result<bool> {
        let dir = dir.as_ref();
        match dir.read_dir() {
            // A creation that was cut off leaves the lock file and the unfinished catalogue.
            Ok(mut entries) => Ok(!entries.all(|entry| {
                entry.is_ok_and(|e| e.file_name() == LOCK || e.file_name() == "CATALOG.new")
            })),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => Ok(true),
            Err(error) => Err(Error::io("read directory", dir.display().to_string(), &error)),
        }
    }

    /// Opens the store in `dir`, or makes one if `dir` is missing or empty.
    ///
    /// # Errors
    /// As [`open`](Self::open); a directory with other files in it is refused, and a new one inside of a store.
    /// With `read_only` nothing is made.
    pub fn open_or_create(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        let dir = dir.as_ref();
        if options.read_only || Self::exists(dir)? {
            return Self::open(dir, options);
        }
        refuse_inside(dir)?;
        let disk = options.disk(Disk::create(dir)?);
        Self::create_media(Arc::new(disk), options)
    }

    /// Opens the store on any medium; for tests and experiments.
    pub fn open_media(mut vfs: Arc<dyn Vfs>, mut options: DbOptions) -> Result<Self> {
        if options.read_only {
            vfs = Arc::new(Overlay::new(vfs));
            // Nobody wants what compactions would write. Recovery does what it needs itself.
            options.env.scheduler = Scheduler::manual();
        }
        let lock = vfs.lock(LOCK)?;
        let catalogue = Catalogue::read(vfs.as_ref())?;
        // Whoever replaced it may have died before that was durable: tables that it has made would go with a
        // power cut, and those that it has dropped would come back without their files.
        vfs.sync_dir(Purpose::Manifest)?;
        Self::with(vfs, options, catalogue, lock)
    }

    /// Makes an empty store on any medium, for writing.
    pub fn create_media(vfs: Arc<dyn Vfs>, options: DbOptions) -> Result<Self> {
        let lock = vfs.lock(LOCK)?;
        let catalogue = Catalogue::default();
        catalogue.write(vfs.as_ref())?;
        Self::with(vfs, options, catalogue, lock)
    }

    fn with(
        vfs: Arc<dyn Vfs>,
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
        let before = catalogue.passing.len();
        catalogue.passing.retain(|name| remove_files(vfs.as_ref(), name).is_err());
        if catalogue.passing.len() < before {
            catalogue.write(vfs.as_ref())?;
        }
        let open = Open { catalogue, ..Open::default() };
        let inner = Inner { vfs, options, open: Mutex::new(open), lock: Mutex::new(Some(lock)) };
        Ok(Db { inner: Arc::new(inner) })
    }

    /// The table `name`, which must be there.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none; what opening it finds.
    pub fn table(&self, name: &str) -> Result<Table> {
        let mut open = self.state()?;
        if let Some(table) = open.tables.get(name) {
            return Ok(table.clone());
        }
        let spec = self.spec(&open, name)?;
        // An engine would take an empty directory for that of a new table.
        if self.has_lost(name, &spec)? {
            let place = format!("{}/{}", self.inner.vfs.name(), directory(name));
            let reason =
                "the table's files are missing, though CATALOG names it; put them back from a copy";
            return Err(Error::corruption(place, 0, reason));
        }
        let table = self.open_table(name, &spec)?;
        open.tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// How the table `name` is kept.
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
            let meant = meant(name, names.iter().copied());
            Error::Invalid(format!(
                "no table '{name}' in {}{meant} (tables: {others})",
                self.inner.vfs.name()
            ))
        })
    }

    /// The table `name`; if there is none it is made on `engine` with `options`.
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
    /// [`Error::Invalid`] if it is there on another engine; [`Error::InvalidOptions`], all mistakes at
    /// once. A table that is there keeps the options it was made with.
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
            Some(known) if known == engine => return self.table(name),
            Some(known) => {
                return Err(Error::Invalid(format!(
                    "table '{name}' is on the {known} engine, not on {engine}"
                )));
            }
            None => self.check_writable()?,
        }
        let mut open = self.state()?;
        let vfs = self.inner.vfs.as_ref();
        if open.catalogue.unnamed(vfs)?.iter().any(|unnamed| unnamed == name) {
            return Err(Error::Refused {
                path: format!("{}/{}", vfs.name(), directory(name)),
                reason: "a directory is there that the catalogue does not name, as after an older CATALOG was put \
                         back; `siltstone repair` names it again, or move it away"
                    .to_owned(),
            });
        }
        let mut catalogue = open.catalogue.clone();
        catalogue.passing.insert(name.to_owned());
        catalogue.write(vfs)?;
        open.catalogue = catalogue.clone();
        // Of a table that was dropped, or whose making was cut off.
        remove_files(vfs, name)?;
        let spec = TableSpec { engine: engine.to_owned(), options: options.clone() };
        let table = self.open_table(name, &spec)?;
        catalogue.tables.insert(name.to_owned(), spec);
        catalogue.passing.remove(name);
        catalogue.write(vfs)?;
        open.catalogue = catalogue;
        open.tables.insert(name.to_owned(), table.clone());
        Ok(table)
    }

    /// Removes the table `name` and all in it, wherever it lies. If that is cut off once the catalogue does
    /// not name the table, the rest goes at the next open.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none; failures of the media.
    pub fn drop_table(&self, name: &str) -> Result<()> {
        self.check_writable()?;
        let mut open = self.state()?;
        let mut catalogue = open.catalogue.clone();
        if catalogue.tables.remove(name).is_none() {
            return Err(Error::Invalid(format!("no table '{name}' to drop")));
        }
        if let Some(table) = open.tables.remove(name) {
            match table.engine().close() {
                // Its files go in any case.
                Err(Error::ReadOnly { .. }) => {}
                closed => closed?,
            }
        }
        catalogue.passing.insert(name.to_owned());
        let vfs = self.inner.vfs.as_ref();
        catalogue.write(vfs)?;
        open.catalogue = catalogue.clone();
        remove_files(vfs, name)?;
        catalogue.passing.remove(name);
        catalogue.write(vfs)?;
        open.catalogue = catalogue;
        Ok(())
    }

    /// The tables whose directories are there and which the catalogue does not name, sorted: of an older one that
    /// was put back. [`repair`](crate::catalogue::repair) names them.
    pub fn unnamed_tables(&self) -> Result<Vec<String>> {
        self.state()?.catalogue.unnamed(self.inner.vfs.as_ref())
    }

    /// Whether all files of the table are missing, which it has from before the catalogue names it.
    ///
    /// # Errors
    /// [`Error::Invalid`] if there is none; failures of the media.
    pub fn has_lost_files_of(&self, name: &str) -> Result<bool> {
        let spec = self.spec_of(name)?;
        self.has_lost(name, &spec)
    }

    fn has_lost(&self, name: &str, spec: &TableSpec) -> Result<bool> {
        let (vfs, directory) = (&self.inner.vfs, directory(name));
        if !engines::keeps_files(&spec.engine) {
            return Ok(false);
        }
        let is_there = vfs.subdirectories()?.contains(&directory);
        Ok(!is_there || vfs.subdirectory(&directory)?.list()?.is_empty())
    }

    /// The names of all tables, sorted.
    pub fn table_names(&self) -> Result<Vec<String>> {
        Ok(self.state()?.catalogue.tables.keys().cloned().collect())
    }

    /// The engine of each table, by the table's name.
    pub fn catalogue(&self) -> Result<Catalogue> {
        Ok(self.state()?.catalogue.clone())
    }

    /// The medium that the store is on.
    pub fn vfs(&self) -> &Arc<dyn Vfs> {
        &self.inner.vfs
    }

    /// Finishes background work, makes everything durable, and frees the directory. Tables that
    /// are still held answer [`Error::Closed`] from now on.
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

    /// The table's directory, for tools that work on files.
    pub fn table_media(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        self.inner.vfs.subdirectory(&directory(name))
    }

    fn state(&self) -> Result<parking_lot::MutexGuard<'_, Open>> {
        let open = self.inner.open.lock();
        if open.closed { Err(Error::Closed) } else { Ok(open) }
    }

    fn check_writable(&self) -> Result<()> {
        if self.inner.options.read_only {
            Err(read_only::refusal(&self.inner.vfs.name()))
        } else {
            Ok(())
        }
    }

    fn open_table(&self, name: &str, spec: &TableSpec) -> Result<Table> {
        let vfs = self.inner.vfs.subdirectory(&directory(name))?;
        let vfs: Arc<dyn Vfs> = Arc::new(Metered::new(vfs));
        let options = &self.inner.options;
        let mut engine = engines::open(&spec.engine, vfs, &options.env, &spec.options)?;
        if options.read_only {
            engine = Arc::new(ReadOnly::new(engine, self.inner.vfs.name()));
        }
        Ok(Table::with(name, engine, options.env.clock.clone(), &options.transactions))
    }
}

/// Refuses a new directory inside of a store: in one of a table an engine removes what it does not know, and one beside
/// them would be taken for a table.
pub(crate) fn refuse_inside(dir: &Path) -> Result<()> {
    let fault = |error| Error::io("look up", dir.display().to_string(), &error);
    let whole = std::path::absolute(dir).map_err(fault)?;
    // What is there of it, since links may lead into a store.
    let there = whole.ancestors().find_map(|above| above.canonicalize().ok()).unwrap_or_default();
    let Some(store) = there.ancestors().find(|above| Catalogue::is_in(above)) else {
        return Ok(());
    };
    Err(Error::Refused {
        path: dir.display().to_string(),
        reason: format!(
            "it would lie in the store {}, which removes what it does not know; name a directory outside of it",
            store.display()
        ),
    })
}

/// Removes the directory of a table, if there is one, and what it has elsewhere.
fn remove_files(vfs: &dyn Vfs, table: &str) -> Result<()> {
    let directory = directory(table);
    if !vfs.subdirectories()?.contains(&directory) {
        return Ok(());
    }
    engines::remove_elsewhere(vfs.subdirectory(&directory)?.as_ref())?;
    vfs.remove_subdirectory(&directory)
}

fn directory(table: &str) -> String {
    format!("{TABLE_PREFIX}{table}")
}

//! Opening and creating a store.
//!
//! ```text
//!   directory ─ is it a store? ─ decrypt ─ lock ─ read the catalogue, and write it durably
//!     ─ finish interrupted drops and creations ─ remove incomplete batches over several tables
//! ```
//!
//! Tables are opened later, when they are used. A read-only store is opened with an overlay: what
//! engines write at open stays in memory.
//!
//! Invariant: nothing changes before the directory is known to be a store with this process as its
//! only user.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use siltstone_engine::{Error, Purpose, Result};
use siltstone_runtime::{Events, Scheduler};
use siltstone_vfs::{Disk, LockGuard, Overlay, Vfs};

use super::tables::remove_files;
use super::{Db, DbOptions, Inner, OpenTables, Reserve};
use crate::batch::open::OpenBatches;
use crate::batch::recovery;
use crate::catalogue::Catalogue;
use crate::engines::{self, SharedResources};
use crate::names::{LOCK, TABLE_PREFIX};
use crate::trace;

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
    /// [`Error::Refused`] if `dir` is not a store, has a newer format, or has a table on an engine
    /// or with an option that this build lacks; [`Error::Locked`] if another process has it open,
    /// and errors of opening its tables.
    pub fn open(dir: impl AsRef<Path>, options: DbOptions) -> Result<Self> {
        Self::open_vfs(Self::directory_of(dir.as_ref(), &options)?, options)
    }

    /// The directory of an existing store.
    pub(crate) fn directory_of(dir: &Path, options: &DbOptions) -> Result<Arc<dyn Vfs>> {
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
        Ok(vfs)
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
        trace::span!("open", store = vfs.name());
        let path = absolute_path(vfs.as_ref())?;
        vfs = options.encryption.open(vfs)?;
        if options.read_only {
            vfs = Arc::new(Overlay::new(vfs));
            // The output of compactions would be lost. Recovery does not need the scheduler.
            options.env.scheduler = Scheduler::manual();
        }
        let lock = vfs.lock(LOCK)?;
        let catalogue = Catalogue::read(vfs.as_ref())?;
        check_tables(vfs.as_ref(), &catalogue)?;
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
        let path = absolute_path(vfs.as_ref())?;
        let vfs = options.encryption.wrap(vfs);
        let lock = vfs.lock(LOCK)?;
        let catalogue = Catalogue::default();
        catalogue.write(vfs.as_ref())?;
        Self::with(vfs, path, options, catalogue, lock)
    }

    fn with(
        vfs: Arc<dyn Vfs>,
        path: Option<PathBuf>,
        mut options: DbOptions,
        mut catalogue: Catalogue,
        lock: LockGuard,
    ) -> Result<Self> {
        let before = catalogue.pending.len();
        catalogue.pending.retain(|name| remove_files(vfs.as_ref(), name).is_err());
        if catalogue.pending.len() < before {
            catalogue.write(vfs.as_ref())?;
        }
        let batches = Arc::new(OpenBatches::after(recovery::remove_incomplete(&vfs, &catalogue)?));
        let open = OpenTables { catalogue, ..OpenTables::default() };
        let shared = SharedResources::new(options.cache_bytes);
        let listeners = std::mem::take(&mut options.listeners);
        options.env.events = Events::new(listeners, options.env.clock.clone())?;
        let (open, lock) = (Mutex::new(open), Mutex::new(Some(lock)));
        let switches = RwLock::default();
        let reserve = Reserve::default();
        if !options.read_only {
            reserve.fill(vfs.as_ref());
        }
        let inner = Inner { vfs, path, options, shared, batches, reserve, open, switches, lock };
        Ok(Db { inner: Arc::new(inner) })
    }
}

/// Refuses a store with a table that this build cannot open, before anything changes.
fn check_tables(vfs: &dyn Vfs, catalogue: &Catalogue) -> Result<()> {
    for (name, spec) in &catalogue.tables {
        engines::check(&spec.engine, &spec.options).map_err(|e| Error::Refused {
            path: vfs.name(),
            reason: format!("its catalogue cannot be used for table '{name}': {e}"),
        })?;
    }
    Ok(())
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

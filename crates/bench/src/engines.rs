//! Opens an engine by name on a storage backend by name, always metered.
//!
//! Invariant: all I/O of an engine goes through a [`MeteredVfs`], so amplification is counted in
//! one way for all engines. A store on disk is removed after its run unless it is to be kept.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use siltstone::{Db, DbOptions};
use siltstone_engine::names::unknown;
use siltstone_engine::{Engine, Error, Result};
use siltstone_lsm::{Lsm, Options as LsmOptions};
use siltstone_mica::{Mica, Options as MicaOptions};
use siltstone_runtime::Env;
use siltstone_silt::{Options as SiltOptions, Silt};
use siltstone_skimpy::{Options as SkimpyOptions, Skimpy};
use siltstone_trie::{Options as TrieOptions, Trie};
use siltstone_vfs::{Disk, DiskOptions, MeteredVfs, Ram, Vfs};

/// Names of all engines.
pub const NAMES: &[&str] = &["lsm", "trie", "silt", "mica", "skimpy"];

/// A storage backend.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Storage {
    /// In memory.
    Ram,
    /// In a fresh directory below this one.
    Disk(PathBuf),
    /// As `Disk`, with a pool of byte-addressable memory mapped from a file: persistent memory if
    /// the directory is on a DAX file system, else the page cache.
    Pmem(PathBuf),
    /// As `Disk`, with reads that bypass the page cache, so that counts are those of the device.
    Direct(PathBuf),
}

/// Size of the pool without the option `pmem.size`.
const DEFAULT_POOL: &str = "1GiB";

impl Storage {
    /// The backend `name`; stores on disk are created below `directory`.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for an unknown name.
    pub fn named(name: &str, directory: &Path) -> Result<Self> {
        match name {
            "ram" => Ok(Storage::Ram),
            "disk" => Ok(Storage::Disk(directory.to_owned())),
            "direct" => Ok(Storage::Direct(directory.to_owned())),
            "pmem" => Ok(Storage::Pmem(directory.to_owned())),
            _ => Err(Error::invalid_option(
                "storage",
                unknown(name, &["disk", "direct", "ram", "pmem"]),
            )),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Storage::Ram => "ram",
            Storage::Disk(_) => "disk",
            Storage::Direct(_) => "direct",
            Storage::Pmem(_) => "pmem",
        }
    }

    /// The directory of its stores, if on disk.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Storage::Ram => None,
            Storage::Disk(directory) | Storage::Direct(directory) | Storage::Pmem(directory) => {
                Some(directory)
            }
        }
    }
}

/// An engine to measure.
#[derive(Debug, Clone)]
pub struct Target {
    /// Name of the engine.
    pub engine: String,
    /// Options of the engine.
    pub options: BTreeMap<String, String>,
    /// Storage backend.
    pub storage: Storage,
    /// Whether its files are kept after the run.
    pub keep: bool,
    /// Threads for flushes and compactions.
    pub background_threads: usize,
}

/// An open engine and its directory.
pub struct OpenEngine {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Directory of its files, if on disk; if they are kept, the store that contains its table
    /// `default`.
    pub path: Option<PathBuf>,
    // Dropped after the engine: the files are removed last.
    _directory: Option<tempfile::TempDir>,
}

impl OpenEngine {
    /// An engine in `path`, which is removed with `directory`.
    pub fn new(
        engine: Arc<dyn Engine>,
        path: Option<PathBuf>,
        directory: Option<tempfile::TempDir>,
    ) -> Self {
        OpenEngine { engine, path, _directory: directory }
    }
}

impl Target {
    /// Checks the name and the options without opening anything.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] with all errors.
    pub fn check(&self) -> Result<()> {
        if self.keep && (self.engine == "mica" || self.storage == Storage::Ram) {
            return Err(Error::invalid_option("keep-data", "a store in memory cannot be kept"));
        }
        match self.engine.as_str() {
            "lsm" => LsmOptions::from_map(&self.engine_options()).map(drop),
            "silt" => SiltOptions::from_map(&self.options).map(drop),
            "mica" => MicaOptions::from_map(&self.options).map(drop),
            "trie" => TrieOptions::from_map(&self.options).map(drop),
            "skimpy" => SkimpyOptions::from_map(&self.options).map(drop),
            name => Err(Error::invalid_option("engine", unknown(name, NAMES))),
        }
    }

    /// The engine's options, with those that the storage backend adds.
    fn engine_options(&self) -> BTreeMap<String, String> {
        let mut options = self.options.clone();
        // `nvm` is the former name of the option.
        if matches!(self.storage, Storage::Pmem(_)) && !options.contains_key("nvm") {
            options.entry("pmem.size".to_owned()).or_insert_with(|| DEFAULT_POOL.to_owned());
        }
        options
    }

    /// Opens the engine with empty storage.
    ///
    /// # Errors
    /// As [`check`](Target::check), and I/O errors.
    pub fn open(&self, seed: u64) -> Result<OpenEngine> {
        let env = Env { seed, ..Env::system(self.background_threads) };
        self.open_in(env)
    }

    /// Opens the engine with empty storage in this environment, e.g. a replayable one.
    ///
    /// # Errors
    /// As [`open`](Target::open).
    pub fn open_in(&self, env: Env) -> Result<OpenEngine> {
        self.check()?;
        let (inner, directory, path): (Arc<dyn Vfs>, _, _) = match self.storage.directory() {
            None => (Arc::new(Ram::new()), None, None),
            Some(base) => {
                let (directory, path) = fresh_directory(base, "siltstone-bench-", self.keep)?;
                let direct = matches!(self.storage, Storage::Direct(_));
                let options = DiskOptions { direct, ..DiskOptions::default() };
                let files = if self.keep { self.table_in(&path)? } else { path.clone() };
                let disk = Disk::open(&files)?.with_options(options);
                (Arc::new(disk), directory, Some(path))
            }
        };
        let vfs: Arc<dyn Vfs> = Arc::new(MeteredVfs::new(inner));
        let engine: Arc<dyn Engine> = match self.engine.as_str() {
            "lsm" => Arc::new(Lsm::open(vfs, env, LsmOptions::from_map(&self.engine_options())?)?),
            "silt" => Arc::new(Silt::open(vfs, env, SiltOptions::from_map(&self.options)?)?),
            "mica" => Arc::new(Mica::open(env, MicaOptions::from_map(&self.options)?)?),
            "trie" => Arc::new(Trie::open(vfs, env, TrieOptions::from_map(&self.options)?)?),
            "skimpy" => {
                let options = SkimpyOptions::from_map(&self.options)?;
                Arc::new(Skimpy::open(vfs, env, options)?)
            }
            name => unreachable!("{name} was checked"),
        };
        Ok(OpenEngine { engine, path, _directory: directory })
    }

    /// Creates a store with a table in this directory, and returns the directory of the table's
    /// files, so that a kept store can be opened like any other.
    fn table_in(&self, store: &Path) -> Result<PathBuf> {
        const TABLE: &str = "default";
        let db = Db::open_or_create(store, DbOptions::default())?;
        db.table_or_create(TABLE, &self.engine, &self.engine_options())?;
        let files = db.table_vfs(TABLE)?.name();
        db.close()?;
        Ok(files.into())
    }
}

/// Default directory of stores on disk: the current one, because the temporary directory of the
/// system is often in memory; or that one if the current directory is not writable.
pub fn default_directory() -> PathBuf {
    let here = PathBuf::from(".");
    match tempfile::tempdir_in(&here) {
        Ok(_) => here,
        Err(_) => std::env::temp_dir(),
    }
}

/// Creates a new directory below `base`. It is removed with the returned guard, which is `None` if
/// the directory is to be kept.
///
/// # Errors
/// [`Error::Io`].
pub fn fresh_directory(
    base: &Path,
    prefix: &str,
    keep: bool,
) -> Result<(Option<tempfile::TempDir>, PathBuf)> {
    let fault =
        |e: std::io::Error| Error::io("create a directory in", base.display().to_string(), &e);
    std::fs::create_dir_all(base).map_err(fault)?;
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let directory = tempfile::Builder::new().prefix(prefix).tempdir_in(base).map_err(fault)?;
    if keep {
        return Ok((None, directory.keep()));
    }
    let path = directory.path().to_owned();
    unfinished.retain(|path| path.exists());
    unfinished.push(path.clone());
    Ok((Some(directory), path))
}

/// Directories of stores that are removed after their run.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the stores of unfinished runs before the process exits, and returns their directories.
/// No store can be created afterwards.
pub fn remove_unfinished() -> Vec<PathBuf> {
    const TRIES: usize = 100;
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut removed = std::mem::take(&mut *unfinished);
    std::mem::forget(unfinished);
    removed.retain(|path| path.exists());
    for path in &removed {
        // Engines still write: a file may be created after its directory was listed.
        let mut tries = 0..TRIES;
        while tries.next().is_some() && std::fs::remove_dir_all(path).is_err() && path.exists() {}
    }
    removed
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::{Durability, WriteBatch};

    fn target(storage: Storage, keep: bool) -> Target {
        let options = BTreeMap::new();
        Target { engine: "lsm".to_owned(), options, storage, keep, background_threads: 1 }
    }

    #[test]
    fn writes_are_metered_on_every_backend() {
        let base = tempfile::tempdir().unwrap();
        let at = base.path().to_owned();
        for storage in [Storage::Ram, Storage::Disk(at.clone()), Storage::Pmem(at)] {
            let opened = target(storage, false).open(1).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(b"key", &[7; 1000]);
            opened.engine.write(&batch, Durability::Buffered).unwrap();
            let stats = opened.engine.stats();
            assert!(stats.io["log"].bytes_written >= 1003);
        }
    }

    #[test]
    fn files_are_removed_unless_kept() {
        let base = tempfile::tempdir().unwrap();
        for keep in [false, true] {
            let opened = target(Storage::Disk(base.path().to_owned()), keep).open(1).unwrap();
            let path = opened.path.clone().unwrap();
            assert!(path.is_dir());
            let mut batch = WriteBatch::new();
            batch.put(b"key", b"stays");
            opened.engine.write(&batch, Durability::Buffered).unwrap();
            opened.engine.close().unwrap();
            drop(opened);
            assert_eq!(path.is_dir(), keep);
            if keep {
                let table =
                    Db::open(&path, DbOptions::default()).unwrap().table("default").unwrap();
                assert_eq!(table.get(b"key").unwrap().unwrap(), b"stays");
            }
        }
    }

    #[test]
    fn invalid_targets_are_refused_before_files_are_created() {
        let base = tempfile::tempdir().unwrap();
        let mut wrong = target(Storage::Disk(base.path().join("sub")), false);
        wrong.engine = "btree".to_owned();
        assert!(matches!(wrong.open(1), Err(Error::InvalidOptions(_))));
        let in_memory = ["lsm", "mica"].map(|engine| {
            let storage = if engine == "lsm" { Storage::Ram } else { wrong.storage.clone() };
            Target { engine: engine.to_owned(), storage, keep: true, ..wrong.clone() }
        });
        assert!(in_memory.iter().all(|it| matches!(it.open(1), Err(Error::InvalidOptions(_)))));
        wrong.engine = "lsm".to_owned();
        wrong.options.insert("colour".to_owned(), "red".to_owned());
        assert!(matches!(wrong.open(1), Err(Error::InvalidOptions(_))));
        assert!(!base.path().join("sub").exists());
        assert!(Storage::named("tape", base.path()).is_err());
    }
}

//! An engine by name on a medium by name, always metered.
//!
//! Invariant: whatever an engine reads or writes here goes through a
//! [`Metered`], so amplification is counted in one way; and what a run leaves on the disk is removed
//! when it ends unless it was asked to stay.
//!
//! Source: ours.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use siltstone::{Db, DbOptions};
use siltstone_engine::names::unknown;
use siltstone_engine::{Engine, Error, InvalidOption, Result};
use siltstone_lsm::{Lsm, Options as LsmOptions};
use siltstone_mica::{Mica, Options as MicaOptions};
use siltstone_runtime::Env;
use siltstone_silt::{Options as SiltOptions, Silt};
use siltstone_skimpy::{Options as SkimpyOptions, Skimpy};
use siltstone_trie::{Options as TrieOptions, Trie};
use siltstone_vfs::{Disk, DiskOptions, Metered, Ram, Vfs};

/// The names of all engines.
pub const NAMES: &[&str] = &["lsm", "trie", "silt", "mica", "skimpy"];

/// Where a store lives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Medium {
    /// In memory.
    Ram,
    /// In a fresh directory below this one.
    Disk(PathBuf),
    /// The same, with a pool of byte-addressable memory mapped from a file there: persistent memory
    /// if the directory is on a DAX file system, the page cache over the disk if not.
    Pmem(PathBuf),
    /// The same, with reads that bypass the page cache: what is counted is what the device did.
    Direct(PathBuf),
}

/// The pool's size if the option `nvm` does not give one.
const DEFAULT_POOL: &str = "1GiB";

impl Medium {
    /// The medium `name`; `directory` is where a disk's stores go.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`] for an unknown name.
    pub fn named(name: &str, directory: &Path) -> Result<Self> {
        match name {
            "ram" => Ok(Medium::Ram),
            "disk" => Ok(Medium::Disk(directory.to_owned())),
            "direct" => Ok(Medium::Direct(directory.to_owned())),
            "pmem" => Ok(Medium::Pmem(directory.to_owned())),
            _ => Err(bad("media", unknown(name, &["disk", "direct", "ram", "pmem"]))),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        match self {
            Medium::Ram => "ram",
            Medium::Disk(_) => "disk",
            Medium::Direct(_) => "direct",
            Medium::Pmem(_) => "pmem",
        }
    }

    /// Where its stores go, if on a disk.
    pub fn directory(&self) -> Option<&Path> {
        match self {
            Medium::Ram => None,
            Medium::Disk(directory) | Medium::Direct(directory) | Medium::Pmem(directory) => {
                Some(directory)
            }
        }
    }
}

/// An engine to be measured.
#[derive(Debug, Clone)]
pub struct Target {
    /// The engine's name.
    pub engine: String,
    /// Its options.
    pub options: BTreeMap<String, String>,
    /// Where it lives.
    pub medium: Medium,
    /// Whether its files stay after the run.
    pub keep: bool,
    /// Threads for compactions and the like.
    pub background_threads: usize,
}

/// An engine that is open, and the directory it lives in.
pub struct Opened {
    /// The engine.
    pub engine: Arc<dyn Engine>,
    /// Where its files are, if on a disk; if they are to stay, the store that its table `default` is in.
    pub path: Option<PathBuf>,
    // Dropped after the engine: the files go last.
    _directory: Option<tempfile::TempDir>,
}

impl Opened {
    /// An engine that was opened in `path`, which goes with `directory`.
    #[cfg(feature = "peers")]
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        path: Option<PathBuf>,
        directory: Option<tempfile::TempDir>,
    ) -> Self {
        Opened { engine, path, _directory: directory }
    }
}

impl Target {
    /// Checks the name and the options without opening anything.
    ///
    /// # Errors
    /// [`Error::InvalidOptions`], all mistakes at once.
    pub fn check(&self) -> Result<()> {
        if self.keep && (self.engine == "mica" || self.medium == Medium::Ram) {
            return Err(bad("keep", "what is in memory alone cannot stay".to_owned()));
        }
        match self.engine.as_str() {
            "lsm" => LsmOptions::from_map(&self.engine_options()).map(drop),
            "silt" => SiltOptions::from_map(&self.options).map(drop),
            "mica" => MicaOptions::from_map(&self.options).map(drop),
            "trie" => TrieOptions::from_map(&self.options).map(drop),
            "skimpy" => SkimpyOptions::from_map(&self.options).map(drop),
            name => Err(bad("engine", unknown(name, NAMES))),
        }
    }

    /// The engine's options, with what the medium adds.
    fn engine_options(&self) -> BTreeMap<String, String> {
        let mut options = self.options.clone();
        if matches!(self.medium, Medium::Pmem(_)) {
            options.entry("nvm".to_owned()).or_insert_with(|| DEFAULT_POOL.to_owned());
        }
        options
    }

    /// Opens the engine over an empty medium.
    ///
    /// # Errors
    /// As [`check`](Target::check), and failures of the medium.
    pub fn open(&self, seed: u64) -> Result<Opened> {
        let env = Env { seed, ..Env::system(self.background_threads) };
        self.open_in(env)
    }

    /// Opens the engine over an empty medium in this world, e.g. a replayable one.
    ///
    /// # Errors
    /// As [`open`](Target::open).
    pub fn open_in(&self, env: Env) -> Result<Opened> {
        self.check()?;
        let (inner, directory, path): (Arc<dyn Vfs>, _, _) = match self.medium.directory() {
            None => (Arc::new(Ram::new()), None, None),
            Some(base) => {
                let (directory, path) = fresh_directory(base, "siltstone-bench-", self.keep)?;
                let direct = matches!(self.medium, Medium::Direct(_));
                let options = DiskOptions { direct, ..DiskOptions::default() };
                let files = if self.keep { self.table_in(&path)? } else { path.clone() };
                let disk = Disk::open(&files)?.with_options(options);
                (Arc::new(disk), directory, Some(path))
            }
        };
        let media: Arc<dyn Vfs> = Arc::new(Metered::new(inner));
        let engine: Arc<dyn Engine> = match self.engine.as_str() {
            "lsm" => {
                Arc::new(Lsm::open(media, env, LsmOptions::from_map(&self.engine_options())?)?)
            }
            "silt" => Arc::new(Silt::open(media, env, SiltOptions::from_map(&self.options)?)?),
            "mica" => Arc::new(Mica::open(env, MicaOptions::from_map(&self.options)?)?),
            "trie" => Arc::new(Trie::open(media, env, TrieOptions::from_map(&self.options)?)?),
            "skimpy" => {
                let options = SkimpyOptions::from_map(&self.options)?;
                Arc::new(Skimpy::open(media, env, options)?)
            }
            name => unreachable!("{name} was checked"),
        };
        Ok(Opened { engine, path, _directory: directory })
    }

    /// Where the files of a table are in a new store in this directory: what is to stay is a store like any other.
    fn table_in(&self, store: &Path) -> Result<PathBuf> {
        const TABLE: &str = "default";
        let db = Db::open_or_create(store, DbOptions::default())?;
        db.table_or_create(TABLE, &self.engine, &self.engine_options())?;
        let files = db.table_media(TABLE)?.name();
        db.close()?;
        Ok(files.into())
    }
}

/// Where a disk's stores go if nothing is said: the current directory, because the system's temporary
/// one is often memory, which no one wants to measure for a disk; or that one if nothing can be made
/// here.
pub fn default_directory() -> PathBuf {
    let here = PathBuf::from(".");
    match tempfile::tempdir_in(&here) {
        Ok(_) => here,
        Err(_) => std::env::temp_dir(),
    }
}

/// A new directory below `base` that is removed with the guard, which is not there if it is to stay.
pub(crate) fn fresh_directory(
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

/// Directories of stores that go when their run is over.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// Removes the stores of runs that go on, for a process that is about to end amid them; tells which. None
/// can be made after it.
pub fn remove_unfinished() -> Vec<PathBuf> {
    const TRIES: usize = 100;
    let mut unfinished = UNFINISHED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut removed = std::mem::take(&mut *unfinished);
    std::mem::forget(unfinished);
    removed.retain(|path| path.exists());
    for path in &removed {
        // Engines go on writing: a file may come after its directory was listed.
        let mut tries = 0..TRIES;
        while tries.next().is_some() && std::fs::remove_dir_all(path).is_err() && path.exists() {}
    }
    removed
}

fn bad(option: &str, reason: String) -> Error {
    Error::InvalidOptions(vec![InvalidOption { option: option.to_owned(), reason }])
}

#[cfg(test)]
mod tests {
    use super::*;
    use siltstone_engine::{Durability, WriteBatch};

    fn target(medium: Medium, keep: bool) -> Target {
        let options = BTreeMap::new();
        Target { engine: "lsm".to_owned(), options, medium, keep, background_threads: 1 }
    }

    #[test]
    fn what_an_engine_writes_is_metered_on_every_medium() {
        let base = tempfile::tempdir().unwrap();
        let at = base.path().to_owned();
        for medium in [Medium::Ram, Medium::Disk(at.clone()), Medium::Pmem(at)] {
            let opened = target(medium, false).open(1).unwrap();
            let mut batch = WriteBatch::new();
            batch.put(b"key", &[7; 1000]);
            opened.engine.write(&batch, Durability::Buffered).unwrap();
            let stats = opened.engine.stats();
            assert!(stats.io["log"].bytes_written >= 1003);
        }
    }

    #[test]
    fn files_go_with_the_engine_unless_they_are_to_stay() {
        let base = tempfile::tempdir().unwrap();
        for keep in [false, true] {
            let opened = target(Medium::Disk(base.path().to_owned()), keep).open(1).unwrap();
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
    fn unknown_names_and_options_are_refused_before_anything_is_made() {
        let base = tempfile::tempdir().unwrap();
        let mut wrong = target(Medium::Disk(base.path().join("sub")), false);
        wrong.engine = "btree".to_owned();
        assert!(matches!(wrong.open(1), Err(Error::InvalidOptions(_))));
        let in_memory = ["lsm", "mica"].map(|engine| {
            let medium = if engine == "lsm" { Medium::Ram } else { wrong.medium.clone() };
            Target { engine: engine.to_owned(), medium, keep: true, ..wrong.clone() }
        });
        assert!(in_memory.iter().all(|it| matches!(it.open(1), Err(Error::InvalidOptions(_)))));
        wrong.engine = "lsm".to_owned();
        wrong.options.insert("colour".to_owned(), "red".to_owned());
        assert!(matches!(wrong.open(1), Err(Error::InvalidOptions(_))));
        assert!(!base.path().join("sub").exists());
        assert!(Medium::named("tape", base.path()).is_err());
    }
}

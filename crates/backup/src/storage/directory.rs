//! A repository in a directory of a file system.
//!
//! A file is written as `NAME.partial`, synced and renamed. Its name is durable once its directory
//! is synced. A list remembers directories, too: their names may be from a process that was killed
//! before its sync.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{LockGuard, Mode, Vfs};

use super::lock_names::{ARCHIVE_LOCK, LOCK};
use super::{Contents, ListedFile, Storage};

const PARTIAL: &str = ".partial";

/// Whether an interrupted write has left the file.
pub(crate) fn is_partial(path: &str) -> bool {
    path.ends_with(PARTIAL)
}

/// See the [module](self).
pub(crate) struct Directory {
    root: Arc<dyn Vfs>,
    /// Directories that were used, by their paths.
    opened: Mutex<BTreeMap<String, Arc<dyn Vfs>>>,
    /// The paths of directories with names that no sync may have covered.
    unsynced: Mutex<BTreeSet<String>>,
}

impl Directory {
    pub(crate) fn new(root: Arc<dyn Vfs>) -> Self {
        let opened = BTreeMap::from([(String::new(), root.clone())]);
        Directory { root, opened: Mutex::new(opened), unsynced: Mutex::default() }
    }

    /// The directory at `path`; `None` if it is missing and not to be created.
    fn open(&self, path: &str, is_created: bool) -> Result<Option<Arc<dyn Vfs>>> {
        if let Some(opened) = self.opened.lock().get(path) {
            return Ok(Some(opened.clone()));
        }
        let (above, name) = split(path);
        let Some(parent) = self.open(above, is_created)? else { return Ok(None) };
        let opened = match is_created {
            true => parent.subdirectory(name)?,
            false if parent.has_subdirectory(name)? => {
                // It may be from a process that was killed, too.
                self.unsynced.lock().insert(above.to_owned());
                parent.existing_subdirectory(name)?
            }
            false => return Ok(None),
        };
        self.opened.lock().insert(path.to_owned(), opened.clone());
        Ok(Some(opened))
    }

    /// The directory of a file that is to be changed, created if it is missing, and the file's
    /// name.
    fn open_changed<'p>(&self, path: &'p str) -> Result<(Arc<dyn Vfs>, &'p str)> {
        let (directory, name) = split(path);
        self.unsynced.lock().insert(directory.to_owned());
        Ok((self.open(directory, true)?.unwrap_or_else(|| self.root.clone()), name))
    }

    fn read_file(&self, path: &str) -> Result<Option<Vec<u8>>> {
        let (directory, name) = split(path);
        let Some(directory) = self.open(directory, false)? else { return Ok(None) };
        if !directory.exists(name)? {
            return Ok(None);
        }
        let file = directory.open(name, Mode::Read)?;
        let mut content = vec![0; file.len()? as usize];
        file.read_at(0, &mut content, Purpose::Maintenance)?;
        Ok(Some(content))
    }

    /// Lists `directory`, whose files have paths that begin with `prefix`.
    fn list_below(
        &self,
        directory: &str,
        prefix: &str,
        visit: &mut dyn FnMut(ListedFile<'_>) -> Result<()>,
    ) -> Result<()> {
        let Some(vfs) = self.open(directory, false)? else { return Ok(()) };
        self.unsynced.lock().insert(directory.to_owned());
        for name in vfs.list()? {
            let len = || vfs.open(&name, Mode::Read)?.len();
            visit(ListedFile { path: &format!("{prefix}{name}"), len: &len })?;
        }
        for name in vfs.subdirectories()? {
            let below =
                if directory.is_empty() { name.clone() } else { format!("{directory}/{name}") };
            self.list_below(&below, &format!("{prefix}{name}/"), visit)?;
        }
        Ok(())
    }
}

impl Storage for Directory {
    fn name(&self) -> String {
        self.root.name()
    }

    fn list(
        &self,
        directory: &str,
        visit: &mut dyn FnMut(ListedFile<'_>) -> Result<()>,
    ) -> Result<()> {
        self.list_below(directory, "", visit)
    }

    fn read_each(&self, paths: Vec<String>) -> Contents<'_> {
        Box::new(paths.into_iter().map(|path| self.read_file(&path)))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let (directory, name) = self.open_changed(path)?;
        let partial = format!("{name}{PARTIAL}");
        if directory.exists(&partial)? {
            directory.remove(&partial)?;
        }
        let file = directory.create(&partial)?;
        file.write_at(0, content, Purpose::Maintenance)?;
        file.sync(Purpose::Maintenance)?;
        directory.rename(&partial, name)
    }

    fn sync(&self) -> Result<()> {
        let mut paths = std::mem::take(&mut *self.unsynced.lock());
        while let Some(path) = paths.first() {
            let synced = match self.open(path, false) {
                Ok(Some(directory)) => directory.sync_dir(Purpose::Maintenance),
                Ok(None) => Ok(()),
                Err(error) => Err(error),
            };
            if let Err(error) = synced {
                self.unsynced.lock().append(&mut paths);
                return Err(error);
            }
            paths.pop_first();
        }
        Ok(())
    }

    fn remove(&self, paths: &[String]) -> Result<()> {
        for path in paths {
            let (directory, name) = self.open_changed(path)?;
            directory.remove(name)?;
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (directory, from) = self.open_changed(from)?;
        directory.rename(from, split(to).1)
    }

    fn lock(&self) -> Result<LockGuard> {
        self.root.lock(LOCK)
    }

    fn share_lock(&self) -> Result<LockGuard> {
        self.root.share_lock(LOCK)
    }

    fn lock_archive(&self) -> Result<LockGuard> {
        self.root.lock(ARCHIVE_LOCK)
    }
}

/// The path of the directory, empty for the root, and the name.
fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}

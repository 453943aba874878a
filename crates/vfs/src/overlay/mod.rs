//! A read-only view of a directory that keeps writes in memory.
//!
//! ```text
//!   create, write, rename, remove ─▶ names and pages in memory, lost with the last handle
//!   read ─▶ a changed page from memory, any other from the lower directory
//! ```
//!
//! An engine writes when it opens a table: a new log, a manifest, recovered data. On an overlay it
//! can open a store without write permission and without changing a byte of it, in the same way as
//! for writing.
//!
//! Memory use: the pages of 4 KiB that were written. A mapped file is mapped privately if the lower
//! directory supports it, and copied otherwise.
//!
//! Invariant: no request to the lower directory changes it. A lock is taken there in shared mode.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};

use crate::names::{Names, Node, check, fault, join};
use crate::{File, LockGuard, Mapping, Mode, OpenFileCounts, Vfs};

mod file;

use file::{FileContent, OverlayFile};

type SharedDirectory = Arc<Directory>;

/// A directory whose changes are kept in memory.
pub struct Overlay {
    name: String,
    directory: SharedDirectory,
}

struct Directory {
    lower: Lower,
    /// Read on first use: a user that needs a lock has taken it by then.
    state: Mutex<Option<State>>,
}

enum Lower {
    /// Created in the overlay.
    Nothing,
    Root(Arc<dyn Vfs>),
    /// Opened on first use: it may be unrelated and not readable.
    Subdirectory(Arc<dyn Vfs>, String),
}

#[derive(Default)]
struct State {
    names: Names<Arc<FileContent>, SharedDirectory>,
    locked: BTreeSet<String>,
    /// Whether the directory was removed while there are handles: nothing can be created in it.
    removed: bool,
}

impl Directory {
    fn over(lower: Lower) -> SharedDirectory {
        Arc::new(Directory { lower, state: Mutex::default() })
    }

    fn lower(&self) -> Result<Option<Arc<dyn Vfs>>> {
        Ok(match &self.lower {
            Lower::Nothing => None,
            Lower::Root(root) => Some(root.clone()),
            // It exists, so it is not created.
            Lower::Subdirectory(parent, name) => Some(parent.subdirectory(name)?),
        })
    }

    fn read(&self) -> Result<State> {
        let mut state = State::default();
        let Some(lower) = self.lower()? else { return Ok(state) };
        for name in lower.list()? {
            let bytes = Arc::new(FileContent::of(lower.clone(), name.clone()));
            state.names.set(&name, Some(Node::File(bytes)));
        }
        for name in lower.subdirectories()? {
            let directory = Directory::over(Lower::Subdirectory(lower.clone(), name.clone()));
            state.names.set(&name, Some(Node::Directory(directory)));
        }
        Ok(state)
    }

    /// Reads the directory on first use, and runs `act` on its state.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.is_none() {
            *state = Some(self.read()?);
        }
        act(state.get_or_insert_default())
    }
}

/// Marks a directory that has no name any more, and all subdirectories.
fn mark_removed(directory: &Directory) {
    let gone = State { removed: true, ..State::default() };
    let before = directory.state.lock().replace(gone).unwrap_or_default();
    for (_, node) in before.names.iter() {
        if let Node::Directory(inner) = node {
            mark_removed(inner);
        }
    }
}

impl Overlay {
    /// An overlay over the directory `lower`.
    pub fn new(lower: Arc<dyn Vfs>) -> Self {
        Overlay { name: lower.name(), directory: Directory::over(Lower::Root(lower)) }
    }

    fn handle(&self, name: &str, bytes: Arc<FileContent>, mode: Mode) -> Arc<dyn File> {
        Arc::new(OverlayFile::new(join(&self.name, name), bytes, mode))
    }

    /// Runs `act`, which creates the name `name`, unless the directory was removed.
    fn creating<T>(
        &self,
        operation: &'static str,
        name: &str,
        act: impl FnOnce(&mut State) -> Result<T>,
    ) -> Result<T> {
        self.directory.with(|state| match state.removed {
            true => Err(fault(operation, join(&self.name, name), ErrorKind::NotFound)),
            false => act(state),
        })
    }

    /// The existing file `name`.
    fn bytes(&self, operation: &'static str, name: &str) -> Result<Arc<FileContent>> {
        self.directory.with(|state| state.names.file(operation, &self.name, name))
    }
}

impl Vfs for Overlay {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.creating("create", name, |state| {
            state.names.check_free("create", &self.name, name)?;
            let bytes = Arc::new(FileContent::empty());
            state.names.set(name, Some(Node::File(bytes.clone())));
            Ok(self.handle(name, bytes, Mode::ReadWrite))
        })
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        let bytes = self.bytes("open", name)?;
        bytes.open()?;
        Ok(self.handle(name, bytes, mode))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        check("look up", &self.name, name)?;
        self.directory.with(|state| Ok(matches!(state.names.get(name), Some(Node::File(_)))))
    }

    fn list(&self) -> Result<Vec<String>> {
        self.directory.with(|state| Ok(state.names.files()))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.directory.with(|state| {
            state.names.file("remove", &self.name, name)?;
            state.names.set(name, None);
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.directory.with(|state| {
            let bytes = state.names.renamed(&self.name, from, to)?;
            // In this order, a rename to the same name changes nothing.
            state.names.set(from, None);
            state.names.set(to, Some(Node::File(bytes)));
            Ok(())
        })
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        self.creating("create directory", name, |state| {
            let found = state.names.directory("create directory", &self.name, name)?;
            let directory = found.unwrap_or_else(|| {
                let made = Directory::over(Lower::Nothing);
                state.names.set(name, Some(Node::Directory(made.clone())));
                made
            });
            Ok(Arc::new(Overlay { name: join(&self.name, name), directory }) as Arc<dyn Vfs>)
        })
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.directory.with(|state| Ok(state.names.directories()))
    }

    fn has_subdirectory(&self, name: &str) -> Result<bool> {
        check("look up", &self.name, name)?;
        self.directory.with(|state| Ok(matches!(state.names.get(name), Some(Node::Directory(_)))))
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        let operation = "remove directory";
        let found = self.directory.with(|state| {
            let found = state.names.directory(operation, &self.name, name)?;
            if found.is_some() {
                state.names.set(name, None);
            }
            Ok(found)
        })?;
        let missing = || fault(operation, join(&self.name, name), ErrorKind::NotFound);
        found.map(|found| mark_removed(&found)).ok_or_else(missing)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        check("lock", &self.name, name)?;
        let lower = self.directory.lower()?.map(|lower| lower.share_lock(name)).transpose()?;
        self.creating("lock", name, |state| {
            if state.names.get(name).is_none() {
                state.names.set(name, Some(Node::File(Arc::new(FileContent::empty()))));
            }
            state.names.file("lock", &self.name, name)?;
            if !state.locked.insert(name.to_owned()) {
                let (path, holder) = (join(&self.name, name), Some(std::process::id()));
                return Err(Error::Locked { path, holder });
            }
            let (directory, name) = (self.directory.clone(), name.to_owned());
            Ok(LockGuard::new(OverlayLock { directory, name, _lower: lower }))
        })
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        self.lock(name)
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let bytes = self.bytes("link", name)?;
        let any: &dyn Any = target;
        let Some(overlay) = any.downcast_ref::<Overlay>() else {
            // An unchanged file can be opened twice.
            return match bytes.unchanged() {
                Some((vfs, name)) => vfs.link(name, target, to_name),
                None => Ok(false),
            };
        };
        overlay.creating("link", to_name, |state| {
            state.names.check_free("link", &overlay.name, to_name)?;
            state.names.set(to_name, Some(Node::File(bytes)));
            Ok(true)
        })
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        let file = self.creating("map", name, |state| {
            if state.names.get(name).is_none() {
                state.names.check_free("map", &self.name, name)?;
                state.names.set(name, Some(Node::File(Arc::new(FileContent::empty()))));
            }
            state.names.file("map", &self.name, name)
        })?;
        file.map(&join(&self.name, name), bytes)
    }

    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        let lower: Option<Arc<dyn Vfs>> = match self.directory.lower()? {
            Some(lower) if path.is_dir() => Some(lower.open_dir(path)?),
            _ => None,
        };
        let name = path.display().to_string();
        let directory = Directory::over(lower.map_or(Lower::Nothing, Lower::Root));
        Ok(Arc::new(Overlay { name, directory }))
    }

    fn open_files(&self) -> Option<OpenFileCounts> {
        self.directory.lower().ok()??.open_files()
    }
}

struct OverlayLock {
    directory: SharedDirectory,
    name: String,
    _lower: Option<LockGuard>,
}

impl Drop for OverlayLock {
    fn drop(&mut self) {
        if let Some(state) = self.directory.state.lock().as_mut() {
            state.locked.remove(&self.name);
        }
    }
}

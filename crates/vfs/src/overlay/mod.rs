//! A medium that is read, and stays as it is: what is written is kept in memory.
//!
//! ```text
//!   create, write, rename, remove ─▶ names and pages in memory ─ gone with the last handle
//!   read ─▶ a changed page from memory, any other from the medium below
//! ```
//!
//! An engine that opens a table writes: a new log, a manifest, what it recovered. Over this it does so without
//! anything below being changed, so a store can be looked at that nobody may write to, and every durable
//! engine opens for reading alone in the way that it always does.
//!
//! Memory: the pages of 4 KiB that were written. What is mapped is mapped apart from the file below, page by page as
//! it is stored to, where the medium below can do that, and else a copy.
//!
//! Invariant: nothing is asked of the medium below that changes it. A lock is taken there along with others who
//! only read.
//!
//! Source: ours; the idea is that of union mounts.

use std::any::Any;
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_engine::{Error, Purpose, Result};

use crate::names::{Names, Node, check, fault, join};
use crate::{File, LockGuard, Mapping, Mode, Vfs};

mod file;

use file::{Bytes, OverlayFile};

type SharedDirectory = Arc<Directory>;

/// A directory as it is below, and what was changed of it, in memory.
pub struct Overlay {
    name: String,
    directory: SharedDirectory,
}

struct Directory {
    below: Below,
    /// Read when it is first asked for: whoever wants a lock has it by then.
    state: Mutex<Option<State>>,
}

enum Below {
    /// It was made here.
    Nothing,
    Medium(Arc<dyn Vfs>),
    /// Opened when it is asked for: it may be none of ours, and not to be read.
    Subdirectory(Arc<dyn Vfs>, String),
}

#[derive(Default)]
struct State {
    names: Names<Arc<Bytes>, SharedDirectory>,
    locked: BTreeSet<String>,
    /// Whether it was removed while handles to it remain: nothing can be created in it any more.
    removed: bool,
}

impl Directory {
    fn over(below: Below) -> SharedDirectory {
        Arc::new(Directory { below, state: Mutex::default() })
    }

    fn medium(&self) -> Result<Option<Arc<dyn Vfs>>> {
        Ok(match &self.below {
            Below::Nothing => None,
            Below::Medium(medium) => Some(medium.clone()),
            // It is there, so nothing is made.
            Below::Subdirectory(parent, name) => Some(parent.subdirectory(name)?),
        })
    }

    fn read(&self) -> Result<State> {
        let mut state = State::default();
        let Some(below) = self.medium()? else { return Ok(state) };
        for name in below.list()? {
            let bytes = Arc::new(Bytes::of(below.clone(), name.clone()));
            state.names.set(&name, Some(Node::File(bytes)));
        }
        for name in below.subdirectories()? {
            let directory = Directory::over(Below::Subdirectory(below.clone(), name.clone()));
            state.names.set(&name, Some(Node::Directory(directory)));
        }
        Ok(state)
    }

    /// Does something with what is in it.
    fn with<T>(&self, act: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        if state.is_none() {
            *state = Some(self.read()?);
        }
        act(state.get_or_insert_default())
    }
}

/// Marks a directory that has no name any more, and all below it.
fn retire(directory: &Directory) {
    let gone = State { removed: true, ..State::default() };
    let before = directory.state.lock().replace(gone).unwrap_or_default();
    for (_, node) in before.names.iter() {
        if let Node::Directory(inner) = node {
            retire(inner);
        }
    }
}

impl Overlay {
    /// Reads `below`, and keeps in memory what is written.
    pub fn new(below: Arc<dyn Vfs>) -> Self {
        Overlay { name: below.name(), directory: Directory::over(Below::Medium(below)) }
    }

    fn handle(&self, name: &str, bytes: Arc<Bytes>, mode: Mode) -> Arc<dyn File> {
        Arc::new(OverlayFile::new(join(&self.name, name), bytes, mode))
    }

    /// Does something that gives the name `name` to something.
    fn growing<T>(
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

    /// The file `name`, which must be there.
    fn bytes(&self, operation: &'static str, name: &str) -> Result<Arc<Bytes>> {
        self.directory.with(|state| state.names.file(operation, &self.name, name))
    }
}

impl Vfs for Overlay {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.growing("create", name, |state| {
            state.names.check_free("create", &self.name, name)?;
            let bytes = Arc::new(Bytes::empty());
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
            // In this order a rename to the same name changes nothing.
            state.names.set(from, None);
            state.names.set(to, Some(Node::File(bytes)));
            Ok(())
        })
    }

    fn sync_dir(&self, _purpose: Purpose) -> Result<()> {
        Ok(())
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        self.growing("create directory", name, |state| {
            let found = state.names.directory("create directory", &self.name, name)?;
            let directory = found.unwrap_or_else(|| {
                let made = Directory::over(Below::Nothing);
                state.names.set(name, Some(Node::Directory(made.clone())));
                made
            });
            Ok(Arc::new(Overlay { name: join(&self.name, name), directory }) as Arc<dyn Vfs>)
        })
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.directory.with(|state| Ok(state.names.directories()))
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
        found.map(|found| retire(&found)).ok_or_else(missing)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        check("lock", &self.name, name)?;
        let below = self.directory.medium()?.map(|below| below.share_lock(name)).transpose()?;
        self.growing("lock", name, |state| {
            if state.names.get(name).is_none() {
                state.names.set(name, Some(Node::File(Arc::new(Bytes::empty()))));
            }
            state.names.file("lock", &self.name, name)?;
            if !state.locked.insert(name.to_owned()) {
                let (path, holder) = (join(&self.name, name), Some(std::process::id()));
                return Err(Error::Locked { path, holder });
            }
            let (directory, name) = (self.directory.clone(), name.to_owned());
            Ok(LockGuard::new(Held { directory, name, _below: below }))
        })
    }

    fn share_lock(&self, name: &str) -> Result<LockGuard> {
        self.lock(name)
    }

    fn link(&self, name: &str, target: &dyn Vfs, to_name: &str) -> Result<bool> {
        let bytes = self.bytes("link", name)?;
        let any: &dyn Any = target;
        let Some(overlay) = any.downcast_ref::<Overlay>() else {
            // As it is below, it can be there twice.
            return match bytes.unchanged() {
                Some((medium, name)) => medium.link(name, target, to_name),
                None => Ok(false),
            };
        };
        overlay.growing("link", to_name, |state| {
            state.names.check_free("link", &overlay.name, to_name)?;
            state.names.set(to_name, Some(Node::File(bytes)));
            Ok(true)
        })
    }

    fn map(&self, name: &str, bytes: u64) -> Result<Mapping> {
        let file = self.growing("map", name, |state| {
            if state.names.get(name).is_none() {
                state.names.check_free("map", &self.name, name)?;
                state.names.set(name, Some(Node::File(Arc::new(Bytes::empty()))));
            }
            state.names.file("map", &self.name, name)
        })?;
        file.map(&join(&self.name, name), bytes)
    }

    fn open_dir(&self, path: &Path) -> Result<Arc<dyn Vfs>> {
        let below: Option<Arc<dyn Vfs>> = match self.directory.medium()? {
            Some(below) if path.is_dir() => Some(below.open_dir(path)?),
            _ => None,
        };
        let name = path.display().to_string();
        let directory = Directory::over(below.map_or(Below::Nothing, Below::Medium));
        Ok(Arc::new(Overlay { name, directory }))
    }
}

struct Held {
    directory: SharedDirectory,
    name: String,
    _below: Option<LockGuard>,
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(state) = self.directory.state.lock().as_mut() {
            state.locked.remove(&self.name);
        }
    }
}

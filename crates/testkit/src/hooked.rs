//! A file system that calls a hook before each request, for tests that act at a certain moment.

use std::ops::Range;
use std::sync::Arc;

use siltstone_engine::{Purpose, Result};
use siltstone_vfs::{File, LockGuard, Mode, Vfs};

/// A request: its operation, the file, and the bytes of a read or a write.
pub struct Request<'a> {
    /// `create`, `open`, `look up`, `list`, `remove`, `rename`, `read`, `begin read`,
    /// `write` or `sync`.
    pub operation: &'static str,
    /// The name of the file within its directory; empty for `list`.
    pub name: &'a str,
    /// Empty if it is neither a read nor a write.
    pub bytes: Range<u64>,
}

impl Request<'_> {
    /// Whether it is this operation on a file with this ending.
    pub fn is(&self, operation: &str, ending: &str) -> bool {
        self.operation == operation && self.name.ends_with(ending)
    }
}

type Hook = Arc<dyn Fn(&Request<'_>) -> Result<()> + Send + Sync>;

/// Calls a hook before each request; its error fails the request.
pub struct HookedVfs {
    inner: Arc<dyn Vfs>,
    hook: Hook,
}

struct HookedFile {
    inner: Arc<dyn File>,
    name: String,
    hook: Hook,
}

impl HookedVfs {
    /// Wraps a directory and its subdirectories.
    pub fn wrap(
        inner: &Arc<dyn Vfs>,
        hook: impl Fn(&Request<'_>) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<dyn Vfs> {
        Arc::new(HookedVfs { inner: inner.clone(), hook: Arc::new(hook) })
    }

    fn call(&self, operation: &'static str, name: &str) -> Result<()> {
        (self.hook)(&Request { operation, name, bytes: 0..0 })
    }

    fn file(&self, name: &str, inner: Arc<dyn File>) -> Arc<dyn File> {
        Arc::new(HookedFile { inner, name: name.to_owned(), hook: self.hook.clone() })
    }
}

impl Vfs for HookedVfs {
    fn name(&self) -> String {
        self.inner.name()
    }

    fn create(&self, name: &str) -> Result<Arc<dyn File>> {
        self.call("create", name)?;
        Ok(self.file(name, self.inner.create(name)?))
    }

    fn create_append(&self, name: &str) -> Result<Arc<dyn File>> {
        self.call("create", name)?;
        Ok(self.file(name, self.inner.create_append(name)?))
    }

    fn open(&self, name: &str, mode: Mode) -> Result<Arc<dyn File>> {
        self.call("open", name)?;
        Ok(self.file(name, self.inner.open(name, mode)?))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.call("look up", name)?;
        self.inner.exists(name)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.call("list", "")?;
        self.inner.list()
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.call("remove", name)?;
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.call("rename", from)?;
        self.inner.rename(from, to)
    }

    fn sync_dir(&self, purpose: Purpose) -> Result<()> {
        self.inner.sync_dir(purpose)
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Vfs>> {
        let inner = self.inner.subdirectory(name)?;
        Ok(Arc::new(HookedVfs { inner, hook: self.hook.clone() }))
    }

    fn subdirectories(&self) -> Result<Vec<String>> {
        self.inner.subdirectories()
    }

    fn remove_subdirectory(&self, name: &str) -> Result<()> {
        self.inner.remove_subdirectory(name)
    }

    fn lock(&self, name: &str) -> Result<LockGuard> {
        self.inner.lock(name)
    }
}

impl HookedFile {
    fn call(&self, operation: &'static str, offset: u64, len: usize) -> Result<()> {
        (self.hook)(&Request { operation, name: &self.name, bytes: offset..offset + len as u64 })
    }
}

impl File for HookedFile {
    fn read_at(&self, offset: u64, buf: &mut [u8], purpose: Purpose) -> Result<()> {
        self.call("read", offset, buf.len())?;
        self.inner.read_at(offset, buf, purpose)
    }

    fn write_at(&self, offset: u64, bytes: &[u8], purpose: Purpose) -> Result<()> {
        self.call("write", offset, bytes.len())?;
        self.inner.write_at(offset, bytes, purpose)
    }

    fn sync(&self, purpose: Purpose) -> Result<()> {
        self.call("sync", 0, 0)?;
        self.inner.sync(purpose)
    }

    fn begin_read(&self, offset: u64, bytes: u64) {
        if self.call("begin read", offset, bytes as usize).is_ok() {
            self.inner.begin_read(offset, bytes);
        }
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }

    fn reserve(&self, len: u64) -> Result<()> {
        self.inner.reserve(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(offset, len)
    }
}

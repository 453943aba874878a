//! A repository in an object store.
//!
//! ```text
//!   caller ─ write ─▶ up to 8 uploads ──┐
//!          ─ read_each ◀─ 8 read ahead ─┼─ thread: object_store ── HTTPS
//!          ─ list, remove, sync, lock ──┘
//! ```
//!
//! An object appears whole when its upload ends, and is durable then. Uploads run beside each other,
//! since a request waits longer for the store than it transfers a piece, and so do reads:
//! `MAX_REQUESTS` at a time. So the memory is up to 10 pieces of 4 MiB. The error of an upload is
//! returned by the next write or sync.
//!
//! Invariants:
//! - Every change needs the exclusive lock, and is refused if another process may have taken it over.
//! - `sync` renews the lock, so what follows it, the manifest of a backup or a removal, has been
//!   preceded by a proof that the lock is held.

mod client;
mod failure;
mod lock;
mod place;
mod runtime;

use std::io::ErrorKind;
use std::sync::{Arc, Weak};

use futures_util::stream::{self, StreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, PutMode};
use parking_lot::{Condvar, Mutex};
use siltstone_engine::{Error, Result};
use siltstone_vfs::LockGuard;
use tokio::sync::mpsc;

use self::client::{MAX_REMOVALS, Objects};
use self::lock::Lease;
pub use self::lock::LockTimes;
use self::runtime::Runtime;
use super::{Contents, ListedFile, Storage};

/// Uploads or reads at a time.
const MAX_REQUESTS: usize = 8;

/// See the [module](self).
pub struct ObjectStorage {
    objects: Objects,
    times: LockTimes,
    runtime: Runtime,
    uploads: Arc<Uploads>,
    /// Locks that are or were held.
    leases: Mutex<Vec<Weak<Lease>>>,
}

/// The uploads that run, and the first error of those that have ended.
#[derive(Default)]
struct Uploads {
    state: Mutex<(usize, Option<Error>)>,
    ended: Condvar,
}

impl ObjectStorage {
    /// The storage at a URL such as `s3://bucket/prefix`. Credentials come from the environment.
    ///
    /// # Errors
    /// `Refused` and `Invalid` if the URL or the environment is invalid; `Io` without a thread.
    pub fn open(url: &str) -> Result<Self> {
        Self::over(place::objects_at(url)?, LockTimes::default())
    }

    /// The storage below `prefix` in `store`. `name` is for messages.
    ///
    /// # Errors
    /// `Io` without a thread.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        prefix: Path,
        name: &str,
        times: LockTimes,
    ) -> Result<Self> {
        Self::over(Objects::new(store, prefix, name.to_owned()), times)
    }

    fn over(objects: Objects, times: LockTimes) -> Result<Self> {
        let runtime = Runtime::start()?;
        Ok(ObjectStorage {
            objects,
            times,
            runtime,
            uploads: Arc::default(),
            leases: Mutex::default(),
        })
    }

    /// The exclusive lock. Refuses if any lock of this storage may be another process's by now.
    fn exclusive_lease(&self) -> Result<Arc<Lease>> {
        let mut leases = self.leases.lock();
        leases.retain(|lease| lease.strong_count() > 0);
        let held: Vec<_> = leases.iter().filter_map(Weak::upgrade).collect();
        drop(leases);
        held.iter().try_for_each(|lease| lease.check())?;
        held.into_iter().find(|lease| lease.is_exclusive()).ok_or_else(|| Error::Refused {
            path: self.objects.name().to_owned(),
            reason: "a change needs the lock of the repository".into(),
        })
    }

    fn take_lock(&self, is_exclusive: bool) -> Result<LockGuard> {
        // Those of an operation that failed.
        self.uploads.wait_until_below(1);
        self.uploads.state.lock().1 = None;
        let lease = self.runtime.run(lock::take(self.objects.clone(), self.times, is_exclusive))?;
        self.leases.lock().push(Arc::downgrade(&lease));
        Ok(lock::guard(lease, self.runtime.handle()))
    }
}

impl Storage for ObjectStorage {
    fn name(&self) -> String {
        self.objects.name().to_owned()
    }

    fn list(
        &self,
        directory: &str,
        visit: &mut dyn FnMut(ListedFile<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut listed = self.objects.list(directory);
        let (send, mut receive) = mpsc::channel(MAX_REQUESTS);
        self.runtime.handle().spawn(async move {
            // The end is sent, too: a list that was cut off must not look complete.
            loop {
                let object = listed.next().await.transpose();
                let is_end = !matches!(object, Ok(Some(_)));
                if send.send(object).await.is_err() || is_end {
                    break;
                }
            }
        });
        loop {
            let Some(object) = receive.blocking_recv().unwrap_or(Err(Error::Closed))? else {
                return Ok(());
            };
            visit(ListedFile { path: &object.path, len: &|| Ok(object.len) })?;
        }
    }

    fn read_each(&self, paths: Vec<String>) -> Contents<'_> {
        let (objects, count) = (self.objects.clone(), paths.len());
        let (send, mut receive) = mpsc::channel(1);
        self.runtime.handle().spawn(async move {
            let read = |path: String| {
                let objects = objects.clone();
                async move { Ok(objects.get(&path).await?.map(|object| object.content)) }
            };
            let mut contents = stream::iter(paths).map(read).buffered(MAX_REQUESTS);
            while let Some(content) = contents.next().await {
                if send.send(content).await.is_err() {
                    break;
                }
            }
        });
        Box::new((0..count).map(move |_| receive.blocking_recv().unwrap_or(Err(Error::Closed))))
    }

    fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        self.exclusive_lease()?;
        self.uploads.wait_until_below(MAX_REQUESTS);
        let upload = self.uploads.begin()?;
        let (objects, path, content) = (self.objects.clone(), path.to_owned(), content.to_vec());
        self.runtime.handle().spawn(async move {
            upload.end(objects.put(&path, content, PutMode::Overwrite).await.map(drop));
        });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.uploads.wait_until_below(1);
        if let Some(error) = self.uploads.state.lock().1.take() {
            return Err(error);
        }
        let lease = self.exclusive_lease()?;
        self.runtime.run(async move { lease.renew().await })
    }

    fn remove(&self, paths: &[String]) -> Result<()> {
        for paths in paths.chunks(MAX_REMOVALS) {
            self.exclusive_lease()?;
            let (objects, paths) = (self.objects.clone(), paths.to_vec());
            self.runtime.run(async move { objects.remove(&paths).await })?;
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.exclusive_lease()?;
        let (objects, from, to) = (self.objects.clone(), from.to_owned(), to.to_owned());
        self.runtime.run(async move { objects.rename(&from, &to).await })
    }

    fn lock(&self) -> Result<LockGuard> {
        self.take_lock(true)
    }

    /// Without the permission to write, nothing is locked: a restore verifies what it reads.
    fn share_lock(&self) -> Result<LockGuard> {
        match self.take_lock(false) {
            Err(Error::Io { kind: ErrorKind::PermissionDenied, .. }) => Ok(LockGuard::new(())),
            taken => taken,
        }
    }
}

impl Uploads {
    /// Waits until fewer than `count` run.
    fn wait_until_below(&self, count: usize) {
        let mut state = self.state.lock();
        while state.0 >= count {
            self.ended.wait(&mut state);
        }
    }

    /// Begins an upload, or returns the error of an earlier one.
    fn begin(self: &Arc<Self>) -> Result<Upload> {
        let mut state = self.state.lock();
        if let Some(error) = state.1.take() {
            return Err(error);
        }
        state.0 += 1;
        Ok(Upload(self.clone()))
    }
}

/// An upload that runs.
struct Upload(Arc<Uploads>);

impl Upload {
    fn end(self, result: Result<()>) {
        let mut state = self.0.state.lock();
        state.1 = state.1.take().or(result.err());
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.state.lock().0 -= 1;
        self.0.ended.notify_all();
    }
}

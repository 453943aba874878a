//! A repository in an object store.
//!
//! ```text
//!   caller ─ write ─▶ up to 8 uploads ──┐
//!          ─ read_each ◀─ 8 read ahead ─┼─ thread: object_store ── HTTPS
//!          ─ list, remove, sync, lock ──┘
//! ```
//!
//! An object appears whole when its upload ends, and is durable then. Uploads run beside each
//! other, since a request waits longer for the store than it transfers a piece, and so do reads:
//! `MAX_REQUESTS` at a time. So the memory is up to 10 pieces of 4 MiB. The error of an upload is
//! kept with the locks that were held, so that every later change under them fails.
//!
//! Invariants:
//! - Every change needs the exclusive lock, and is refused if another process may have taken it
//!   over.
//! - `sync` renews the lock, so what follows it, the manifest of a backup or a removal, has been
//!   preceded by a proof that the lock is held.

mod client;
mod failure;
mod lock;
mod place;
mod runtime;

use std::io::ErrorKind;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use object_store::path::Path;
use object_store::{ObjectStore, PutMode};
use parking_lot::{Condvar, Mutex, MutexGuard};
use siltstone_engine::{Error, Result};
use siltstone_vfs::LockGuard;
use tokio::sync::mpsc;

use self::client::{MAX_REMOVALS, Objects};
pub use self::lock::LockTimes;
use self::lock::{Kind, Lease};
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
    leases: Mutex<Vec<Arc<Lease>>>,
}

/// The uploads that run.
#[derive(Default)]
struct Uploads {
    running: Mutex<usize>,
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

    /// The locks that permit changes. Refuses if any lock of this storage may be another process's
    /// by now, or if an upload under one of these has failed.
    fn leases_for_changes(&self) -> Result<Vec<Arc<Lease>>> {
        let mut leases = self.leases.lock();
        leases.retain(|lease| lease.is_held());
        let mut held = leases.clone();
        drop(leases);
        held.iter().try_for_each(|lease| lease.check())?;
        held.retain(|lease| lease.kind().permits_changes());
        match held.is_empty() {
            false => Ok(held),
            true => Err(Error::Refused {
                path: self.objects.name().to_owned(),
                reason: "a change needs the lock of the repository".into(),
            }),
        }
    }

    fn take_lock(&self, kind: Kind) -> Result<LockGuard> {
        let lease = self.runtime.run(lock::take(self.objects.clone(), self.times, kind))?;
        self.leases.lock().push(lease.clone());
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
        let leases = self.leases_for_changes()?;
        let upload = self.uploads.begin();
        let (objects, path, content) = (self.objects.clone(), path.to_owned(), content.to_vec());
        self.runtime.handle().spawn(async move {
            if let Err(error) = objects.put(&path, content, PutMode::Overwrite).await {
                leases.iter().for_each(|lease| lease.fail(&error));
            }
            drop((leases, upload));
        });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        drop(self.uploads.wait_until_below(1));
        for lease in self.leases_for_changes()? {
            self.runtime.run(async move { lease.renew().await })?;
        }
        Ok(())
    }

    fn remove(&self, paths: &[String]) -> Result<()> {
        for paths in paths.chunks(MAX_REMOVALS) {
            self.leases_for_changes()?;
            let (objects, paths) = (self.objects.clone(), paths.to_vec());
            self.runtime.run(async move { objects.remove(&paths).await })?;
        }
        Ok(())
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.leases_for_changes()?;
        let (objects, from, to) = (self.objects.clone(), from.to_owned(), to.to_owned());
        self.runtime.run(async move { objects.rename(&from, &to).await })
    }

    fn lock(&self) -> Result<LockGuard> {
        self.take_lock(Kind::Exclusive)
    }

    fn lock_archive(&self) -> Result<LockGuard> {
        self.take_lock(Kind::Archive)
    }

    /// Without the permission to write, nothing is locked: a restore verifies what it reads.
    fn share_lock(&self) -> Result<LockGuard> {
        match self.take_lock(Kind::Shared) {
            Err(Error::Io { kind: ErrorKind::PermissionDenied, .. }) => Ok(LockGuard::new(())),
            taken => taken,
        }
    }
}

impl Uploads {
    /// Waits until fewer than `count` run.
    fn wait_until_below(&self, count: usize) -> MutexGuard<'_, usize> {
        let mut running = self.running.lock();
        while *running >= count {
            self.ended.wait(&mut running);
        }
        running
    }

    /// Begins an upload, once there are few enough.
    fn begin(self: &Arc<Self>) -> Upload {
        *self.wait_until_below(MAX_REQUESTS) += 1;
        Upload(self.clone())
    }
}

/// An upload that runs.
struct Upload(Arc<Uploads>);

impl Drop for Upload {
    fn drop(&mut self) {
        *self.0.running.lock() -= 1;
        self.0.ended.notify_all();
    }
}

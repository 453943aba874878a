//! The lock of a repository in an object store: a lease that its holder renews.
//!
//! ```text
//!   locks/exclusive      {"host":"db1","process":4711,"since":"20261129T100000Z",
//!                         "token":"5f0c…","renewals":7,"is_released":false}
//!   locks/shared-TOKEN   the same, of a restore
//!   locks/archive        the same, of an archive of changes: taken as the exclusive one, beside it
//!
//!   exclusive: read ─ missing, released or not renewed for 10 minutes? ─ put if unchanged
//!              ─ the same put again must fail ─ list: a shared lock? then release
//!   shared:    put ─ list ─ exclusive there and held? then remove
//! ```
//!
//! Of an exclusive and a shared lock that are taken at once, each is written before its holder
//! lists, so at least one of them sees the other, and refuses.
//!
//! How old a lock is, the store's clock says: its modification time is compared with that of an
//! object that was written just now. A holder renews every minute by a put on the condition that
//! nobody else has changed the lock. It counts the time since the last renewal by the greater of
//! its two clocks, since one stops while the machine sleeps. After 5 minutes it does nothing more.
//!
//! Invariants:
//! - The exclusive lock is changed only by puts with a condition, so it has one holder.
//! - A request of a holder ends at most 5 + 4 minutes after its last renewal, before another
//!   process may take the lock over. What remains: see decision record 0118.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use futures_util::stream::TryStreamExt;
use object_store::{PutMode, UpdateVersion};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use siltstone_engine::{Error, Result};
use siltstone_vfs::LockGuard;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::client::{ListedObject, MAX_REMOVALS, Object, Objects};
use super::runtime::run_on;
use crate::storage::lock_names::LOCKS;
use crate::utc::utc;

const EXCLUSIVE: &str = "exclusive";
const SHARED: &str = "shared-";
const ARCHIVE: &str = "archive";
/// How long a holder that is done waits for the release.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(30);

const CLOCK: &str = "clock-";

/// What a lock is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Changes.
    Exclusive,
    /// Changes of the archive, while others change or read the backups.
    Archive,
    /// Reads, while nobody changes anything.
    Shared,
}

impl Kind {
    /// Whether its holder may change the repository.
    pub(super) fn permits_changes(self) -> bool {
        self != Kind::Shared
    }

    /// The name of a lock with this token.
    fn name(self, token: &str) -> String {
        match self {
            Kind::Exclusive => EXCLUSIVE.to_owned(),
            Kind::Archive => ARCHIVE.to_owned(),
            Kind::Shared => format!("{SHARED}{token}"),
        }
    }

    /// Whether a lock of another name excludes it.
    fn is_excluded_by(self, name: &str) -> bool {
        match self {
            Kind::Exclusive => name.starts_with(SHARED),
            Kind::Archive => false,
            Kind::Shared => name == EXCLUSIVE,
        }
    }
}

/// The times of a lock.
#[derive(Debug, Clone, Copy)]
pub struct LockTimes {
    /// From one renewal to the next.
    pub renewal: Duration,
    /// After this time without a renewal the holder stops.
    pub loss: Duration,
    /// After this time without a renewal another process takes the lock over.
    pub takeover: Duration,
}

impl Default for LockTimes {
    fn default() -> Self {
        let minutes = |count: u64| Duration::from_secs(60 * count);
        LockTimes { renewal: minutes(1), loss: minutes(5), takeover: minutes(10) }
    }
}

/// The content of a lock.
#[derive(Clone, Serialize, Deserialize)]
struct Record {
    host: String,
    process: u32,
    since: String,
    /// Random, so that a holder recognizes its own lock.
    token: String,
    /// So that each content is another one.
    renewals: u64,
    is_released: bool,
}

impl Record {
    fn new() -> Result<Self> {
        let mut token = [0; 16];
        getrandom::fill(&mut token)
            .map_err(|error| Error::Invalid(format!("no random numbers: {error}")))?;
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Ok(Record {
            host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
            process: std::process::id(),
            since: utc(now.as_secs()),
            token: token.iter().map(|byte| format!("{byte:02x}")).collect(),
            renewals: 0,
            is_released: false,
        })
    }

    fn encode(&self) -> Result<Vec<u8>> {
        serde_json::to_vec(self).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Whether `content` is that of this lock, after any number of renewals.
    fn is_same(&self, content: &[u8]) -> bool {
        Self::decode(content).is_some_and(|other| !other.is_released && other.token == self.token)
    }

    /// `None` if it is damaged: then only its age matters.
    fn decode(content: &[u8]) -> Option<Record> {
        serde_json::from_slice(content).ok()
    }
}

/// A lock that is held.
pub(super) struct Lease {
    objects: Objects,
    times: LockTimes,
    kind: Kind,
    path: String,
    /// One renewal at a time.
    renewing: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    record: Record,
    version: UpdateVersion,
    renewed: Moment,
    /// Another process has it.
    is_lost: bool,
    /// Its guard was dropped.
    is_ended: bool,
    /// What an upload has failed with while it was held.
    failure: Option<Error>,
}

/// Takes a lock.
pub(super) async fn take(objects: Objects, times: LockTimes, kind: Kind) -> Result<Arc<Lease>> {
    let record = Record::new()?;
    let renewed = Moment::now();
    let path = format!("{LOCKS}/{}", kind.name(&record.token));
    let mode = match kind {
        Kind::Exclusive | Kind::Archive => condition(&objects, times, &path, &record).await?,
        Kind::Shared => PutMode::Create,
    };
    let Some(version) = put_own(&objects, &path, &record, mode.clone()).await? else {
        return Err(locked(&objects, &path, None));
    };
    let state = State { record, version, renewed, is_lost: false, is_ended: false, failure: None };
    let state = Mutex::new(state);
    let lease = Lease { objects, times, kind, path, renewing: Default::default(), state };
    if let Err(error) = lease.confirm(mode).await {
        let _ = lease.release().await;
        return Err(error);
    }
    Ok(Arc::new(lease))
}

/// On what condition the exclusive lock may be written.
async fn condition(
    objects: &Objects,
    times: LockTimes,
    path: &str,
    record: &Record,
) -> Result<PutMode> {
    let Some(found) = objects.get(path).await? else { return Ok(PutMode::Create) };
    let holder = Record::decode(&found.content);
    let is_released = holder.as_ref().is_some_and(|holder| holder.is_released);
    if !is_released && age(objects, &found, record).await? < times.takeover {
        return Err(locked(objects, path, holder.as_ref()));
    }
    Ok(PutMode::Update(found.version))
}

/// Writes a new lock on a condition; `None` if it is not met. A request that failed may have had
/// its effect, and so may an attempt before the last one: the content shows it.
async fn put_own(
    objects: &Objects,
    path: &str,
    record: &Record,
    mode: PutMode,
) -> Result<Option<UpdateVersion>> {
    let content = record.encode()?;
    let put = objects.put(path, content.clone(), mode).await;
    if let Ok(Some(version)) = put {
        return Ok(Some(version));
    }
    match objects.get(path).await {
        Ok(Some(found)) if found.content == content => Ok(Some(found.version)),
        Ok(_) => put,
        Err(error) => put.and(Err(error)),
    }
}

/// How old an object is, by the clock of the store.
async fn age(objects: &Objects, object: &Object, record: &Record) -> Result<Duration> {
    let path = format!("{LOCKS}/{CLOCK}{}", record.token);
    objects.put(&path, Vec::new(), PutMode::Overwrite).await?;
    let now = objects.get(&path).await?.map(|clock| clock.modified);
    objects.remove(&[path]).await?;
    let age = now.and_then(|now| now.duration_since(object.modified).ok());
    Ok(age.unwrap_or_default())
}

fn locked(objects: &Objects, path: &str, holder: Option<&Record>) -> Error {
    let url = objects.url(path);
    let path = match holder {
        Some(Record { host, process, since, .. }) => {
            format!("{url} (host {host}, process {process}, since {since})")
        }
        None => url,
    };
    Error::Locked { path, holder: None }
}

impl Lease {
    /// Whether its holder has not ended.
    pub(super) fn is_held(&self) -> bool {
        !self.state.lock().is_ended
    }

    /// Notes that an upload has failed.
    pub(super) fn fail(&self, error: &Error) {
        self.state.lock().failure.get_or_insert_with(|| error.clone());
    }

    /// Refuses if another process may have the lock by now, or if an upload has failed.
    pub(super) fn check(&self) -> Result<()> {
        self.check_held()?;
        self.state.lock().failure.clone().map_or(Ok(()), Err)
    }

    /// Refuses if another process may have the lock by now.
    fn check_held(&self) -> Result<()> {
        let state = self.state.lock();
        let reason = match state.is_lost {
            true => "another process has taken this lock over: begin again",
            false if state.renewed.elapsed() >= self.times.loss => {
                "this lock could not be renewed for too long, so another process may take it over: \
                 check the network, and begin again"
            }
            false => return Ok(()),
        };
        Err(Error::Refused { path: self.objects.url(&self.path), reason: reason.into() })
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    /// Writes the lock again, which shows that nobody has taken it over.
    pub(super) async fn renew(&self) -> Result<()> {
        let _one = self.renewing.lock().await;
        self.check_held()?;
        let began = Moment::now();
        let mut record = self.state.lock().record.clone();
        record.renewals += 1;
        let is_own = self.replace(record).await?;
        match is_own {
            true => self.state.lock().renewed = began,
            false => self.state.lock().is_lost = true,
        }
        self.check_held()
    }

    /// Replaces the content of the lock; `false` if it is another process's.
    async fn replace(&self, record: Record) -> Result<bool> {
        let content = record.encode()?;
        loop {
            let version = self.state.lock().version.clone();
            let mode = PutMode::Update(version.clone());
            let version = match self.objects.put(&self.path, content.clone(), mode).await {
                Ok(Some(version)) => version,
                put => match self.objects.get(&self.path).await? {
                    // The request that failed, or an attempt of it, had its effect.
                    Some(found) if found.content == content => found.version,
                    // An earlier renewal that was cut off has changed the version.
                    Some(found) if record.is_same(&found.content) => {
                        if put?.is_none() && found.version == version {
                            return Err(locked(&self.objects, &self.path, None));
                        }
                        self.state.lock().version = found.version;
                        continue;
                    }
                    _ => return Ok(false),
                },
            };
            let mut state = self.state.lock();
            (state.record, state.version) = (record, version);
            return Ok(true);
        }
    }

    /// Refuses if the store ignores conditions, by which two processes could have the lock, or if
    /// another process has a lock that excludes this one. Removes abandoned shared locks.
    async fn confirm(&self, mode: PutMode) -> Result<()> {
        let objects = &self.objects;
        if self.kind.permits_changes() {
            let content = self.state.lock().record.encode()?;
            let again = objects.put(&self.path, content, mode).await?;
            if again.is_some() {
                let reason = "this store ignores the conditions of writes (If-None-Match and \
                              If-Match), which the lock of a repository needs: use another store, \
                              or a newer version of it";
                let path = objects.url(&self.path);
                return Err(Error::Refused { path, reason: reason.into() });
            }
        }
        let locks: Vec<ListedObject> = objects.list(LOCKS).try_collect().await?;
        let path = |lock: &ListedObject| format!("{LOCKS}/{}", lock.path);
        let own = locks.iter().find(|lock| path(lock) == self.path);
        let Some(now) = own.map(|own| own.modified) else {
            return Err(locked(objects, &self.path, None));
        };
        let is_recent = |lock: &ListedObject| {
            now.duration_since(lock.modified).unwrap_or_default() < self.times.takeover
        };
        let mut abandoned = Vec::new();
        for lock in &locks {
            if self.kind.is_excluded_by(&lock.path) && is_recent(lock) {
                let found = objects.get(&path(lock)).await?;
                let holder = found.and_then(|found| Record::decode(&found.content));
                if holder.as_ref().is_none_or(|holder| !holder.is_released) {
                    return Err(locked(objects, &path(lock), holder.as_ref()));
                }
            } else if [SHARED, CLOCK].iter().any(|name| lock.path.starts_with(name))
                && self.kind.permits_changes()
                && !is_recent(lock)
            {
                abandoned.push(path(lock));
            }
        }
        // What is left is removed the next time.
        abandoned.truncate(MAX_REMOVALS);
        objects.remove(&abandoned).await
    }

    /// Lets others take the lock, if it is still this process's.
    async fn release(&self) -> Result<()> {
        self.check_held()?;
        if self.kind == Kind::Shared {
            return self.objects.remove(std::slice::from_ref(&self.path)).await;
        }
        let _one = self.renewing.lock().await;
        let record = self.state.lock().record.clone();
        self.replace(Record { is_released: true, ..record }).await.map(drop)
    }
}

/// Renews a lease until it is dropped, and then releases it.
struct Renewal {
    lease: Arc<Lease>,
    runtime: Handle,
    task: JoinHandle<()>,
}

/// A guard of `lease`.
pub(super) fn guard(lease: Arc<Lease>, runtime: &Handle) -> LockGuard {
    let renewed = lease.clone();
    let task = runtime.spawn(async move {
        loop {
            tokio::time::sleep(renewed.times.renewal).await;
            // The next one may succeed. Whoever uses the lock checks it.
            let _ = renewed.renew().await;
        }
    });
    LockGuard::new(Renewal { lease, runtime: runtime.clone(), task })
}

impl Drop for Renewal {
    fn drop(&mut self) {
        self.task.abort();
        self.lease.state.lock().is_ended = true;
        let lease = self.lease.clone();
        // Otherwise another process takes it over after some minutes.
        let _ = run_on(&self.runtime, async move {
            let released = tokio::time::timeout(RELEASE_TIMEOUT, lease.release());
            released.await.unwrap_or(Ok(()))
        });
    }
}

/// A point in time on both clocks of the machine.
struct Moment {
    monotonic: Instant,
    wall: SystemTime,
}

impl Moment {
    fn now() -> Self {
        Moment { monotonic: Instant::now(), wall: SystemTime::now() }
    }

    /// The greater of the times that both clocks have counted since.
    fn elapsed(&self) -> Duration {
        self.monotonic.elapsed().max(self.wall.elapsed().unwrap_or_default())
    }
}

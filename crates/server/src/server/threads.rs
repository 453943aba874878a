//! The threads of a running server, and the order in which they end.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use siltstone_engine::{Error, Result};

use super::moves;
use super::sockets::{MicaPorts, Sockets};
use crate::archive::Archive;
use crate::backups::Backups;
use crate::command::{replace_users, run_jobs, run_long_scripts, serve_cluster_changes};
use crate::metrics::http::HttpPort;
use crate::net::accept::Acceptor;
use crate::net::worker::Worker;
use crate::replication::start::NodeThreads;
use crate::shared::Shared;
use crate::{Fsync, StopHandle};

/// Maximum delay until the sync thread notices a stop.
const SYNC_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The result of a thread.
type ThreadResult = std::io::Result<()>;

/// Stack of each thread, in bytes. Scripts recurse: a value may have a thousand levels.
const STACK_BYTES: usize = 8 << 20;

/// Running threads.
struct Threads {
    stop: StopHandle,
    handles: Vec<JoinHandle<ThreadResult>>,
}

impl Threads {
    fn spawn(
        &mut self,
        name: &str,
        body: impl FnOnce() -> ThreadResult + Send + 'static,
    ) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
        let handle = thread.spawn(body).map_err(|error| Error::io("start thread", name, &error))?;
        self.handles.push(handle);
        Ok(())
    }

    /// Starts a thread that clients wait for: the server stops when it ends, by an error or a
    /// panic, since its clients would never get a reply.
    fn spawn_vital(
        &mut self,
        name: &str,
        body: impl FnOnce() -> ThreadResult + Send + 'static,
    ) -> Result<()> {
        let guard = StopOnExit(self.stop.clone());
        self.spawn(name, move || {
            let _guard = guard;
            body()
        })
    }

    /// Waits for all; the first error.
    fn join(self) -> ThreadResult {
        let mut outcome = Ok(());
        for thread in self.handles {
            let ended = thread.join().unwrap_or_else(|_| {
                Err(std::io::Error::other("a thread has panicked; this is a bug"))
            });
            outcome = outcome.and(ended);
        }
        outcome
    }
}

/// Serves until [`StopHandle::stop`], then drains and syncs.
pub(super) fn run(
    shared: Arc<Shared>,
    sockets: Sockets,
    mica: Option<MicaPorts>,
    node: Option<NodeThreads>,
) -> Result<()> {
    let failed = |error: std::io::Error| Error::io("serve", shared.address.to_string(), &error);
    let (acceptor, waker) = Acceptor::new(sockets.listeners, sockets.unix).map_err(failed)?;
    shared.stop.wake_with(waker);
    let mut threads = Threads { stop: shared.stop.clone(), handles: Vec::new() };
    let mut inboxes = Vec::new();
    for index in 0..shared.options.workers() {
        let (worker, inbox) = Worker::new(index, shared.clone()).map_err(failed)?;
        inboxes.push(inbox);
        threads.spawn_vital(&format!("siltstone-serve-{index}"), move || worker.run())?;
    }
    let of_scripts = shared.clone();
    threads.spawn_vital("siltstone-script", move || {
        run_long_scripts(&of_scripts, of_scripts.options.workers());
        Ok(())
    })?;
    let of_jobs = shared.clone();
    threads.spawn_vital("siltstone-jobs", move || {
        run_jobs(&of_jobs, of_jobs.options.workers() + 1);
        Ok(())
    })?;
    if shared.replication.is_none() {
        let shared = shared.clone();
        threads.spawn("siltstone-move", move || {
            moves::run(&shared);
            Ok(())
        })?;
    }
    if let Some(socket) = sockets.memcached_udp {
        let shared = shared.clone();
        threads.spawn("siltstone-mc-udp", move || crate::memcached::udp::run(&socket, &shared))?;
    }
    if let Some(MicaPorts { ports, store, .. }) = mica {
        let work = ports.threads(&shared, &store).map_err(failed)?;
        for (index, work) in work.into_iter().enumerate() {
            threads.spawn_vital(&format!("siltstone-udp-{index}"), work)?;
        }
    }
    if let Some(node) = &node {
        let (of_users, replaces_users) = (shared.clone(), node.replaces_users);
        threads.spawn_vital("siltstone-users", move || {
            serve_cluster_changes(&of_users, replaces_users);
            Ok(())
        })?;
        if replaces_users {
            let shared = shared.clone();
            threads.spawn("siltstone-replace-users", move || {
                replace_users(&shared);
                Ok(())
            })?;
        }
    }
    if shared.replication.is_some() {
        let shared = shared.clone();
        threads.spawn("siltstone-publish", move || {
            let groups = shared.replication.iter();
            groups.for_each(|groups| {
                groups.publications.run(|of| {
                    shared.pubsub.publish(&of.channel, &of.message);
                });
            });
            Ok(())
        })?;
    }
    let mut metrics_waker = None;
    if !sockets.metrics.is_empty() {
        let (port, waker) = HttpPort::new(sockets.metrics).map_err(failed)?;
        metrics_waker = Some(waker);
        let shared = shared.clone();
        threads.spawn("siltstone-metrics", move || {
            port.run(&shared);
            Ok(())
        })?;
    }
    if shared.options.fsync == Fsync::EverySecond {
        let shared = shared.clone();
        threads.spawn("siltstone-sync", move || {
            sync_each_second(&shared);
            Ok(())
        })?;
    }
    if shared.backups.is_some() {
        let shared = shared.clone();
        threads.spawn("siltstone-backup", move || {
            shared.backups.iter().for_each(Backups::run);
            Ok(())
        })?;
    }
    if shared.archive.is_some() {
        let shared = shared.clone();
        threads.spawn("siltstone-archive", move || {
            let request = || shared.backups.as_ref().is_some_and(Backups::request);
            shared.archive.iter().for_each(|archive| archive.run(&request));
            Ok(())
        })?;
    }
    let accepted = acceptor.run(&shared, &inboxes);
    shared.stop.stop();
    shared.backups.iter().for_each(Backups::stop);
    shared.archive.iter().for_each(Archive::stop);
    shared.moves.stop();
    shared.replication.iter().for_each(|groups| groups.publications.close());
    for inbox in &inboxes {
        inbox.wakeups.interrupt();
    }
    if let Some(waker) = metrics_waker {
        let _ = waker.wake();
    }
    let outcome = accepted.and(threads.join());
    let synced = sync_all(&shared);
    // Nobody writes any more.
    shared.archive.iter().for_each(|archive| _ = archive.step());
    let synced = synced.and(node.map_or(Ok(()), |node| node.shutdown()));
    synced.and(outcome.map_err(failed))
}

/// Syncs every table; the first error.
fn sync_all(shared: &Arc<Shared>) -> Result<()> {
    let mut synced = Ok(());
    for database in &shared.databases {
        synced = synced.and(database.engine.sync());
    }
    synced
}

/// Stops the server when a thread ends.
struct StopOnExit(StopHandle);

impl Drop for StopOnExit {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn sync_each_second(shared: &Shared) {
    let mut due = Instant::now() + Duration::from_secs(1);
    while !shared.stop.is_stopping() {
        std::thread::sleep(SYNC_POLL_INTERVAL);
        if Instant::now() < due {
            continue;
        }
        due = Instant::now() + Duration::from_secs(1);
        let mut is_synced = true;
        for database in &shared.databases {
            if database.sync_if_written().is_err() {
                // The table is read-only now; its next write reports why.
                shared.metrics.failed_syncs.fetch_add(1, Relaxed);
                is_synced = false;
            }
        }
        if is_synced {
            shared.record_sync();
        }
    }
}

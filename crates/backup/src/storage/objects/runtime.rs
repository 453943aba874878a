//! The thread on which the requests of a storage run. Callers are ordinary threads: they wait.

use std::sync::mpsc;
use std::thread::JoinHandle;

use siltstone_engine::{Error, Result};
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// See the [module](self). Dropping it ends the thread, with the requests that still run.
pub(super) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Runtime {
    pub(super) fn start() -> Result<Self> {
        let failed =
            |error: std::io::Error| Error::io("start", "thread of an object store", &error);
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("siltstone-objects".into());
        let thread = thread.spawn(move || drop(runtime.block_on(stopped))).map_err(failed)?;
        Ok(Runtime { handle, stop: Some(stop), thread: Some(thread) })
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Runs `request` on the thread, and waits for its result.
    pub(super) fn run<T: Send + 'static>(
        &self,
        request: impl Future<Output = Result<T>> + Send + 'static,
    ) -> Result<T> {
        run_on(&self.handle, request)
    }
}

/// As [`Runtime::run`], for a holder of a lock.
pub(super) fn run_on<T: Send + 'static>(
    handle: &Handle,
    request: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    let (send, receive) = mpsc::sync_channel(1);
    handle.spawn(async move { drop(send.send(request.await)) });
    // Only a thread that has ended sends nothing.
    receive.recv().unwrap_or(Err(Error::Closed))
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

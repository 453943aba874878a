//! Stopping a server: a flag, and a waker for the accepting thread.
//!
//! [`StopHandle::stop`] may be called from any thread, before the accepting thread starts, and
//! repeatedly.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use parking_lot::Mutex;

/// Stops a server: it stops accepting, answers received requests, syncs, and returns.
#[derive(Clone, Default)]
pub struct StopHandle {
    inner: Arc<Inner>,
}

#[derive(Default)]
struct Inner {
    stopping: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl StopHandle {
    /// Requests the stop. Returns at once.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        if let Some(waker) = self.inner.waker.lock().as_ref() {
            // A poll that cannot be woken has already ended.
            let _ = waker.wake();
        }
    }

    /// Whether a stop was requested.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    /// Sets the waker used by [`stop`](Self::stop).
    pub(crate) fn wake_with(&self, waker: Waker) {
        let stopping = self.is_stopping();
        if stopping {
            let _ = waker.wake();
        }
        *self.inner.waker.lock() = Some(waker);
        // A concurrent stop found no waker.
        if !stopping && self.is_stopping() {
            self.stop();
        }
    }
}

//! Telling a server to end.
//!
//! The accepting thread sleeps in its poll; a stop sets a flag and wakes it. It may come before the
//! thread is there, from any thread, and more than once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use parking_lot::Mutex;

/// Ends a server: it stops accepting, answers what it has received, syncs, and returns.
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
    /// Asks the server to end. Returns at once.
    pub fn stop(&self) {
        self.inner.stopping.store(true, Ordering::Release);
        if let Some(waker) = self.inner.waker.lock().as_ref() {
            // A poll that cannot be woken has ended already.
            let _ = waker.wake();
        }
    }

    /// Whether the server was asked to end.
    pub fn is_stopping(&self) -> bool {
        self.inner.stopping.load(Ordering::Acquire)
    }

    /// Lets [`stop`](Self::stop) wake a poll.
    pub(crate) fn wake_with(&self, waker: Waker) {
        let stopping = self.is_stopping();
        if stopping {
            let _ = waker.wake();
        }
        *self.inner.waker.lock() = Some(waker);
        // A stop in between has found no waker.
        if !stopping && self.is_stopping() {
            self.stop();
        }
    }
}

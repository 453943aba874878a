//! Wakes a worker for connections that another thread has changed.
//!
//! A thread that leaves something for a client (a message, a late reply, an order to close) puts
//! the client's token into the list of its worker. The worker takes the list in each iteration of
//! its event loop and serves these connections.
//!
//! Invariant: the worker is woken when the list becomes non-empty, so a token is never forgotten.
//! A token may meanwhile belong to another connection, which is then served without need.

use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;
use parking_lot::Mutex;

/// Tokens of connections to serve, and the waker of their worker.
pub(crate) struct Wakeups {
    /// The list is not empty.
    is_pending: AtomicBool,
    tokens: Mutex<Vec<usize>>,
    waker: Waker,
}

impl Wakeups {
    pub(crate) fn new(waker: Waker) -> Self {
        Wakeups { is_pending: AtomicBool::new(false), tokens: Mutex::default(), waker }
    }

    /// Makes the worker serve a connection.
    pub(crate) fn wake(&self, token: usize) {
        let mut tokens = self.tokens.lock();
        tokens.push(token);
        let was_pending = self.is_pending.swap(true, Ordering::AcqRel);
        drop(tokens);
        if !was_pending {
            self.interrupt();
        }
    }

    /// Ends the worker's wait for events.
    pub(crate) fn interrupt(&self) {
        // A worker that cannot be woken has ended, or takes the list in its next iteration.
        let _ = self.waker.wake();
    }

    /// Takes the list. Cost if it is empty: one atomic load.
    pub(crate) fn take(&self) -> Vec<usize> {
        if !self.is_pending.load(Ordering::Acquire) {
            return Vec::new();
        }
        let mut tokens = self.tokens.lock();
        self.is_pending.store(false, Ordering::Release);
        std::mem::take(&mut *tokens)
    }
}

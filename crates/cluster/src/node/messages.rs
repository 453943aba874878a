//! Messages that other nodes have sent to the user of a node's handle, until they are taken.
//!
//! The queue is bounded: a message that does not fit is dropped, as a network may drop it.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::packet::NodeMessage;

/// Messages that may wait; more are dropped.
const MAX_WAITING: usize = 64;

/// The queue.
#[derive(Default)]
pub(super) struct Messages {
    waiting: Mutex<VecDeque<NodeMessage>>,
    arrived: Condvar,
}

impl Messages {
    /// Adds a message, or drops it.
    pub(super) fn push(&self, message: NodeMessage) {
        let mut waiting = self.waiting.lock();
        if waiting.len() < MAX_WAITING {
            waiting.push_back(message);
            self.arrived.notify_one();
        }
    }

    /// Takes the first message; waits for one if there is none.
    pub(super) fn take(&self, timeout: Duration) -> Option<NodeMessage> {
        let mut waiting = self.waiting.lock();
        if waiting.is_empty() {
            self.arrived.wait_for(&mut waiting, timeout);
        }
        waiting.pop_front()
    }
}

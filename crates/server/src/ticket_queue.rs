//! Parked commands that wait for a thread of their own: long scripts, and jobs such as MIGRATE.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clients::Ticket;

/// Delay until the thread looks whether the server stops.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Parked commands in the order of their arrival.
#[derive(Default)]
pub(crate) struct TicketQueue {
    queue: Mutex<VecDeque<Ticket>>,
    arrived: Condvar,
}

impl TicketQueue {
    /// Adds a parked command.
    pub(crate) fn enqueue(&self, ticket: Ticket) {
        self.queue.lock().push_back(ticket);
        self.arrived.notify_one();
    }

    /// The next parked command; `None` when the server stops.
    pub(crate) fn next(&self, is_stopping: impl Fn() -> bool) -> Option<Ticket> {
        let mut queue = self.queue.lock();
        loop {
            if is_stopping() {
                return None;
            }
            if let Some(ticket) = queue.pop_front() {
                return Some(ticket);
            }
            self.arrived.wait_for(&mut queue, STOP_POLL_INTERVAL);
        }
    }
}

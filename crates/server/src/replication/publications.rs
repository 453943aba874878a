//! Messages of PUBLISH that other nodes have passed on, until they are left for the subscribers
//! here.
//!
//! ```text
//!   PUBLISH ─▶ subscribers here
//!      └─▶ Transport::publish ══▶ other nodes: queue ─▶ thread ─▶ subscribers there
//! ```
//!
//! The transport's threads must not wait for many subscribers: they also receive the packets of
//! Raft. So a thread of its own takes the messages from a bounded queue.

use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use siltstone_cluster::publication::{Publication, PublicationQueue};

/// Bytes of the messages that may wait here; more are dropped.
const MAX_WAITING_BYTES: usize = 16 << 20;
/// Bytes of the messages that the thread takes at once.
const TAKEN_BYTES: usize = 64 << 10;

/// The queue of messages of other nodes.
pub(crate) struct ReceivedPublications {
    state: Mutex<State>,
    arrived: Condvar,
}

struct State {
    queue: PublicationQueue,
    dropped: u64,
    is_closed: bool,
}

impl ReceivedPublications {
    pub(crate) fn new() -> Self {
        let queue = PublicationQueue::new(MAX_WAITING_BYTES);
        let state = State { queue, dropped: 0, is_closed: false };
        ReceivedPublications { state: Mutex::new(state), arrived: Condvar::new() }
    }

    /// Adds a message, or drops it.
    pub(crate) fn push(&self, publication: Publication) {
        let mut state = self.state.lock();
        let is_queued = state.queue.push(Arc::new(publication));
        state.dropped += u64::from(!is_queued);
        self.arrived.notify_one();
    }

    /// Leaves the messages for their subscribers until the queue is closed.
    pub(crate) fn run(&self, deliver: impl Fn(&Publication)) {
        let mut state = self.state.lock();
        while !state.is_closed {
            let taken = state.queue.take(TAKEN_BYTES);
            if taken.is_empty() {
                self.arrived.wait(&mut state);
                continue;
            }
            parking_lot::MutexGuard::unlocked(&mut state, || {
                taken.iter().for_each(|publication| deliver(publication));
            });
        }
    }

    /// Ends [`run`](Self::run).
    pub(crate) fn close(&self) {
        self.state.lock().is_closed = true;
        self.arrived.notify_one();
    }

    /// Messages for which there was no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.state.lock().dropped
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn slow_subscribers_cost_messages_and_no_time_of_the_transport() {
        const BYTES: usize = 1 << 20;
        let received = Arc::new(ReceivedPublications::new());
        let (deliver, delivered) = channel();
        let (go_on, may_go_on) = channel();
        let run = std::thread::spawn({
            let received = received.clone();
            move || {
                received.run(|publication| {
                    deliver.send(publication.channel[0]).unwrap();
                    may_go_on.recv().unwrap();
                });
            }
        });
        let push = |number: u8| {
            received.push(Publication { channel: vec![number], message: vec![0; BYTES] });
        };
        push(0);
        assert_eq!(delivered.recv(), Ok(0));
        // The thread waits, and this one does not.
        (1..=20).for_each(push);
        assert_eq!(received.dropped(), 5);
        (0..16).for_each(|_| go_on.send(()).unwrap());
        let order: Vec<_> = delivered.iter().take(15).collect();
        assert_eq!(order, (1..=15).collect::<Vec<_>>());
        push(21);
        assert_eq!(delivered.recv(), Ok(21));
        received.close();
        go_on.send(()).unwrap();
        run.join().unwrap();
        assert_eq!(received.dropped(), 5);
    }
}

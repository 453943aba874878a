//! Hands new clients from the acceptor to the workers.

use std::sync::Arc;

use mio::net::TcpStream;
use parking_lot::Mutex;

use super::protocol::Endpoint;
use super::wakeups::Wakeups;
use crate::clients::Address;

/// A client handed from the acceptor to a worker.
pub(crate) struct Arrival {
    pub(crate) stream: TcpStream,
    pub(crate) peer: Address,
    pub(crate) endpoint: Endpoint,
}

/// New clients and wake-ups of a worker.
pub(crate) struct Inbox {
    pub(super) arrivals: Mutex<Vec<Arrival>>,
    pub(crate) wakeups: Arc<Wakeups>,
}

impl Inbox {
    /// Hands a client to the worker.
    pub(crate) fn put(&self, arrival: Arrival) {
        self.arrivals.lock().push(arrival);
        self.wakeups.interrupt();
    }
}

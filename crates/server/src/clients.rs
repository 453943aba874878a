//! Registry of connected clients, for CLIENT LIST and CLIENT KILL.
//!
//! Workers own the connections; the registry holds what other threads may see. A client is
//! registered exactly while its [`Registration`] lives.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use mio::Waker;
use parking_lot::Mutex;

/// Connected clients by id.
#[derive(Default)]
pub(crate) struct Clients {
    next_id: AtomicU64,
    connected: AtomicUsize,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// State of a client that all threads may see.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) since: Instant,
    /// The SELECT index.
    pub(crate) table: AtomicUsize,
    /// Index of the last command in the command table, plus one.
    pub(crate) command: AtomicU16,
    /// Time of the last received bytes, in milliseconds after `since`.
    pub(crate) last_received_ms: AtomicU64,
    /// Set to close the connection.
    pub(crate) killed: AtomicBool,
    pub(crate) is_resp3: AtomicBool,
    pub(crate) names: Mutex<Names>,
    /// Wakes the worker that owns it.
    waker: Arc<Waker>,
}

/// Names that the client has set.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
}

/// Keeps a client registered.
pub(crate) struct Registration {
    clients: Arc<Clients>,
    pub(crate) client: Arc<Client>,
}

impl Clients {
    /// Reserves one of `max` connections, if available; released by [`leave`](Self::leave).
    pub(crate) fn enter(&self, max: usize) -> bool {
        self.connected.fetch_update(Relaxed, Relaxed, |n| (n < max).then_some(n + 1)).is_ok()
    }

    /// Releases a reservation.
    pub(crate) fn leave(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// Number of connections.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// Registers a client that has a reservation from [`enter`](Self::enter).
    pub(crate) fn register(
        self: &Arc<Self>,
        peer: SocketAddr,
        local: SocketAddr,
        waker: Arc<Waker>,
    ) -> Registration {
        let client = Arc::new(Client {
            id: self.next_id.fetch_add(1, Relaxed) + 1,
            peer,
            local,
            since: Instant::now(),
            table: AtomicUsize::new(0),
            command: AtomicU16::new(0),
            last_received_ms: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            is_resp3: AtomicBool::new(false),
            names: Mutex::default(),
            waker,
        });
        self.by_id.lock().insert(client.id, client.clone());
        Registration { clients: self.clone(), client }
    }

    /// A snapshot of all clients, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
}

impl Client {
    /// Requests its worker to close the connection.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
        // A worker that cannot be woken has ended, and its connections with it.
        let _ = self.waker.wake();
    }

    /// Appends the client's line of CLIENT LIST.
    pub(crate) fn describe(&self, out: &mut String) {
        let names = self.names.lock().clone();
        let age = self.since.elapsed();
        let idle =
            (age.as_millis() as u64).saturating_sub(self.last_received_ms.load(Relaxed)) / 1000;
        let command = match self.command.load(Relaxed) {
            0 => "NULL",
            index => crate::command::table()[usize::from(index) - 1].name,
        };
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={idle} flags=N db={} sub=0 psub=0 \
             cmd={command} user=default resp={} lib-name={} lib-ver={}",
            self.id,
            self.peer,
            self.local,
            names.name,
            age.as_secs(),
            self.table.load(Relaxed),
            if self.is_resp3.load(Relaxed) { 3 } else { 2 },
            names.library,
            names.library_version,
        );
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.clients.by_id.lock().remove(&self.client.id);
        self.clients.leave();
    }
}

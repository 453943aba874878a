//! The clients that are connected: what CLIENT LIST shows, and CLIENT KILL reaches.
//!
//! Workers own their connections; this register holds what other threads may see of them. A client
//! is registered while its [`Registration`] lives, so counts cannot drift.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use mio::Waker;
use parking_lot::Mutex;

/// All clients by number.
#[derive(Default)]
pub(crate) struct Clients {
    next_id: AtomicU64,
    connected: AtomicUsize,
    by_id: Mutex<BTreeMap<u64, Arc<Client>>>,
}

/// What all threads may see of a client.
pub(crate) struct Client {
    pub(crate) id: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) since: Instant,
    /// The SELECT index.
    pub(crate) table: AtomicUsize,
    /// The last command, as an index into the table of commands, plus one.
    pub(crate) command: AtomicU16,
    /// Milliseconds after `since` at which it was last heard.
    pub(crate) heard_ms: AtomicU64,
    /// Whether it should be closed.
    pub(crate) killed: AtomicBool,
    pub(crate) is_resp3: AtomicBool,
    pub(crate) names: Mutex<Names>,
    /// Wakes the worker that has it.
    waker: Arc<Waker>,
}

/// What a client says of itself.
#[derive(Debug, Default, Clone)]
pub(crate) struct Names {
    pub(crate) name: String,
    pub(crate) library: String,
    pub(crate) library_version: String,
}

/// Keeps a client in the register.
pub(crate) struct Registration {
    clients: Arc<Clients>,
    pub(crate) client: Arc<Client>,
}

impl Clients {
    /// Takes a place among `max` clients, if one is free; given back by [`leave`](Self::leave).
    pub(crate) fn enter(&self, max: usize) -> bool {
        self.connected.fetch_update(Relaxed, Relaxed, |n| (n < max).then_some(n + 1)).is_ok()
    }

    /// Gives a place back.
    pub(crate) fn leave(&self) {
        self.connected.fetch_sub(1, Relaxed);
    }

    /// How many there are.
    pub(crate) fn connected(&self) -> usize {
        self.connected.load(Relaxed)
    }

    /// Registers a client that has [entered](Self::enter).
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
            heard_ms: AtomicU64::new(0),
            killed: AtomicBool::new(false),
            is_resp3: AtomicBool::new(false),
            names: Mutex::default(),
            waker,
        });
        self.by_id.lock().insert(client.id, client.clone());
        Registration { clients: self.clone(), client }
    }

    /// The clients as of now, by number.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.by_id.lock().values().cloned().collect()
    }
}

impl Client {
    /// Asks the worker to close it.
    pub(crate) fn kill(&self) {
        self.killed.store(true, Relaxed);
        // A worker that cannot be woken has ended, and its clients with it.
        let _ = self.waker.wake();
    }

    /// The client as a line of CLIENT LIST.
    pub(crate) fn describe(&self, out: &mut String) {
        let names = self.names.lock().clone();
        let age = self.since.elapsed();
        let idle = (age.as_millis() as u64).saturating_sub(self.heard_ms.load(Relaxed)) / 1000;
        let command = match self.command.load(Relaxed) {
            0 => "NULL",
            index => crate::command::table()[usize::from(index) - 1].name,
        };
        // Writing into a string does not fail.
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

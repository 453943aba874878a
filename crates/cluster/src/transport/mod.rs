//! A [`Network`] over TCP, for all groups of a node.
//!
//! ```text
//!   Network::send ─▶ Link of the peer: queue ─▶ thread ─▶ its connection ══▶ peer
//!   peer ══▶ a connection that it has opened ─▶ thread ─▶ Receiver of the group
//! ```
//!
//! Each node opens one connection to each peer, and sends on that; it only receives on those that
//! peers have opened. Both sides check the other's hello: another cluster or number of groups, an
//! unknown or wrong node, and a version without common ground are refused by a [`HelloRefusal`],
//! which both report. Packets carry the number of their group.
//!
//! Published messages go to all nodes, over the same connections, and belong to no group.
//!
//! Packets are dropped while there is no connection, or if too many wait: Raft sends again. A
//! connection that fails is opened again after 20 ms, then after twice as long each time, each
//! shortened at random by up to a half.
//!
//! Each process has a random number. If a process with the same id has replaced another one, the
//! earlier one is refused when it comes back: two processes must never run as one node.
//!
//! Without an [`Encryption`] nothing is encrypted or authenticated: the network must be trusted.

mod encryption;
mod event;
mod incoming;
mod link;
mod options;
mod outgoing;
mod shared;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use siltstone_engine::{Error, Result};

pub use encryption::{Encryption, Stream};
pub use event::{HelloRefusal, TransportEvent};
pub use options::{EventListener, PublicationListener, TransportOptions};
pub use shared::Connection;

use crate::network::{Network, Receiver};
use crate::packet::Envelope;
use crate::publication::Publication;
use link::Link;
use shared::{PublicationCounters, Shared};

/// Published messages since the start. One to several nodes counts once for each.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PublicationCounts {
    /// Those that were given to a connection.
    pub sent: u64,
    /// Those of other nodes.
    pub received: u64,
    /// Those that were dropped: without a connection, with too many waiting, or as the other node's
    /// version does not have them.
    pub dropped: u64,
}

/// A network over TCP. Dropping it closes all connections.
pub struct Transport {
    shared: Arc<Shared>,
    address: SocketAddr,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Transport {
    /// Listens, and begins to connect to the peers.
    ///
    /// # Errors
    /// `Io` if the address cannot be listened on.
    pub fn bind(options: TransportOptions) -> Result<Arc<Self>> {
        let name = options.listen.to_string();
        let listener = TcpListener::bind(options.listen)
            .map_err(|error| Error::io("listen on", name.clone(), &error))?;
        let address =
            listener.local_addr().map_err(|error| Error::io("listen on", name, &error))?;
        let peers = options.peers.clone();
        let shared = Arc::new(Shared::new(options));
        let transport = Transport { shared: shared.clone(), address, threads: Mutex::default() };
        transport.spawn("raft-accept", move || incoming::accept(&shared, &listener))?;
        for (node, address) in peers {
            transport.set_peer(node, address)?;
        }
        Ok(Arc::new(transport))
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a peer, or changes its address.
    ///
    /// # Errors
    /// `Invalid` for this node itself; `Io` if no thread can be started.
    pub fn set_peer(&self, node: u64, address: String) -> Result<()> {
        let options = &self.shared.options;
        if node == options.node {
            return Err(Error::Invalid(format!("node {node} is no peer of itself")));
        }
        let link = Arc::new(Link::new(node, address, options));
        self.shared.add_link(link.clone());
        let shared = self.shared.clone();
        self.spawn("raft-send", move || outgoing::run(&shared, &link))
    }

    /// Removes a peer: its connections are closed and refused.
    pub fn remove_peer(&self, node: u64) {
        self.shared.remove_link(node);
    }

    /// The open connections to and from other nodes.
    pub fn connections(&self) -> Vec<Connection> {
        self.shared.connections()
    }

    /// Packets that were dropped: without a connection, or with too many waiting.
    pub fn dropped_packets(&self) -> u64 {
        self.shared.dropped_packets()
    }

    /// Sends a published message to all other nodes. Does not block: it is dropped where there is
    /// no connection, where too many wait, and by nodes of earlier versions. It arrives once or
    /// never, behind those that were published before it.
    ///
    /// Cost: a copy of a pointer per node.
    pub fn publish(&self, publication: Publication) {
        self.shared.publish(publication);
    }

    /// What has become of published messages.
    pub fn publication_counts(&self) -> PublicationCounts {
        let PublicationCounters { sent, received, dropped } = &self.shared.publications;
        let [sent, received, dropped] =
            [sent, received, dropped].map(|counter| counter.load(Relaxed));
        PublicationCounts { sent, received, dropped }
    }

    fn spawn(&self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<()> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        let thread = thread.map_err(|error| Error::io("start", "a thread", &error))?;
        self.threads.lock().push(thread);
        Ok(())
    }
}

impl Network for Transport {
    fn send(&self, envelope: Envelope) {
        self.shared.send(envelope);
    }

    fn attach(&self, group: u64, receiver: Arc<dyn Receiver>) {
        self.shared.attach(group, receiver);
    }

    fn detach(&self, group: u64) {
        self.shared.detach(group);
    }

    fn set_directories(&self, group: u64, own: u64, committed: &BTreeMap<u64, u64>) {
        self.shared.set_directories(group, own, committed);
    }

    fn client_address(&self, node: u64) -> Option<String> {
        self.shared.client_address(node)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        self.shared.is_stopped.store(true, Relaxed);
        self.shared.close_links();
        self.shared.close_incoming(None);
        // Wakes the thread that accepts.
        let mut own = self.address;
        match own.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => own.set_ip(Ipv4Addr::LOCALHOST.into()),
            IpAddr::V6(ip) if ip.is_unspecified() => own.set_ip(Ipv6Addr::LOCALHOST.into()),
            _ => {}
        }
        let is_woken = TcpStream::connect_timeout(&own, Duration::from_secs(1)).is_ok();
        for thread in self.threads.get_mut().drain(..) {
            // The one that accepts ends with the process if it cannot be woken.
            if is_woken || thread.thread().name() != Some("raft-accept") {
                let _ = thread.join();
            }
        }
    }
}

//! The options of a transport.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::encryption::Encryption;
use super::event::TransportEvent;
use crate::publication::Publication;

/// Called for each event, on the transport's threads.
pub type EventListener = Arc<dyn Fn(&TransportEvent) + Send + Sync>;

/// Called for each published message of another node, on the thread that also receives the packets
/// of that node: it must not block.
pub type PublicationListener = Arc<dyn Fn(Publication) + Send + Sync>;

/// The least `connect_timeout` and `ack_timeout` for short election timeouts: busy machines answer
/// later than others.
const MIN_CONNECT_TIMEOUT: Duration = Duration::from_millis(250);
const MIN_ACK_TIMEOUT: Duration = Duration::from_secs(1);

/// The options of a transport.
#[derive(Clone)]
pub struct TransportOptions {
    /// The cluster's id, random, the same at all nodes.
    pub cluster: u64,
    /// The node's id.
    pub node: u64,
    /// The number of groups of the cluster, the same at all nodes.
    pub groups: u32,
    /// Where to listen for other nodes.
    pub listen: SocketAddr,
    /// Where this node serves clients, for the others to redirect them.
    pub client_address: Option<String>,
    /// The other nodes and their addresses, `host:port`.
    pub peers: Vec<(u64, String)>,
    /// Encrypts and authenticates all connections, if it is given.
    pub encryption: Option<Arc<dyn Encryption>>,
    /// Receives events.
    pub listener: EventListener,
    /// The packets that may wait for one peer; more are dropped.
    pub max_queued_packets: usize,
    /// The bytes that may wait for one peer; more are dropped.
    pub max_queued_bytes: usize,
    /// The bytes of published messages that may wait for one peer; more are dropped.
    pub max_queued_publication_bytes: usize,
    /// Receives the published messages of other nodes.
    pub publication_listener: PublicationListener,
    /// The connections that others may have opened. For more, those that have not said for longest
    /// who they are get closed.
    pub max_incoming: usize,
    /// How long connecting may take.
    pub connect_timeout: Duration,
    /// How long the first frames may take.
    pub hello_timeout: Duration,
    /// How long bytes may stay unacknowledged by a peer.
    pub ack_timeout: Duration,
    /// How long a peer may not read.
    pub write_timeout: Duration,
    /// After this time without packets a ping is sent.
    pub ping_interval: Duration,
    /// After this time without packets and pings a connection is closed.
    pub idle_timeout: Duration,
    /// The longest wait between attempts to connect.
    pub max_backoff: Duration,
}

impl TransportOptions {
    /// The defaults.
    pub fn new(cluster: u64, node: u64, listen: SocketAddr) -> Self {
        TransportOptions {
            cluster,
            node,
            groups: 1,
            listen,
            client_address: None,
            peers: Vec::new(),
            encryption: None,
            listener: Arc::new(|_| {}),
            max_queued_packets: 4096,
            max_queued_bytes: 64 << 20,
            max_queued_publication_bytes: 16 << 20,
            publication_listener: Arc::new(|_| {}),
            max_incoming: 1024,
            connect_timeout: Duration::from_secs(2),
            hello_timeout: Duration::from_secs(2),
            ack_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(5),
            ping_interval: Duration::from_secs(1),
            idle_timeout: Duration::from_secs(10),
            max_backoff: Duration::from_secs(1),
        }
    }

    /// Has links that were cut off tried again soon enough for nodes with this election timeout.
    /// After a cut TCP is silent for as long again as the cut has lasted, and there is no leader
    /// until a majority is linked.
    #[must_use]
    pub fn with_election_timeout(mut self, timeout: Duration) -> Self {
        let least = MIN_CONNECT_TIMEOUT.min(self.connect_timeout);
        self.connect_timeout = timeout.clamp(least, self.connect_timeout);
        let least = MIN_ACK_TIMEOUT.min(self.ack_timeout);
        self.ack_timeout = (timeout * 2).clamp(least, self.ack_timeout);
        self.max_backoff = self.max_backoff.min(timeout);
        self
    }
}

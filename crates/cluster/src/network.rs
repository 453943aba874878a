//! The interface between a node and a network: sending, and the receiver of packets.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::packet::Envelope;

/// Carries packets between the nodes of groups. Packets may be lost, delayed, repeated and
/// reordered, but not altered, and they come from nodes of this cluster only.
pub trait Network: Send + Sync {
    /// Sends a packet, or drops it. Does not block.
    fn send(&self, envelope: Envelope);

    /// Delivers the packets of a group to this receiver from now on.
    fn attach(&self, group: u64, receiver: Arc<dyn Receiver>);

    /// Delivers no packets of a group any more.
    fn detach(&self, group: u64);

    /// The directory of this node in a group, and those that the group has committed: a network may
    /// tell a node that it was created again under its old id and that reaches no other member.
    fn set_directories(&self, _group: u64, _own: u64, _committed: &BTreeMap<u64, u64>) {}

    /// The address at which a node serves clients, if it is known.
    fn client_address(&self, node: u64) -> Option<String>;
}

/// Receives the packets of a group's node. Does not block.
pub trait Receiver: Send + Sync {
    /// Takes a packet of its group, or drops it.
    fn deliver(&self, envelope: Envelope);

    /// Packets to a node have been lost. Raft then probes what that node has.
    fn report_unreachable(&self, node: u64);

    /// A [`Start`](crate::packet::Start) was dropped: the node to which it goes runs an earlier
    /// version, which has no such packet.
    fn report_earlier_version(&self, _node: u64) {}
}

/// The network of a group of one node: it has no peers.
#[derive(Debug, Clone, Default)]
pub struct NoPeers {
    /// The node's own address for clients.
    pub client_address: Option<String>,
}

impl Network for NoPeers {
    fn send(&self, _envelope: Envelope) {}

    fn attach(&self, _group: u64, _receiver: Arc<dyn Receiver>) {}

    fn detach(&self, _group: u64) {}

    fn client_address(&self, _node: u64) -> Option<String> {
        self.client_address.clone()
    }
}

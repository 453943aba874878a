//! What a node needs of a network, and the inbox that a network delivers to.

use std::sync::Arc;

use super::inputs::{Input, Inputs};
use crate::packet::Packet;

/// Carries packets between the nodes of groups. Packets may be lost, delayed, repeated and
/// reordered, but not altered, and they come from nodes of this cluster only.
pub trait Network: Send + Sync {
    /// Sends a packet, or drops it. Does not block.
    fn send(&self, group: u64, packet: Packet);

    /// Delivers the packets of a group to this inbox from now on.
    fn attach(&self, group: u64, inbox: Inbox);

    /// Delivers no packets of a group any more.
    fn detach(&self, group: u64);

    /// The address at which a node serves clients, if it is known.
    fn client_address(&self, node: u64) -> Option<String>;
}

/// Where the packets of a node arrive.
#[derive(Clone)]
pub struct Inbox(pub(super) Arc<Inputs>);

impl Inbox {
    /// Delivers a packet. It is dropped if too many wait.
    pub fn deliver(&self, packet: Packet) {
        self.0.push(Input::Packet(packet));
    }

    /// Reports that packets to a node have been lost. Raft then probes what that node has.
    pub fn report_unreachable(&self, node: u64) {
        self.0.push(Input::Unreachable(node));
    }
}

/// The network of a group of one node: it has no peers.
#[derive(Debug, Clone, Default)]
pub struct NoPeers {
    /// The node's own address for clients.
    pub client_address: Option<String>,
}

impl Network for NoPeers {
    fn send(&self, _group: u64, _packet: Packet) {}

    fn attach(&self, _group: u64, _inbox: Inbox) {}

    fn detach(&self, _group: u64) {}

    fn client_address(&self, _node: u64) -> Option<String> {
        self.client_address.clone()
    }
}

//! The nodes to which the transport connects: those that any of this node's groups wants.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use siltstone_cluster::transport::Transport;

use super::group_set::{GroupSet, only};
use super::options::Member;
use crate::process;

/// A node that at least one group wants.
struct Peer {
    member: Member,
    wanted_by: GroupSet,
}

/// The nodes, by number.
pub(crate) struct Peers {
    transport: Arc<Transport>,
    peers: Mutex<BTreeMap<u64, Peer>>,
}

impl Peers {
    /// The transport has these peers already. They stay until all groups have said whom they want.
    pub(crate) fn new(transport: Arc<Transport>, known: &[Member], groups: usize) -> Self {
        let all = (0..groups).fold(0, |set, group| set | only(group));
        let peer = |member: &Member| (member.node, Peer { member: *member, wanted_by: all });
        Peers { transport, peers: Mutex::new(known.iter().map(peer).collect()) }
    }

    /// Connects to all nodes that a group wants, and to no node that none wants.
    pub(crate) fn want(&self, group: usize, wanted: &BTreeMap<u64, Member>) {
        let mut peers = self.peers.lock();
        for (node, peer) in peers.iter_mut() {
            if !wanted.contains_key(node) {
                peer.wanted_by &= !only(group);
            }
        }
        peers.retain(|node, peer| {
            let is_wanted = peer.wanted_by != 0;
            if !is_wanted {
                self.transport.remove_peer(*node);
            }
            is_wanted
        });
        for (node, member) in wanted {
            if let Some(peer) = peers.get_mut(node)
                && peer.member.bus == member.bus
            {
                peer.wanted_by |= only(group);
                continue;
            }
            match self.transport.set_peer(*node, member.bus.to_string()) {
                Ok(()) => {
                    let before = peers.get(node).map_or(0, |peer| peer.wanted_by);
                    let wanted_by = before | only(group);
                    peers.insert(*node, Peer { member: *member, wanted_by });
                }
                Err(error) => process::log(&format!("node {node}: {error}")),
            }
        }
    }
}

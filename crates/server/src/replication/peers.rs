//! The nodes to which the transport connects: those that any of this node's groups wants.
//!
//! The groups may know different addresses of a node that has moved, until the leaders of all of
//! them have written the new one. That of the first group counts then: if each group set its own,
//! the connection would be closed and opened again all the time.

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
                && (peer.member.bus == member.bus || group != 0 && peer.wanted_by & only(0) != 0)
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

#[cfg(test)]
mod tests {
    use siltstone_cluster::transport::TransportOptions;

    use super::*;

    #[test]
    fn address_that_the_first_group_knows_counts() {
        let listen = "127.0.0.1:0".parse().unwrap();
        let transport = Transport::bind(TransportOptions::new(1, 1, listen)).unwrap();
        let [old, new] = ["127.0.0.1:1@2", "127.0.0.1:1@3"].map(|at| Member::at(2, at).unwrap());
        let peers = Peers::new(transport, &[], 2);
        let bus_port = || peers.peers.lock()[&2].member.bus.port();
        peers.want(1, &BTreeMap::from([(2, old)]));
        assert_eq!(bus_port(), 2);
        peers.want(0, &BTreeMap::from([(2, new)]));
        assert_eq!(bus_port(), 3);
        peers.want(1, &BTreeMap::from([(2, old)]));
        assert_eq!(bus_port(), 3);
        // Once the first group has removed it, the others decide.
        peers.want(0, &BTreeMap::new());
        peers.want(1, &BTreeMap::from([(2, old)]));
        assert_eq!(bus_port(), 2);
    }
}

//! What a group shows of itself.

use raft::{ProgressState, StateRole};

use super::Group;

/// A member, as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerStatus {
    /// The node's id.
    pub node: u64,
    /// Whether it votes.
    pub is_voter: bool,
    /// The last entry that it is known to have durably.
    pub matched: u64,
    /// The entries of the leader's log that it is not known to have.
    pub lag: u64,
    /// Whether a snapshot is being sent to it.
    pub is_receiving_snapshot: bool,
    /// Whether it has answered since the last election timeout.
    pub is_active: bool,
}

impl Group {
    /// The group's id.
    pub fn id(&self) -> u64 {
        self.options.group
    }

    /// The node's id.
    pub fn node(&self) -> u64 {
        self.options.node
    }

    /// How often the node was created or opened.
    pub fn incarnation(&self) -> u64 {
        self.raft.store().log.incarnation()
    }

    /// Whether this node wants to become the leader.
    pub fn campaigns(&self) -> bool {
        matches!(self.raft.raft.state, StateRole::Candidate | StateRole::PreCandidate)
    }

    /// Whether this node, the leader, is handing over to another one.
    pub fn is_transferring(&self) -> bool {
        self.raft.raft.lead_transferee.is_some()
    }

    /// The last entry that is known to be committed.
    pub fn commit(&self) -> u64 {
        self.raft.raft.raft_log.committed
    }

    /// The other members by id, if this node leads.
    pub fn peers(&self) -> Vec<PeerStatus> {
        if !self.leads() {
            return Vec::new();
        }
        let (own, last) = (self.options.node, self.log().last_index());
        let progress = self.raft.raft.prs();
        let status = |(&node, peer): (&u64, &raft::Progress)| PeerStatus {
            node,
            is_voter: progress.conf().voters().contains(node),
            matched: peer.matched,
            lag: last.saturating_sub(peer.matched),
            is_receiving_snapshot: peer.state == ProgressState::Snapshot,
            is_active: peer.recent_active,
        };
        let others = progress.iter().filter(|(node, _)| **node != own);
        let mut peers: Vec<PeerStatus> = others.map(status).collect();
        peers.sort_unstable_by_key(|peer| peer.node);
        peers
    }
}

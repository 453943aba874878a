//! Read access to the state of a group: its table, role, term and progress.

use std::sync::Arc;

use raft::{ProgressState, StateRole};
use siltstone_engine::Engine;

use super::Group;
use crate::applied::Applied;
use crate::log::RaftLog;

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

    /// The table, for reads. A caller writes only by proposals.
    pub fn table(&self) -> &Arc<dyn Engine> {
        &self.table
    }

    /// The log.
    pub fn log(&self) -> &RaftLog {
        &self.raft.store().log
    }

    /// How far the log is applied, and the members.
    pub fn applied(&self) -> &Applied {
        &self.raft.store().applied
    }

    /// The term that this node is in.
    pub fn term(&self) -> u64 {
        self.raft.raft.term
    }

    /// Whether this node leads, as far as it knows.
    pub fn leads(&self) -> bool {
        self.raft.raft.state == StateRole::Leader
    }

    /// The leader, as far as this node knows.
    pub fn leader(&self) -> Option<u64> {
        let state = &self.raft.raft;
        // A node without a vote holds no election, by which others forget a leader that is gone.
        let is_silent = state.election_elapsed >= 2 * self.options.election_ticks;
        let is_gone = is_silent && !state.promotable() && !self.leads();
        Some(state.leader_id).filter(|&node| node != raft::INVALID_ID && !is_gone)
    }

    /// The last entry that `node` is known to have, as far as this node, the leader, knows.
    pub fn matched(&self, node: u64) -> Option<u64> {
        self.raft.raft.prs().get(node).map(|progress| progress.matched)
    }

    /// Whether this node wants to become the leader.
    pub fn campaigns(&self) -> bool {
        matches!(self.raft.raft.state, StateRole::Candidate | StateRole::PreCandidate)
    }

    /// Whether this node, the leader, is handing over to another one.
    pub fn is_transferring(&self) -> bool {
        self.raft.raft.lead_transferee.is_some()
    }

    /// How often this node has not retained the log any more for a follower that received a
    /// snapshot, or caught up after one, because the log had become too large.
    pub fn given_up_followers(&self) -> u64 {
        self.given_up
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

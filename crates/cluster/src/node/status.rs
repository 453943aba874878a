//! The status that a node publishes after each round of its thread.

use std::sync::Arc;

use arc_swap::ArcSwap;
use siltstone_engine::Engine;
use siltstone_vfs::Vfs;

use super::request::Leader;
use crate::group::{Group, PeerStatus};
use crate::stream::table_name;

/// The part of a node in its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// It serves.
    Leader,
    /// It follows a leader, and votes.
    Follower,
    /// It wants to become the leader.
    Candidate,
    /// It receives the log, and does not vote.
    Learner,
    /// It is no member of the group: not yet, or not any more.
    Outsider,
}

/// A node at the end of its last round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// The group.
    pub group: u64,
    /// The node.
    pub node: u64,
    /// Its part in the group.
    pub role: Role,
    /// The term that it is in.
    pub term: u64,
    /// The leader of the term, if it is known.
    pub leader: Option<Leader>,
    /// The last entry that is known to be committed.
    pub commit: u64,
    /// The last entry that is applied to the table.
    pub applied: u64,
    /// The first and the last entry of the log.
    pub log: (u64, u64),
    /// The bytes of the log's file.
    pub log_bytes: u64,
    /// The members that vote.
    pub voters: Vec<u64>,
    /// The members that do not vote.
    pub learners: Vec<u64>,
    /// All other members, if this node leads.
    pub peers: Vec<PeerStatus>,
    /// How often a received snapshot has replaced the table.
    pub snapshots: u64,
    /// How often the log was not retained any more for a follower that received a snapshot, or
    /// caught up after one, because it had become too large; at this node, since it was started.
    pub given_up_followers: u64,
    /// Nodes that run on another directory than before, and so have forgotten what they have
    /// acknowledged. Their packets are dropped; they must join again under new ids.
    pub refused_nodes: Vec<u64>,
    /// The other first nodes that have not noted this node's directory yet. It takes no part in the
    /// group before they have.
    pub unregistered_at: Vec<u64>,
    /// Nodes that know this one by another directory, and refuse it.
    pub refused_by: Vec<u64>,
    /// The error that has stopped the node.
    pub failure: Option<String>,
    /// Whether the node's thread has ended.
    pub is_stopped: bool,
}

impl Status {
    pub(super) fn of(group: &Group, leader: impl FnOnce(u64) -> Leader) -> Self {
        let (applied, log, node) = (group.applied(), group.log(), group.node());
        let members = &applied.members;
        let mut voters = [&members.voters[..], &members.voters_outgoing].concat();
        voters.sort_unstable();
        voters.dedup();
        let mut learners = [&members.learners[..], &members.learners_next].concat();
        learners.retain(|node| !voters.contains(node));
        let role = match () {
            () if group.leads() => Role::Leader,
            () if learners.contains(&node) => Role::Learner,
            () if !voters.contains(&node) => Role::Outsider,
            () if group.campaigns() => Role::Candidate,
            () => Role::Follower,
        };
        Status {
            group: group.id(),
            node,
            role,
            term: group.term(),
            leader: group.leader().map(leader),
            commit: group.commit(),
            applied: applied.index,
            log: (log.first_index(), log.last_index()),
            log_bytes: log.bytes(),
            peers: group.peers(),
            voters,
            learners,
            snapshots: 0,
            given_up_followers: group.given_up_followers(),
            refused_nodes: group.refused_nodes(),
            unregistered_at: group.unregistered_at(),
            refused_by: group.refused_by(),
            failure: None,
            is_stopped: false,
        }
    }
}

/// The state that a node's thread shares with its handles.
pub(super) struct PublishedState {
    /// The directory of the node.
    pub(super) vfs: Arc<dyn Vfs>,
    pub(super) status: ArcSwap<Status>,
    pub(super) table: ArcSwap<PublishedTable>,
}

/// The table in use.
pub(super) struct PublishedTable {
    pub(super) engine: Arc<dyn Engine>,
    /// The name of its directory in that of the node.
    pub(super) directory: String,
}

impl PublishedTable {
    pub(super) fn of(group: &Group) -> Self {
        let directory = table_name(group.log().table());
        PublishedTable { engine: group.table().clone(), directory }
    }
}

impl PublishedState {
    /// Publishes the status, if it differs from the last one.
    pub(super) fn publish(&self, status: Status) {
        if **self.status.load() != status {
            self.status.store(Arc::new(status));
        }
    }
}

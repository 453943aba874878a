//! Which nodes the groups after the first have, and which node should lead each group.
//!
//! The first group decides which nodes there are. The leader of another group reads its own node's
//! copy of the first group's members and rows, and adapts its group to them:
//!
//! | the first group | this group | what its leader does |
//! | --- | --- | --- |
//! | has a member with a row | lacks it | writes the row, adds a learner |
//! | had a member, and has neither member nor row now | has it | removes it |
//! | the same, and it is the leader itself | | hands over |
//!
//! The copy may be old. A row is written before its node is a member and removed after it, and the
//! smallest number that no node has had only grows. So a node that an old copy does not know yet is
//! not taken for a removed one.
//!
//! Leaders are spread: group `i` prefers the voter number `i` modulo the number of voters, or the
//! one that CLUSTER MOVE-LEADER has named, in a row of the group:
//!
//! ```text
// ANCHOR: layout
//! key   := 0xff 0xc0 0xfe "preferred"
//! value := node:u64, little endian
// ANCHOR_END: layout
//! ```
//!
//! Another leader hands over to it once it has been there for a while with the whole log
//! ([`super::handovers`]).

use std::sync::Arc;
use std::time::{Duration, Instant};

use siltstone_cluster::Change;
use siltstone_cluster::node::Status;
use siltstone_engine::WriteBatch;

use super::handovers::Handovers;
use super::members;
use super::membership::{Membership, change, is_member, propose};
use crate::process;

/// The key of the row with the preferred leader.
const PREFERRED_KEY: &[u8] = b"\xff\xc0\xfepreferred";
/// The entries that the preferred leader may lack.
const MAX_LAG: u64 = 100;

/// The place of a group among the groups of its node.
pub(crate) struct Placement {
    /// The group's index.
    pub(super) group: usize,
    /// The members of the first group, for another one.
    first: Option<Arc<Membership>>,
    /// Whether leaders are spread: there are several groups.
    is_spread: bool,
    handovers: Handovers,
}

impl Placement {
    /// `first` are the members of the first group, for another one.
    pub(crate) fn new(
        group: usize,
        first: Option<Arc<Membership>>,
        is_spread: bool,
        election_timeout: Duration,
    ) -> Self {
        Placement { group, first, is_spread, handovers: Handovers::new(election_timeout) }
    }

    /// This node does not lead the group.
    pub(super) fn follow(&mut self, membership: &Membership, status: &Status) {
        self.handovers.follow(|| {
            let leader = status.leader.as_ref().map(|leader| leader.node);
            leader.is_some() && leader == preferred(membership, status, self.group)
        });
    }

    /// Adds and removes members as the first group has; at the leader of another one. Whether all
    /// that was begun has succeeded.
    pub(super) fn follow_first(&self, membership: &Membership, status: &Status) -> bool {
        let Some(first) = &self.first else { return true };
        let decided = first.node.status();
        let rows = first.rows.lock().clone();
        for (node, row) in &rows.by_node {
            if !is_member(&decided, *node) || is_member(status, *node) {
                continue;
            }
            let mut batch = WriteBatch::new();
            members::put(&mut batch, row, rows.next_node);
            return propose(membership, batch)
                && change(membership, vec![Change::AddLearner(*node)]);
        }
        let is_removed = |node: &u64| {
            *node < rows.next_node
                && !rows.by_node.contains_key(node)
                && !is_member(&decided, *node)
        };
        let all = status.voters.iter().chain(&status.learners).copied();
        let removed: Vec<u64> = all.filter(is_removed).collect();
        match removed.first() {
            None => true,
            Some(node) if *node == membership.own.node => {
                let stays = |node: &u64| !removed.contains(node) && membership.is_alive(*node);
                if let Some(next) = status.voters.iter().copied().find(stays) {
                    hand_over(membership, next);
                }
                true
            }
            Some(node) => change(membership, vec![Change::Remove(*node)]),
        }
    }

    /// Hands over to the preferred leader if it is ready; at the leader.
    pub(super) fn balance(&mut self, membership: &Membership, status: &Status) {
        if !self.is_spread {
            return;
        }
        let preferred = preferred(membership, status, self.group);
        let peer = status.peers.iter().find(|peer| Some(peer.node) == preferred);
        let is_ready = peer.is_some_and(|peer| {
            membership.is_alive(peer.node)
                && !peer.is_receiving_snapshot
                && peer.matched > 0
                && peer.lag <= MAX_LAG
        });
        if !self.handovers.is_due(is_ready, Instant::now()) {
            return;
        }
        let Some(next) = preferred else { return };
        process::log(&format!("group {}: node {next} is to lead it", self.group));
        hand_over(membership, next);
    }
}

/// The voter that should lead a group.
fn preferred(membership: &Membership, status: &Status, group: usize) -> Option<u64> {
    let row = membership.node.table().get(PREFERRED_KEY).ok().flatten();
    let named = row.and_then(|row| Some(u64::from_le_bytes(*row.value.first_chunk()?)));
    let named = named.filter(|node| status.voters.contains(node));
    named.or_else(|| status.voters.get(group % status.voters.len().max(1)).copied())
}

/// Adds the row with the preferred leader to a batch.
pub(crate) fn prefer(batch: &mut WriteBatch, node: u64) {
    batch.put(PREFERRED_KEY, &node.to_le_bytes());
}

fn hand_over(membership: &Membership, node: u64) {
    membership.node.transfer_leader(node, |outcome| {
        if let Err(refusal) = outcome {
            process::log(&format!("moving the leadership: {refusal}"));
        }
    });
}

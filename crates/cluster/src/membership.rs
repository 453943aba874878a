//! Changes of a group's membership, and the rules that a proposal must obey.
//!
//! A node joins as a learner, which receives the log and does not vote. It is promoted when it has
//! caught up. Several changes at once go through a joint configuration, in which both the old and
//! the new voters need a majority; the leader ends it by itself.

use raft::eraftpb::{ConfChangeSingle, ConfChangeType, ConfChangeV2, ConfState};

/// A change of one node's membership.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Adds a node that does not vote.
    AddLearner(u64),
    /// Makes a learner a voter.
    Promote(u64),
    /// Removes a member, for all time: its id must not be used again.
    Remove(u64),
}

/// Checks the changes of `leader` and encodes them.
///
/// # Errors
/// Which rule they break, as text.
pub(crate) fn encode(
    changes: &[Change],
    members: &ConfState,
    leader: u64,
) -> Result<ConfChangeV2, String> {
    let is_learner = |node: &u64| members.learners.contains(node);
    let is_member = |node: &u64| is_learner(node) || members.voters.contains(node);
    let mut voters = members.voters.len();
    let mut singles = Vec::new();
    let mut nodes = Vec::new();
    for change in changes {
        let (kind, node) = match change {
            Change::AddLearner(node) if is_member(node) => {
                return Err(format!("node {node} is a member already"));
            }
            Change::AddLearner(0) => return Err("0 is no node id".into()),
            Change::Promote(node) if !is_learner(node) => {
                return Err(format!("node {node} is no learner; add it as one first"));
            }
            Change::Remove(node) if !is_member(node) => {
                return Err(format!("node {node} is no member"));
            }
            Change::Remove(node) if *node == leader => {
                return Err(format!("node {node} leads; transfer the leadership first"));
            }
            Change::AddLearner(node) => (ConfChangeType::AddLearnerNode, *node),
            Change::Promote(node) => {
                voters += 1;
                (ConfChangeType::AddNode, *node)
            }
            Change::Remove(node) => {
                voters -= usize::from(!is_learner(node));
                (ConfChangeType::RemoveNode, *node)
            }
        };
        if nodes.contains(&node) {
            return Err(format!("node {node} is changed twice"));
        }
        nodes.push(node);
        let mut single = ConfChangeSingle::default();
        single.set_change_type(kind);
        single.node_id = node;
        singles.push(single);
    }
    if singles.is_empty() {
        return Err("there is no change".into());
    }
    if voters == 0 {
        return Err("no voter would be left".into());
    }
    let mut encoded = ConfChangeV2::default();
    encoded.set_changes(singles.into());
    Ok(encoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_that_break_a_rule_are_rejected() {
        let members = ConfState { voters: vec![1, 2], learners: vec![3], ..ConfState::default() };
        use Change::{AddLearner, Promote, Remove};
        for changes in [
            &[][..],
            &[AddLearner(3)],
            &[AddLearner(0)],
            &[Promote(1)],
            &[Promote(4)],
            &[Remove(1)],
            &[Remove(4)],
            &[Promote(3), Remove(3)],
        ] {
            assert!(encode(changes, &members, 1).is_err(), "{changes:?}");
        }
        for changes in [&[AddLearner(4)][..], &[Promote(3), Remove(2)], &[Remove(3)]] {
            let encoded = encode(changes, &members, 1).unwrap_or_default();
            assert_eq!(encoded.get_changes().len(), changes.len());
        }
    }
}

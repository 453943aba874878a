//! Replies of a node that does not run a command itself: where the leader is, or that there is
//! none; and of commands that a replicated table does not have.

use siltstone_cluster::node::Status;

use super::definition::Definition;
use super::failure::{Failure, Outcome, reply_error};
use crate::replication::Replication;

/// Commands that a replicated table does not have, and what to do instead.
const NOT_THERE: [(&str, &str); 2] = [
    ("getat", "use a table of the engine skimpy on a single server"),
    ("migrate", "move keys with DUMP, RESTORE and DEL"),
];

/// Refuses commands that a replicated table does not have.
pub(super) fn refuse_missing(command: &Definition) -> Outcome {
    match NOT_THERE.iter().find(|(name, _)| *name == command.name) {
        None => Ok(()),
        Some((name, instead)) => {
            let name = name.to_uppercase();
            let text = "is not there for a replicated table yet";
            Err(format!("ERR {name} {text}: {instead}").into())
        }
    }
}

/// The error for a command that does not run here.
pub(super) fn redirect(replication: &Replication, status: &Status, slot: u16) -> Failure {
    if let Some(failure) = &status.failure {
        return format!("CLUSTERDOWN this node has failed: {failure}").into();
    }
    if !status.unregistered_at.is_empty() {
        let missing: Vec<_> = status.unregistered_at.iter().map(u64::to_string).collect();
        return format!(
            "CLUSTERDOWN this node waits for the first start of node {}",
            missing.join(", ")
        )
        .into();
    }
    let leader = status.leader.as_ref().filter(|leader| leader.node != replication.id());
    match leader.and_then(|leader| replication.member(leader.node)) {
        Some(leader) => format!("MOVED {slot} {}", leader.client).into(),
        None => reply_error(
            "CLUSTERDOWN no leader is known: an election is under way, or no majority of the nodes \
             can be reached; 'siltstone cluster status' shows who is missing",
        ),
    }
}

//! Replies of a node that does not run a command itself: where the leader is, or that there is
//! none.

use siltstone_cluster::node::Status;

use super::failure::{Failure, reply_error};
use crate::replication::Replication;

/// The error for a command that does not run here.
pub(super) fn redirect(replication: &Replication, status: &Status, slot: u16) -> Failure {
    if let Some(failure) = &status.failure {
        return format!("CLUSTERDOWN this node has failed: {failure}").into();
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

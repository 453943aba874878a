//! Changes of what all nodes have in common: users, and libraries of functions.
//!
//! ```text
//!   ACL SETUSER, DELUSER, LOAD,
//!   CONFIG SET requirepass,
//!   FUNCTION LOAD, DELETE, …       park at any node                      [`change_or_park`]
//!     job thread    asks the leader of the first group, or is its node   [`ask`]
//!     leader        reads, proposes the changed rows: committed          [`commit`]
//!   each node       has applied them: its worker puts them in force      [`follow_users`],
//!                                                                        [`follow_functions`]
//!   job thread      this node has applied them: reply
//! ```
//!
//! So a program that sends a change to one node or to all of them needs no redirections.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use siltstone_cluster::node::{Refusal, RequestError};
use siltstone_engine::Engine;

use super::cluster_users::{self, Plan, follow_users, has_users, report_difference};
use super::context::Context;
use super::failure::Failure;
use super::libraries::{self, follow_functions};
use super::redirection::redirect;
use crate::process;
use crate::replication::State;
use crate::replication::cluster_changes::{ChangeOutcome, ClusterChange, Message};
use crate::replication::groups::Groups;
use crate::replication::table::MAX_COMMAND_BYTES;
use crate::resp::Args;
use crate::shared::Shared;

/// Delay until the state of a group is looked at again.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest wait of the thread for a message, after which it looks whether the server stops.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Has users or libraries changed, wherever the leader is, and waits until the change is in force
/// at this node. Returns how many it affects. `None`: the client is parked, and the job thread runs
/// the command again.
pub(super) fn change_or_park(
    context: &mut Context<'_>,
    args: Args<'_>,
    change: &ClusterChange,
) -> Result<Option<u64>, Failure> {
    if !context.session.is_retry {
        if let Some(ticket) = context.park_until_done(args) {
            context.shared.jobs.enqueue(ticket);
        }
        return Ok(None);
    }
    let (shared, client) = (context.shared, context.session.client());
    let Some(groups) = &shared.replication else { return Err(NO_CLUSTER.to_owned().into()) };
    shared.cluster_changes.asking.store(client.id, Relaxed);
    let outcome = ask(shared, groups, change);
    shared.cluster_changes.asking.store(0, Relaxed);
    match outcome {
        ChangeOutcome::Done { count, .. } => Ok(Some(count)),
        ChangeOutcome::Refused(reason) => Err(format!("ERR {reason}").into()),
        ChangeOutcome::NotNow => {
            let (first, status) = (groups.first(), groups.first().node.status());
            match status.leader {
                None => Err(redirect(first, &status, *groups.slots(0).start())),
                Some(_) => Err(NOT_NOW.to_owned().into()),
            }
        }
        ChangeOutcome::Unknown => {
            // As for other writes whose outcome is unknown.
            client.kill();
            Err(UNKNOWN.to_owned().into())
        }
    }
}

const NO_CLUSTER: &str = "ERR this server is not a node of a cluster";
const NOT_NOW: &str = "CLUSTERDOWN the leader of the first group cannot make changes at present; try \
                       again";
const UNKNOWN: &str = "CLUSTERDOWN the change may have happened or not";

/// Asks the leader until it has an outcome, or none leads for some time. A change that is done is
/// in force here.
fn ask(shared: &Shared, groups: &Groups, change: &ClusterChange) -> ChangeOutcome {
    let first = groups.first();
    let deadline = Instant::now() + 2 * first.membership.dead_after;
    loop {
        let outcome = match &first.node.status().leader {
            None => ChangeOutcome::NotNow,
            Some(leader) if leader.node == first.id() => {
                commit(shared, groups, |table| plan(shared, table, change))
            }
            Some(leader) => ask_node(shared, groups, leader.node, change),
        };
        let is_late = Instant::now() >= deadline || shared.stop.is_stopping();
        match outcome {
            ChangeOutcome::NotNow if !is_late => std::thread::sleep(INTERVAL),
            ChangeOutcome::Done { index, .. } => {
                // If it is late here, the worker puts it in force when it is there.
                while first.node.status().applied < index && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(1));
                }
                let _ = follow_users(shared);
                follow_functions(shared);
                return outcome;
            }
            outcome => return outcome,
        }
    }
}

/// Asks the leader, another node, once.
fn ask_node(
    shared: &Shared,
    groups: &Groups,
    leader: u64,
    change: &ClusterChange,
) -> ChangeOutcome {
    let (first, changes) = (groups.first(), &shared.cluster_changes);
    let (number, answer) = changes.begin();
    first.node.send_message(leader, Message::Request(number, change.clone()).encode());
    let deadline = Instant::now() + first.membership.dead_after;
    let outcome = loop {
        match answer.recv_timeout(INTERVAL) {
            Ok(outcome) => break outcome,
            Err(RecvTimeoutError::Disconnected) => break ChangeOutcome::Unknown,
            Err(RecvTimeoutError::Timeout) => {}
        }
        let leads = |of: &siltstone_cluster::node::Leader| of.node == leader;
        let still_leads = first.node.status().leader.as_ref().is_some_and(leads);
        if !still_leads || Instant::now() >= deadline || shared.stop.is_stopping() {
            break ChangeOutcome::Unknown;
        }
    };
    changes.give_up(number);
    outcome
}

/// The rows of a change.
fn plan(
    shared: &Shared,
    table: &dyn Engine,
    change: &ClusterChange,
) -> Result<Plan, ChangeOutcome> {
    match change {
        ClusterChange::Libraries(words) => {
            // All that was committed before is applied, and in force then.
            follow_functions(shared);
            let edit = libraries::parse_edit(shared, words);
            let change = edit.and_then(|edit| shared.functions.plan(edit, true));
            let change = change.map_err(|text| {
                let text = text.strip_prefix("ERR ").unwrap_or(&text);
                ChangeOutcome::Refused(text.to_owned())
            })?;
            Ok((change.to_rows(), 1))
        }
        change => cluster_users::plan(shared, table, change),
    }
}

/// Commits a change, at the leader. `plan` reads the rows of all that was committed before.
fn commit(
    shared: &Shared,
    groups: &Groups,
    plan: impl FnOnce(&dyn Engine) -> Result<Plan, ChangeOutcome>,
) -> ChangeOutcome {
    let _alone = shared.cluster_changes.committing.lock();
    let first = groups.first();
    // In this term only this function writes such rows, one change after the other.
    let State::Leading { term } = first.state() else { return ChangeOutcome::NotNow };
    let (batch, count) = match plan(first.node.table().as_ref()) {
        Ok(planned) => planned,
        Err(outcome) => return outcome,
    };
    if batch.as_bytes().len() > MAX_COMMAND_BYTES {
        return ChangeOutcome::Refused(format!(
            "the change has more than {MAX_COMMAND_BYTES} bytes, the limit of a replicated table"
        ));
    }
    let (done, outcome) = channel();
    if batch.is_empty() {
        // Nothing to write: what was read must be what is committed.
        first.node.read_index(move |read| {
            let read = read.map(|read| (read.term, read.index));
            drop(done.send(read.map_err(RequestError::NotProposed)));
        });
    } else {
        first.node.propose(Some(term), batch, move |committed| {
            drop(done.send(committed.map(|committed| (committed.term, committed.index))));
        });
    }
    // It always has an outcome: a leader without a majority gives up.
    match outcome.recv() {
        Ok(Ok((of_term, index))) if of_term == term => ChangeOutcome::Done { index, count },
        Ok(Err(RequestError::NotProposed(Refusal::Invalid(reason)))) => {
            ChangeOutcome::Refused(reason)
        }
        Ok(Ok(_) | Err(RequestError::NotProposed(_))) => ChangeOutcome::NotNow,
        Ok(Err(RequestError::OutcomeUnknown(_))) | Err(_) => ChangeOutcome::Unknown,
    }
}

/// Answers other nodes until the server stops, and gives a cluster without users its first ones.
pub(crate) fn serve_cluster_changes(shared: &Shared, replaces_users: bool) {
    let Some(groups) = &shared.replication else { return };
    let first = groups.first();
    let mut has_users = false;
    while !shared.stop.is_stopping() {
        if !has_users {
            has_users = seed(shared, groups);
            if has_users && !replaces_users {
                report_difference(shared, first.node.table().as_ref());
            }
        }
        let Some(message) = first.node.next_message(POLL_INTERVAL) else { continue };
        match Message::decode(&message.bytes) {
            Some(Message::Request(number, change)) => {
                let outcome = commit(shared, groups, |table| plan(shared, table, &change));
                let answer = Message::Answer(number, outcome).encode();
                first.node.send_message(message.from, answer);
            }
            Some(Message::Answer(number, outcome)) => {
                shared.cluster_changes.answer(number, outcome)
            }
            None => {}
        }
    }
}

/// Makes the users of this node's options those of the cluster, if it leads the first group and
/// there are none. Returns whether there are users.
fn seed(shared: &Shared, groups: &Groups) -> bool {
    match has_users(groups.first().node.table().as_ref()) {
        Ok(true) => return true,
        Ok(false) if matches!(groups.first().state(), State::Leading { .. }) => {}
        _ => return false,
    }
    commit(shared, groups, |table| cluster_users::plan_own(shared, table));
    false
}

/// Makes the users of this node's options those of the cluster.
pub(crate) fn replace_users(shared: &Shared) {
    let Some(groups) = &shared.replication else { return };
    let change = ClusterChange::Replace(shared.acl.own_lines());
    while !shared.stop.is_stopping() {
        match ask(shared, groups, &change) {
            ChangeOutcome::Done { count, .. } => {
                process::log(&format!(
                    "--replace-users: the users of this node's options, {count}, are those of the \
                     cluster now; leave the option out at the next start"
                ));
                return;
            }
            ChangeOutcome::Refused(reason) => {
                process::log(&format!("--replace-users: refused: {reason}"));
                return;
            }
            // Repeating it does no harm.
            ChangeOutcome::NotNow | ChangeOutcome::Unknown => std::thread::sleep(INTERVAL),
        }
    }
}

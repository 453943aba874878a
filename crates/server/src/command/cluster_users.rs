//! Users of a replicated table: which are in force at this node, and how commands change them.
//!
//! ```text
//!   ACL SETUSER, DELUSER, LOAD,
//!   CONFIG SET requirepass         park at any node                      [`change_or_park`]
//!     job thread    asks the leader of the first group, or is its node     [`change`]
//!     leader        reads the rows, proposes the changed ones: committed   [`commit`]
//!   each node       has applied them: its worker puts them in force        [`follow_users`]
//!   job thread      this node has applied them: reply
//! ```
//!
//! A node begins with the users of its own options. The first leader of a group without users makes
//! its own the rows; from then on only rows count. They are read before the first client is served.
//! What cannot be read is never taken for a right: the node does not start, or stays with the users
//! that were in force.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use siltstone_cluster::node::{Refusal, RequestError};
use siltstone_engine::{Engine, Error, Result as EngineResult, WriteBatch};

use super::context::Context;
use super::failure::{Failure, Outcome};
use super::redirection::redirect;
use super::user_clients::{close_clients, close_subscribers};
use crate::acl::user::DEFAULT_USER;
use crate::acl::users::FollowedChange;
use crate::process;
use crate::replication::State;
use crate::replication::groups::Groups;
use crate::replication::named_rows::{self, Unseen};
use crate::replication::user_changes::{ChangeOutcome, Message, UserChange};
use crate::replication::user_rows::USER_PREFIX;
use crate::resp::Args;
use crate::shared::Shared;

/// How long the replacement of a table by a snapshot may take.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay until the state of a group is looked at again.
const INTERVAL: Duration = Duration::from_millis(20);
/// The longest wait of the thread for a message, after which it looks whether the server stops.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Puts the users in force that this node has applied since the last call. Cost if there are none:
/// an uncontended lock.
///
/// # Errors
/// If rows cannot be read. The users in force stay as they are.
pub(crate) fn follow_users(shared: &Shared) -> EngineResult<()> {
    let Some(groups) = &shared.replication else { return Ok(()) };
    let (rows, table) = (&groups.first().users, groups.first().node.table());
    rows.follow(&table, |unseen| {
        let are_all = matches!(unseen, Unseen::All) || !shared.acl.follows();
        let found = rows.read(table.as_ref(), if are_all { Unseen::All } else { unseen })?;
        if are_all && !found.contains_key(DEFAULT_USER) {
            // There are no users yet.
            return Ok(());
        }
        let FollowedChange { removed, changed, warnings } = shared.acl.follow(found, are_all);
        warnings.iter().for_each(|warning| process::log(warning));
        // It gets its reply, and is closed at its next command.
        let asking = shared.user_changes.asking.load(Relaxed);
        for name in &removed {
            let is_asking = close_clients(shared, name, asking);
            let client = shared.clients.find(asking).filter(|_| is_asking);
            client.filter(|client| client.is_subscriber()).iter().for_each(|client| client.kill());
        }
        for user in &changed {
            close_subscribers(shared, user, 0);
        }
        Ok(())
    })
}

/// Puts the users in force that a node has at its start.
///
/// # Errors
/// If its table cannot be read: nobody must be let in then.
pub(crate) fn begin_with_users(shared: &Shared) -> EngineResult<()> {
    let deadline = Instant::now() + SNAPSHOT_TIMEOUT;
    loop {
        match follow_users(shared) {
            // A snapshot that the node has received just now replaces the table.
            Err(Error::Closed) if Instant::now() < deadline => std::thread::sleep(INTERVAL),
            outcome => return outcome,
        }
    }
}

/// Has users changed at all nodes, and replies. It waits for the leader, so the client is parked, and
/// the job thread runs the command again.
pub(super) fn change_or_park(
    context: &mut Context<'_>,
    args: Args<'_>,
    user_change: &UserChange,
) -> Outcome {
    if !context.session.is_retry {
        if let Some(ticket) = context.park_until_done(args) {
            context.shared.jobs.enqueue(ticket);
        }
        return Ok(());
    }
    let count = change(context, user_change)?;
    match user_change {
        UserChange::Remove(_) => context.replies.count(count as usize),
        UserChange::Set { .. } | UserChange::Replace(_) => context.replies.ok(),
    }
    Ok(())
}

/// Has users changed, wherever the leader is, and waits until the change is in force at this node.
/// Returns how many users it affects. On the job thread.
fn change(context: &Context<'_>, change: &UserChange) -> Result<u64, Failure> {
    let (shared, client) = (context.shared, context.session.client());
    let Some(groups) = &shared.replication else { return Err(NO_CLUSTER.to_owned().into()) };
    shared.user_changes.asking.store(client.id, Relaxed);
    let outcome = ask(shared, groups, change);
    shared.user_changes.asking.store(0, Relaxed);
    match outcome {
        ChangeOutcome::Done { count, .. } => Ok(count),
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
const NOT_NOW: &str = "CLUSTERDOWN the leader of the first group cannot change users at present; try \
                       again";
const UNKNOWN: &str = "CLUSTERDOWN the change of users may have happened or not";

/// Asks the leader until it has an outcome, or none leads for some time. A change that is done is
/// in force here.
fn ask(shared: &Shared, groups: &Groups, change: &UserChange) -> ChangeOutcome {
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
                return outcome;
            }
            outcome => return outcome,
        }
    }
}

/// Asks the leader, another node, once.
fn ask_node(shared: &Shared, groups: &Groups, leader: u64, change: &UserChange) -> ChangeOutcome {
    let (first, changes) = (groups.first(), &shared.user_changes);
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

/// Rows to write, and how many users that affects.
type Plan = (WriteBatch, u64);

/// Commits a change, at the leader. `plan` reads the rows of all that was committed before.
fn commit(
    shared: &Shared,
    groups: &Groups,
    plan: impl FnOnce(&dyn Engine) -> Result<Plan, ChangeOutcome>,
) -> ChangeOutcome {
    let _alone = shared.user_changes.committing.lock();
    let first = groups.first();
    // In this term only this function writes users, one change after the other.
    let State::Leading { term } = first.state() else { return ChangeOutcome::NotNow };
    let (batch, count) = match plan(first.node.table().as_ref()) {
        Ok(planned) => planned,
        Err(outcome) => return outcome,
    };
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

/// The rows of a change.
fn plan(shared: &Shared, table: &dyn Engine, change: &UserChange) -> Result<Plan, ChangeOutcome> {
    if !has_users(table)? {
        return Err(ChangeOutcome::NotNow);
    }
    let mut batch = WriteBatch::new();
    let count = match change {
        UserChange::Set { name, rules, allows_channels } => {
            let known = match table.get(&named_rows::key(USER_PREFIX, name)).map_err(failed)? {
                None => None,
                Some(_) => {
                    let line = named_rows::read(table, USER_PREFIX, name).map_err(failed)?;
                    let newer = || "a newer program has written this user; upgrade this node";
                    let line = line.ok_or_else(|| ChangeOutcome::Refused(newer().to_owned()))?;
                    Some(shared.acl.parse(&line).map_err(ChangeOutcome::Refused)?)
                }
            };
            let user = shared.acl.changed(known.as_ref(), name, rules, *allows_channels);
            let user = user.map_err(ChangeOutcome::Refused)?;
            named_rows::put(&mut batch, USER_PREFIX, name, &user.describe());
            1
        }
        UserChange::Remove(names) => {
            let mut names = names.clone();
            names.sort_unstable();
            names.dedup();
            names.retain(|name| name != DEFAULT_USER);
            let mut count = 0;
            for name in &names {
                if table.get(&named_rows::key(USER_PREFIX, name)).map_err(failed)?.is_some() {
                    named_rows::remove(&mut batch, USER_PREFIX, name);
                    count += 1;
                }
            }
            count
        }
        UserChange::Replace(lines) => {
            for name in named_rows::read_all(table, USER_PREFIX).map_err(failed)?.keys() {
                named_rows::remove(&mut batch, USER_PREFIX, name);
            }
            put_lines(shared, &mut batch, lines)?
        }
    };
    Ok((batch, count))
}

/// Adds the rows of users. Later operations of a batch win.
fn put_lines(
    shared: &Shared,
    batch: &mut WriteBatch,
    lines: &[Vec<u8>],
) -> Result<u64, ChangeOutcome> {
    let mut has_default = false;
    for line in lines {
        let user = shared.acl.parse(line).map_err(ChangeOutcome::Refused)?;
        has_default |= user.name == DEFAULT_USER;
        named_rows::put(batch, USER_PREFIX, &user.name, &user.describe());
    }
    match has_default {
        true => Ok(lines.len() as u64),
        false => Err(ChangeOutcome::Refused("the user 'default' is missing".to_owned())),
    }
}

fn has_users(table: &dyn Engine) -> Result<bool, ChangeOutcome> {
    let row = table.get(&named_rows::key(USER_PREFIX, DEFAULT_USER));
    row.map(|row| row.is_some()).map_err(failed)
}

/// A table that a snapshot has just replaced is closed.
fn failed(_: Error) -> ChangeOutcome {
    ChangeOutcome::NotNow
}

/// Answers other nodes until the server stops, and gives a cluster without users its first ones.
pub(crate) fn serve_user_changes(shared: &Shared, replaces_users: bool) {
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
            Some(Message::Answer(number, outcome)) => shared.user_changes.answer(number, outcome),
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
    commit(shared, groups, |table| {
        if has_users(table)? {
            return Err(ChangeOutcome::NotNow);
        }
        let mut batch = WriteBatch::new();
        let count = put_lines(shared, &mut batch, &shared.acl.own_lines())?;
        Ok((batch, count))
    });
    false
}

/// Says that the users of this node's options are ignored, if some are given and they differ.
fn report_difference(shared: &Shared, table: &dyn Engine) {
    let options = &shared.options;
    let name = match (&options.acl_file, &options.password) {
        (Some(file), _) => format!("'{}'", file.display()),
        (None, Some(_)) => "--password".to_owned(),
        (None, None) => return,
    };
    let Ok(rows) = named_rows::read_all(table, USER_PREFIX) else { return };
    let own: Vec<_> = shared.acl.own_lines().into_iter().map(Some).collect();
    let is_same = match &options.acl_file {
        Some(_) => own.iter().eq(rows.values()),
        None => own.first() == rows.get(DEFAULT_USER),
    };
    if !is_same {
        process::log(&format!(
            "the users of the cluster are in force, and those of {name} are ignored, which differ; \
             ACL LOAD or --replace-users makes these the cluster's, ACL SAVE replaces the file"
        ));
    }
}

/// Makes the users of this node's options those of the cluster.
pub(crate) fn replace_users(shared: &Shared) {
    let Some(groups) = &shared.replication else { return };
    let change = UserChange::Replace(shared.acl.own_lines());
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

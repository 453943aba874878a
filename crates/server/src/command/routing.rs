//! Where a command on a replicated table runs: here, at the leader, or nowhere at present.
//!
//! | this node | write | read | read after READONLY |
//! | --- | --- | --- | --- |
//! | leads | here | here | here |
//! | follows | `MOVED` to the leader | `MOVED` to the leader | here, as of what is applied |
//! | knows no leader | `CLUSTERDOWN` | `CLUSTERDOWN` | here, as of what is applied |
//! | has no vote, or has failed | as above | as above | as above: its table may lack most keys |
//!
//! The decision is made before the command runs, so a redirected command has had no effect.
//! Commands that see no keys (PING, INFO, CLUSTER) run everywhere. Channels of shards (SSUBSCRIBE,
//! SPUBLISH) have slots as keys have.
//!
//! With several groups this is so for the group of the command's keys, which is selected as the
//! session's table. All keys of a command need one slot then, and so do those of a transaction with
//! the keys that it watches, else it is refused (`CROSSSLOT`). Commands that see keys which they do
//! not name (SCAN, DBSIZE) see those of the groups that this node leads; FLUSHALL removes these.
//!
//! Users and libraries of functions are changed at any node.
//!
//! Source: the Redis Cluster specification.

use super::definition::{BLOCKING, Definition, IMMEDIATE, PUBSUB, READ, SCRIPT, WRITE};
use super::failure::Failure;
use super::one_slot::{CROSS_SLOT, not_in_one_slot, one_slot};
use super::redirection::{redirect, refuse_missing};
use super::session::Session;
use super::table::TABLE;
use super::{acl, config, functions};
use crate::replication::State;
use crate::replication::group_set::only;
use crate::replication::groups::Groups;
use crate::replication::slots::slot_of;
use crate::resp::Args;
use crate::shared::Shared;

/// Commands that see keys which they do not name.
const UNNAMED_KEYS: [&str; 7] =
    ["dbsize", "exec", "flushall", "flushdb", "keys", "randomkey", "scan"];

/// Decides whether the command runs here. If it does, its reply may have to wait for a commit.
pub(super) fn route(
    shared: &Shared,
    session: &mut Session,
    command: usize,
    args: Args<'_>,
) -> Result<(), Failure> {
    match &shared.replication {
        None => Ok(()),
        Some(groups) => route_replicated(groups, session, command, args),
    }
}

/// Decides whether the next slice of an unfinished command runs here, on the tables that it has
/// not completed.
pub(super) fn route_slice(
    shared: &Shared,
    session: &mut Session,
    mut tables: impl Iterator<Item = usize>,
) -> Result<(), Failure> {
    let Some(groups) = &shared.replication else { return Ok(()) };
    let led = groups.led();
    session.needs_commit |= led;
    match tables.find(|table| led & only(*table) == 0) {
        Some(group) if groups.are_several() || !session.is_replica_reader => {
            let replication = groups.get(group);
            Err(redirect(replication, &replication.node.status(), *groups.slots(group).start()))
        }
        _ => Ok(()),
    }
}

/// Whether a SET of a key may join the batch of its iteration: it runs here. Its group is selected
/// then.
#[inline]
pub(super) fn may_batch_sets(shared: &Shared, session: &mut Session, key: &[u8]) -> bool {
    let Some(groups) = &shared.replication else { return true };
    let group = groups.of_key(key);
    let replication = groups.get(group);
    let leads = replication.leads(&replication.node.status());
    if leads {
        session.table = group;
        session.needs_commit |= only(group);
    }
    leads
}

fn route_replicated(
    groups: &Groups,
    session: &mut Session,
    command: usize,
    args: Args<'_>,
) -> Result<(), Failure> {
    let command = &TABLE.index[command];
    refuse_missing(command)?;
    groups.end_snapshots();
    if let Some(what) = changed_by(command, args).filter(|_| session.transaction.is_some()) {
        return Err(format!(
            "ERR a transaction on a replicated table cannot change {what}; call {} outside of MULTI",
            command.name.to_uppercase()
        )
        .into());
    }
    let slot = match groups.are_several() {
        true => match slot_of_several(groups, session, command, args)? {
            Some(slot) => slot,
            None => return Ok(()),
        },
        false => {
            let first_key = command.slotted_in(args).next();
            let sees_keys = command.has(SCRIPT) || UNNAMED_KEYS.contains(&command.name);
            if first_key.is_none() && !sees_keys {
                return Ok(());
            }
            first_key.or_else(|| queued_key(session)).map_or(0, slot_of)
        }
    };
    let group = groups.of_slot(slot);
    let replication = groups.get(group);
    session.table = group;
    let status = replication.node.status();
    if replication.leads(&status) {
        // Messages are not logged.
        if !command.has(PUBSUB) {
            session.needs_commit |= only(group);
        }
        return Ok(());
    }
    // Uncommitted writes are dropped when the state becomes that of a follower.
    let may_read = session.is_replica_reader
        && replication.state() == State::Following
        && status.voters.contains(&replication.id())
        && status.failure.is_none();
    if may_read && is_read(command, args) {
        return Ok(groups.begin_snapshot(group)?);
    }
    Err(redirect(replication, &status, slot))
}

/// What the call changes of all that the nodes have in common, if anything.
fn changed_by(command: &Definition, args: Args<'_>) -> Option<&'static str> {
    match command.name {
        "acl" => acl::changes_users(args).then_some("users"),
        "config" => config::sets_password(args).then_some("users"),
        "function" => functions::changes_libraries(args).then_some("libraries of functions"),
        _ => None,
    }
}

/// The slot of a command when there are several groups; `None` if it runs here whatever this node
/// leads.
fn slot_of_several(
    groups: &Groups,
    session: &mut Session,
    command: &Definition,
    args: Args<'_>,
) -> Result<Option<u16>, Failure> {
    if command.name == "exec" {
        return Ok(bound_slot(session));
    }
    let is_queued = session.transaction.is_some() && !command.has(IMMEDIATE);
    if UNNAMED_KEYS.contains(&command.name) {
        if is_queued {
            return Err(not_in_one_slot(command));
        }
        // Replies show what is committed, in the groups that this node leads.
        session.needs_commit |= groups.led();
        return Ok(None);
    }
    let slot = one_slot(command.slotted_in(args)).map_err(|()| CROSS_SLOT)?;
    let is_bound = is_queued || command.name == "watch";
    match (slot, bound_slot(session).filter(|_| is_bound)) {
        (Some(slot), Some(bound)) if slot != bound => Err(CROSS_SLOT),
        _ => Ok(slot),
    }
}

/// The slot of the transaction that has begun, or of the keys that the next one watches.
fn bound_slot(session: &Session) -> Option<u16> {
    let watched = || session.watched.first().map(|watched| watched.key.as_slice());
    queued_key(session).or_else(watched).map(slot_of)
}

/// Whether a follower may run it after READONLY.
fn is_read(command: &Definition, args: Args<'_>) -> bool {
    let is_unnamed = UNNAMED_KEYS.contains(&command.name) && command.name != "exec";
    // XREAD waits if it is asked to.
    let may_wait = command.has(BLOCKING)
        && (command.name != "xread" || args.iter().any(|word| word.eq_ignore_ascii_case(b"block")));
    (command.has(READ) || is_unnamed) && !command.has(WRITE) && !command.has(SCRIPT) && !may_wait
}

/// The first key of the transaction, or channel of a shard.
fn queued_key(session: &Session) -> Option<&[u8]> {
    let transaction = session.transaction.as_ref()?;
    transaction
        .commands
        .iter()
        .find_map(|queued| TABLE.index[queued.command].slotted_in(queued.args()).next())
}

//! Where a command on a replicated table runs: here, at the leader, or nowhere at present.
//!
//! | this node | write | read | read after READONLY |
//! | --- | --- | --- | --- |
//! | leads | here | here | here |
//! | follows | `MOVED` to the leader | `MOVED` to the leader | here, as of what is applied |
//! | knows no leader | `CLUSTERDOWN` | `CLUSTERDOWN` | here, as of what is applied |
//!
//! The decision is made before the command runs, so a redirected command has had no effect.
//! Commands that see no keys (PING, INFO, CLUSTER) run everywhere.
//!
//! Source: the Redis Cluster specification.

use super::definition::{BLOCKING, Definition, READ, SCRIPT, WRITE};
use super::failure::Failure;
use super::redirection::redirect;
use super::session::Session;
use super::table::TABLE;
use crate::replication::slots::slot_of;
use crate::replication::{Replication, State};
use crate::resp::Args;
use crate::shared::Shared;

/// Commands that see keys which they do not name.
const UNNAMED_KEYS: [&str; 5] = ["dbsize", "exec", "keys", "randomkey", "scan"];
/// Commands that a replicated table does not have.
const NOT_THERE: [&str; 3] = ["flushall", "flushdb", "getat"];

/// Decides whether the command runs here. If it does, its reply may have to wait for a commit.
pub(super) fn route(
    shared: &Shared,
    session: &mut Session,
    command: usize,
    args: Args<'_>,
) -> Result<(), Failure> {
    match &shared.replication {
        None => Ok(()),
        Some(replication) => route_replicated(replication, session, command, args),
    }
}

/// Decides whether the next slice of an unfinished command runs here.
pub(super) fn route_slice(shared: &Shared, session: &mut Session) -> Result<(), Failure> {
    let Some(replication) = &shared.replication else { return Ok(()) };
    let status = replication.node.status();
    session.needs_commit = replication.leads(&status);
    match session.needs_commit || session.is_replica_reader {
        true => Ok(()),
        false => Err(redirect(replication, &status, 0)),
    }
}

/// Whether a SET may join the batch of its iteration: it runs here.
#[inline]
pub(super) fn may_batch_sets(shared: &Shared, session: &mut Session) -> bool {
    let Some(replication) = &shared.replication else { return true };
    let leads = replication.leads(&replication.node.status());
    session.needs_commit |= leads;
    leads
}

fn route_replicated(
    replication: &Replication,
    session: &mut Session,
    command: usize,
    args: Args<'_>,
) -> Result<(), Failure> {
    let command = &TABLE.index[command];
    if NOT_THERE.contains(&command.name) {
        let name = command.name.to_uppercase();
        return Err(format!("ERR {name} is not there for a replicated table yet").into());
    }
    replication.table.end_snapshot();
    let mut keys = command.keys_in(args);
    let first_key = keys.next();
    if first_key.is_none() && !command.has(SCRIPT) && !UNNAMED_KEYS.contains(&command.name) {
        return Ok(());
    }
    let status = replication.node.status();
    if replication.leads(&status) {
        session.needs_commit = true;
        return Ok(());
    }
    // Uncommitted writes are dropped when the state becomes that of a follower.
    let may_read = session.is_replica_reader && replication.state() == State::Following;
    if may_read && is_read(command) {
        return Ok(replication.table.begin_snapshot()?);
    }
    let slot = first_key.or_else(|| queued_key(session)).map_or(0, slot_of);
    Err(redirect(replication, &status, slot))
}

/// Whether a follower may run it after READONLY.
fn is_read(command: &Definition) -> bool {
    let is_unnamed = UNNAMED_KEYS.contains(&command.name) && command.name != "exec";
    (command.has(READ) || is_unnamed)
        && !command.has(WRITE)
        && !command.has(SCRIPT)
        && !command.has(BLOCKING)
}

/// The first key of the transaction.
fn queued_key(session: &Session) -> Option<&[u8]> {
    let transaction = session.transaction.as_ref()?;
    transaction
        .commands
        .iter()
        .find_map(|queued| TABLE.index[queued.command].keys_in(queued.args()).next())
}

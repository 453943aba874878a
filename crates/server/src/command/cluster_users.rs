//! Users of a replicated table: which are in force at this node, and the rows of changes of them
//! ([`super::cluster_changes`]).
//!
//! A node begins with the users of its own options. The first leader of a group without users makes
//! its own the rows; from then on only rows count. They are read before the first client is served.
//! What cannot be read is never taken for a right: the node does not start, or stays with the users
//! that were in force.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use siltstone_engine::{Engine, Error, Result as EngineResult, WriteBatch};

use super::user_clients::{close_clients, close_subscribers};
use crate::acl::user::DEFAULT_USER;
use crate::acl::users::FollowedChange;
use crate::process;
use crate::replication::cluster_changes::{ChangeOutcome, ClusterChange};
use crate::replication::named_rows::{self, Unseen};
use crate::replication::user_rows::USER_PREFIX;
use crate::shared::Shared;

/// How long the replacement of a table by a snapshot may take.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay until the rows are read again.
const INTERVAL: Duration = Duration::from_millis(20);

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
        let asking = shared.cluster_changes.asking.load(Relaxed);
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

/// Rows to write, and how many users or libraries that affects.
pub(super) type Plan = (WriteBatch, u64);

/// The rows of a change of users.
pub(super) fn plan(
    shared: &Shared,
    table: &dyn Engine,
    change: &ClusterChange,
) -> Result<Plan, ChangeOutcome> {
    if !has_users(table)? {
        return Err(ChangeOutcome::NotNow);
    }
    let mut batch = WriteBatch::new();
    let count = match change {
        ClusterChange::Set { name, rules, allows_channels } => {
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
        ClusterChange::Remove(names) => {
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
        ClusterChange::Replace(lines) => {
            for name in named_rows::read_all(table, USER_PREFIX).map_err(failed)?.keys() {
                named_rows::remove(&mut batch, USER_PREFIX, name);
            }
            put_lines(shared, &mut batch, lines)?
        }
        ClusterChange::Libraries(_) => 0,
    };
    Ok((batch, count))
}

/// The rows of the users of this node's options.
pub(super) fn plan_own(shared: &Shared, table: &dyn Engine) -> Result<Plan, ChangeOutcome> {
    if has_users(table)? {
        return Err(ChangeOutcome::NotNow);
    }
    let mut batch = WriteBatch::new();
    let count = put_lines(shared, &mut batch, &shared.acl.own_lines())?;
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

/// Whether the cluster has users.
pub(super) fn has_users(table: &dyn Engine) -> Result<bool, ChangeOutcome> {
    let row = table.get(&named_rows::key(USER_PREFIX, DEFAULT_USER));
    row.map(|row| row.is_some()).map_err(failed)
}

/// A table that a snapshot has just replaced is closed.
fn failed(_: Error) -> ChangeOutcome {
    ChangeOutcome::NotNow
}

/// Says that the users of this node's options are ignored, if some are given and they differ.
pub(super) fn report_difference(shared: &Shared, table: &dyn Engine) {
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

//! The server as a process: time, saving, shutdown, and disabled commands.
//!
//! Source: the documentation of Redis's server commands.

use siltstone_engine::clock;

use super::context::Context;
use super::definition::{ADMIN, BLOCKING, FAST, NO_KEYS, NO_MULTI};
use super::entry::{self, Command};
use super::failure::{Outcome, SYNTAX, reply_error};
use super::parking::{self, Wait};
use super::session::TimeoutReply;
use super::{cluster, connection};
use crate::Fsync;
use crate::clients::flag;
use crate::resp::Args;
use crate::store::blocked_keys::WaitKind;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("server", name, arity, flags, NO_KEYS, handler, summary)
    };
    vec![
        command("time", 1, FAST, time, "Returns the time."),
        command("lastsave", 1, FAST, lastsave, "Returns the time of the last backup or sync."),
        command("save", 1, ADMIN | NO_MULTI, save, "Makes all writes durable."),
        command("bgsave", -1, ADMIN | NO_MULTI, bgsave, "Starts a backup."),
        command("bgrewriteaof", 1, ADMIN, bgrewriteaof, "Makes all writes durable."),
        command("failover", -1, ADMIN, failover, "Returns an error: there are no replicas."),
        command("replicaof", 3, ADMIN, replicaof, "Accepts NO ONE."),
        command("slaveof", 3, ADMIN, replicaof, "Accepts NO ONE."),
        command("role", 1, FAST, role, "Returns the role in replication: master."),
        command(
            "wait",
            3,
            BLOCKING,
            wait,
            "Waits for replicas, of which there are none, and returns 0.",
        ),
        command("waitaof", 4, BLOCKING, waitaof, "Makes all writes durable; waits for replicas."),
        command("shutdown", -1, ADMIN | NO_MULTI, shutdown, "Shuts the server down."),
        command("debug", -2, ADMIN, debug, "Not allowed."),
        command("monitor", 1, ADMIN | NO_MULTI, monitor, "Shows the commands of all clients."),
        command("lolwut", -1, FAST, lolwut, "Shows a stone."),
    ]
}

fn time(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let now = clock::unix_time();
    context.replies.array(2);
    context.replies.bulk(now.as_secs().to_string().as_bytes());
    context.replies.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

fn lastsave(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.replies.int(context.shared.last_save_s() as i64);
    Ok(())
}

fn save(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    sync_all(context)?;
    context.replies.ok();
    Ok(())
}

/// Starts a backup, if the server has a place for them. Otherwise as SAVE: the log is always on, so
/// little remains to be written.
fn bgsave(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let is_known = args.get(1).is_none_or(|word| word.eq_ignore_ascii_case(b"schedule"));
    if !is_known || args.len() > 2 {
        return Err(SYNTAX);
    }
    match &context.shared.backups {
        Some(backups) if backups.request() => {}
        Some(_) => return Err(reply_error("ERR Background save already in progress")),
        None => sync_all(context)?,
    }
    context.replies.simple("Background saving started");
    Ok(())
}

/// The log is always on, and there is nothing to rewrite.
fn bgrewriteaof(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    sync_all(context)?;
    context.replies.simple("Background append only file rewriting started");
    Ok(())
}

fn sync_all(context: &Context<'_>) -> Outcome {
    for database in &context.shared.databases {
        database.engine.sync()?;
    }
    context.shared.record_sync();
    Ok(())
}

fn role(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    if let Some(groups) = &context.shared.replication {
        cluster::role(context, groups.shown());
        return Ok(());
    }
    context.replies.array(3);
    context.replies.bulk(b"master");
    context.replies.int(0);
    context.replies.array(0);
    Ok(())
}

/// FAILOVER: to whom?
fn failover(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.shared.replication.is_some() {
        return Err(reply_error(
            "ERR FAILOVER not allowed in cluster mode; use CLUSTER MOVE-LEADER",
        ));
    }
    let aborts = args.len() == 2 && args[1].eq_ignore_ascii_case(b"abort");
    Err(reply_error(match aborts {
        true => "ERR No failover in progress.",
        false => "ERR FAILOVER requires connected replicas.",
    }))
}

/// REPLICAOF: a server that is told to be a master is one. Other servers are followed from outside.
fn replicaof(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.shared.replication.is_some() {
        return Err(reply_error("ERR REPLICAOF not allowed in cluster mode."));
    }
    if args[1].eq_ignore_ascii_case(b"no") && args[2].eq_ignore_ascii_case(b"one") {
        context.replies.ok();
        return Ok(());
    }
    Err(reply_error(
        "ERR REPLICAOF: this server follows no other by itself; run 'siltstone replicate-from' to \
         copy a server and follow its writes",
    ))
}

/// WAIT: there are no replicas, so a client that waits for one waits until its timeout.
fn wait(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let replicas = connection::integer(&args[1])?;
    let deadline = parking::deadline_ms(&args[2])?;
    if let Some(groups) = &context.shared.replication {
        // The replies before this one wait until a majority has their writes.
        context.session.needs_commit |= groups.led();
        context.replies.count(groups.shown().node.status().voters.len() / 2);
        return Ok(());
    }
    if replicas <= 0 || context.is_in_transaction() {
        context.replies.int(0);
        return Ok(());
    }
    let on_timeout = TimeoutReply::Int(0);
    context.park(args, Wait { kind: WaitKind::Change, keys: Vec::new(), deadline, on_timeout });
    Ok(())
}

/// WAITAOF: of this server and of replicas, the number of those on whose disks the client's writes
/// are. A client that waits for replicas waits until its timeout, as for WAIT.
fn waitaof(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let (servers, replicas) = (connection::integer(&args[1])?, connection::integer(&args[2])?);
    if !(0..=1).contains(&servers) {
        return Err(reply_error("ERR value is out of range, must be between 0 and 1"));
    }
    if replicas < 0 {
        return Err(reply_error("ERR value is out of range, must be positive"));
    }
    let deadline = parking::deadline_ms(&args[3])?;
    // With fsync always, no reply is sent before the writes are durable.
    let is_always = context.shared.options.fsync == Fsync::Always;
    if servers > 0 && !is_always {
        sync_all(context)?;
    }
    let on_timeout = TimeoutReply::Pair(i64::from(is_always).max(servers), 0);
    if replicas == 0 || context.is_in_transaction() {
        parking::timeout_reply(context.replies, on_timeout);
        return Ok(());
    }
    context.park(args, Wait { kind: WaitKind::Change, keys: Vec::new(), deadline, on_timeout });
    Ok(())
}

/// Only from this machine, or with a password.
fn shutdown(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let has_password = !context.shared.acl.is_open();
    if !context.session.client().peer.is_local() && !has_password {
        return Err(reply_error("ERR SHUTDOWN is allowed from the server's own machine only"));
    }
    if args.len() == 2 && args[1].eq_ignore_ascii_case(b"abort") {
        return Err(reply_error("ERR No shutdown in progress."));
    }
    let is_known = |word: &[u8]| {
        [&b"save"[..], b"nosave", b"now", b"force"].iter().any(|k| word.eq_ignore_ascii_case(k))
    };
    if !args.from(1).iter().all(is_known) {
        return Err(SYNTAX);
    }
    // No reply, as in Redis: the connection closes when the server has drained.
    context.shared.stop.stop();
    Ok(())
}

fn debug(_context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    Err(reply_error("ERR DEBUG command not allowed: it could stop or crash the server"))
}

fn monitor(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let client = context.session.client();
    client.set_flags(flag::MONITOR, true);
    context.shared.monitors.add(client, &context.shared.observers);
    context.replies.ok();
    Ok(())
}

/// Sediment layers, the finest on top.
fn lolwut(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let layers = [
        "· · · · · · · · · ·",
        "··:··:··:··:··:··:",
        ":.:.:.:.:.:.:.:.:.:",
        "=-=-=-=-=-=-=-=-=-=",
        "===================",
        "###################",
    ];
    let mut text: String = layers.iter().map(|layer| format!("  {layer}\n")).collect();
    text.push_str(concat!("\nSiltstone ver. ", env!("CARGO_PKG_VERSION"), "\n"));
    context.replies.verbatim(&text);
    Ok(())
}

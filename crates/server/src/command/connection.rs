//! The client's connection: protocol, password, table, closing.
//!
//! Source: the documentation of Redis's connection commands.

use std::sync::atomic::Ordering::Relaxed;

use super::authorize::{NO_USERS, log_rejected_login};
use super::client;
use super::context::Context;
use super::definition::{FAST, IMMEDIATE, NO_AUTH, NO_KEYS, REDIS_VERSION};
use super::entry::{self, Command};
use super::failure::{Failure, NOT_AN_INTEGER, Outcome, SYNTAX, reply_error, wrong_arity};
use super::session::ReplyMode;
use crate::acl::user::DEFAULT_USER;
use crate::clients::flag;
use crate::resp::{Args, RespVersion, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        entry::command("connection", name, arity, flags | FAST, NO_KEYS, handler, summary)
    };
    vec![
        command("ping", -1, 0, ping, "Replies with PONG."),
        command("echo", 2, 0, echo, "Returns its argument."),
        command("hello", -1, NO_AUTH, hello, "Selects the protocol, optionally authenticates."),
        command("auth", -2, NO_AUTH, auth, "Authenticates."),
        command("select", 2, 0, select, "Selects the table."),
        command("quit", -1, NO_AUTH | IMMEDIATE, quit, "Closes the connection."),
        command("reset", 1, NO_AUTH | IMMEDIATE, reset, "Resets the state of the connection."),
    ]
}

fn ping(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let is_restricted =
        context.session.is_subscriber() && context.replies.version == RespVersion::Resp2;
    match args.len() {
        // Like a message, since the client expects nothing else.
        1 | 2 if is_restricted => {
            context.replies.array(2);
            context.replies.bulk(b"pong");
            context.replies.bulk(args.get(1).unwrap_or_default());
        }
        1 => context.replies.raw(b"+PONG\r\n"),
        2 => context.replies.bulk(&args[1]),
        _ => return Err(wrong_arity("ping")),
    }
    Ok(())
}

fn echo(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    context.replies.bulk(&args[1]);
    Ok(())
}

/// Checks a password and authenticates the client. `command` is the argument that names it.
///
/// Without a password any password of the user `default` is accepted, as in Redis: programs
/// configured with `redis://default:pw@host` send it to every server.
fn authenticate(context: &mut Context<'_>, command: &[u8], name: &[u8], given: &[u8]) -> Outcome {
    let shared = context.shared;
    let Some(user) = shared.acl.authenticate(name, given) else {
        if shared.acl.is_locked() {
            return Err(NO_USERS);
        }
        shared.metrics.rejected_passwords.fetch_add(1, Relaxed);
        log_rejected_login(shared, context.session, command, name);
        return Err(reply_error("WRONGPASS invalid username-password pair or user is disabled."));
    };
    context.session.log_in(user);
    Ok(())
}

fn auth(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args.len() {
        2 if context.shared.acl.default_user().needs_no_password => {
            return Err(reply_error(
                "ERR AUTH <password> called without any password configured for the default user. \
                 Are you sure your configuration is correct?",
            ));
        }
        2 => authenticate(context, &args[0], DEFAULT_USER, &args[1])?,
        3 => authenticate(context, &args[0], &args[1], &args[2])?,
        _ => return Err(SYNTAX),
    }
    context.replies.ok();
    Ok(())
}

fn hello(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let version = match args.get(1) {
        None => context.replies.version,
        Some(text) => match number::parse_i64(text) {
            Some(2) => RespVersion::Resp2,
            Some(3) => RespVersion::Resp3,
            Some(_) => return Err(reply_error("NOPROTO unsupported protocol version")),
            None => {
                return Err(reply_error("ERR Protocol version is not an integer or out of range"));
            }
        },
    };
    let (mut rest, mut name, mut login) = (args.from(2), None, None);
    while let Some(word) = rest.get(0) {
        match (word.to_ascii_lowercase().as_slice(), rest.get(1), rest.get(2)) {
            (b"auth", Some(user), Some(password)) => {
                // The last one counts.
                login = Some((user, password));
                rest = rest.from(3);
            }
            (b"setname", Some(given), _) => {
                name = Some(client::check_name(given)?);
                rest = rest.from(2);
            }
            _ => {
                let word = String::from_utf8_lossy(&word[..word.len().min(128)]);
                return Err(format!("ERR Syntax error in HELLO option '{word}'").into());
            }
        }
    }
    if let Some((user, password)) = login {
        authenticate(context, &args[0], user, password)?;
    }
    if !context.session.access.is_authenticated() {
        if context.shared.acl.is_locked() {
            return Err(NO_USERS);
        }
        return Err(reply_error(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise the \
             HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
             select the RESP protocol version at the same time",
        ));
    }
    let client = context.session.client();
    if let Some(name) = name {
        client.names.lock().name = name;
    }
    let id = client.id;
    set_version(context, version);
    let replies = &mut *context.replies;
    replies.map(7);
    for (field, value) in [("server", "siltstone"), ("version", REDIS_VERSION)] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"proto");
    replies.int(if version == RespVersion::Resp3 { 3 } else { 2 });
    replies.bulk(b"id");
    replies.int(id as i64);
    let (mode, role) = match &context.shared.replication {
        None => ("standalone", "master"),
        Some(groups) if groups.led() != 0 => ("cluster", "master"),
        Some(_) => ("cluster", "replica"),
    };
    let replies = &mut *context.replies;
    for (field, value) in [("mode", mode), ("role", role)] {
        replies.bulk(field.as_bytes());
        replies.bulk(value.as_bytes());
    }
    replies.bulk(b"modules");
    replies.array(0);
    Ok(())
}

fn set_version(context: &mut Context<'_>, version: RespVersion) {
    context.replies.version = version;
    context.session.client().is_resp3.store(version == RespVersion::Resp3, Relaxed);
}

/// Parses a table index.
pub(super) fn table_index(context: &Context<'_>, text: &[u8]) -> Result<usize, Failure> {
    let index = integer(text)?;
    if context.shared.replication.is_some() && index != 0 {
        return Err(reply_error("ERR SELECT is not allowed in cluster mode"));
    }
    if context.shared.replication.is_some() {
        return Ok(context.session.table);
    }
    let tables = context.shared.databases.len();
    let index = usize::try_from(index).ok().filter(|index| *index < tables);
    index.ok_or(reply_error("ERR DB index is out of range"))
}

fn select(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let table = table_index(context, &args[1])?;
    if context.shared.replication.is_none() {
        context.session.select(table);
    }
    context.replies.ok();
    Ok(())
}

fn quit(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.is_closing = true;
    context.replies.ok();
    Ok(())
}

fn reset(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.transaction = None;
    context.session.unwatch(context.shared);
    context.session.unsubscribe(context.shared);
    context.session.untrack(context.shared);
    context.session.end_monitor(context.shared);
    context.session.select(0);
    context.session.reply = ReplyMode::On;
    context.session.is_replica_reader = false;
    context.session.is_no_touch = false;
    context.session.client().set_flags(flag::NO_EVICT | flag::NO_TOUCH, false);
    context.session.access.reset(&context.shared.acl);
    context.session.client().set_user(context.session.access.user());
    context.session.client().names.lock().name.clear();
    // What was sent to the subscriber or monitor that it was must not follow the reply.
    context.session.client().mailbox.receive_messages(context.replies);
    set_version(context, RespVersion::Resp2);
    context.replies.simple("RESET");
    Ok(())
}

/// Parses an integer argument.
pub(super) fn integer(text: &[u8]) -> Result<i64, Failure> {
    number::parse_i64(text).ok_or(NOT_AN_INTEGER)
}

//! The server as a process: time, saving, shutdown, and disabled commands.
//!
//! Source: the documentation of Redis's server commands.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::failure::{SYNTAX, reply_error, unknown_subcommand, wrong_subcommand_arity};
use super::{ADMIN, Command, Context, FAST, NO_KEYS, NO_MULTI, Outcome, connection, help};
use crate::resp::{Args, number};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        super::command("server", name, arity, flags, NO_KEYS, handler, summary)
    };
    vec![
        command("time", 1, FAST, time, "Returns the time."),
        command("lastsave", 1, FAST, lastsave, "Returns the time of the last sync."),
        command("save", 1, ADMIN | NO_MULTI, save, "Makes all writes durable."),
        command("bgsave", -1, ADMIN | NO_MULTI, bgsave, "Makes all writes durable."),
        command("role", 1, FAST, role, "Returns the role in replication: master."),
        command("wait", 3, 0, wait, "Returns 0: there are no replicas."),
        command("shutdown", -1, ADMIN | NO_MULTI, shutdown, "Shuts the server down."),
        command("debug", -2, ADMIN, debug, "Not allowed."),
        command(
            "slowlog",
            -2,
            ADMIN,
            slowlog,
            "Returns an empty list: slow commands are not logged.",
        ),
        command("lolwut", -1, FAST, lolwut, "Shows a stone."),
    ]
}

fn time(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    context.replies.array(2);
    context.replies.bulk(now.as_secs().to_string().as_bytes());
    context.replies.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

fn lastsave(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let last = context.shared.last_sync.load(Relaxed);
    context.replies.int(last as i64);
    Ok(())
}

fn save(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    sync_all(context)?;
    context.replies.ok();
    Ok(())
}

/// As SAVE: the log is always on, so little remains to be written and no child process is needed.
fn bgsave(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let is_known = args.get(1).is_none_or(|word| word.eq_ignore_ascii_case(b"schedule"));
    if !is_known || args.len() > 2 {
        return Err(SYNTAX);
    }
    sync_all(context)?;
    context.replies.simple("Background saving started");
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
    context.replies.array(3);
    context.replies.bulk(b"master");
    context.replies.int(0);
    context.replies.array(0);
    Ok(())
}

fn wait(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    connection::integer(&args[1])?;
    let timeout = number::parse_i64(&args[2])
        .ok_or(reply_error("ERR timeout is not an integer or out of range"))?;
    if timeout < 0 {
        return Err(reply_error("ERR timeout is negative"));
    }
    context.replies.int(0);
    Ok(())
}

/// Only from this machine, or with a password.
fn shutdown(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let has_password = context.shared.options.password.is_some();
    if !context.session.client().peer.ip().is_loopback() && !has_password {
        return Err(reply_error("ERR SHUTDOWN is allowed from the server's own machine only"));
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

fn slowlog(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match (args[1].to_ascii_lowercase().as_slice(), args.len()) {
        (b"get", 2) => context.replies.array(0),
        (b"get", 3) => {
            if number::parse_i64(&args[2]).is_none_or(|count| count < -1) {
                return Err(reply_error("ERR count should be greater than or equal to -1"));
            }
            context.replies.array(0);
        }
        (b"get", _) => {
            return Err(reply_error(
                "ERR unknown subcommand or wrong number of arguments for 'GET'. Try SLOWLOG HELP.",
            ));
        }
        (b"len", 2) => context.replies.int(0),
        (b"reset", 2) => context.replies.ok(),
        (b"help", 2) => return help::reply(context.replies, "SLOWLOG", &SLOWLOG_HELP),
        (b"len" | b"reset" | b"help", _) => {
            return Err(wrong_subcommand_arity("slowlog", &args[1]));
        }
        _ => return Err(unknown_subcommand("SLOWLOG", &args[1])),
    }
    Ok(())
}

const SLOWLOG_HELP: [&str; 6] = [
    "GET [<count>]",
    "    Return the entries of the slowlog, of which none are kept.",
    "LEN",
    "    Return the length of the slowlog: 0.",
    "RESET",
    "    Reset the slowlog.",
];

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

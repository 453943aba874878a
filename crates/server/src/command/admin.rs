//! The server as a process: time, saving, stopping, and what is refused.
//!
//! Source: the documentation of Redis's server commands.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::failure::{SYNTAX, unknown_subcommand, words};
use super::{ADMIN, Command, Context, FAST, NO_KEYS, NO_MULTI, Outcome, connection};
use crate::resp::Args;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, flags, handler, summary| {
        super::command("server", name, arity, flags, NO_KEYS, handler, summary)
    };
    vec![
        command("time", 1, FAST, time, "Returns the time."),
        command("lastsave", 1, FAST, lastsave, "Returns when tables were last synced."),
        command("save", 1, ADMIN | NO_MULTI, save, "Makes all writes durable."),
        command("bgsave", -1, ADMIN | NO_MULTI, save, "Makes all writes durable."),
        command("wait", 3, 0, wait, "Waits for replicas, of which there are none."),
        command("shutdown", -1, ADMIN | NO_MULTI, shutdown, "Ends the server."),
        command("debug", -2, ADMIN, debug, "Refused."),
        command("slowlog", -2, ADMIN, slowlog, "Returns slow commands, of which none are kept."),
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
    for database in &context.shared.databases {
        database.engine.sync()?;
    }
    context.shared.note_sync();
    context.replies.ok();
    Ok(())
}

fn wait(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    connection::integer(&args[1])?;
    connection::integer(&args[2])?;
    context.replies.int(0);
    Ok(())
}

/// Only from this machine, or with the password: who may start the server may end it.
fn shutdown(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let has_password = context.shared.options.password.is_some();
    if !context.session.client().peer.ip().is_loopback() && !has_password {
        return Err(words("ERR SHUTDOWN is allowed from the server's own machine only"));
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
    Err(words("ERR DEBUG command not allowed: it could stop or crash the server"))
}

fn slowlog(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    match args[1].to_ascii_lowercase().as_slice() {
        b"get" => context.replies.array(0),
        b"len" => context.replies.int(0),
        b"reset" => context.replies.ok(),
        _ => return Err(unknown_subcommand("SLOWLOG", &args[1])),
    }
    Ok(())
}

/// Layers, the finest on top.
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

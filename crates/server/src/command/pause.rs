//! CLIENT PAUSE and UNPAUSE, and which commands they hold back.
//!
//! Source: the documentation of Redis's CLIENT PAUSE; replies of Redis 7.0.

use std::time::{Duration, Instant};

use super::context::Context;
use super::definition::Definition;
use super::elements::is;
use super::failure::{Outcome, reply_error};
use super::session::Session;
use crate::pause::PauseKind;
use crate::resp::{Args, number};
use crate::script::cache::Script;
use crate::shared::Shared;

/// CLIENT PAUSE: a timeout in milliseconds, and WRITE or ALL.
pub(super) fn pause(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    let kind = match args.get(1) {
        None => PauseKind::All,
        Some(word) if is(word, "all") => PauseKind::All,
        Some(word) if is(word, "write") => PauseKind::Writes,
        Some(_) => return Err(reply_error("ERR CLIENT PAUSE mode must be WRITE or ALL")),
    };
    let timeout_ms = number::parse_i64(&args[0])
        .ok_or(reply_error("ERR timeout is not an integer or out of range"))?;
    let timeout_ms =
        u64::try_from(timeout_ms).map_err(|_| reply_error("ERR timeout is negative"))?;
    let now = Instant::now();
    let until = now.checked_add(Duration::from_millis(timeout_ms));
    let until = until.ok_or(reply_error("ERR timeout is out of range"))?;
    context.shared.pause.begin(kind, until, now);
    context.replies.ok();
    Ok(())
}

/// CLIENT UNPAUSE.
pub(super) fn unpause(context: &mut Context<'_>) -> Outcome {
    context.shared.pause.end();
    context.shared.clients.all().iter().for_each(|client| client.wake());
    context.replies.ok();
    Ok(())
}

/// Until when a command of a client must wait, if it must.
#[inline]
pub(crate) fn paused_until(
    shared: &Shared,
    session: &Session,
    args: Args<'_>,
    now: Instant,
) -> Option<Instant> {
    if !shared.pause.is_active() {
        return None;
    }
    // Commands that will be refused are answered at once.
    let number = shared.commands.find(&args[0]).filter(|_| session.access.is_authenticated())?;
    let command = &shared.commands[number];
    if !command.takes(args.len()) {
        return None;
    }
    let mut queued = session.transaction.iter().flat_map(|transaction| &transaction.commands);
    let may_write = may_write(shared, command, args)
        || command.name == "exec"
            && queued.any(|c| may_write(shared, &shared.commands[c.command], c.args()));
    shared.pause.until(may_write, now)
}

fn may_write(shared: &Shared, command: &Definition, args: Args<'_>) -> bool {
    match command.name {
        "eval" => !Script::parse(&args[1]).is_ok_and(|script| script.is_read_only),
        "evalsha" => shared.scripts.find(&args[1]).is_some_and(|script| !script.is_read_only),
        "fcall" => shared.functions.find(&args[1]).is_some_and(|script| !script.is_read_only),
        _ => command.may_replicate(),
    }
}

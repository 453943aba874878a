//! CLIENT PAUSE and UNPAUSE, and which commands they hold back.
//!
//! Source: the documentation of Redis's CLIENT PAUSE; replies of Redis 7.0.

use std::time::{Duration, Instant};

use super::context::Context;
use super::definition::{Definition, SCRIPT, WRITE};
use super::elements::is;
use super::failure::{Outcome, reply_error};
use super::session::Session;
use crate::pause::PauseKind;
use crate::resp::{Args, number};
use crate::shared::Shared;

/// Commands that write nothing here, and do so on the replicas of Redis.
const REPLICATED: [&str; 3] = ["pfcount", "publish", "spublish"];

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
    let command = shared.commands.find(&args[0]).filter(|_| session.is_authenticated)?;
    shared.pause.until(may_write(shared, session, &shared.commands[command]), now)
}

fn may_write(shared: &Shared, session: &Session, command: &Definition) -> bool {
    let own = |command: &Definition| {
        command.has(WRITE)
            || command.has(SCRIPT) && !command.name.ends_with("_ro")
            || REPLICATED.contains(&command.name)
    };
    let queued = session.transaction.iter().flat_map(|transaction| &transaction.commands);
    own(command)
        || command.name == "exec" && queued.into_iter().any(|c| own(&shared.commands[c.command]))
}

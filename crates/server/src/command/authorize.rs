//! Checks that the user of a client may run a command.
//!
//! Denials are logged for ACL LOG.

use super::definition::NO_AUTH;
use super::failure::{Failure, Outcome, reply_error};
use super::session::Session;
use crate::acl::log::{CallContext, Reason};
use crate::acl::user::denial_text;
use crate::resp::Args;
use crate::shared::Shared;

/// The error for clients of a node that has just joined.
pub(super) const NO_USERS: Failure = reply_error(
    "LOADING this node has joined the cluster and has not received its users yet; try again, or ask \
     another node",
);

/// Checks a command of a client. Cost if its user may do everything: one atomic load.
#[inline]
pub(super) fn authorize(
    shared: &Shared,
    session: &mut Session,
    number: usize,
    args: Args<'_>,
) -> Outcome {
    if session.access.is_free(&shared.acl) {
        return Ok(());
    }
    check_user(shared, session, number, args)
}

#[cold]
fn check_user(shared: &Shared, session: &mut Session, number: usize, args: Args<'_>) -> Outcome {
    if session.access.refresh(&shared.acl).is_err() {
        session.is_closing = true;
        return Err(reply_error("NOPERM the user of this connection was removed"));
    }
    if !session.access.is_authenticated() {
        return match shared.commands[number].has(NO_AUTH) {
            true => Ok(()),
            false if shared.acl.is_locked() => Err(NO_USERS),
            false => Err(reply_error("NOAUTH Authentication required.")),
        };
    }
    let context = match session.transaction {
        Some(_) => CallContext::Transaction,
        None => CallContext::TopLevel,
    };
    match denial(shared, session, number, args, context) {
        None => Ok(()),
        Some((_, text)) => Err(format!("NOPERM {text}").into()),
    }
}

/// Checks a queued command at EXEC: its user may have changed since it was queued.
pub(super) fn authorize_queued(
    shared: &Shared,
    session: &mut Session,
    number: usize,
    args: Args<'_>,
) -> Outcome {
    let Some((reason, _)) = denial(shared, session, number, args, CallContext::Transaction) else {
        return Ok(());
    };
    let reason = match reason {
        Reason::Key => "no permission to touch the specified keys",
        Reason::Channel => {
            "no permission to access one of the channels used as arguments to the command"
        }
        Reason::Command | Reason::Auth => "no permission to execute the command or subcommand",
    };
    Err(format!(
        "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC \
         call. This command is no longer allowed for the following reason: {reason}"
    )
    .into())
}

/// Why the user may not run a command, which is logged.
pub(super) fn denial(
    shared: &Shared,
    session: &mut Session,
    number: usize,
    args: Args<'_>,
    context: CallContext,
) -> Option<(Reason, String)> {
    if session.access.is_free(&shared.acl) {
        return None;
    }
    if session.access.refresh(&shared.acl).is_err() {
        session.is_closing = true;
        return Some((Reason::Auth, "the user of this connection was removed".to_owned()));
    }
    let (user, names) = (session.access.user(), &shared.acl.names);
    let denial = user.check(names, number, args).err()?;
    let reason = Reason::from(&denial);
    let text = denial_text(names, user, (number, args), &denial, false);
    let called = names.name(names.called(number, args)).as_bytes();
    let object = denial.object().unwrap_or(called);
    let client = describe(shared, session);
    let now = shared.options.clock.now();
    shared.acl.log.add((reason, context), object, &user.name, client, now);
    Some((reason, text))
}

/// Logs a login with a wrong password.
pub(super) fn log_rejected_login(shared: &Shared, session: &Session, command: &[u8], name: &[u8]) {
    let client = describe(shared, session);
    let now = shared.options.clock.now();
    let context = CallContext::TopLevel;
    shared.acl.log.add((Reason::Auth, context), command, name, client, now);
}

/// The client's line of CLIENT LIST.
fn describe(shared: &Shared, session: &Session) -> String {
    let mut text = String::new();
    session.client().describe(shared.commands, None, &mut text);
    text.truncate(text.trim_end().len());
    text
}

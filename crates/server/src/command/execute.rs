//! From arguments to a reply: checks, queueing, the handler, errors.
//!
//! Invariant: every command adds exactly one reply (or none where the client asked for none): an
//! error that comes after part of a reply was written takes its place.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::failure::{self, Failure, wrong_arity};
use super::session::{Queued, ReplyMode};
use super::sliced::Call;
use super::{
    AT_ONCE, Command, Context, NO_AUTH, NO_MULTI, Outcome, Session, find, set_index, table,
};
use crate::metrics::CallOutcome;
use crate::resp::{Args, Replies};
use crate::shared::Shared;
use crate::store::turn::{Turn, Unanswered};

/// Runs one command and writes its reply.
pub(crate) fn execute(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    turn: &mut Turn,
    args: Args<'_>,
) {
    let found = find(&args[0]);
    if let Some(index) = found {
        session.client().command.store(index as u16 + 1, Relaxed);
        if gather(shared, session, replies, turn, index, args) {
            return;
        }
    }
    answer_gathered(shared, session, replies, turn);
    let mark = replies.mark();
    if session.reply == ReplyMode::SkipNext {
        session.reply = ReplyMode::Skip;
    }
    let mode = session.reply;
    let began = turn.clock;
    let (outcome, ended) = match check(session, found, args) {
        Ok(command) => {
            let outcome = dispatch(shared, session, replies, turn, command, args);
            let is_done = outcome.is_ok();
            (outcome, if is_done { CallOutcome::Done } else { CallOutcome::Failed })
        }
        Err(failure) => (Err(reject(shared, session, found, failure)), CallOutcome::Rejected),
    };
    if let (Some(sliced), Some(index)) = (&mut session.sliced, found) {
        // Its reply is still to come.
        sliced.call = Some(Call { index, mode, began });
        turn.clock = Instant::now();
        return;
    }
    answer(shared, session, replies, mark, mode, outcome);
    let now = Instant::now();
    if let Some(index) = found {
        if ended != CallOutcome::Done {
            turn.samples.add_error(index, ended);
        }
        turn.samples.add(index, 1, now - began);
    }
    turn.clock = now;
}

/// Makes of a command's outcome the reply that the client wants, if it wants one.
fn answer(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    mark: usize,
    mode: ReplyMode,
    outcome: Outcome,
) {
    // No command begins while many replies wait, so what does not fit is the command's own reply.
    let outcome = match replies.has_overflowed() {
        true => Err(failure::reply_too_large(shared.options.max_output_bytes)),
        false => outcome,
    };
    if let Err(failure) = outcome {
        replies.rewind(mark);
        replies.error(&failure.text());
        shared.metrics.errors.fetch_add(1, Relaxed);
    }
    if mode != ReplyMode::On && session.reply == mode {
        replies.rewind(mark);
        if mode == ReplyMode::Skip {
            session.reply = ReplyMode::On;
        }
    }
}

/// Goes on with a command of which something is left.
pub(crate) fn resume(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    turn: &mut Turn,
) {
    let Some(sliced) = session.sliced.take() else { return };
    let (call, mark) = (sliced.call, replies.mark());
    let outcome = sliced.resume(&mut Context::new(shared, session, replies, turn, &mut []));
    turn.clock = Instant::now();
    if let Some(sliced) = &mut session.sliced {
        sliced.call = call;
        return;
    }
    let Some(Call { index, mode, began }) = call else { return };
    if outcome.is_err() {
        turn.samples.add_error(index, CallOutcome::Failed);
    }
    answer(shared, session, replies, mark, mode, outcome);
    turn.samples.add(index, 1, turn.clock - began);
}

/// Writes the replies to the SETs of a client that were gathered, which applies them if they were
/// not yet.
pub(crate) fn answer_gathered(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    turn: &mut Turn,
) {
    let Some(Unanswered { count, generation, since }) = session.unanswered.take() else { return };
    let outcome = turn.outcome(&shared.databases, generation);
    let error = outcome.err().map(|error| failure::store_text(&error));
    for _ in 0..count {
        match &error {
            None => replies.ok(),
            Some(text) => replies.error(text),
        }
    }
    turn.clock = Instant::now();
    turn.samples.add(set_index(), count as u64, turn.clock - since);
}

/// Takes a SET without options into the batch of the turn, if it can be.
#[inline]
fn gather(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    turn: &mut Turn,
    index: usize,
    args: Args<'_>,
) -> bool {
    let is_plain = index == set_index()
        && args.len() == 3
        && session.is_authenticated
        && session.transaction.is_none()
        && session.reply == ReplyMode::On;
    if !is_plain || !shared.databases[session.table].accepts(&args[1], &args[2]) {
        return false;
    }
    shared.access_times.record(session.table, &args[1], turn.clock);
    let generation = turn.gather(&shared.databases, session.table, &args[1], &args[2]);
    if session.unanswered.is_some_and(|unanswered| unanswered.generation != generation) {
        answer_gathered(shared, session, replies, turn);
    }
    let since = turn.clock;
    session.unanswered.get_or_insert(Unanswered { count: 0, generation, since }).count += 1;
    true
}

/// The command, if it may be called so.
fn check(
    session: &Session,
    found: Option<usize>,
    args: Args<'_>,
) -> Result<&'static Command, Failure> {
    let command = &table()[found.ok_or_else(|| unknown(args))?];
    if !command.takes(args.len()) {
        return Err(wrong_arity(command.name));
    }
    if !session.is_authenticated && !command.has(NO_AUTH) {
        return Err(failure::words("NOAUTH Authentication required."));
    }
    if session.transaction.is_some() && command.has(NO_MULTI) {
        return Err(format!(
            "ERR {} is not allowed in transactions: run it before MULTI or after EXEC",
            command.name.to_uppercase()
        )
        .into());
    }
    Ok(command)
}

/// What a command that may not run does to the transaction it stands in: EXEC will fail. An EXEC
/// that is itself malformed ends the transaction.
fn reject(
    shared: &Shared,
    session: &mut Session,
    found: Option<usize>,
    failure: Failure,
) -> Failure {
    if let Some(transaction) = &mut session.transaction {
        transaction.is_broken = true;
    }
    if session.is_authenticated && found.is_some_and(|index| table()[index].name == "exec") {
        session.transaction = None;
        session.unwatch(shared);
        let text = failure.text();
        let reason = text.strip_prefix("ERR ").unwrap_or(&text);
        return format!("EXECABORT Transaction discarded because of: {reason}").into();
    }
    failure
}

fn dispatch(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    turn: &mut Turn,
    command: &'static Command,
    args: Args<'_>,
) -> Outcome {
    if session.transaction.is_some() && !command.has(AT_ONCE) {
        return queue(shared, session, replies, command, args);
    }
    let mut context = Context::new(shared, session, replies, turn, &mut []);
    (command.handler)(&mut context, args)
}

fn queue(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    command: &'static Command,
    args: Args<'_>,
) -> Outcome {
    let limit = shared.options.max_request_bytes;
    let Some(transaction) = &mut session.transaction else { return Ok(()) };
    let queued = Queued::new(command, args);
    transaction.bytes += queued.held_bytes();
    if transaction.bytes > limit {
        transaction.commands.clear();
        transaction.is_broken = true;
        return Err(format!(
            "ERR the transaction is over the limit of {limit} bytes; make it of fewer commands"
        )
        .into());
    }
    transaction.commands.push(queued);
    replies.simple("QUEUED");
    Ok(())
}

fn unknown(args: Args<'_>) -> Failure {
    const SHOWN: usize = 128;
    let cut = |arg: &[u8]| String::from_utf8_lossy(&arg[..arg.len().min(SHOWN)]).into_owned();
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", cut(&args[0]));
    let mut shown = 0;
    for arg in args.from(1).iter() {
        if shown >= SHOWN {
            break;
        }
        let arg = cut(&arg[..arg.len().min(SHOWN - shown)]);
        shown += arg.len() + 3;
        text.push_str(&format!("'{arg}' "));
    }
    text.into()
}

/// Runs a command that was queued, inside the transaction of `context`.
pub(super) fn run_queued(context: &mut Context<'_>, queued: &Queued) -> Outcome {
    (queued.command.handler)(context, queued.args())
}

//! Executes a command: checks, queueing, handler, errors.
//!
//! Invariant: every command adds exactly one reply (or none if the client disabled replies). An
//! error after part of a reply was written replaces it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::failure::{self, Failure, wrong_arity};
use super::session::{QueuedCommand, ReplyMode};
use super::sliced::Call;
use super::{
    Command, Context, IMMEDIATE, NO_AUTH, NO_MULTI, Outcome, Session, find, set_index, table,
};
use crate::metrics::CallOutcome;
use crate::resp::{Args, Replies};
use crate::shared::Shared;
use crate::store::write_batcher::{PendingReplies, WriteBatcher};

/// Executes one command and writes its reply.
pub(crate) fn execute(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
    args: Args<'_>,
) {
    let found = find(&args[0]);
    if let Some(index) = found {
        session.client().command.store(index as u16 + 1, Relaxed);
        if batch_set(shared, session, replies, batcher, index, args) {
            return;
        }
    }
    answer_batched_sets(shared, session, replies, batcher);
    let mark = replies.mark();
    if session.reply == ReplyMode::SkipNext {
        session.reply = ReplyMode::Skip;
    }
    let mode = session.reply;
    let began = batcher.clock;
    let (outcome, ended) = match check(session, found, args) {
        Ok(command) => {
            let outcome = dispatch(shared, session, replies, batcher, command, args);
            let is_done = outcome.is_ok();
            (outcome, if is_done { CallOutcome::Done } else { CallOutcome::Failed })
        }
        Err(failure) => (Err(reject(shared, session, found, failure)), CallOutcome::Rejected),
    };
    if let (Some(sliced), Some(index)) = (&mut session.sliced, found) {
        // The reply follows after the last slice.
        sliced.call = Some(Call { index, mode, began });
        batcher.clock = Instant::now();
        return;
    }
    answer(shared, session, replies, mark, mode, outcome);
    let now = Instant::now();
    if let Some(index) = found {
        if ended != CallOutcome::Done {
            batcher.samples.add_error(index, ended);
        }
        batcher.samples.add(index, 1, now - began);
    }
    batcher.clock = now;
}

/// Writes the reply to a command's outcome, according to the client's reply mode.
fn answer(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    mark: usize,
    mode: ReplyMode,
    outcome: Outcome,
) {
    // No command starts while many replies are pending, so an overflow is the command's own reply.
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

/// Runs the next slice of an unfinished command.
pub(crate) fn resume(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
) {
    let Some(sliced) = session.sliced.take() else { return };
    let (call, mark) = (sliced.call, replies.mark());
    let outcome = sliced.resume(&mut Context::new(shared, session, replies, batcher, &mut []));
    batcher.clock = Instant::now();
    if let Some(sliced) = &mut session.sliced {
        sliced.call = call;
        return;
    }
    let Some(Call { index, mode, began }) = call else { return };
    if outcome.is_err() {
        batcher.samples.add_error(index, CallOutcome::Failed);
    }
    answer(shared, session, replies, mark, mode, outcome);
    batcher.samples.add(index, 1, batcher.clock - began);
}

/// Writes the replies of a client's batched SETs, and applies the batch if it is still open.
pub(crate) fn answer_batched_sets(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
) {
    let Some(PendingReplies { count, batch_id, since }) = session.pending_sets.take() else {
        return;
    };
    let outcome = batcher.outcome(&shared.databases, batch_id);
    let error = outcome.err().map(|error| failure::store_text(&error));
    for _ in 0..count {
        match &error {
            None => replies.ok(),
            Some(text) => replies.error(text),
        }
    }
    batcher.clock = Instant::now();
    batcher.samples.add(set_index(), count as u64, batcher.clock - since);
}

/// Adds a SET without options to the current batch, if possible.
#[inline]
fn batch_set(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
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
    shared.access_times.record(session.table, &args[1], batcher.clock);
    let batch_id = batcher.add_set(&shared.databases, session.table, &args[1], &args[2]);
    if session.pending_sets.is_some_and(|pending_sets| pending_sets.batch_id != batch_id) {
        answer_batched_sets(shared, session, replies, batcher);
    }
    let since = batcher.clock;
    session.pending_sets.get_or_insert(PendingReplies { count: 0, batch_id, since }).count += 1;
    true
}

/// Checks that the command may be called.
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
        return Err(failure::reply_error("NOAUTH Authentication required."));
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

/// Marks the transaction as failed if a command is rejected inside it: EXEC will abort. A malformed
/// EXEC ends the transaction.
fn reject(
    shared: &Shared,
    session: &mut Session,
    found: Option<usize>,
    failure: Failure,
) -> Failure {
    if let Some(transaction) = &mut session.transaction {
        transaction.is_aborted = true;
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
    batcher: &mut WriteBatcher,
    command: &'static Command,
    args: Args<'_>,
) -> Outcome {
    if session.transaction.is_some() && !command.has(IMMEDIATE) {
        return queue(shared, session, replies, command, args);
    }
    let mut context = Context::new(shared, session, replies, batcher, &mut []);
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
    let queued = QueuedCommand::new(command, args);
    transaction.bytes += queued.memory_bytes();
    if transaction.bytes > limit {
        transaction.commands.clear();
        transaction.is_aborted = true;
        return Err(format!(
            "ERR the transaction exceeds the limit of {limit} bytes; use fewer commands"
        )
        .into());
    }
    transaction.commands.push(queued);
    replies.simple("QUEUED");
    Ok(())
}

fn unknown(args: Args<'_>) -> Failure {
    const MAX_SHOWN_BYTES: usize = 128;
    let cut =
        |arg: &[u8]| String::from_utf8_lossy(&arg[..arg.len().min(MAX_SHOWN_BYTES)]).into_owned();
    let mut text = format!("ERR unknown command '{}', with args beginning with: ", cut(&args[0]));
    let mut shown = 0;
    for arg in args.from(1).iter() {
        if shown >= MAX_SHOWN_BYTES {
            break;
        }
        let arg = cut(&arg[..arg.len().min(MAX_SHOWN_BYTES - shown)]);
        shown += arg.len() + 3;
        text.push_str(&format!("'{arg}' "));
    }
    text.into()
}

/// Runs a queued command inside the transaction of `context`.
pub(super) fn run_queued(context: &mut Context<'_>, queued: &QueuedCommand) -> Outcome {
    (queued.command.handler)(context, queued.args())
}

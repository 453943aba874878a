//! Executes a command: checks, queueing, handler, errors.
//!
//! Invariant: every command adds exactly one reply (or none if the client disabled replies). An
//! error after part of a reply was written replaces it.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::authorize::authorize;
use super::context::Context;
use super::definition::{Definition, IMMEDIATE, NO_MULTI, PUSHES, READ};
use super::failure::{self, Failure, Outcome, wrong_arity};
use super::queued::QueuedCommand;
use super::session::{Call, ReplyMode, Session};
use super::table::TABLE;
use super::{events, observe, parking, routing, serve};
use crate::mailbox::Completion;
use crate::metrics::CallOutcome;
use crate::replication::group_set::only;
use crate::resp::{Args, Replies, RespVersion};
use crate::shared::Shared;
use crate::store::write_batcher::{PendingReplies, WriteBatcher};
use crate::tracking::set_current_client;

/// Executes one command and writes its reply.
pub(crate) fn execute(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
    args: Args<'_>,
) {
    let found = TABLE.index.find(&args[0]);
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
    let is_queued = session.transaction.is_some()
        && found.is_some_and(|command| !TABLE.index[command].has(IMMEDIATE));
    let checked = check(shared, session, replies.version, batcher.is_busy, found, args)
        .and_then(|command| routing::route(shared, session, command, args).map(|()| command));
    let (outcome, ended) = match checked {
        Ok(command) => {
            let outcome = dispatch(shared, session, replies, batcher, command, args);
            let is_done = outcome.is_ok();
            (outcome, if is_done { CallOutcome::Done } else { CallOutcome::Failed })
        }
        Err(failure) => (Err(reject(shared, session, found, failure)), CallOutcome::Rejected),
    };
    // CLIENT CACHING counts for one command, also for one that is rejected, or for a transaction.
    if let Some(tracking) = &mut session.tracking
        && session.transaction.is_none()
        && found.is_none_or(|command| TABLE.index[command].name != "client")
    {
        tracking.caching = None;
    }
    events::publish(shared, batcher);
    if !batcher.is_busy {
        serve::serve_ready_keys(shared, batcher);
    }
    let queued = session.transaction.as_ref().map_or(0, |queued| queued.commands.len() as u32 + 1);
    session.client().queued.store(queued, Relaxed);
    let now = Instant::now();
    let duration = now - began;
    batcher.clock = now;
    if found.is_some_and(|command| TABLE.index[command].has(READ)) {
        batcher.note_read(duration);
    }
    let is_job = session.parked.as_ref().is_some_and(|parked| parked.is_job);
    if let Some(command) = found.filter(|_| ended != CallOutcome::Rejected && !is_queued) {
        match is_job {
            false => observe::observe(shared, session, &TABLE.index[command], args, duration),
            true => observe::show(shared, session, &TABLE.index[command], args),
        }
        observe::show_script_calls(shared, session);
    }
    if let (Some(parked), Some(command)) = (&mut session.parked, found) {
        // The reply comes later. The time of the wait does not count, and that of a job is not
        // known yet.
        parked.mode = mode;
        if !is_job {
            batcher.samples.add(TABLE.index.counter(command, args), 1, duration);
        }
        return;
    }
    if let (Some(_), Some(command)) = (&session.sliced, found) {
        // The reply follows after the last slice.
        session.sliced_call = Some(Call { command, mode, began });
        return;
    }
    let is_push = found.is_some_and(|command| !is_queued && TABLE.index[command].has(PUSHES));
    answer(shared, session, replies, mark, mode, outcome, is_push);
    // What was queued is counted when it runs.
    if let Some(command) = found.filter(|_| !is_queued || ended != CallOutcome::Done) {
        let counter = TABLE.index.counter(command, args);
        if ended != CallOutcome::Done {
            batcher.samples.add_error(counter, ended);
        }
        batcher.samples.add(counter, 1, duration);
    }
}

/// Writes the reply to a command's outcome, according to the client's reply mode, which pushes
/// ignore.
pub(super) fn answer(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    mark: usize,
    mode: ReplyMode,
    outcome: Outcome,
    is_push: bool,
) {
    // No command starts while many replies are pending, so an overflow is the command's own reply.
    let outcome = match replies.has_overflowed() {
        true => Err(failure::reply_too_large(shared.options.max_output_bytes)),
        false => outcome,
    };
    let is_push = is_push && outcome.is_ok();
    if let Err(failure) = outcome {
        replies.rewind(mark);
        let text = failure.text();
        replies.error(&text);
        shared.metrics.record_error(&text);
    }
    if mode != ReplyMode::On && session.reply == mode {
        if !is_push {
            replies.rewind(mark);
        }
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
    let Some(mut sliced) = session.sliced.take() else { return };
    let mark = replies.mark();
    let routed = routing::route_slice(shared, session, sliced.tables());
    let mut context = Context::new(shared, session, replies, batcher, &mut [], &TABLE.handlers);
    let outcome = routed.and_then(|()| sliced.resume(context.shared));
    if outcome.is_ok() {
        context.end_slice(*sliced);
    }
    batcher.clock = Instant::now();
    if session.sliced.is_some() {
        return;
    }
    let Some(Call { command, mode, began }) = session.sliced_call.take() else { return };
    if outcome.is_err() {
        batcher.samples.add_error(command, CallOutcome::Failed);
    }
    answer(shared, session, replies, mark, mode, outcome, false);
    batcher.samples.add(command, 1, batcher.clock - began);
}

/// Writes the reply to the parked command, which has ended.
pub(crate) fn complete_parked(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    completion: Completion,
) {
    let mark = replies.mark();
    if let Some((mode, outcome)) = parking::complete(session, replies, completion) {
        answer(shared, session, replies, mark, mode, outcome, false);
    }
}

/// Ends the parked command if its time is over.
pub(crate) fn expire_parked(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    now: Instant,
) {
    if parking::expire(shared, session, now) {
        // Nothing was found, as far as a leader can say that.
        if shared.replication.is_some() {
            session.needs_commit |= only(session.table);
        }
        complete_parked(shared, session, replies, Completion::TimedOut);
    }
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
            Some(text) => {
                replies.error(text);
                shared.metrics.record_error(text);
                batcher.samples.add_error(TABLE.set, CallOutcome::Failed);
            }
        }
    }
    batcher.clock = Instant::now();
    batcher.samples.add(TABLE.set, count as u64, batcher.clock - since);
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
    let is_plain = index == TABLE.set
        && args.len() == 3
        && session.access.is_free(&shared.acl)
        && session.transaction.is_none()
        && session.reply == ReplyMode::On
        && !session.is_subscriber()
        && routing::may_batch_sets(shared, session, &args[1])
        && !batcher.is_busy
        && !shared.observers.need_single_sets();
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

/// Checks that the command may be called, and returns its number.
fn check(
    shared: &Shared,
    session: &mut Session,
    version: RespVersion,
    is_busy: bool,
    found: Option<usize>,
    args: Args<'_>,
) -> Result<usize, Failure> {
    let number = found.ok_or_else(|| unknown(args))?;
    let command = &TABLE.index[number];
    if !command.takes(args.len()) {
        return Err(wrong_arity(command.name));
    }
    authorize(shared, session, number, args)?;
    if version == RespVersion::Resp2 && session.is_subscriber() && !may_subscriber_call(command) {
        return Err(format!(
            "ERR Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET \
             are allowed in this context",
            command.full_name(args)
        )
        .into());
    }
    if is_busy && !command.is_allowed_while_busy(args) {
        return Err(failure::reply_error(shared.long_runs.busy_text()));
    }
    if session.transaction.is_some() && command.has(NO_MULTI) {
        return Err(failure::reply_error("ERR Command not allowed inside a transaction"));
    }
    Ok(number)
}

/// Whether a RESP2 client with subscriptions may call the command.
fn may_subscriber_call(command: &Definition) -> bool {
    const ALLOWED: [&str; 9] = [
        "ping",
        "quit",
        "reset",
        "subscribe",
        "unsubscribe",
        "psubscribe",
        "punsubscribe",
        "ssubscribe",
        "sunsubscribe",
    ];
    ALLOWED.contains(&command.name)
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
    if session.access.is_authenticated()
        && found.is_some_and(|command| TABLE.index[command].name == "exec")
    {
        session.transaction = None;
        session.unwatch(shared);
        if failure.is_redirection() {
            return failure;
        }
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
    command: usize,
    args: Args<'_>,
) -> Outcome {
    if session.transaction.is_some() && !TABLE.index[command].has(IMMEDIATE) {
        return queue(shared, session, replies, command, args);
    }
    let mut context = Context::new(shared, session, replies, batcher, &mut [], &TABLE.handlers);
    let definition = &TABLE.index[command];
    let has_tracking = shared.observers.has_tracking();
    if has_tracking {
        context.record_tracked_reads(definition, args);
        set_current_client(context.session.client().id);
    }
    let outcome = TABLE.handlers[command](&mut context, args);
    match outcome {
        Ok(()) => events::derive(context.batcher, definition, args),
        Err(_) => context.batcher.key_writes.clear(),
    }
    if has_tracking {
        set_current_client(0);
    }
    outcome
}

fn queue(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    command: usize,
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

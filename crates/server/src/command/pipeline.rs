//! Runs consecutive commands of a pipeline as a group, with one write of the engine.
//!
//! A client that sends many commands at once waits for all of their replies. So commands that
//! follow each other in its input, each on one key, share what would be paid for each of them:
//! locks, log record, commit, and the metadata of a collection that several of them change. They
//! run like those of EXEC, under the locks of all their keys and against the writes of the group.
//!
//! ```text
//!   HSET a f 1 │ INCR b │ HGET a f │ KEYS *          input
//!   └───────── group ────────────┘   alone
//!     lock a, b ─ run against the group's writes ─ one batch ─ unlock
//! ```
//!
//! Each command has its own outcome: one that fails changes nothing, and the others go on. If the
//! store refuses one of them or the batch, nothing is applied, and the commands run again one by
//! one, so that each gets its own error. Observers see each command alone, so there are no groups
//! while there are any.
//!
//! A group of reads shares its locks with other reads, and ends before a read that has to take
//! expired fields out of a count. A group that would begin with such a read runs one by one.
//!
//! Invariant: a group takes no other locks than those of its keys, and its replies are not sent
//! before its batch is applied.

use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use siltstone_engine::clock;

use super::context::Context;
use super::definition::READ;
use super::execute::{answer, answer_batched_sets, execute};
use super::failure::Failure;
use super::session::{ReplyMode, Session};
use super::table::TABLE;
use super::{events, observe, serve};
use crate::metrics::CallOutcome;
use crate::resp::lookahead::{Bounds, Lookahead};
use crate::resp::{Args, Limits, Replies};
use crate::shared::Shared;
use crate::store::write_batcher::WriteBatcher;

/// Bounds of a group, and so of the time for which its keys are locked.
const BOUNDS: Bounds = Bounds { requests: 128, bytes: 64 << 10 };

/// Runs the command `args`, which ends at `end` of the input, with those that follow it, if they
/// can be a group. Returns the position behind the last one that has run.
#[inline]
pub(crate) fn run_group(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
    (input, end, args): (&[u8], usize, Args<'_>),
    limits: &Limits,
) -> Option<usize> {
    if input.len() == end || input[0] != b'*' {
        return None;
    }
    let number = TABLE.index.find(&args[0])?;
    if !TABLE.index.may_begin_group(number, args) || !is_allowed(shared, session, batcher) {
        return None;
    }
    let mut group = std::mem::take(&mut batcher.lookahead);
    let command_of = |args: Args<'_>| {
        let number = args.get(0).and_then(|name| TABLE.index.find(name));
        number.filter(|number| TABLE.index.may_join_group(*number, args))
    };
    group.collect((number, args, end), input, limits, BOUNDS, command_of);
    let end = (group.requests().len() > 1).then(|| {
        session.client().command.store(number as u16 + 1, Relaxed);
        answer_batched_sets(shared, session, replies, batcher);
        run(shared, session, replies, batcher, &group, input)
            .unwrap_or_else(|| run_alone(shared, session, replies, batcher, &group, input))
    });
    group.shrink();
    batcher.lookahead = group;
    end
}

/// Whether commands may run in groups at present.
fn is_allowed(shared: &Shared, session: &Session, batcher: &WriteBatcher) -> bool {
    session.access.is_free(&shared.acl)
        && session.transaction.is_none()
        && session.reply == ReplyMode::On
        && session.tracking.is_none()
        && !session.is_subscriber()
        && !batcher.is_busy
        && !shared.pause.is_active()
        && !shared.observers.has_some()
        && shared.replication.is_none()
        // Others have no log record and no metadata to share.
        && shared.databases[session.table].keyspace.is_some()
}

/// Runs the commands as one batch. Returns the position behind the last one that has run, or `None`
/// if the store has refused one of them or the batch: then nothing has happened.
fn run(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
    group: &Lookahead,
    input: &[u8],
) -> Option<usize> {
    let (table, mark) = (session.table, replies.mark());
    let database = &shared.databases[table];
    let mut writes = std::mem::take(&mut batcher.group);
    let key_of = |request| group.args(request, input).get(1).unwrap_or_default();
    let keys = group.requests().iter().map(key_of);
    let is_read_only =
        group.requests().iter().all(|request| TABLE.index[request.command].has(READ));
    let guard = match is_read_only {
        true => database.locks.many_shared(keys),
        false => database.locks.many(keys),
    };
    writes.is_read_only = is_read_only;
    let stopped = clock::stop();
    let handlers = &TABLE.handlers;
    let mut context = Context::new(shared, session, replies, batcher, &mut [], handlers);
    context.group = Some(&mut writes);
    let (mut last, mut is_refused) = (None, false);
    let mut time = context.batcher.clock;
    for request in group.requests() {
        let (start, args) = (context.replies.mark(), group.args(request, input));
        let outcome = handlers[request.command](&mut context, args);
        match &outcome {
            Ok(()) => events::derive(context.batcher, &TABLE.index[request.command], args),
            Err(Failure::Store(_)) => {
                context.replies.rewind(start);
                // Reads that have run stay, and this one begins the next group.
                is_refused = !is_read_only || last.is_none();
                break;
            }
            Err(_) => {
                context.batcher.key_writes.clear();
                let counter = TABLE.index.counter(request.command, args);
                context.batcher.samples.add_error(counter, CallOutcome::Failed);
            }
        }
        answer(shared, context.session, context.replies, start, ReplyMode::On, outcome, false);
        let now = Instant::now();
        if let Some((before, duration)) = last.replace((request, now - time)) {
            let args = group.args(before, input);
            record(shared, context.session, context.batcher, before.command, args, duration);
        }
        time = now;
        // The others wait until these replies are sent.
        if context.replies.len() > shared.options.soft_output_bytes() {
            break;
        }
    }
    stopped.resume();
    if !is_refused {
        let batch = writes.finish();
        debug_assert!(batch.is_empty() || !is_read_only, "a read has written");
        is_refused = !batch.is_empty()
            && (is_read_only || batcher.write(&shared.databases, table, batch).is_err());
    }
    drop((guard, stopped));
    writes.clear();
    batcher.group = writes;
    batcher.clock = Instant::now();
    if is_refused {
        batcher.key_writes.clear();
        batcher.events.clear();
        replies.rewind(mark);
        return None;
    }
    let (request, duration) = last?;
    // The write counts for the last command.
    let (args, duration) = (group.args(request, input), duration + (batcher.clock - time));
    record(shared, session, batcher, request.command, args, duration);
    events::publish(shared, batcher);
    serve::serve_ready_keys(shared, batcher);
    Some(request.end)
}

/// Counts a command, and reports it to observers that have come meanwhile.
fn record(
    shared: &Shared,
    session: &Session,
    batcher: &mut WriteBatcher,
    command: usize,
    args: Args<'_>,
    duration: Duration,
) {
    observe::observe(shared, session, &TABLE.index[command], args, duration);
    batcher.samples.add(TABLE.index.counter(command, args), 1, duration);
}

/// Runs the commands one by one. Returns the position behind the last one that has run.
fn run_alone(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
    group: &Lookahead,
    input: &[u8],
) -> usize {
    let mut end = 0;
    for request in group.requests() {
        execute(shared, session, replies, batcher, group.args(request, input));
        end = request.end;
        if session.is_closing || replies.len() > shared.options.soft_output_bytes() {
            break;
        }
    }
    end
}

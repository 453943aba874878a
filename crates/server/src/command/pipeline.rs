//! Runs commands of an event-loop iteration as groups, each with one write of the engine.
//!
//! The replies of an iteration are sent together, when all of its commands have run. So commands
//! on one key each, of one client or of several, share what would be paid for each of them: locks,
//! log record, commit, and the metadata of a collection that several of them change. They run like
//! those of EXEC, under the locks of all their keys and against the writes of the group.
//!
//! ```text
//!   client 7:  HSET a f 1 │ INCR b │ KEYS *       input
//!   client 9:  HSET a g 2                         input
//!              └── group ──────────┘ then alone
//!     lock a, b ─ run against the group's writes ─ one batch ─ unlock
//! ```
//!
//! A connection whose next command may be in a group [joins](join_group) one with those that follow
//! it, and waits. The worker [runs](run_group) groups that are full, and all when no connection has
//! other work; then their connections go on.
//!
//! Each command has its own outcome: one that fails changes nothing, and the others go on. If the
//! store refuses one of them or the batch, nothing is applied, and the commands run again one by
//! one, so that each gets its own error. Observers see each command alone, so there are no groups
//! while there are any.
//!
//! Reads have groups of their own, which share their locks with other reads. If reads have waited
//! for a device in the last iteration, those of strings are in groups, too, and a group starts the
//! reads of all its keys first. The commands of a connection end there before a read that has to
//! take expired fields out of a count. If it is the first one, they run one by one.
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
use crate::resp::lookahead::Lookahead;
use crate::resp::{Args, Limits, Replies};
use crate::shared::Shared;
use crate::store::Database;
use crate::store::command_groups::{CommandGroup, Part};
use crate::store::group_writes::GroupWrites;
use crate::store::write_batcher::WriteBatcher;

/// The connections of a worker.
pub(crate) trait Members {
    /// A connection that has joined a group.
    fn get(&mut self, connection: usize) -> Option<Member<'_>>;
}

/// A connection that has joined a group.
pub(crate) struct Member<'a> {
    pub(crate) session: &'a mut Session,
    pub(crate) replies: &'a mut Replies,
    /// Its input from the first command in the group on.
    pub(crate) input: &'a [u8],
}

/// Adds the command `args`, which ends at `end` of the input, and those that follow it to a group,
/// if they may be in one.
#[inline]
pub(crate) fn join_group(
    shared: &Shared,
    session: &mut Session,
    replies: &mut Replies,
    batcher: &mut WriteBatcher,
    (connection, input, end, args): (usize, &[u8], usize, Args<'_>),
    limits: &Limits,
) -> bool {
    if input[0] != b'*' {
        return false;
    }
    let Some(number) = TABLE.index.find(&args[0]) else { return false };
    if !TABLE.index.may_begin_group(number, args, batcher.waits_for_device)
        || !is_allowed(shared, session, batcher)
    {
        return false;
    }
    answer_batched_sets(shared, session, replies, batcher);
    let is_read_only = TABLE.index[number].has(READ);
    let command_of = |args: Args<'_>| {
        let number = args.get(0).and_then(|name| TABLE.index.find(name))?;
        let fits = !is_read_only || TABLE.index[number].has(READ);
        (fits && TABLE.index.may_join_group(number, args)).then_some(number)
    };
    let group = batcher.groups.open(session.table, is_read_only);
    let bounds = group.room();
    let requests = group.lookahead.collect((number, args, end), input, limits, bounds, command_of);
    let locks = &shared.databases[session.table].locks;
    for request in &group.lookahead.requests()[requests.clone()] {
        let key = group.lookahead.args(request, input).get(1).unwrap_or_default();
        locks.add(&mut group.stripes, key);
    }
    group.add_part(connection, requests);
    true
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

/// Runs the commands of a group, at least one of each connection that may still be in it.
pub(crate) fn run_group(
    shared: &Shared,
    batcher: &mut WriteBatcher,
    group: &mut CommandGroup,
    members: &mut impl Members,
) {
    batcher.clock = Instant::now();
    if group.lookahead.requests().len() > 1 {
        run_together(shared, batcher, group, members);
    }
    let CommandGroup { lookahead, parts, .. } = group;
    for part in parts.iter_mut().filter(|part| part.ran == 0) {
        let Some(Member { session, replies, input }) = members.get(part.connection) else {
            continue;
        };
        if !is_allowed(shared, session, batcher) {
            continue;
        }
        for request in &lookahead.requests()[part.requests.clone()] {
            execute(shared, session, replies, batcher, lookahead.args(request, input));
            part.end = request.end;
            if session.is_closing || replies.len() > shared.options.soft_output_bytes() {
                break;
            }
        }
    }
}

/// The store has refused a command of a group.
struct Refused;

/// Runs commands of the group as one batch. If the store refuses one of them or the batch, nothing
/// has happened.
fn run_together(
    shared: &Shared,
    batcher: &mut WriteBatcher,
    group: &mut CommandGroup,
    members: &mut impl Members,
) {
    let database = &shared.databases[group.table];
    let mut writes = std::mem::take(&mut batcher.group_writes);
    let guard = match group.is_read_only {
        true => database.locks.each_shared(&mut group.stripes),
        false => database.locks.each(&mut group.stripes),
    };
    writes.is_read_only = group.is_read_only;
    if group.is_read_only && batcher.waits_for_device {
        begin_reads(database, group, members);
    }
    let stopped = clock::stop();
    let mut durations = Vec::with_capacity(group.lookahead.requests().len());
    let CommandGroup { lookahead, parts, .. } = group;
    let ran = parts.iter_mut().try_for_each(|part| {
        let Some(member) = members.get(part.connection) else { return Ok(()) };
        run_part(shared, batcher, (lookahead, part), member, &mut writes, &mut durations)
    });
    stopped.resume();
    let batch = writes.finish();
    debug_assert!(batch.is_empty() || !group.is_read_only, "a read has written");
    let applied = ran.and_then(|()| match (batch.is_empty(), group.is_read_only) {
        (true, _) => Ok(()),
        (false, true) => Err(Refused),
        (false, false) => batcher.write(&shared.databases, group.table, batch).map_err(|_| Refused),
    });
    drop((guard, stopped));
    writes.clear();
    batcher.group_writes = writes;
    if applied.is_err() {
        batcher.key_writes.clear();
        batcher.events.clear();
        for part in parts.iter_mut().filter(|part| part.ran > 0) {
            if let Some(member) = members.get(part.connection) {
                member.replies.rewind(part.mark);
            }
            part.ran = 0;
        }
        return;
    }
    // The write counts for the last command.
    let now = Instant::now();
    if let Some(last) = durations.last_mut() {
        *last += now - batcher.clock;
    }
    batcher.clock = now;
    let mut durations = durations.into_iter();
    for part in parts {
        let Some(member) = members.get(part.connection) else { continue };
        let ran = lookahead.requests()[part.requests.clone()].iter().take(part.ran);
        for (request, duration) in ran.zip(&mut durations) {
            let (command, args) = (request.command, lookahead.args(request, member.input));
            // To observers that have come meanwhile.
            observe::observe(shared, member.session, &TABLE.index[command], args, duration);
            batcher.samples.add(TABLE.index.counter(command, args), 1, duration);
        }
    }
    events::publish(shared, batcher);
    serve::serve_ready_keys(shared, batcher);
}

/// Starts the reads of the strings and the metadata at the keys of a group from the device.
fn begin_reads(database: &Database, group: &CommandGroup, members: &mut impl Members) {
    let CommandGroup { lookahead, parts, .. } = group;
    let mut keys = Vec::with_capacity(lookahead.requests().len());
    for part in parts {
        let Some(member) = members.get(part.connection) else { continue };
        for request in &lookahead.requests()[part.requests.clone()] {
            let key = lookahead.args(request, member.input).get(1).unwrap_or_default();
            keys.push(database.stored_key(key).into_owned());
        }
    }
    keys.sort_unstable();
    keys.dedup();
    database.engine.begin_reads(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>());
}

/// Runs commands of one connection against the writes of the group, and measures each. The
/// batcher's clock is the time at which the last one ended.
fn run_part(
    shared: &Shared,
    batcher: &mut WriteBatcher,
    (lookahead, part): (&Lookahead, &mut Part),
    Member { session, replies, input }: Member<'_>,
    writes: &mut GroupWrites,
    durations: &mut Vec<Duration>,
) -> Result<(), Refused> {
    // Another command of the iteration may have changed that. The connection goes on by itself.
    if !is_allowed(shared, session, batcher) {
        return Ok(());
    }
    let requests = &lookahead.requests()[part.requests.clone()];
    part.mark = replies.mark();
    let is_read_only = writes.is_read_only;
    let handlers = &TABLE.handlers;
    let mut context = Context::new(shared, session, replies, batcher, &mut [], handlers);
    context.group = Some(writes);
    for request in requests {
        let (start, args) = (context.replies.mark(), lookahead.args(request, input));
        context.session.client().command.store(request.command as u16 + 1, Relaxed);
        let outcome = handlers[request.command](&mut context, args);
        match &outcome {
            Ok(()) => events::derive(context.batcher, &TABLE.index[request.command], args),
            Err(Failure::Store(_)) => {
                context.replies.rewind(start);
                // Reads that have run stay, and this one begins the connection's next part.
                return if is_read_only { Ok(()) } else { Err(Refused) };
            }
            Err(_) => {
                context.batcher.key_writes.clear();
                let counter = TABLE.index.counter(request.command, args);
                context.batcher.samples.add_error(counter, CallOutcome::Failed);
            }
        }
        answer(shared, context.session, context.replies, start, ReplyMode::On, outcome, false);
        let now = Instant::now();
        let duration = now - context.batcher.clock;
        durations.push(duration);
        if is_read_only {
            context.batcher.note_read(duration);
        }
        context.batcher.clock = now;
        (part.ran, part.end) = (part.ran + 1, request.end);
        // The others wait until these replies are sent.
        if context.replies.len() > shared.options.soft_output_bytes() {
            break;
        }
    }
    Ok(())
}

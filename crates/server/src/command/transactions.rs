//! MULTI, EXEC, WATCH.
//!
//! Commands between MULTI and EXEC are queued. EXEC locks every key that they name and that the
//! client watches, compares the watched keys with their state at WATCH, runs the commands against
//! overlays, and applies the writes as one batch: atomically, also across a power cut. All writes
//! must therefore be in one table; a transaction that writes to two is aborted.
//!
//! Every writer holds the lock of its key, so no other client writes to a key of the transaction
//! between its commands. Commands that name no keys (SCAN, KEYS, DBSIZE) may see concurrent writes,
//! each command at one point in time. The clock stands still: nothing expires in between.
//!
//! This is independent of optimistic transactions ([`siltstone::transaction`]), which do observe
//! these writes: Redis's EXEC reads the newest values and never needs a retry, WATCH may last for
//! days, and both also work on engines without versions. The overlay is shared code.
//!
//! As in Redis, a command that fails while running (INCR of a text) does not stop the others; only
//! an error of the store does, and a script that was aborted after a write.
//!
//! Source: the documentation of Redis's transactions.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use siltstone_engine::WriteBatch;
use siltstone_engine::clock::{self, StoppedClock};

use super::authorize::authorize_queued;
use super::context::Context;
use super::definition::{ALL_KEYS, FAST, IMMEDIATE, NO_KEYS, SCRIPT};
use super::entry::{self, Command};
use super::failure::{Failure, Outcome, reply_error};
use super::queued::QueuedCommand;
use super::session::{Transaction, WatchedKey};
use super::{events, observe, sort};
use crate::metrics::CallOutcome;
use crate::resp::{Args, number};
use crate::store::Overlay;
use crate::store::key_iter::{KeyIter, Start};
use crate::store::locks::Guard;

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, keys, handler, summary| {
        let flags = IMMEDIATE | FAST;
        entry::command("transactions", name, arity, flags, keys, handler, summary)
    };
    vec![
        command("multi", 1, NO_KEYS, multi, "Begins a transaction."),
        // As slow as what was queued.
        entry::command("transactions", "exec", 1, IMMEDIATE, NO_KEYS, exec, "Runs a transaction."),
        command("discard", 1, NO_KEYS, discard, "Discards a transaction."),
        command("watch", -2, ALL_KEYS, watch, "Makes EXEC fail if keys change."),
        // Queued like other commands: after MULTI, EXEC must still check the watches.
        entry::command(
            "transactions",
            "unwatch",
            1,
            FAST,
            NO_KEYS,
            unwatch,
            "Forgets watched keys.",
        ),
    ]
}

fn multi(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(reply_error("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Transaction::default());
    context.replies.ok();
    Ok(())
}

fn discard(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.transaction.take().ok_or(reply_error("ERR DISCARD without MULTI"))?;
    context.session.unwatch(context.shared);
    context.replies.ok();
    Ok(())
}

fn watch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(reply_error("ERR WATCH inside MULTI is not allowed"));
    }
    let table = context.session.table;
    // Both the session and the table store the key.
    let memory = |key: &[u8]| 2 * key.len() + size_of::<WatchedKey>();
    context.session.watched_bytes += args.from(1).iter().map(memory).sum::<usize>();
    if context.session.watched_bytes > context.shared.options.max_request_bytes {
        context.session.unwatch(context.shared);
        return Err(reply_error(
            "ERR the watched keys exceed the request limit, all watches were removed; watch fewer keys",
        ));
    }
    for key in args.from(1).iter() {
        // Watching a key twice adds two watches, which end together. The lock makes the existence
        // check and the watch atomic.
        let _guard = context.lock(key);
        let existed = context.exists(key)?;
        let version = context.database().watches.add(key);
        let watched = WatchedKey { table, key: key.to_vec(), version, existed };
        context.session.watched.push(watched);
        context.session.client().watches.fetch_add(1, Relaxed);
    }
    context.replies.ok();
    Ok(())
}

fn unwatch(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.unwatch(context.shared);
    context.replies.ok();
    Ok(())
}

fn exec(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    let transaction =
        context.session.transaction.take().ok_or(reply_error("ERR EXEC without MULTI"))?;
    if transaction.is_aborted {
        context.session.unwatch(context.shared);
        return Err(reply_error("EXECABORT Transaction discarded because of previous errors."));
    }
    let guards = lock_all(context, &transaction.commands);
    let stopped = clock::stop();
    let is_unchanged = watches_are_unchanged(context);
    context.session.unwatch(context.shared);
    if !is_unchanged? {
        context.replies.null_array();
        return Ok(());
    }
    run(context, &transaction.commands, &stopped)?;
    drop(guards);
    Ok(())
}

/// Locks all keys that are read, written or watched, table by table.
fn lock_all<'a>(context: &Context<'a>, commands: &[QueuedCommand]) -> Vec<Guard<'a>> {
    let databases = &context.shared.databases;
    let mut keys: Vec<Vec<&[u8]>> = vec![Vec::new(); databases.len()];
    for watched in &context.session.watched {
        keys[watched.table].push(&watched.key);
    }
    let mut table = context.session.table;
    // FLUSHDB and FLUSHALL lock the whole table.
    let mut is_whole = vec![false; databases.len()];
    for queued in commands {
        let command = &context.shared.commands[queued.command];
        match command.name {
            "flushall" => is_whole.fill(true),
            "flushdb" => is_whole[table] = true,
            "sort" | "sort_ro" if sort::reads_unnamed_keys(queued.args()) => {
                is_whole[table] = true;
            }
            // A script may use keys that it does not declare.
            _ if command.has(SCRIPT) => is_whole.fill(true),
            _ => {}
        }
        // A queued SELECT changes the table of the following commands.
        if command.name == "select" && context.shared.replication.is_none() {
            let index = number::parse_u64(&queued.args()[1]).and_then(|i| usize::try_from(i).ok());
            table = index.filter(|index| *index < databases.len()).unwrap_or(table);
        }
        keys[table].extend(command.keys_in(queued.args()));
    }
    let tables = databases.iter().zip(keys).zip(is_whole);
    tables
        .filter(|((_, keys), is_whole)| *is_whole || !keys.is_empty())
        .map(|((database, keys), is_whole)| match is_whole {
            true => database.locks.all(),
            false => database.locks.many(keys.into_iter()),
        })
        .collect()
}

/// Whether every watched key is unchanged since WATCH. A key that existed and has expired is
/// changed.
fn watches_are_unchanged(context: &Context<'_>) -> Result<bool, Failure> {
    for watched in &context.session.watched {
        let database = &context.shared.databases[watched.table];
        if database.watches.version(&watched.key) != watched.version
            || context.get_any_in(watched.table, &watched.key)?.is_some() != watched.existed
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs the commands against overlays and applies their writes.
fn run(context: &mut Context<'_>, commands: &[QueuedCommand], stopped: &StoppedClock) -> Outcome {
    let table_before = context.session.table;
    let databases = &context.shared.databases;
    let mut overlays: Vec<Overlay> = databases.iter().map(|_| Overlay::default()).collect();
    context.replies.array(commands.len());
    let mut inner = Context::new(
        context.shared,
        context.session,
        context.replies,
        context.batcher,
        &mut overlays,
        context.handlers,
    );
    let mut fault = None;
    for queued in commands {
        let mark = inner.replies.mark();
        let (command, args) = (&inner.shared.commands[queued.command], queued.args());
        inner.record_tracked_reads(command, args);
        let outcome = match authorize_queued(inner.shared, inner.session, queued.command, args) {
            Ok(()) => call(&mut inner, queued.command, args),
            Err(failure) => Err(failure),
        };
        observe::show(inner.shared, inner.session, command, args);
        observe::show_script_calls(inner.shared, inner.session);
        match outcome {
            Ok(()) => events::derive(inner.batcher, command, args),
            // The store could not read or rejects the write: nothing may be applied.
            Err(Failure::Store(error)) if !is_argument_error(&error) => {
                fault = Some(Failure::Store(error));
                break;
            }
            Err(failure @ Failure::Discard(_)) => {
                fault = Some(failure);
                break;
            }
            Err(failure) => {
                inner.batcher.key_writes.clear();
                inner.replies.rewind(mark);
                inner.replies.error(&failure.text());
                inner.shared.metrics.record_error(&failure.text());
            }
        }
        if inner.replies.has_overflowed() {
            // The client is disconnected and never learns the outcome, so nothing is applied.
            fault = Some(reply_error("ERR the replies exceed the output limit of a client"));
            break;
        }
    }
    stopped.resume();
    let outcome = match fault {
        None => apply(context, &overlays, "EXECABORT Transaction discarded"),
        Some(fault) => Err(fault),
    };
    if outcome.is_err() {
        context.batcher.events.clear();
        context.session.select_again(table_before);
    }
    outcome
}

/// Runs a queued command, and counts it.
fn call(context: &mut Context<'_>, command: usize, args: Args<'_>) -> Outcome {
    let began = Instant::now();
    let outcome = context.handlers[command](context, args);
    let counter = context.shared.commands.counter(command, args);
    if outcome.is_err() {
        context.batcher.samples.add_error(counter, CallOutcome::Failed);
    }
    context.batcher.samples.add(counter, 1, began.elapsed());
    outcome
}

/// Whether an error concerns the command's own arguments, which changes nothing.
fn is_argument_error(error: &siltstone_engine::Error) -> bool {
    use siltstone_engine::Error::{TooLarge, Unsupported};
    matches!(error, TooLarge { .. } | Unsupported { .. })
}

/// Applies the writes of a transaction as one batch. `refusal` is how its errors begin.
pub(super) fn apply(context: &mut Context<'_>, overlays: &[Overlay], refusal: &str) -> Outcome {
    let mut written = None;
    for (table, overlay) in overlays.iter().enumerate().filter(|(_, it)| !it.is_empty()) {
        let batch = match overlay.is_cleared() {
            true => batch_after_clear(context, table, overlay, refusal)?,
            false => overlay.to_batch(),
        };
        if batch.is_empty() {
            continue;
        }
        if written.replace((table, batch)).is_some() {
            return Err(format!(
                "{refusal} because it writes to two tables; use one transaction per table"
            )
            .into());
        }
    }
    let Some((table, batch)) = written else { return Ok(()) };
    Ok(context.batcher.write(&context.shared.databases, table, &batch)?)
}

/// Batch of a transaction that removed all keys: a removal of each existing key, then the later
/// writes. The caller holds all locks of the table.
fn batch_after_clear(
    context: &Context<'_>,
    table: usize,
    overlay: &Overlay,
    refusal: &str,
) -> Result<WriteBatch, Failure> {
    let limit = context.shared.options.max_request_bytes;
    let database = &context.shared.databases[table];
    let mut iter = KeyIter::new(database, None, &Start::Key(Vec::new()), context.now())?;
    let mut batch = WriteBatch::new();
    // The elements of collections are dead without their metadata.
    while let Some(key) = iter.next()? {
        batch.delete(&database.stored_key(key));
        if batch.as_bytes().len() > limit {
            return Err(Failure::Text(
                format!(
                    "{refusal} because the keys that FLUSHALL or FLUSHDB would \
                     remove exceed the transaction limit of {limit} bytes; run it outside of MULTI"
                )
                .into(),
            ));
        }
    }
    batch.append(&overlay.to_batch());
    Ok(batch)
}

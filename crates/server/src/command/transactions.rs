//! MULTI, EXEC, WATCH.
//!
//! Commands between MULTI and EXEC are queued. EXEC takes the locks of every key that they name and
//! that the client watches, compares the watched keys with what they were at WATCH, runs the
//! commands against overlays, and applies the writes as one batch: all or none, also after a power
//! cut. For that they must all be of one table; a transaction that wrote to two is refused whole.
//!
//! Since whoever writes a key holds its lock, nobody writes to a key of the transaction between its
//! commands: two EXECs that have a key in common come one after the other. Only commands that name no
//! keys (SCAN, KEYS, DBSIZE) may see what others wrote meanwhile, each command one moment of the table.
//!
//! This is not the optimistic layer below ([`siltstone::transaction`]), though that hears of these
//! writes: Redis's EXEC reads what is newest and never has to be run again, WATCH may stand for days,
//! and tables that keep no versions have both, too. What the two have in common is the overlay.
//!
//! As in Redis, a command that fails while running (INCR of a text) does not stop the others; only
//! a fault of the store does.
//!
//! Source: the documentation of Redis's transactions.

use siltstone_engine::WriteBatch;

use super::failure::{self, Failure, words};
use super::session::{Queued, Transaction, Watched};
use super::{ALL_KEYS, AT_ONCE, Command, Context, FAST, NO_KEYS, Outcome, execute::run_queued};
use crate::resp::{Args, number};
use crate::store::Overlay;
use crate::store::locks::Guard;
use crate::store::walk::{Start, Walk};

pub(super) fn commands() -> Vec<Command> {
    let command = |name, arity, keys, handler, summary| {
        let flags = AT_ONCE | FAST;
        super::command("transactions", name, arity, flags, keys, handler, summary)
    };
    vec![
        command("multi", 1, NO_KEYS, multi, "Begins a transaction."),
        command("exec", 1, NO_KEYS, exec, "Runs a transaction."),
        command("discard", 1, NO_KEYS, discard, "Forgets a transaction."),
        command("watch", -2, ALL_KEYS, watch, "Lets EXEC fail if keys change."),
        // Queued like any: whoever sent it between MULTI and EXEC is still promised that EXEC looks.
        super::command(
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
        return Err(words("ERR MULTI calls can not be nested"));
    }
    context.session.transaction = Some(Transaction::default());
    context.replies.ok();
    Ok(())
}

fn discard(context: &mut Context<'_>, _args: Args<'_>) -> Outcome {
    context.session.transaction.take().ok_or(words("ERR DISCARD without MULTI"))?;
    context.session.unwatch(context.shared);
    context.replies.ok();
    Ok(())
}

fn watch(context: &mut Context<'_>, args: Args<'_>) -> Outcome {
    if context.session.transaction.is_some() {
        return Err(words("ERR WATCH inside MULTI is not allowed"));
    }
    let table = context.session.table;
    // The session holds a key, and so does the table.
    let held = |key: &[u8]| 2 * key.len() + size_of::<Watched>();
    context.session.watched_bytes += args.from(1).iter().map(held).sum::<usize>();
    if context.session.watched_bytes > context.shared.options.max_request_bytes {
        context.session.unwatch(context.shared);
        return Err(words(
            "ERR the watched keys were over the limit of a request and none is watched now; watch fewer",
        ));
    }
    for key in args.from(1).iter() {
        // Twice the same key is two watches, which end together. Under the lock no write falls between the look and the watch.
        let _guard = context.lock(key);
        let existed = context.exists(key)?;
        let version = context.database().watches.add(key);
        let watched = Watched { table, key: key.to_vec(), version, existed };
        context.session.watched.push(watched);
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
    let transaction = context.session.transaction.take().ok_or(words("ERR EXEC without MULTI"))?;
    if transaction.is_broken {
        context.session.unwatch(context.shared);
        return Err(words("EXECABORT Transaction discarded because of previous errors."));
    }
    let guards = lock_all(context, &transaction.commands);
    let is_fresh = watched_are_fresh(context);
    context.session.unwatch(context.shared);
    if !is_fresh? {
        context.replies.null_array();
        return Ok(());
    }
    run(context, &transaction.commands)?;
    drop(guards);
    Ok(())
}

/// Takes the locks of all keys that are read, written or watched, table by table.
fn lock_all<'a>(context: &Context<'a>, commands: &[Queued]) -> Vec<Guard<'a>> {
    let databases = &context.shared.databases;
    let mut keys: Vec<Vec<&[u8]>> = vec![Vec::new(); databases.len()];
    for watched in &context.session.watched {
        keys[watched.table].push(&watched.key);
    }
    let mut table = context.session.table;
    // FLUSHDB and FLUSHALL are about every key.
    let mut is_whole = vec![false; databases.len()];
    for queued in commands {
        match queued.command.name {
            "flushall" => is_whole.fill(true),
            "flushdb" => is_whole[table] = true,
            _ => {}
        }
        // A SELECT in the queue moves what follows it to another table.
        if queued.command.name == "select" {
            let index = number::parse_u64(&queued.args()[1]).and_then(|i| usize::try_from(i).ok());
            table = index.filter(|index| *index < databases.len()).unwrap_or(table);
        }
        keys[table].extend(queued.command.keys_in(queued.args()));
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

/// Whether every watched key is as it was at WATCH. A key that was there and has expired is not.
fn watched_are_fresh(context: &Context<'_>) -> Result<bool, Failure> {
    for watched in &context.session.watched {
        let database = &context.shared.databases[watched.table];
        if database.watches.version(&watched.key) != watched.version
            || context.get_in(watched.table, &watched.key)?.is_some() != watched.existed
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Runs the commands against overlays and applies what they wrote.
fn run(context: &mut Context<'_>, commands: &[Queued]) -> Outcome {
    let table_before = context.session.table;
    let databases = &context.shared.databases;
    let mut overlays: Vec<Overlay> = databases.iter().map(|_| Overlay::default()).collect();
    context.replies.array(commands.len());
    let mut inner =
        Context::new(context.shared, context.session, context.replies, context.turn, &mut overlays);
    let mut fault = None;
    for queued in commands {
        let mark = inner.replies.mark();
        match run_queued(&mut inner, queued) {
            Ok(()) => {}
            // What the store could not read or will not take: nothing of this may be applied.
            Err(Failure::Store(error)) if !is_refusal(&error) => {
                fault = Some(Failure::Store(error));
                break;
            }
            Err(failure) => {
                inner.replies.rewind(mark);
                inner.replies.error(&failure.text());
            }
        }
        if inner.replies.has_overflowed() {
            // The client is cut off and never learns what became of it: let it be nothing.
            fault = Some(words("ERR the replies are over the limit of a client's output"));
            break;
        }
    }
    let outcome = match fault {
        None => apply(context, &overlays),
        Some(fault) => Err(fault),
    };
    if outcome.is_err() {
        context.session.select(table_before);
    }
    outcome
}

/// Whether an error is about the command's own arguments, which changes nothing.
fn is_refusal(error: &siltstone_engine::Error) -> bool {
    use siltstone_engine::Error::{EmptyKey, TooLarge, Unsupported};
    matches!(error, EmptyKey | TooLarge { .. } | Unsupported { .. })
}

/// Writes what a transaction wrote, as one batch.
fn apply(context: &mut Context<'_>, overlays: &[Overlay]) -> Outcome {
    let mut written = None;
    for (table, overlay) in overlays.iter().enumerate() {
        let batch = match overlay.is_cleared() {
            true => batch_after_clear(context, table, overlay)?,
            false => overlay.to_batch(),
        };
        if batch.is_empty() {
            continue;
        }
        if written.replace((table, batch)).is_some() {
            return Err(failure::words(
                "EXECABORT Transaction discarded because it writes to two tables; use one a table",
            ));
        }
    }
    let Some((table, batch)) = written else { return Ok(()) };
    Ok(context.turn.write(&context.shared.databases, table, &batch)?)
}

/// The writes of a transaction that removed all keys: the removal of each that is there, then what
/// was written behind that. The caller holds all locks of the table.
fn batch_after_clear(
    context: &Context<'_>,
    table: usize,
    overlay: &Overlay,
) -> Result<WriteBatch, Failure> {
    let limit = context.shared.options.max_request_bytes;
    let database = &context.shared.databases[table];
    let mut walk = Walk::new(database, None, &Start::Key(Vec::new()), context.now())?;
    let mut batch = WriteBatch::new();
    while let Some(key) = walk.next()? {
        batch.delete(key);
        if batch.as_bytes().len() > limit {
            return Err(Failure::Words(
                format!(
                    "EXECABORT Transaction discarded because the keys that FLUSHALL or FLUSHDB is to \
                     remove take more than the {limit} bytes of a transaction; run it outside of MULTI"
                )
                .into(),
            ));
        }
    }
    batch.append(&overlay.to_batch());
    Ok(batch)
}
